"""Let a language model write: greedily, freely, several answers at once.

    python examples/generate.py [DIRECTORY]

Without a directory a model of two letters' memory is made here: it has learnt to count on.
"""

import sys
import tempfile
from pathlib import Path

from learn import learn

import qkv


def counting() -> Path:
    """A model that was trained on numbers in order: 10 11 12 …"""
    folder = Path(tempfile.mkdtemp())
    (folder / "numbers.txt").write_text(" ".join(map(str, range(10, 1000))), encoding="utf-8")
    options = {"tokenizer": "characters", "context_length": 64, "batch": 1024}
    learn("language", folder / "numbers.txt", folder / "model", 120, **options)
    return folder / "model"


def main() -> None:
    model = qkv.load(sys.argv[1] if len(sys.argv) > 1 else counting())
    for token in model.generate("341 342 ", max_tokens=24, temperature=0):
        print(token.text, end="", flush=True)  # as it is written
    print()
    prompts = ["120 ", "77 78 "]
    for answer in model.generate_many(prompts, max_tokens=16, temperature=1.0, top_p=0.9, seed=3):
        print(f"{answer.text!r}, stopped by {answer.stop_reason}")


if __name__ == "__main__":
    main()
