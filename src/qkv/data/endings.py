"""What a file holds, told from the ending of its name."""

from collections.abc import Iterable
from pathlib import Path

WRITTEN = (".csv", ".tsv", ".jsonl")  # the tables that are also written here
TABLES = (*WRITTEN, ".parquet")


def is_table(path: Path) -> bool:
    return path.suffix.lower() in TABLES


def either(endings: Iterable[str]) -> str:
    """The endings in a sentence."""
    *others, last = endings
    return f"{', '.join(others)} or {last}"
