"""Train a classifier on a table of reviews, and ask it about sentences it has not seen.

    python examples/train_classifier.py

It must learn that "hardly" and "not" turn an opinion round, which counting words cannot.
"""

import tempfile
from pathlib import Path

from learn import learn

import qkv
from qkv.data import built_in

NEW = ["The music was truly wonderful.", "The music was not wonderful.", "I hardly liked the end."]


def main() -> None:
    folder = Path(tempfile.mkdtemp())
    short = [review for review in built_in("classify") if len(review.text) < 60][:1500]
    rows = "".join(f"{review.text}\t{review.label}\n" for review in short)
    (folder / "reviews.tsv").write_text(f"text\tlabel\n{rows}", encoding="utf-8")

    no_dropout = {"model": {"encoder": {"dropout": 0.0}}}
    learn("classify", folder / "reviews.tsv", folder / "model", 120, batch=512, settings=no_dropout)

    for answer in qkv.load(folder / "model").classify(NEW):
        print(f"{answer.label} {answer.probabilities[answer.label]:.2f}  {answer.text}")


if __name__ == "__main__":
    main()
