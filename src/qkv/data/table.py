"""The rows of a table (.csv, .tsv, .jsonl, .parquet or .xlsx) as tuples of the requested columns.

A .jsonl has one JSON object per line. A .parquet is read batch by batch with pyarrow, an .xlsx with
openpyxl, its first sheet; both packages are optional.
"""

import json
import math
import warnings
from base64 import b64encode
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from qkv.data.columns import ColumnRequest, Columns, choose_columns, matches_known_titles
from qkv.data.delimited import read_delimited
from qkv.data.files import (
    CONVERSION_HINTS,
    DELIMITED_SUFFIXES,
    TABLE_SUFFIXES,
    is_table,
    join_or,
    no_such_file,
    text_lines,
)
from qkv.data.problems import BadRow, BadRows, row_unit
from qkv.errors import DataError, unknown

GRID_SUFFIXES = (*DELIMITED_SUFFIXES, ".xlsx")

NumberedCells = tuple[int, list[Any]]  # line or row number, and all cells of a row

NumberedValues = tuple[
    int, tuple[str, ...]
]  # line or row number, and the values in the order of the roles


def read_table(
    path: Path, request: ColumnRequest, bad_rows: BadRows | None = None
) -> list[tuple[str, ...]]:
    """The values of each row, in the order of the roles; none of them is blank."""
    return [values for _, values in table_rows(path, request, bad_rows)]


def table_rows(
    path: Path, request: ColumnRequest, bad_rows: BadRows | None = None
) -> Iterator[NumberedValues]:
    """The rows as a stream, with their numbers; a DataError if there are none.

    Rows that cannot be used are left out and collected in `bad_rows`; without it they are an error
    after the last row.
    """
    check_table(path)
    collected = BadRows() if bad_rows is None else bad_rows
    roles = ", ".join(request) if len(request) > 2 else " and ".join(request)
    empty = True
    for row in _rows(path, request):
        if isinstance(row, BadRow):
            collected.add(path, row)
            continue
        number, values = row
        blank = [role for role, value in zip(request, values, strict=True) if not value.strip()]
        if blank:
            collected.add(path, BadRow(number, f"{blank[0]} is empty", f"every row needs {roles}"))
            continue
        yield row
        empty = False
    if bad_rows is None:
        collected.check()
    if empty and collected.count:
        raise collected.error()
    if empty:
        raise DataError(f"{path} is empty; it holds no rows")


def check_table(path: Path) -> None:
    """Raise a DataError if the name of a file is not that of a table."""
    if is_table(path):
        return
    message = f"cannot read {path} as a table; that needs {join_or(TABLE_SUFFIXES)}"
    hint = CONVERSION_HINTS.get(path.suffix.lower())
    if hint is not None:
        message += f"; {hint}"
    raise DataError(message)


def has_known_header(path: Path, roles: Iterable[str]) -> bool:
    """Whether the first row of a .csv, .tsv or .xlsx has known titles for all these roles."""
    if path.suffix.lower() not in GRID_SUFFIXES:
        return False
    for row in read_grid(path):
        if not isinstance(row, BadRow):
            titles = [cell_text(cell).strip() for cell in row[1]]
            return matches_known_titles(titles, dict.fromkeys(roles), {})
    return False


def row_location(path: Path, number: int) -> str:
    """The file and line of a row, for a message; a Parquet file has rows, not lines."""
    return f"{path} {row_unit(path)} {number}"


def _rows(path: Path, request: ColumnRequest) -> Iterator[NumberedValues | BadRow]:
    match path.suffix.lower():
        case ".jsonl":
            return _json_values(path, request)
        case ".parquet":
            return _parquet_values(path, request)
        case _:
            return _grid_values(path, request)


# Tables whose first row may be a header: .csv, .tsv and .xlsx


def read_grid(path: Path) -> Iterator[NumberedCells | BadRow]:
    """All cells of each row that is not blank; all rows have as many as the first."""
    if path.suffix.lower() == ".xlsx":
        return read_sheet(path)
    return read_delimited(path)


def grid_columns(path: Path, number: int, cells: Sequence[Any], request: ColumnRequest) -> Columns:
    """Which columns are requested, by the first row of a file."""
    try:
        return choose_columns([cell_text(cell) for cell in cells], request)
    except DataError as error:
        raise DataError(f"{row_location(path, number)}: {error}") from None


