"""What a file holds, told from the ending of its name."""

from collections.abc import Iterable
from pathlib import Path

WRITTEN = (".csv", ".tsv", ".jsonl")  # the tables that are also written here
TABLES = (*WRITTEN, ".parquet")


# Of other programs: how to make a table of it.
OTHERS = {
    **dict.fromkeys((".xlsx", ".xls", ".ods"), "save its sheet as .csv"),
    ".json": "write one object a line and call it .jsonl",
    ".gz": "unpack it first, with gunzip",
    ".zip": "unpack it first",
    ".txt": "give it a line with the names of its columns, and call it .csv or .tsv",
}


def is_table(path: Path) -> bool:
    return path.suffix.lower() in TABLES


def either(endings: Iterable[str]) -> str:
    """The endings in a sentence."""
    *others, last = endings
    return f"{', '.join(others)} or {last}"
