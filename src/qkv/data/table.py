"""A table of examples: the asked columns of a file, row by row."""

import csv
import json
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from qkv.data.columns import Asked, choose_columns, matches_known_titles
from qkv.data.files import (
    OTHERS,
    TABLES,
    is_table,
    join_or,
    no_such_file,
    raw_lines,
    strip_newline,
    text_lines,
)
from qkv.errors import DataError, unknown

# FOLDED data/delimited: The rows of a .csv or .tsv file, with the line each begins on.
#
#   In .csv a field in double quotes may hold commas, line breaks and, written twice, quotes.
#   Many .tsv
#   files are written without any quoting, and a sentence that opens with a quote mark must
#   not swallow
#   the rows below it: there a row is a line if that gives every row equally many fields, and
#   only
#   otherwise may a quoted field go over several lines. So a .csv is a stream, and a .tsv is
#   not: all
#   of its lines are in memory before its first row comes out.
# FOLDED data/json_lines: The rows of a .jsonl file: one JSON object a line.
# FOLDED data/parquet: The rows of a .parquet file, batch by batch; needs pyarrow, which is an
#   extra.

Row = tuple[int, list[str]]

SAID = {  # by the csv module → to a person
    "unexpected end of data": "a quote is opened here and never closed",
    "expected after": "a closing quote must end its field; write a quote inside a field twice",
    "new-line character": "a carriage return stands in a field without quotes; end lines with \\n",
}


def read_delimited(path: Path) -> Iterator[Row]:
    """Every row that is not blank; all have as many fields as the first."""
    first: Row | None = None
    for row in _tsv(path) if path.suffix.lower() == ".tsv" else _csv(path):
        first = first or row
        if len(row[1]) != len(first[1]):
            raise DataError(_said_of(path, *row, *first))
        yield row


def _csv(path: Path) -> Iterator[Row]:
    try:
        yield from _quoted(raw_lines(path), ",")
    except _QuoteError as error:
        why, line = error.args
        said = next((said for part, said in SAID.items() if part in why), why)
        raise DataError(f"{path} line {line}: {said}") from None


def _tsv(path: Path) -> list[Row]:
    lines = list(raw_lines(path))
    plain: list[Row] = []
    for number, line in enumerate(map(strip_newline, lines), start=1):
        if line:
            plain.append((number, _line_cells(line, len(plain[0][1]) if plain else None)))
    if _uneven(plain):
        with suppress(_QuoteError):
            quoted = list(_quoted(lines, "\t"))
            if _uneven(quoted):
                return plain
            return quoted
    return plain


def _line_cells(line: str, width: int | None) -> list[str]:
    """The fields of one line, without their quotes if they are quoted throughout."""
    if '"' in line:
        with suppress(_QuoteError):
            ((_, cells),) = _quoted([line], "\t")
            if width in (None, len(cells)):
                return cells
    return line.split("\t")


class _QuoteError(Exception):
    """Quotes that do not fit: why, and the line their row begins on."""


def _quoted(lines: Iterable[str], delimiter: str) -> Iterator[Row]:
    reader = csv.reader(lines, delimiter=delimiter, strict=True)
    begins = 1
    try:
        while (cells := _next_row(reader)) is not None:
            if cells:
                yield begins, cells
            begins = reader.line_num + 1
    except csv.Error as error:
        raise _QuoteError(str(error), begins) from None


def _uneven(rows: list[Row]) -> Row | None:
    """The first row that has not as many fields as the first of all."""
    return next((row for row in rows if len(row[1]) != len(rows[0][1])), None)


def _said_of(path: Path, line: int, cells: list[str], first: int, others: list[str]) -> str:
    if path.suffix.lower() == ".csv":
        hint = "; put a field that holds a comma in double quotes"
    else:
        hint = ""
    fields = "field" if len(cells) == 1 else "fields"
    return f"{path} line {line}: {len(cells)} {fields} where line {first} has {len(others)}{hint}"


def _next_row(reader: Iterator[list[str]]) -> list[str] | None:
    """The csv module refuses long texts unless told otherwise, and that for the whole process."""
    before = csv.field_size_limit(min(sys.maxsize, 2**31 - 1))
    try:
        return next(reader, None)
    finally:
        csv.field_size_limit(before)


def read_json_lines(path: Path, asked: Asked) -> Iterator[tuple[int, tuple[str, ...]]]:
    """The line and the asked fields of each object; the first object says which ones they are."""
    names: list[str] | None = None
    for number, line in enumerate(text_lines(path), start=1):
        if not line.strip():
            continue
        place = f"{path} line {number}"
        row = _object(place, line)
        if names is None:
            names = _names(place, row, asked)
        yield number, tuple(_value(place, row, name) for name in names)


def _object(place: str, line: str) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except json.JSONDecodeError as error:
        raise DataError(f"{place}: not JSON at character {error.pos + 1}: {error.msg}") from None
    except (ValueError, RecursionError):
        raise DataError(f"{place}: JSON that is nested too deeply or has a huge number") from None
    if not isinstance(row, dict):
        raise DataError(f'{place}: a row must be one JSON object, as in {{"text": "…"}}')
    return row


def _names(place: str, row: dict[str, Any], asked: Asked) -> list[str]:
    fields = list(row)
    try:
        return [fields[i] for i in choose_columns(fields, asked, titled=True).places]
    except DataError as error:
        raise DataError(f"{place}: {error}") from None


