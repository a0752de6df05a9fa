"""Answers as a table: every row that was read, with all its columns, and the answer next to them.

The format is that of the file's name. The file appears under its name once it is complete.
"""

import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import date, datetime, time
from pathlib import Path
from typing import Any, ClassVar, TextIO

from qkv.data.delimited import TSV_SUFFIXES
from qkv.data.files import TABLE_SUFFIXES, join_or
from qkv.data.records import Column, Record, Records, RowQueue, columns_of, unique_name
from qkv.data.table import cell_text, json_value, require_openpyxl, require_pyarrow
from qkv.errors import DataError, UsageError
from qkv.files import atomic_path, write_error_message

PARQUET_GROUP_ROWS = 1024

# The limits of Excel.
MAX_SHEET_ROWS = 1_048_576
MAX_CELL_CHARACTERS = 32_767
MAX_EXACT_INTEGER = 10**15


class TableOutput:
    """A table that is written while its texts are computed, in the order of the rows.

    results: the columns to add. One whose name the table already has gets another; `renamed` maps
    the names. A row with a blank text is written without results, unless `blank_texts`.
    """

    def __init__(
        self,
        records: Records,
        results: Sequence[Column],
        writer: "TableWriter",
        renamed: Mapping[str, str],
        blank_texts: bool,
    ) -> None:
        self.results = [column.name for column in results]
        self.renamed = renamed
        self.rows = 0
        self.blank_rows = 0
        self._queue = RowQueue(records)
        self._writer = writer
        self._blank_texts = blank_texts

    def texts(self) -> Iterator[str]:
        """The texts of all rows; `add` has to be called for each that is not blank."""
        return self._queue.texts()

    @property
    def next_row(self) -> int:
        """The number, from 1, of the row that the next `add` belongs to."""
        number = self.rows + 1
        for text, _ in self._queue.waiting:
            if self._takes_results(text):
                break
            number += 1
        return number

    def add(self, results: Mapping[str, Any]) -> None:
        """Write the next row that has a text, and the rows without one before it."""
        self._write_blank_rows()
        (record,) = self._queue.take(1)
        self._write(record, results)

    def finish(self) -> None:
        self._write_blank_rows()

    def _write_blank_rows(self) -> None:
        while self._queue.waiting and not self._takes_results(self._queue.waiting[0][0]):
            (record,) = self._queue.take(1)
            self._write(record, dict.fromkeys(self.results))
            self.blank_rows += 1

    def _takes_results(self, text: str) -> bool:
        return self._blank_texts or bool(text.strip())

    def _write(self, record: Record, results: Mapping[str, Any]) -> None:
        row = dict(record)
        for name, value in results.items():
            row[self.renamed.get(name, name)] = value
        self.rows += 1
        self._writer.write(row)


@contextmanager
def table_output(
    path: Path, records: Records, results: Sequence[Column], *, blank_texts: bool = False
) -> Iterator[TableOutput]:
    """The output while it is open; the file is there at the end, and not at all after an error."""
    columns, renamed = add_columns(records.columns, results)
    kind = WRITERS[path.suffix.lower()]
    if kind is ExcelWriter and (records.count or 0) >= MAX_SHEET_ROWS:
        raise UsageError(
            f"{path}: {records.count:,} rows are more than a sheet of Excel holds; write a .csv"
        )
    try:
        with atomic_path(path) as staging:
            writer = kind(staging, columns, _separator(path, records))
            output = TableOutput(records, results, writer, renamed, blank_texts)
            try:
                yield output
                output.finish()
            except BaseException:
                with suppress(Exception):  # the first error counts
                    writer.close()
                raise
            writer.close()
    except OSError as error:
        raise DataError(write_error_message(path, error)) from error


def write_rows(path: Path, rows: Sequence[Record]) -> None:
    """Write rows in the format of the file's name; the file appears once it is complete."""
    try:
        with atomic_path(path) as staging:
            separator = "\t" if path.suffix.lower() in TSV_SUFFIXES else ","
            writer = WRITERS[path.suffix.lower()](staging, columns_of(rows), separator)
            for row in rows:
                writer.write(row)
            writer.close()
    except OSError as error:
        raise DataError(write_error_message(path, error)) from error


