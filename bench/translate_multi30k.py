"""How well English captions are put into German after so many minutes on this machine.

    python bench/translate_multi30k.py PATH/TO/multi30k --minutes 20

Learns from train.en and train.de alone, watches val, and is judged once on test_2016: sacreBLEU,
cased, detokenised, 13a, beam 5. Prints a table and one JSON line.
"""

import argparse
import json
from pathlib import Path
from typing import Any

from machine import machine
from training import learn

from qkv.bundle import Bundle
from qkv.train.job import find_job
from qkv.train.plan import Wish
from qkv.train.recipe import Data
from qkv.train.settings import read_settings


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("data", type=Path)
    parser.add_argument("--minutes", type=float, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--size", default="small")
    parser.add_argument("--set", action="append", default=[])
    parser.add_argument("--keep", type=Path, help="a place for the bundle")
    asked = parser.parse_args()

    def side(part: str, language: str) -> str:
        return str(asked.data / f"{part}.{language}")

    def judge(bundle: Bundle) -> dict[str, Any]:
        test = Data(source=side("test_2016", "en"), target=side("test_2016", "de"))
        judged = find_job("translate").judge(bundle, test, None)
        return {**judged.scores, "signature": judged.signatures["bleu"]}

    data = Data(
        source=side("train", "en"),
        target=side("train", "de"),
        validation=(side("val", "en"), side("val", "de")),
    )
    before = machine()
    wish = Wish(
        "translate", data, size=asked.size, seed=asked.seed, settings=read_settings(asked.set)
    )
    result = {
        "bench": "translate_multi30k",
        "minutes": asked.minutes,
        "settings": asked.set,
        **learn(wish, asked.minutes, judge, asked.keep),
        **before,
    }
    print(f"test_2016: BLEU {result['then']['bleu']:.2f}, chrF {result['then']['chrf']:.2f}")
    print(json.dumps(result))


if __name__ == "__main__":
    main()
