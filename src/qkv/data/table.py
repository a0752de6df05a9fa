"""The rows of a table (.csv, .tsv, .jsonl or .parquet) as tuples of the requested columns.

In a .csv, a field in double quotes may hold commas, line breaks and, doubled, quotes. Many .tsv
files are written without any quoting, and a sentence that begins with a quotation mark must not
swallow the rows below it: a line is a row if that gives every row the same number of fields, and
only otherwise may a quoted field span several lines. So a .csv is streamed, while all lines of a
.tsv are in memory before its first row is returned. A .jsonl has one JSON object per line; a
.parquet is read batch by batch with pyarrow, an optional dependency.
"""

import csv
import json
import sys
from collections.abc import Generator, Iterable, Iterator
from contextlib import closing, suppress
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from qkv.data.columns import ColumnRequest, choose_columns, matches_known_titles
from qkv.data.files import (
    CONVERSION_HINTS,
    TABLE_SUFFIXES,
    is_table,
    join_or,
    no_such_file,
    raw_lines,
    strip_newline,
    text_lines,
)
from qkv.errors import DataError, unknown

Row = tuple[int, list[str]]

CSV_ERRORS = {  # part of the csv module's message → what to tell the user
    "unexpected end of data": "a quote is opened here and never closed",
    "expected after": "a closing quote must end its field; write a quote inside a field twice",
    "new-line character": "a field without quotes holds a carriage return; end lines with \\n",
}


def read_delimited(path: Path) -> Iterator[Row]:
    """Every row that is not blank, with its line number; all have as many fields as the first."""
    if path.suffix.lower() == ".tsv":
        yield from _equal_widths(path, _tsv(path))
        return
    # Closed explicitly: a traceback keeps the generator, and with it the file, alive otherwise.
    with closing(_csv(path)) as rows:
        yield from _equal_widths(path, rows)


def _equal_widths(path: Path, rows: Iterable[Row]) -> Iterator[Row]:
    first: Row | None = None
    for row in rows:
        first = first or row
        if len(row[1]) != len(first[1]):
            raise DataError(_field_count_message(path, *row, *first))
        yield row


def _csv(path: Path) -> Generator[Row, None, None]:
    try:
        yield from _quoted(raw_lines(path), ",")
    except _QuoteError as error:
        reason, line = error.args
        message = reason
        for fragment, explanation in CSV_ERRORS.items():
            if fragment in reason:
                message = explanation
                break
        raise DataError(f"{path} line {line}: {message}") from None


def _tsv(path: Path) -> list[Row]:
    lines = list(raw_lines(path))
    plain: list[Row] = []
    for number, line in enumerate(map(strip_newline, lines), start=1):
        if line:
            width = len(plain[0][1]) if plain else None
            plain.append((number, _line_cells(line, width)))
    if _first_uneven(plain):
        with suppress(_QuoteError):
            quoted = list(_quoted(lines, "\t"))
            if _first_uneven(quoted):
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
    """Quotes that do not match: the reason, and the line their row begins on."""


def _quoted(lines: Iterable[str], delimiter: str) -> Iterator[Row]:
    reader = csv.reader(lines, delimiter=delimiter, strict=True)
    start = 1
    try:
        while (cells := _next_row(reader)) is not None:
            if cells:
                yield start, cells
            start = reader.line_num + 1
    except csv.Error as error:
        raise _QuoteError(str(error), start) from None


def _first_uneven(rows: list[Row]) -> Row | None:
    """The first row that has another number of fields than the very first."""
    return next((row for row in rows if len(row[1]) != len(rows[0][1])), None)


def _field_count_message(
    path: Path, line: int, cells: list[str], first_line: int, first_cells: list[str]
) -> str:
    hint = ""
    if path.suffix.lower() == ".csv":
        hint = "; put a field that holds a comma in double quotes"
    fields = "field" if len(cells) == 1 else "fields"
    expected = f"line {first_line} has {len(first_cells)}"
    return f"{path} line {line}: {len(cells)} {fields} where {expected}{hint}"