def _grid_values(path: Path, request: ColumnRequest) -> Iterator[NumberedValues | BadRow]:
    columns: Columns | None = None
    for row in read_grid(path):
        if isinstance(row, BadRow):
            yield row
            continue
        number, cells = row
        if columns is None:
            columns = grid_columns(path, number, cells, request)
            if columns.header:
                continue
        yield number, tuple(cell_text(cells[i]) for i in columns.indices)


def read_sheet(path: Path) -> Iterator[NumberedCells | BadRow]:
    """The rows of the first sheet of an Excel file, as numbers, texts, dates and None."""
    with closing(open_workbook(path)) as workbook:
        width = 0
        for number, row in enumerate(_sheet_rows(path, workbook), start=1):
            while row and row[-1] in (None, ""):
                row.pop()
            if not row:
                continue
            width = width or len(row)
            if len(row) > width:
                yield BadRow(number, f"{len(row)} cells where the first row has {width}")
            else:
                yield number, row + [None] * (width - len(row))


def open_workbook(path: Path) -> Any:
    """The workbook, to be closed by the caller; formulas are the values Excel stored for them."""
    if not path.is_file():
        raise no_such_file(path)
    openpyxl = require_openpyxl(f"reading {path}")
    with _excel_errors(path):
        return openpyxl.load_workbook(path, read_only=True, data_only=True)


def _sheet_rows(path: Path, workbook: Any) -> Iterator[list[Any]]:
    with _excel_errors(path):
        rows = workbook.worksheets[0].iter_rows(values_only=True)
    while True:
        with _excel_errors(path):
            row = next(rows, None)
        if row is None:
            return
        yield list(row)


