"""Tables whose rows are answered and written again: every column of a row, not only its text.

A table is read twice. The first pass counts its rows, learns its columns and reports everything
that is wrong with it, before a model has worked for an hour; the second streams the rows. Texts
without a table are rows with a single column.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from qkv.data.columns import ColumnRequest
from qkv.data.delimited import file_separator
from qkv.data.files import DELIMITED_SUFFIXES, no_such_file
from qkv.data.problems import BadRow, BadRows
from qkv.data.table import (
    cell_text,
    check_table,
    column_texts,
    field_names,
    field_text,
    grid_columns,
    open_workbook,
    parquet_batches,
    parquet_names,
    parquet_schema,
    read_grid,
    read_objects,
)
from qkv.errors import DataError

Record = dict[str, Any]  # column name → cell

Kind = Literal["text", "integer", "number", "boolean"]

MAX_INTEGER = 2**63


@dataclass(frozen=True)
class Column:
    """A column of a table that is written; lists and objects are written as JSON where need be.

    arrow_type: the type it has in a Parquet file that was read; it takes precedence over the kind.
    """

    name: str
    kind: Kind = "text"
    arrow_type: Any = None


@dataclass(frozen=True)
class Records:
    """The rows of a table as a stream, which can be read more than once if it is a file.

    text: the name of the column of the texts. count: None if it is not known in advance.
    separator: the one between the fields of a .csv or .tsv.
    """

    columns: tuple[Column, ...]
    text: str
    read: Callable[[], Iterator[Record]]
    count: int | None = None
    separator: str = ","
    remarks: tuple[str, ...] = ()

    def __iter__(self) -> Iterator[Record]:
        return self.read()

    def text_of(self, record: Record) -> str:
        """The text of a row, which is empty if the cell is."""
        return cell_text(record[self.text])

    def texts(self) -> Iterator[str]:
        return map(self.text_of, self)


def text_records(texts: Iterable[str], count: int | None = None) -> Records:
    """Texts without a table, in a column `text`."""
    return Records((Column("text"),), "text", lambda: ({"text": text} for text in texts), count)


def open_table(path: Path, text: str | None = None, role: str = "text") -> Records:
    """The rows of a file, all columns; a DataError that lists every row that cannot be read.

    text: the column of the texts, a name or a number from 1; without it, the column whose title is
    known for this role. A row with an empty text is a row like any other. Columns without a header
    are called column_1, column_2 and so on, and the second of two columns "a" is called "a_2".
    """
    check_table(path)
    if not path.exists():
        raise no_such_file(path)
    if not path.is_file():
        raise DataError(f"{path} can be read only once; write it to a file first")
    request = {role: text}
    match path.suffix.lower():
        case ".jsonl":
            records = _open_json_lines(path, request)
        case ".parquet":
            records = _open_parquet(path, request)
        case _:
            records = _open_grid(path, request)
    if not records.count:
        raise DataError(f"{path} is empty; it holds no rows")
    return records


def unique_name(name: str, others: Iterable[str]) -> str:
    """The name, with a number if another column has it: label, label_2, label_3."""
    taken = set(others)
    candidate = name
    number = 2
    while candidate in taken:
        candidate = f"{name}_{number}"
        number += 1
    return candidate


class RowQueue:
    """Rows between reading their text and writing their answer, in order."""

    def __init__(self, records: Records) -> None:
        self.records = records
        self.waiting: deque[tuple[str, Record]] = deque()

    def texts(self) -> Iterator[str]:
        """Each text; its row waits until it is taken."""
        for record in self.records:
            text = self.records.text_of(record)
            self.waiting.append((text, record))
            yield text

    def take(self, count: int) -> list[Record]:
        """The rows of the next texts, oldest first."""
        return [self.waiting.popleft()[1] for _ in range(count)]


def columns_of(rows: Iterable[Record]) -> tuple[Column, ...]:
    """The columns of these rows in memory, with the kinds of their values."""
    columns = _Columns()
    for row in rows:
        columns.add(row)
    return columns.columns()


class _Columns:
    """The columns met so far, and which kinds of values they hold."""

    def __init__(self, names: Sequence[str] = ()) -> None:
        self.kinds: dict[str, set[Kind]] = {name: set() for name in names}

    def add(self, record: Record) -> None:
        for name, value in record.items():
            kinds = self.kinds.setdefault(name, set())
            if value is not None:
                kinds.add(_kind(value))

    def columns(self) -> tuple[Column, ...]:
        columns = []
        for name, kinds in self.kinds.items():
            kind: Kind = "text"
            if len(kinds) == 1:
                (kind,) = kinds
            elif kinds == {"integer", "number"}:
                kind = "number"
            columns.append(Column(name, kind))
        return tuple(columns)


def _kind(value: Any) -> Kind:
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int) and abs(value) < MAX_INTEGER:
        return "integer"
    if isinstance(value, float):
        return "number"
    return "text"


def _open_grid(path: Path, request: ColumnRequest) -> Records:
    bad_rows = BadRows()
    names: list[str] = []
    header = False
    count = 0
    index = 0
    columns = _Columns()
    for row in read_grid(path):
        if isinstance(row, BadRow):
            bad_rows.add(path, row)
            continue
        number, cells = row
        if not names:
            chosen = grid_columns(path, number, cells, request)
            (index,) = chosen.indices
            header = chosen.header
            names = _grid_names(cells, header)
            columns = _Columns(names)
            if header:
                continue
        columns.add(dict(zip(names, cells, strict=True)))
        count += 1
    bad_rows.check()
    text = names[index] if names else ""
    separator = ","
    if path.suffix.lower() in DELIMITED_SUFFIXES:
        separator = file_separator(path)

    def read() -> Iterator[Record]:
        rows = read_grid(path)
        if header:
            next(rows)
        for row in rows:
            if isinstance(row, BadRow):
                raise DataError(f"{path} was changed while it was in use; start again")
            yield dict(zip(names, row[1], strict=True))

    return Records(columns.columns(), text, read, count, separator, _sheet_remarks(path))


def _grid_names(cells: Sequence[Any], header: bool) -> list[str]:
    names: list[str] = []
    for number, cell in enumerate(cells, start=1):
        name = f"column_{number}"
        if header:
            name = cell_text(cell).strip()
        names.append(unique_name(name, names))
    return names


def _sheet_remarks(path: Path) -> tuple[str, ...]:
    if path.suffix.lower() != ".xlsx":
        return ()
    workbook = open_workbook(path)
    names = workbook.sheetnames
    workbook.close()
    if len(names) == 1:
        return ()
    return (f'{path} has {len(names)} sheets; only the first, "{names[0]}", is read',)


def _open_json_lines(path: Path, request: ColumnRequest) -> Records:
    bad_rows = BadRows()
    text: str | None = None
    columns = _Columns()
    count = 0
    for row in read_objects(path):
        if isinstance(row, BadRow):
            bad_rows.add(path, row)
            continue
        number, record = row
        if text is None:
            (text,) = field_names(path, number, record, request)
        try:
            field_text(record, text)
            _check_surrogates(record)
        except DataError as error:
            bad_rows.add(path, BadRow(number, str(error)))
            continue
        columns.add(record)
        count += 1
    bad_rows.check()

    def read() -> Iterator[Record]:
        for row in read_objects(path):
            if isinstance(row, BadRow):
                raise DataError(f"{path} was changed while it was in use; start again")
            yield row[1]

    return Records(columns.columns(), text or "", read, count)


def _check_surrogates(record: Record) -> None:
    """Raise a DataError if a field cannot be written as UTF-8."""
    for name, value in record.items():
        try:
            name.encode("utf-8")
            cell_text(value).encode("utf-8")
        except UnicodeEncodeError:
            raise DataError(f"{name!a} holds a lone surrogate") from None


def _open_parquet(path: Path, request: ColumnRequest) -> Records:
    schema, count = parquet_schema(path)
    (text,) = parquet_names(path, schema, request)
    repeated = [name for name in schema.names if schema.names.count(name) > 1]
    if repeated:
        raise DataError(f'{path}: several columns are named "{repeated[0]}"; rename all but one')
    columns = tuple(Column(field.name, arrow_type=field.type) for field in schema)

    def read() -> Iterator[Record]:
        done = 0
        for batch in parquet_batches(path, schema.names):
            column_texts(path, done, batch.column(text), text)  # raises if it is not UTF-8
            yield from batch.to_pylist()
            done += len(batch)

    return Records(columns, text, read, count)