def _next_row(reader: Iterator[list[str]]) -> list[str] | None:
    """The next row of any length: the csv module's limit is global, so it is restored after."""
    limit = csv.field_size_limit(min(sys.maxsize, 2**31 - 1))
    try:
        return next(reader, None)
    finally:
        csv.field_size_limit(limit)


def read_json_lines(path: Path, request: ColumnRequest) -> Iterator[tuple[int, tuple[str, ...]]]:
    """The line number and values of each object; the first object decides which fields they are."""
    names: list[str] | None = None
    for number, line in enumerate(text_lines(path), start=1):
        if not line.strip():
            continue
        location = f"{path} line {number}"
        row = _parse_object(location, line)
        if names is None:
            names = _field_names(location, row, request)
        yield number, tuple(_value(location, row, name) for name in names)


def _parse_object(location: str, line: str) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except json.JSONDecodeError as error:
        raise DataError(f"{location}: not JSON at character {error.pos + 1}: {error.msg}") from None
    except (ValueError, RecursionError):
        raise DataError(
            f"{location}: JSON that is too deeply nested or has a huge number"
        ) from None
    if not isinstance(row, dict):
        raise DataError(f'{location}: a row must be one JSON object, as in {{"text": "…"}}')
    return row


def _field_names(location: str, row: dict[str, Any], request: ColumnRequest) -> list[str]:
    fields = list(row)
    try:
        return [fields[i] for i in choose_columns(fields, request, is_header=True).indices]
    except DataError as error:
        raise DataError(f"{location}: {error}") from None


def _value(location: str, row: dict[str, Any], name: str) -> str:
    if name not in row:
        raise DataError(f"{location}: {unknown('column', name, row)}")
    value = row[name]
    if value is None:
        return ""
    if isinstance(value, dict | list):
        raise DataError(f'{location}: "{name}" is a {type(value).__name__}; a text is needed')
    if isinstance(value, str):
        text = value
    else:
        text = json.dumps(value)
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise DataError(f'{location}: "{name}" holds a lone surrogate') from None
    return text


PARQUET_BATCH_ROWS = 4096

NARROW_FLOATS = {
    "float": np.float32,
    "halffloat": np.float16,
}  # as float64, 0.1 would have more digits


def read_parquet(path: Path, request: ColumnRequest) -> Iterator[tuple[int, tuple[str, ...]]]:
    """The row number, from 1, and values of each row; an empty cell is an empty text."""
    arrow = _pyarrow(path)
    done = 0
    try:
        with arrow.parquet.ParquetFile(path) as file:
            names = _column_names(path, file.schema_arrow, request)
            for batch in file.iter_batches(PARQUET_BATCH_ROWS, columns=names):
                cells = [_texts(path, done, batch.column(name), name) for name in names]
                yield from enumerate(zip(*cells, strict=True), start=done + 1)
                done += len(batch)
    except FileNotFoundError:
        raise no_such_file(path) from None
    except (arrow.ArrowException, OSError) as error:
        after = f" after row {done}" if done else ""
        reason = " ".join(str(error).split())
        raise DataError(
            f"cannot read {path}{after}: it is damaged or not a Parquet file ({reason})"
        ) from error


def _pyarrow(path: Path) -> Any:
    try:
        import_module("pyarrow.parquet")
    except ImportError:
        raise DataError(
            f"reading {path} needs pyarrow; install it with: pip install pyarrow"
        ) from None
    return import_module("pyarrow")


def _column_names(path: Path, schema: Any, request: ColumnRequest) -> list[str]:
    """The names of the requested columns, each a single column of texts or numbers."""
    try:
        names = [
            schema.names[i] for i in choose_columns(schema.names, request, is_header=True).indices
        ]
    except DataError as error:
        raise DataError(f"{path}: {error}") from None
    for name in names:
        if schema.names.count(name) > 1:
            raise DataError(f'{path}: several columns are named "{name}"; rename all but one')
        dtype = schema.field(name).type
        if not _is_scalar(dtype):
            raise DataError(f'{path}: the column "{name}" holds {dtype}; texts are needed')
    return names


