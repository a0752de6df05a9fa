"""Streams, counts, parts and encodes the file named, and prints how much memory that took."""

import re
import sys
from pathlib import Path

from qkv.data import Documents, encode, split_documents
from qkv.text import Tokenizer


def peak() -> int:
    """The most memory this process ever had, in bytes."""
    status = Path("/proc/self/status").read_text()
    found = re.search(r"VmHWM:\s+(\d+) kB", status)
    assert found
    return int(found[1]) * 1024


if __name__ == "__main__":
    corpus, cache = map(Path, sys.argv[1:])
    tokenizer = Tokenizer.train("bytes", ["warm"], 300)
    tokenizer.encode("warm")
    before = peak()
    documents = Documents([corpus])
    training, held_out = split_documents(documents, fraction=0.25, seed=3)
    tokens = sum(
        len(encode(side, tokenizer, side.key, folder=cache).ids) for side in (training, held_out)
    )
    print(documents.documents, documents.characters, tokens, peak() - before)