def check_table_path(path: Path, force: bool = False) -> None:
    """Raise an error about a table that could not be written, before any work is done."""
    suffix = path.suffix.lower()
    if suffix not in WRITERS:
        raise UsageError(f"{path} must end in {join_or(TABLE_SUFFIXES)}")
    if suffix == ".parquet":
        require_pyarrow("writing a .parquet file")
    if suffix == ".xlsx":
        require_openpyxl("writing an .xlsx file")
    if path.is_dir():
        raise UsageError(f"{path} is a folder; name a file in it")
    if not path.parent.is_dir():
        raise DataError(f"there is no folder {path.parent} to write {path.name} to; make it first")
    if path.exists() and not force:
        raise UsageError(f"{path} exists; pass force=True to overwrite it")


def add_columns(
    columns: Sequence[Column], results: Sequence[Column]
) -> tuple[list[Column], dict[str, str]]:
    """All columns of the output, and the new names of results whose own name was taken."""
    everything = list(columns)
    renamed = {}
    for column in results:
        name = unique_name(column.name, [other.name for other in everything])
        if name != column.name:
            renamed[column.name] = name
        everything.append(Column(name, column.kind, column.arrow_type))
    return everything, renamed


def _separator(path: Path, records: Records) -> str:
    """A .csv is written with the separator of the table it comes from, if that is a .csv too."""
    if path.suffix.lower() in TSV_SUFFIXES:
        return "\t"
    if records.separator == "\t":
        return ","
    return records.separator


class TableWriter(ABC):
    """Writes one row after another; a new format is a subclass and an entry in `WRITERS`."""

    suffixes: ClassVar[tuple[str, ...]]

    @abstractmethod
    def __init__(self, path: Path, columns: Sequence[Column], separator: str) -> None: ...

    @abstractmethod
    def write(self, row: Record) -> None:
        """Append a row; columns it does not have are empty."""

    @abstractmethod
    def close(self) -> None:
        """Write what is still in memory, and close the file."""


class DelimitedWriter(TableWriter):
    """A header and one row per line; a field is quoted where it has to be."""

    suffixes = (".csv", ".tsv", ".tab")

    def __init__(self, path: Path, columns: Sequence[Column], separator: str) -> None:
        self.names = [column.name for column in columns]
        self.separator = separator
        self.file = _open_text(path)
        self._write_line(self.names)

    def write(self, row: Record) -> None:
        self._write_line([cell_text(row.get(name)) for name in self.names])

    def close(self) -> None:
        self.file.close()

    def _write_line(self, cells: list[str]) -> None:
        line = self.separator.join(map(self._quote, cells))
        if not line:
            line = '""'  # an empty line would be no row
        self.file.write(f"{line}\n")

    def _quote(self, cell: str) -> str:
        # The csv module of Python 3.11 leaves a carriage return unquoted.
        special = any(character in cell for character in (self.separator, "\n", "\r"))
        # Many programs read a .tsv without quoting, so quotes are doubled only where they must be.
        has_quotes = cell.startswith('"') if self.separator == "\t" else '"' in cell
        if special or has_quotes:
            doubled = cell.replace('"', '""')
            return f'"{doubled}"'
        return cell


class JsonLinesWriter(TableWriter):
    """One object per line, with the fields it had and the results."""

    suffixes = (".jsonl",)

    def __init__(self, path: Path, columns: Sequence[Column], separator: str) -> None:
        self.file = _open_text(path)

    def write(self, row: Record) -> None:
        self.file.write(json.dumps(json_value(row), ensure_ascii=False) + "\n")

    def close(self) -> None:
        self.file.close()