@contextmanager
def _excel_errors(path: Path) -> Iterator[None]:
    """Errors as one line: openpyxl lets those of zipfile and of XML parsers through.

    It also warns of what it does not read, such as the rules of drop-down lists.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    except Exception as error:
        reason = " ".join(str(error).split())
        raise DataError(
            f"cannot read {path}: it is damaged or not an .xlsx file ({reason}); save its sheet "
            "as .csv"
        ) from None


def require_openpyxl(purpose: str) -> Any:
    """The module openpyxl; a DataError that names the extra if it is not installed."""
    try:
        return import_module("openpyxl")
    except ImportError:
        raise DataError(
            f"{purpose} needs openpyxl; install it with: pip install 'qkv[excel]', or save its "
            "sheet as .csv"
        ) from None


# JSON lines


def read_objects(path: Path) -> Iterator[tuple[int, dict[str, Any]] | BadRow]:
    """The line number and the object of each line that is not blank."""
    for number, line in enumerate(text_lines(path), start=1):
        if not line.strip():
            continue
        try:
            yield number, _parse_object(line)
        except DataError as error:
            yield BadRow(number, str(error))


def field_names(path: Path, number: int, row: dict[str, Any], request: ColumnRequest) -> list[str]:
    """The fields that are requested, by the first object of a file."""
    fields = list(row)
    try:
        columns = choose_columns(fields, request, is_header=True)
    except DataError as error:
        raise DataError(f"{row_location(path, number)}: {error}") from None
    return [fields[i] for i in columns.indices]


def field_text(row: dict[str, Any], name: str) -> str:
    """The text of a field; a DataError without a location if it has none."""
    if name not in row:
        raise DataError(unknown("column", name, row))
    value = row[name]
    if isinstance(value, dict | list):
        raise DataError(f'"{name}" is a {type(value).__name__}; a text is needed')
    text = cell_text(value)
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise DataError(f'"{name}" holds a lone surrogate') from None
    return text


def _json_values(path: Path, request: ColumnRequest) -> Iterator[NumberedValues | BadRow]:
    names: list[str] | None = None
    for each in read_objects(path):
        if isinstance(each, BadRow):
            yield each
            continue
        number, row = each
        if names is None:
            names = field_names(path, number, row, request)
        try:
            yield number, tuple(field_text(row, name) for name in names)
        except DataError as error:
            yield BadRow(number, str(error))


def _parse_object(line: str) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except json.JSONDecodeError as error:
        raise DataError(f"not JSON at character {error.pos + 1}: {error.msg}") from None
    except (ValueError, RecursionError):
        raise DataError("JSON that is too deeply nested or has a huge number") from None
    if not isinstance(row, dict):
        raise DataError('a row must be one JSON object, as in {"text": "…"}')
    return row


# Parquet

PARQUET_BATCH_ROWS = 4096

NARROW_FLOATS = {
    "float": np.float32,
    "halffloat": np.float16,
}  # as float64, 0.1 would have more digits


def parquet_schema(path: Path) -> tuple[Any, int]:
    """The Arrow schema of a file, and the number of its rows."""
    with _open_parquet(path) as file:
        return file.schema_arrow, file.metadata.num_rows


def parquet_batches(path: Path, names: Sequence[str]) -> Iterator[Any]:
    """Arrow batches of these columns."""
    done = 0
    with _open_parquet(path) as file:
        batches = file.iter_batches(PARQUET_BATCH_ROWS, columns=names)
        while True:
            with _parquet_errors(path, done):
                batch = next(batches, None)
            if batch is None:
                return
            yield batch
            done += len(batch)


def parquet_names(path: Path, schema: Any, request: ColumnRequest) -> list[str]:
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


def column_texts(path: Path, rows_before: int, column: Any, name: str) -> list[str]:
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
    return [cell_text(cell) for cell in cells]


def require_pyarrow(purpose: str) -> Any:
    """The module pyarrow; a DataError with the command that installs it."""
    try:
        import_module("pyarrow.parquet")
    except ImportError:
        raise DataError(f"{purpose} needs pyarrow; install it with: pip install pyarrow") from None
    return import_module("pyarrow")


def _parquet_values(path: Path, request: ColumnRequest) -> Iterator[NumberedValues]:
    schema, _ = parquet_schema(path)
    names = parquet_names(path, schema, request)
    done = 0
    for batch in parquet_batches(path, names):
        cells = [column_texts(path, done, batch.column(name), name) for name in names]
        yield from enumerate(zip(*cells, strict=True), start=done + 1)
        done += len(batch)


@contextmanager
def _open_parquet(path: Path) -> Iterator[Any]:
    arrow = require_pyarrow(f"reading {path}")
    with _parquet_errors(path, 0):
        file = arrow.parquet.ParquetFile(path)
    with file:
        yield file


@contextmanager
def _parquet_errors(path: Path, done: int) -> Iterator[None]:
    """Errors of pyarrow as one line; `done` rows were read without any."""
    arrow = import_module("pyarrow")
    try:
        yield
    except FileNotFoundError:
        raise no_such_file(path) from None
    except (arrow.ArrowException, OSError) as error:
        after = f" after row {done}" if done else ""
        reason = " ".join(str(error).split())
        raise DataError(
            f"cannot read {path}{after}: it is damaged or not a Parquet file ({reason})"
        ) from error


def _is_scalar(dtype: Any) -> bool:
    """Whether a cell of that type is a text, or has a single spelling as text."""
    types = import_module("pyarrow").types
    if types.is_dictionary(dtype):
        return _is_scalar(dtype.value_type)
    tests = ("string", "large_string", "string_view", "integer", "floating", "boolean", "null")
    return any(getattr(types, f"is_{test}")(dtype) for test in tests)


def cell_text(cell: Any) -> str:
    """A cell of any table as text: numbers, booleans and lists as in JSON, nothing for None."""
    if isinstance(cell, str):
        return cell
    value = json_value(cell)
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    return json.dumps(value, ensure_ascii=False)


def json_value(cell: Any) -> Any:
    """A cell in JSON's own types; NaN is None, dates are ISO 8601 and bytes Base64."""
    match cell:
        case None | str() | bool() | int():
            return cell
        case float() | np.floating():
            return _json_number(cell)
        case dict():
            return {str(name): json_value(value) for name, value in cell.items()}
        case list() | tuple() | np.ndarray():
            return [json_value(value) for value in cell]
        case bytes():
            return b64encode(cell).decode()
    if hasattr(cell, "isoformat"):
        return cell.isoformat()
    return str(cell)


def _json_number(number: Any) -> float | str | None:
    if number != number:  # pandas writes a missing number as NaN
        return None
    if abs(number) == math.inf:
        return "Infinity" if number > 0 else "-Infinity"
    # str of a float32 has the fewest digits that give the same float32; float() would have 17.
    return float(str(number))
