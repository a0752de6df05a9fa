"""A table of examples: the asked columns of a file, row by row."""

from collections.abc import Iterable, Iterator
from pathlib import Path

from qkv.data.columns import Asked, choose_columns, looks_titled
from qkv.data.delimited import read_delimited
from qkv.data.endings import OTHERS, TABLES, either, is_table
from qkv.data.json_lines import read_json_lines
from qkv.data.parquet import read_parquet
from qkv.errors import DataError

Numbered = tuple[int, tuple[str, ...]]  # the line or row, and its values in the order of the roles


def read_table(path: Path, asked: Asked) -> list[tuple[str, ...]]:
    """One tuple a row, with a value that is not blank for each role, in their order."""
    return [values for _, values in table_rows(path, asked)]


def table_rows(path: Path, asked: Asked) -> Iterator[Numbered]:
    """The same as a stream, each row with its number; a table without any is refused."""
    if not is_table(path):
        hint = OTHERS.get(path.suffix.lower())
        raise DataError(
            f"cannot read {path} as a table; that needs {either(TABLES)}"
            + ("" if hint is None else f"; {hint}")
        )
    empty = True
    for number, values in _rows(path, asked):
        for role, value in zip(asked, values, strict=True):
            if not value.strip():
                needed = ", ".join(asked) if len(asked) > 2 else " and ".join(asked)
                raise DataError(
                    f"{place_in(path, number)}: {role} is empty; every row needs {needed}"
                )
        yield number, values
        empty = False
    if empty:
        raise DataError(f"{path} is empty; it holds no rows")


def is_titled(path: Path, roles: Iterable[str]) -> bool:
    """Whether the first row of a .csv or .tsv has the usual titles for all these roles."""
    if path.suffix.lower() not in (".csv", ".tsv"):
        return False
    _, cells = next(read_delimited(path), (0, []))
    return looks_titled([cell.strip() for cell in cells], dict.fromkeys(roles), {})


def place_in(path: Path, number: int) -> str:
    """Where a row stands, for a message: only files of text have lines."""
    return f"{path} {'row' if path.suffix.lower() == '.parquet' else 'line'} {number}"


def _rows(path: Path, asked: Asked) -> Iterator[Numbered]:
    match path.suffix.lower():
        case ".jsonl":
            return read_json_lines(path, asked)
        case ".parquet":
            return read_parquet(path, asked)
        case _:
            return _cells(path, asked)


def _cells(path: Path, asked: Asked) -> Iterator[Numbered]:
    rows = read_delimited(path)
    first = next(rows, None)
    if first is None:
        return
    line, cells = first
    try:
        columns = choose_columns(cells, asked)
    except DataError as error:
        raise DataError(f"{path} line {line}: {error}") from None
    if not columns.header:
        yield line, tuple(cells[place] for place in columns.places)
    for line, cells in rows:
        yield line, tuple(cells[place] for place in columns.places)