def _value(place: str, row: dict[str, Any], name: str) -> str:
    if name not in row:
        raise DataError(f"{place}: {unknown('column', name, row)}")
    value = row[name]
    if value is None:
        return ""
    if isinstance(value, dict | list):
        raise DataError(f'{place}: "{name}" is a {type(value).__name__}; a text is needed')
    if isinstance(value, str):
        text = value
    else:
        text = json.dumps(value)
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise DataError(f'{place}: "{name}" holds half of a surrogate pair') from None
    return text


PARQUET_BATCH_ROWS = 4096  # of one batch

NARROW = {"float": np.float32, "halffloat": np.float16}  # 0.1 has more digits as a wider number


def read_parquet(path: Path, asked: Asked) -> Iterator[tuple[int, tuple[str, ...]]]:
    """The number from 1 and the asked columns of each row; an empty cell is an empty text."""
    arrow = _pyarrow(path)
    done = 0
    try:
        with arrow.parquet.ParquetFile(path) as file:
            names = _column_names(path, file.schema_arrow, asked)
            for batch in file.iter_batches(PARQUET_BATCH_ROWS, columns=names):
                cells = [_texts(path, done, batch.column(name), name) for name in names]
                yield from enumerate(zip(*cells, strict=True), start=done + 1)
                done += len(batch)
    except FileNotFoundError:
        raise no_such_file(path) from None
    except (arrow.ArrowException, OSError) as error:
        after = f" after row {done}" if done else ""
        why = " ".join(str(error).split())
        raise DataError(
            f"cannot read {path}{after}: it is no Parquet file, or damaged ({why})"
        ) from error


def _pyarrow(path: Path) -> Any:
    try:
        import_module("pyarrow.parquet")
    except ImportError:
        raise DataError(f"reading {path} needs pyarrow; get it with: pip install pyarrow") from None
    return import_module("pyarrow")


def _column_names(path: Path, schema: Any, asked: Asked) -> list[str]:
    """The names of the asked columns, each a single column of texts or numbers."""
    try:
        names = [schema.names[i] for i in choose_columns(schema.names, asked, titled=True).places]
    except DataError as error:
        raise DataError(f"{path}: {error}") from None
    for name in names:
        if schema.names.count(name) > 1:
            raise DataError(f'{path}: several columns are named "{name}"; rename all but one')
        if not _is_written(schema.field(name).type):
            kind = schema.field(name).type
            raise DataError(f'{path}: the column "{name}" holds {kind}; texts are needed')
    return names


def _is_written(kind: Any) -> bool:
    """Whether a cell of that type is a text or has one way to be written."""
    types = import_module("pyarrow").types
    if types.is_dictionary(kind):
        return _is_written(kind.value_type)
    tests = ("string", "large_string", "string_view", "integer", "floating", "boolean", "null")
    return any(getattr(types, f"is_{test}")(kind) for test in tests)


def _texts(path: Path, before: int, column: Any, name: str) -> list[str]:
    """The cells of a column as texts: numbers and truths as JSON writes them."""
    try:
        cells = column.to_pylist()
    except UnicodeDecodeError:
        raise DataError(
            f'{path}: "{name}" holds bytes that are not UTF-8 in one of the rows '
            f"{before + 1} to {before + len(column)}"
        ) from None
    narrow = NARROW.get(str(column.type))
    return [_text(narrow(cell) if narrow and cell is not None else cell) for cell in cells]


def _text(cell: Any) -> str:
    if isinstance(cell, str):
        return cell
    if cell is None or cell != cell:  # pandas writes a missing number as NaN
        return ""
    if isinstance(cell, np.floating):
        return str(cell)
    return json.dumps(cell)


Numbered = tuple[int, tuple[str, ...]]  # the line or row, and its values in the order of the roles


def read_table(path: Path, asked: Asked) -> list[tuple[str, ...]]:
    """One tuple a row, with a value that is not blank for each role, in their order."""
    return [values for _, values in table_rows(path, asked)]


def table_rows(path: Path, asked: Asked) -> Iterator[Numbered]:
    """The same as a stream, each row with its number; a table without any is refused."""
    if not is_table(path):
        hint = OTHERS.get(path.suffix.lower())
        raise DataError(
            f"cannot read {path} as a table; that needs {join_or(TABLES)}"
            + ("" if hint is None else f"; {hint}")
        )
    empty = True
    for number, values in _rows(path, asked):
        for role, value in zip(asked, values, strict=True):
            if not value.strip():
                if len(asked) > 2:
                    needed = ", ".join(asked)
                else:
                    needed = " and ".join(asked)
                raise DataError(
                    f"{row_location(path, number)}: {role} is empty; every row needs {needed}"
                )
        yield number, values
        empty = False
    if empty:
        raise DataError(f"{path} is empty; it holds no rows")


def has_known_header(path: Path, roles: Iterable[str]) -> bool:
    """Whether the first row of a .csv or .tsv has the usual titles for all these roles."""
    if path.suffix.lower() not in (".csv", ".tsv"):
        return False
    _, cells = next(read_delimited(path), (0, []))
    return matches_known_titles([cell.strip() for cell in cells], dict.fromkeys(roles), {})


def row_location(path: Path, number: int) -> str:
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
