"""How well Shakespeare's letters are learnt: in 2,000 small steps, and in three minutes.

    python bench/language_characters.py PATH/TO/tinyshakespeare/input.txt

The first 90 % of the text are learnt from; the loss is over all of the last 10 %, each letter
predicted once. `whole` has 0.8 M parameters, a context of 64 and 768 tokens a step; `short` shows
how soon the loss of nanoGPT's own recipe for a CPU is reached (1.909 after 75 s of steps, measured
on two such cores); `three_minutes` is free in its shape. Prints a table and one JSON line.
"""

import json
import sys
from pathlib import Path

from machine import machine
from qkv.training.prepare import TrainArgs
from qkv.training.recipe import read_settings
from qkv.training.tasks import DataConfig
from training import learn

FREE = ()


def main(path: Path) -> None:
    data = DataConfig(files=(str(path),))

    def small(steps: int) -> TrainArgs:
        return TrainArgs(
            "language", data, tokenizer="characters", context_length=64, batch=12 * 64, steps=steps
        )

    before = machine()
    free = TrainArgs("language", data, tokenizer="characters", settings=read_settings(FREE))
    result = {
        "bench": "language_characters",
        "whole": learn(small(2000)),
        "short": learn(small(400)),
        "three_minutes": learn(free, minutes=3),
        "reference": {"held_out_loss": 1.909, "seconds_of_steps": 75},  # nanoGPT's CPU recipe
        **before,
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
