"""The rows of a .csv or .tsv file, with the line each begins on.

In .csv a field in double quotes may hold commas, line breaks and, written twice, quotes. Many .tsv
files are written without any quoting, and a sentence that opens with a quote mark must not swallow
the rows below it: there a row is a line if that gives every row equally many fields, and only
otherwise may a quoted field go over several lines. So a .csv is a stream, and a .tsv is not: all
of its lines are in memory before its first row comes out.
"""

import csv
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from qkv.data.lines import raw_lines, without_end
from qkv.errors import DataError

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
    for number, line in enumerate(map(without_end, lines), start=1):
        if line:
            plain.append((number, _line_cells(line, len(plain[0][1]) if plain else None)))
    if _uneven(plain):
        with suppress(_QuoteError):
            quoted = list(_quoted(lines, "\t"))
            return plain if _uneven(quoted) else quoted
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
    hint = (
        "; put a field that holds a comma in double quotes" if path.suffix.lower() == ".csv" else ""
    )
    fields = "field" if len(cells) == 1 else "fields"
    return f"{path} line {line}: {len(cells)} {fields} where line {first} has {len(others)}{hint}"


def _next_row(reader: Iterator[list[str]]) -> list[str] | None:
    """The csv module refuses long texts unless told otherwise, and that for the whole process."""
    before = csv.field_size_limit(min(sys.maxsize, 2**31 - 1))
    try:
        return next(reader, None)
    finally:
        csv.field_size_limit(before)
