"""How well the sentiment of 6,920 sentences is learnt from nothing else, beside a bag of words.

    python bench/classify_sst2.py PATH/TO/sst2

Three seeds. First an encoder learns hidden words of the training sentences (their labels unseen),
then their labels; dev.tsv is watched and test.tsv is judged once. `plain` does without the first
part. Prints a table and one JSON line.
"""

import csv
import json
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

from machine import machine
from training import learn

from qkv.bundle import Bundle
from qkv.data import read_labelled
from qkv.train.job.classify import judge_labels
from qkv.train.plan import Wish
from qkv.train.recipe import Data
from qkv.train.settings import read_settings

SEEDS = (0, 1, 2)
ENCODER = ("model.layers=1", "model.feed_forward.width=256")
LABELS = ("patience=0", "average=0.99", "model.dropout=0.3", "optimiser.rate=0.003")


def main(folder: Path) -> None:
    train, test = (read_labelled([folder / f"{part}.tsv"], "1", "2") for part in ("train", "test"))

    def judge(bundle: Bundle) -> dict[str, float]:
        judged = judge_labels(bundle.model, bundle.tokenizer, test, train)  # type: ignore[arg-type]
        return {"accuracy": judged.scores["accuracy"], "bag_of_words": judged.baseline["accuracy"]}

    data = Data(
        files=(str(folder / "train.tsv"),),
        validation=(str(folder / "dev.tsv"),),
        text="1",
        label="2",
    )
    before, rows = machine(), list[dict[str, Any]]()
    with tempfile.TemporaryDirectory() as place:
        sentences = Path(place) / "sentences.csv"
        with sentences.open("w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([["text"], *([example.text] for example in train)])
        for seed in SEEDS:
            encoder = Path(place) / f"encoder-{seed}"
            hidden = Wish(
                "masked", Data(files=(str(sentences),), text="text"), tokenizer="wordpiece",
                vocabulary=10_000, context=64, batch=1024, epochs=40, seed=seed,
                settings=read_settings(ENCODER),
            )  # fmt: skip
            first = learn(hidden, keep=encoder)
            labels = Wish(
                "classify", data, origin=encoder, epochs=4, seed=seed,
                settings=read_settings(LABELS),
            )  # fmt: skip
            second = learn(labels, then=judge)
            plain = learn(Wish("classify", data, size="tiny", seed=seed), then=judge)
            rows.append({"seed": seed, "hidden_words": first, "labels": second, "plain": plain})
    result = {
        "bench": "classify_sst2",
        "accuracy": statistics.mean(row["labels"]["then"]["accuracy"] for row in rows),
        "plain": statistics.mean(row["plain"]["then"]["accuracy"] for row in rows),
        "bag_of_words": rows[0]["labels"]["then"]["bag_of_words"],
        "runs": rows,
        **before,
    }
    for name in ("accuracy", "plain", "bag_of_words"):
        print(f"{name:>14} {result[name]:.4f}")
    print(json.dumps(result))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
