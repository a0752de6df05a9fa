"""Train a translator from English to German, whose verbs come last, and see where it looked.

python examples/train_translator.py
"""

import tempfile
from pathlib import Path

from learn import learn

import qkv
from qkv.data import built_in

NEW = ["He called 5 minutes ago.", "The meeting ended 12 days ago."]


def main() -> None:
    folder = Path(tempfile.mkdtemp())
    past = [pair for pair in built_in("translate") if pair.source.endswith(" ago.")]
    rows = "".join(f"{pair.source}\t{pair.target}\n" for pair in past)
    (folder / "past.tsv").write_text(f"source\ttarget\n{rows}", encoding="utf-8")

    learn("translate", folder / "past.tsv", folder / "model", 120, batch=1024)

    for answer in qkv.load(folder / "model").translate(NEW, beams=4, alignment=True):
        print(f"{answer.source} → {answer.text}  (score {answer.score:.2f})")
        for link in (answer.alignment or ())[:8]:
            print(f"    {link.target.text:<12} looked at {link.source.text:<12} {link.weight:.2f}")


if __name__ == "__main__":
    main()
