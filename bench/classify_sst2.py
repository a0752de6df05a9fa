"""How well the sentiment of 6,920 sentences is learnt from nothing else, beside a bag of words.

    python bench/classify_sst2.py PATH/TO/sst2

Three seeds. `taught` learns the labels and what counting words, in the training sentences only,
says of them and of texts spliced from them; `plain` is the default, without a teacher. dev.tsv is
watched and test.tsv is judged once. Prints a table and one JSON line.
"""

import json
import statistics
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from machine import machine
from qkv.bundle import Bundle
from qkv.data import read_labelled
from qkv.training.prepare import TrainArgs
from qkv.training.recipe import read_settings
from qkv.training.tasks import DataConfig
from qkv.training.tasks.classify import evaluate_labels
from training import learn

SEEDS = (0, 1, 2)
TAUGHT = (
    "model.layers=1",
    "model.feed_forward.width=128",
    "model.norm.eps=1",  # a word that is hardly known, and small, stays small
    "model.dropout=0.1",
    "task.balance=0",
    "task.distillation_weight=0.5",
    "task.cutmix=2",
    "patience=0",
)


def main(folder: Path) -> None:
    train, test = (read_labelled([folder / f"{part}.tsv"], "1", "2") for part in ("train", "test"))

    def judge(bundle: Bundle) -> dict[str, float]:
        judged = evaluate_labels(bundle.model, bundle.tokenizer, test, train)  # type: ignore[arg-type]
        return {"accuracy": judged.scores["accuracy"], "bag_of_words": judged.baseline["accuracy"]}

    data = DataConfig(
        files=(str(folder / "train.tsv"),),
        validation=(str(folder / "dev.tsv"),),
        text="1",
        label="2",
    )
    before, rows = machine(), list[dict[str, Any]]()
    for seed in SEEDS:
        settings = read_settings(TAUGHT)
        args = TrainArgs("classify", data, size="tiny", vocab_size=16_000, epochs=5, seed=seed)
        taught = learn(replace(args, settings=settings), then=judge)
        plain = learn(TrainArgs("classify", data, size="tiny", seed=seed), then=judge)
        rows.append({"seed": seed, "taught": taught, "plain": plain})
    result = {
        "bench": "classify_sst2",
        "taught": statistics.mean(row["taught"]["then"]["accuracy"] for row in rows),
        "plain": statistics.mean(row["plain"]["then"]["accuracy"] for row in rows),
        "bag_of_words": rows[0]["taught"]["then"]["bag_of_words"],
        "settings": TAUGHT,
        "runs": rows,
        **before,
    }
    for name in ("taught", "plain", "bag_of_words"):
        print(f"{name:>14} {result[name]:.4f}")
    print(json.dumps(result))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
