"""Streams, counts, parts and encodes the file named, and prints how much memory that took."""

import re
import sys
from pathlib import Path

from qkv.data import Documents, encode, split_documents
from qkv.text import Tokenizer


def peak() -> int:
    """The most memory this process ever had, in bytes."""
    status = Path("/proc/self/status").read_text()
    match = re.search(r"VmHWM:\s+(\d+) kB", status)
    assert match
    return int(match[1]) * 1024


if __name__ == "__main__":
    corpus, cache = map(Path, sys.argv[1:])
    tokenizer = Tokenizer.train("bytes", ["warm"], 300)
    tokenizer.encode("warm")
    before = peak()
    documents = Documents([corpus])
    train, validation = split_documents(documents, fraction=0.25, seed=3)
    tokens = sum(
        len(encode(side, tokenizer, side.key, folder=cache).ids) for side in (train, validation)
    )
    print(documents.documents, documents.characters, tokens, peak() - before)
