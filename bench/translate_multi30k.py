"""How well English captions are put into German after so many minutes on this machine.

    python bench/translate_multi30k.py PATH/TO/multi30k --minutes 20

Learns from train.en and train.de alone, watches val, and is judged once on test_2016: sacreBLEU,
cased, detokenised, 13a, beam 5. Prints a table and one JSON line.

With --both-ways the first so many of the minutes go to both directions at once, and the rest to
English-German alone, from there on (Ding et al. 2021, bidirectional training).
"""

import argparse
import json
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from machine import machine
from qkv.bundle import Bundle
from qkv.training.prepare import TrainArgs
from qkv.training.recipe import read_settings
from qkv.training.tasks import DataConfig, find_task
from training import learn


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("data", type=Path)
    parser.add_argument("--minutes", type=float, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--size", default="small")
    parser.add_argument("--set", action="append", default=[])
    parser.add_argument("--both-ways", type=float, default=0, help="minutes for both directions")
    parser.add_argument("--first", action="append", default=[], help="--set, for these minutes")
    parser.add_argument("--then", action="append", default=[], help="--set, for the others")
    parser.add_argument("--keep", type=Path, help="a place for the bundle")
    options = parser.parse_args()

    def side(part: str, language: str) -> str:
        return str(options.data / f"{part}.{language}")

    def judge(bundle: Bundle) -> dict[str, Any]:
        test = DataConfig(source=side("test_2016", "en"), target=side("test_2016", "de"))
        judged = find_task("translate").evaluate(bundle, test, None)
        return {**judged.scores, "signature": judged.signatures["bleu"]}

    data = DataConfig(
        source=side("train", "en"),
        target=side("train", "de"),
        validation=(side("val", "en"), side("val", "de")),
    )
    before = machine()

    def args(settings: list[str], data: DataConfig = data) -> TrainArgs:
        values = read_settings([*options.set, *settings])
        return TrainArgs("translate", data, size=options.size, seed=options.seed, settings=values)

    with tempfile.TemporaryDirectory() as folder:
        results = dict[str, Any]()
        last, minutes = args(options.then), options.minutes - options.both_ways
        if options.both_ways:
            both = args(options.first, data.model_copy(update={"bidirectional": True}))
            results["bidirectional"] = learn(both, options.both_ways, keep=Path(folder))
            last = replace(last, origin=Path(folder), size=None, optimizer="muon")
        result = {
            "bench": "translate_multi30k",
            "minutes": options.minutes,
            "settings": [*options.set, *options.then],
            "settings_both_ways": [*options.set, *options.first] if options.both_ways else None,
            **results,
            **learn(last, minutes, judge, options.keep),
            **before,
        }
    print(f"test_2016: BLEU {result['then']['bleu']:.2f}, chrF {result['then']['chrf']:.2f}")
    print(json.dumps(result))


if __name__ == "__main__":
    main()