class ParquetWriter(TableWriter):
    """Row groups of a thousand rows; columns of a Parquet file keep their types."""

    suffixes = (".parquet",)

    def __init__(self, path: Path, columns: Sequence[Column], separator: str) -> None:
        arrow = require_pyarrow("writing a .parquet file")
        self.columns = columns
        self.rows: list[Record] = []
        schema = arrow.schema(arrow_fields(columns))
        self.writer = arrow.parquet.ParquetWriter(path, schema)

    def write(self, row: Record) -> None:
        self.rows.append(row)
        if len(self.rows) == PARQUET_GROUP_ROWS:
            self._flush()

    def close(self) -> None:
        if self.rows:
            self._flush()
        self.writer.close()

    def _flush(self) -> None:
        arrow = require_pyarrow("writing a .parquet file")
        arrays = arrow_arrays(self.columns, self.rows)
        self.writer.write_batch(arrow.record_batch(arrays, schema=self.writer.schema))
        self.rows = []


class ExcelWriter(TableWriter):
    """One sheet; a text is never taken for a formula, and a long number is a text."""

    suffixes = (".xlsx",)

    def __init__(self, path: Path, columns: Sequence[Column], separator: str) -> None:
        self.openpyxl = require_openpyxl("writing an .xlsx file")
        self.path = path
        self.names = [column.name for column in columns]
        self.book = self.openpyxl.Workbook(write_only=True)
        self.sheet = self.book.create_sheet("qkv")
        self.count = 1
        self.sheet.append([self._cell(name, name) for name in self.names])

    def write(self, row: Record) -> None:
        self.count += 1
        self.sheet.append([self._cell(name, row.get(name)) for name in self.names])

    def close(self) -> None:
        self.book.save(self.path)

    def _cell(self, name: str, value: Any) -> Any:
        if value is None or _is_excel_value(value):
            return value
        text = cell_text(value)
        if len(text) > MAX_CELL_CHARACTERS:
            raise DataError(
                f'row {self.count}: "{name}" has {len(text):,} characters, but a cell of an .xlsx '
                f"file holds at most {MAX_CELL_CHARACTERS:,}; write a .csv, .jsonl or .parquet"
            )
        illegal = self.openpyxl.cell.cell.ILLEGAL_CHARACTERS_RE
        escaped = illegal.sub(lambda match: f"_x{ord(match[0]):04X}_", text)
        cell = self.openpyxl.cell.WriteOnlyCell(self.sheet, escaped)
        cell.data_type = "s"
        return cell


def _is_excel_value(value: Any) -> bool:
    """Whether Excel has that value itself; it rounds long integers, and has no time zones."""
    if isinstance(value, datetime | time):
        return value.tzinfo is None
    if isinstance(value, int):
        return abs(value) < MAX_EXACT_INTEGER
    if isinstance(value, float):
        return abs(value) < float("inf")
    return isinstance(value, date)


WRITERS: dict[str, type[TableWriter]] = {
    suffix: kind
    for kind in (DelimitedWriter, JsonLinesWriter, ParquetWriter, ExcelWriter)
    for suffix in kind.suffixes
}


def arrow_fields(columns: Sequence[Column]) -> list[tuple[str, Any]]:
    """The name and Arrow type of each column."""
    arrow = require_pyarrow("writing a .parquet file")
    types = {
        "text": arrow.string(),
        "integer": arrow.int64(),
        "number": arrow.float64(),
        "boolean": arrow.bool_(),
    }
    return [(column.name, column.arrow_type or types[column.kind]) for column in columns]


def arrow_arrays(columns: Sequence[Column], rows: Sequence[Record]) -> list[Any]:
    """The cells of each column as an Arrow array."""
    arrow = require_pyarrow("writing a .parquet file")
    arrays = []
    for column, (_, dtype) in zip(columns, arrow_fields(columns), strict=True):
        cells = [row.get(column.name) for row in rows]
        if column.arrow_type is None and column.kind == "text":
            cells = [None if cell is None else cell_text(cell) for cell in cells]
        arrays.append(arrow.array(cells, dtype))
    return arrays


def _open_text(path: Path) -> TextIO:
    return path.open("w", encoding="utf-8", newline="")
