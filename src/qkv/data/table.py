"""A table of examples: the asked columns of a .csv, .tsv or .jsonl file, row by row."""

from collections.abc import Iterator
from pathlib import Path

from qkv.data.columns import Asked, choose_columns
from qkv.data.delimited import read_delimited
from qkv.data.json_lines import read_json_lines
from qkv.errors import DataError

TABLES = (".csv", ".tsv", ".jsonl")


def is_table(path: Path) -> bool:
    return path.suffix.lower() in TABLES


def read_table(path: Path, asked: Asked) -> list[tuple[str, ...]]:
    """One tuple a row, with a value that is not blank for each role, in their order."""
    if not is_table(path):
        raise DataError(f"cannot read {path} as a table; that needs .csv, .tsv or .jsonl")
    rows = read_json_lines(path, asked) if path.suffix.lower() == ".jsonl" else _cells(path, asked)
    table = []
    for line, values in rows:
        for role, value in zip(asked, values, strict=True):
            if not value.strip():
                needed = " and ".join(asked)
                raise DataError(f"{path} line {line}: {role} is empty; every row needs {needed}")
        table.append(values)
    if not table:
        raise DataError(f"{path} is empty; it holds no rows")
    return table


def _cells(path: Path, asked: Asked) -> Iterator[tuple[int, tuple[str, ...]]]:
    rows = read_delimited(path)
    if not rows:
        return
    first, cells = rows[0]
    try:
        columns = choose_columns(cells, asked)
    except DataError as error:
        raise DataError(f"{path} line {first}: {error}") from None
    for line, cells in rows[1:] if columns.header else rows:
        yield line, tuple(cells[place] for place in columns.places)
