"""What a public sentence encoder, all-MiniLM-L6-v2, becomes after a few minutes of fine-tuning.

    python bench/finetune_minilm.py PATH/TO/data [sst2 trec banking77 stsb few]

Labels of SST-2, TREC and banking77, similarities of STS-B, and eight examples a label of
banking77 (`few`), each with `qkv train`'s defaults but for what SETTINGS says. Each test part is
judged once, beside TF-IDF with logistic regression, or beside the encoder as it was. Prints a
table and one JSON line.
"""

import csv
import json
import random
import sys
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Any

from minilm import minilm

from machine import machine
from qkv.bundle import Bundle
from qkv.data import read_labelled
from qkv.training.prepare import TrainArgs
from qkv.training.recipe import read_settings
from qkv.training.tasks import DataConfig, find_task
from qkv.training.tasks.classify import evaluate_labels
from training import learn

MINUTES = {"sst2": 4.7}  # as asked; the others take as many epochs as the job does by itself
SETTINGS: dict[str, tuple[str, ...]] = {}
EPOCHS = {"stsb": 4, "trec": 6, "banking77": 8, "few": 30}
FEW = 8


def trec(folder: Path, part: str, output_dir: Path) -> Path:
    """The file as a table; one of its lines is not UTF-8."""
    lines = (folder / "trec" / f"TREC.{part}.all").read_text("latin-1").split("\n")
    path = output_dir / f"trec-{part}.csv"
    rows = [line.partition(" ")[::2] for line in lines if line.strip()]
    return _written(path, rows)


def few(folder: Path, output_dir: Path) -> Path:
    """Eight examples of each label, drawn once."""
    by_label = defaultdict(list)
    for example in read_labelled([folder / "banking77/train.csv"]):
        by_label[example.label].append(example.text)
    draw = random.Random(0)
    rows = [(label, t) for label, texts in by_label.items() for t in draw.sample(texts, FEW)]
    return _written(output_dir / "few.csv", rows)


def _written(path: Path, rows: list[tuple[str, ...]]) -> Path:
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("label", "text"), *rows])
    return path


def parts(name: str, folder: Path, output_dir: Path) -> tuple[DataConfig, Path]:
    """What to learn from, and the file to be judged on."""
    if name == "trec":
        return DataConfig(files=(str(trec(folder, "train", output_dir)),)), trec(
            folder, "test", output_dir
        )
    if name in ("banking77", "few"):
        train = folder / "banking77/train.csv" if name == "banking77" else few(folder, output_dir)
        return DataConfig(files=(str(train),)), folder / "banking77/test.csv"
    columns = {"source": "1", "target": "2", "score": "3"} if name == "stsb" else {}
    ending = "csv" if name == "stsb" else "tsv"
    train, dev, test = (folder / name / f"{part}.{ending}" for part in ("train", "dev", "test"))
    return DataConfig(files=(str(train),), validation=(str(dev),), **columns), test


def judge(name: str, data: DataConfig, test: Path, bundle: Bundle) -> dict[str, float]:
    if name == "stsb":
        config = data.model_copy(update={"files": (str(test),), "validation": ()})
        as_it_was = find_task("embed").evaluate(Bundle.load(minilm()), config, None)
        result = find_task("embed").evaluate(bundle, config, None)
        return {**result.scores, "untouched": as_it_was.scores["spearman"]}
    learnt = read_labelled([Path(file) for file in data.files])
    result = evaluate_labels(bundle.model, bundle.tokenizer, read_labelled([test]), learnt)  # type: ignore[arg-type]
    return {**result.scores, "bag_of_words": result.baseline["accuracy"]}


def main(folder: Path, names: list[str]) -> None:
    before, rows = machine(), dict[str, Any]()
    with tempfile.TemporaryDirectory() as output_dir:
        for name in names:
            data, test = parts(name, folder, Path(output_dir))
            args = TrainArgs(
                "embed" if name == "stsb" else "classify", data, origin=minilm(),
                epochs=None if name in MINUTES else EPOCHS[name],
                settings=read_settings(SETTINGS.get(name, ())),
            )  # fmt: skip
            rows[name] = learn(
                args,
                MINUTES.get(name),
                then=lambda bundle, n=name, d=data, t=test: judge(n, d, t, bundle),  # type: ignore[misc]
            )
    for name, row in rows.items():
        scores = "  ".join(f"{metric} {value:.4f}" for metric, value in row["then"].items())
        print(f"{name:<10} {row['seconds']:6.0f} s  {scores}")
    print(json.dumps({"bench": "finetune_minilm", "rows": rows, **before}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:] or ["sst2", "trec", "banking77", "stsb", "few"])