def _is_scalar(dtype: Any) -> bool:
    """Whether a cell of that type is a text, or has a single spelling as text."""
    types = import_module("pyarrow").types
    if types.is_dictionary(dtype):
        return _is_scalar(dtype.value_type)
    tests = ("string", "large_string", "string_view", "integer", "floating", "boolean", "null")
    return any(getattr(types, f"is_{test}")(dtype) for test in tests)


def _texts(path: Path, rows_before: int, column: Any, name: str) -> list[str]:
    """The cells of a column as texts; numbers and booleans as in JSON."""
    try:
        cells = column.to_pylist()
    except UnicodeDecodeError:
        raise DataError(
            f'{path}: "{name}" holds bytes that are not UTF-8 in one of the rows '
            f"{rows_before + 1} to {rows_before + len(column)}"
        ) from None
    narrow = NARROW_FLOATS.get(str(column.type))
    if narrow is not None:
        cells = [cell if cell is None else narrow(cell) for cell in cells]
    return [_text(cell) for cell in cells]


def _text(cell: Any) -> str:
    if isinstance(cell, str):
        return cell
    if cell is None or cell != cell:  # pandas writes a missing number as NaN
        return ""
    if isinstance(cell, np.floating):
        return str(cell)
    return json.dumps(cell)


NumberedValues = tuple[
    int, tuple[str, ...]
]  # line or row number, and the values in the order of the roles


def read_table(path: Path, request: ColumnRequest) -> list[tuple[str, ...]]:
    """The values of each row, in the order of the roles; none of them is blank."""
    return [values for _, values in table_rows(path, request)]


def table_rows(path: Path, request: ColumnRequest) -> Iterator[NumberedValues]:
    """The rows as a stream, with their numbers; a DataError if there are none."""
    if not is_table(path):
        message = f"cannot read {path} as a table; that needs {join_or(TABLE_SUFFIXES)}"
        hint = CONVERSION_HINTS.get(path.suffix.lower())
        if hint is not None:
            message += f"; {hint}"
        raise DataError(message)
    empty = True
    for number, values in _rows(path, request):
        for role, value in zip(request, values, strict=True):
            if not value.strip():
                roles = " and ".join(request)
                if len(request) > 2:
                    roles = ", ".join(request)
                raise DataError(
                    f"{row_location(path, number)}: {role} is empty; every row needs {roles}"
                )
        yield number, values
        empty = False
    if empty:
        raise DataError(f"{path} is empty; it holds no rows")


def has_known_header(path: Path, roles: Iterable[str]) -> bool:
    """Whether the first row of a .csv or .tsv has known titles for all these roles."""
    if path.suffix.lower() not in (".csv", ".tsv"):
        return False
    _, cells = next(read_delimited(path), (0, []))
    return matches_known_titles([cell.strip() for cell in cells], dict.fromkeys(roles), {})


def row_location(path: Path, number: int) -> str:
    """The file and line of a row, for a message; a Parquet file has rows, not lines."""
    unit = "row" if path.suffix.lower() == ".parquet" else "line"
    return f"{path} {unit} {number}"


def _rows(path: Path, request: ColumnRequest) -> Iterator[NumberedValues]:
    match path.suffix.lower():
        case ".jsonl":
            return read_json_lines(path, request)
        case ".parquet":
            return read_parquet(path, request)
        case _:
            return _cells(path, request)


def _cells(path: Path, request: ColumnRequest) -> Iterator[NumberedValues]:
    rows = read_delimited(path)
    first = next(rows, None)
    if first is None:
        return
    line, cells = first
    try:
        columns = choose_columns(cells, request)
    except DataError as error:
        raise DataError(f"{path} line {line}: {error}") from None
    if not columns.header:
        yield line, tuple(cells[i] for i in columns.indices)
    for line, cells in rows:
        yield line, tuple(cells[i] for i in columns.indices)
