"""The rows of .csv and .tsv files as lists of fields.

In a .csv, a field in double quotes may hold commas, line breaks and, doubled, quotes. Spreadsheets
in many countries write semicolons or tabs between the fields of a .csv; which of the three is used
is seen from the first rows.

Many .tsv files are written without any quoting, and a sentence that begins with a quotation mark
must not swallow the rows below it: a line is a row if that gives every row the same number of
fields, and only otherwise may a quoted field span several lines. So a .csv is streamed, while all
lines of a .tsv are in memory before its first row is returned.
"""

import csv
import sys
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import closing, suppress
from itertools import chain, islice
from pathlib import Path

from qkv.data.files import raw_lines, strip_newline
from qkv.data.problems import BadRow
from qkv.errors import DataError

Row = tuple[int, list[str]]  # line number and fields

TSV_SUFFIXES = (".tsv", ".tab")

SEPARATORS = {",": "comma", ";": "semicolon", "\t": "tab"}
SAMPLE_LINES = 20  # from which the separator of a .csv is found
MIN_EVEN = 0.75  # fraction of the sampled rows with as many fields as the first

UNCLOSED = "unexpected end of data"
CSV_ERRORS = {  # part of the csv module's message → what is wrong, and what to do
    UNCLOSED: ("a quote is opened here and never closed", ""),
    "expected after": (
        "a closing quote must end its field",
        "write a quote inside a field twice",
    ),
    "new-line character": (
        "a field without quotes holds a carriage return",
        "end lines with \\n",
    ),
}


def read_delimited(path: Path) -> Iterator[Row | BadRow]:
    """Every row that is not blank, with its line number; all have as many fields as the first."""
    if path.suffix.lower() in TSV_SUFFIXES:
        yield from _equal_widths(_tsv(path), "")
        return
    # Closed explicitly: a traceback keeps the generator, and with it the file, alive otherwise.
    with closing(raw_lines(path)) as lines:
        sample = list(islice(lines, SAMPLE_LINES))
        separator = find_separator(sample)
        hint = f"put a field that holds a {SEPARATORS[separator]} in double quotes"
        with closing(_csv(path, chain(sample, lines), separator)) as rows:
            yield from _equal_widths(rows, hint)


def file_separator(path: Path) -> str:
    """The character between the fields of a file."""
    if path.suffix.lower() in TSV_SUFFIXES:
        return "\t"
    with closing(raw_lines(path)) as lines:
        return find_separator(list(islice(lines, SAMPLE_LINES)))


def find_separator(lines: Sequence[str]) -> str:
    """A comma, unless a semicolon or a tab splits these lines into rows and a comma does not."""
    evenness = {separator: _evenness(lines, separator) for separator in SEPARATORS}
    best = max(evenness, key=lambda separator: evenness[separator])  # the first of equals
    if evenness[best] >= MIN_EVEN and evenness[","] < MIN_EVEN:
        return best
    return ","


def _evenness(lines: Sequence[str], separator: str) -> float:
    """The fraction of rows with as many fields as the first; 0 if that has only one."""
    widths: list[int] = []
    reader = csv.reader(lines, delimiter=separator)
    with suppress(csv.Error):
        while (cells := _next_row(reader)) is not None:
            if cells:
                widths.append(len(cells))
    if len(lines) == SAMPLE_LINES and len(widths) > 1:
        widths.pop()  # may be cut off within a quoted field
    if not widths or widths[0] < 2:
        return 0.0
    return widths.count(widths[0]) / len(widths)


def _equal_widths(rows: Iterable[Row | BadRow], advice: str) -> Iterator[Row | BadRow]:
    first: Row | None = None
    for row in rows:
        if isinstance(row, BadRow):
            yield row
            continue
        first = first or row
        if len(row[1]) == len(first[1]):
            yield row
        else:
            fields = "field" if len(row[1]) == 1 else "fields"
            expected = f"line {first[0]} has {len(first[1])}"
            yield BadRow(row[0], f"{len(row[1])} {fields} where {expected}", advice)


def _csv(path: Path, lines: Iterable[str], separator: str) -> Generator[Row | BadRow, None, None]:
    for row in _quoted(lines, separator):
        if not isinstance(row, _QuoteError):
            yield row
            continue
        reason = row.reason
        advice = ""
        for fragment, explanation in CSV_ERRORS.items():
            if fragment in row.reason:
                reason, advice = explanation
                break
        if UNCLOSED in row.reason:  # the rest of the file is lost: too much to skip
            raise DataError(f"{path} line {row.start}: {reason}")
        yield BadRow(row.start, reason, advice, row.end)


def _tsv(path: Path) -> list[Row]:
    lines = list(raw_lines(path))
    plain: list[Row] = []
    for number, line in enumerate(map(strip_newline, lines), start=1):
        if line:
            width = len(plain[0][1]) if plain else None
            plain.append((number, _line_cells(line, width)))
    if _is_uneven(plain):
        with suppress(_QuoteError):
            quoted = list(_strictly_quoted(lines))
            if not _is_uneven(quoted):
                return quoted
    return plain


def _line_cells(line: str, width: int | None) -> list[str]:
    """The fields of one line, without their quotes if they are quoted throughout."""
    if '"' in line:
        with suppress(_QuoteError):
            ((_, cells),) = _strictly_quoted([line])
            if width in (None, len(cells)):
                return cells
    return line.split("\t")


class _QuoteError(Exception):
    """Quotes that do not match, in the row from line `start` to line `end`."""

    def __init__(self, reason: str, start: int, end: int) -> None:
        super().__init__(reason)
        self.reason = reason
        self.start = start
        self.end = end


def _strictly_quoted(lines: Iterable[str]) -> Iterator[Row]:
    """The rows of a .tsv; a mistake in its quotes is raised."""
    for row in _quoted(lines, "\t"):
        if isinstance(row, _QuoteError):
            raise row
        yield row


def _quoted(lines: Iterable[str], separator: str) -> Iterator[Row | _QuoteError]:
    reader = csv.reader(lines, delimiter=separator, strict=True)
    start = 1
    while True:
        try:
            cells = _next_row(reader)
        except csv.Error as error:
            yield _QuoteError(str(error), start, reader.line_num)
            start = reader.line_num + 1
            continue
        if cells is None:
            return
        if cells:
            yield start, cells
        start = reader.line_num + 1


def _is_uneven(rows: list[Row]) -> bool:
    """Whether a row has another number of fields than the very first."""
    return any(len(row[1]) != len(rows[0][1]) for row in rows)


def _next_row(reader: Iterator[list[str]]) -> list[str] | None:
    """The next row of any length: the csv module's limit is global, so it is restored after."""
    limit = csv.field_size_limit(min(sys.maxsize, 2**31 - 1))
    try:
        return next(reader, None)
    finally:
        csv.field_size_limit(limit)
