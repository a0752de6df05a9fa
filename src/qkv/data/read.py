"""Reads examples from files: documents, lines, labelled texts, pairs and scored pairs."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from qkv.data.documents import file_chunks, find_documents, join_chunks
from qkv.data.files import TABLE_SUFFIXES, find_files, is_table, join_or, text_lines
from qkv.data.problems import BadRow, BadRows
from qkv.data.table import read_table, table_rows
from qkv.errors import DataError


@dataclass(frozen=True)
class LabelledText:
    """A text and the name of its class."""

    text: str
    label: str


@dataclass(frozen=True)
class Pair:
    """A text and its translation."""

    source: str
    target: str


@dataclass(frozen=True)
class ScoredPair:
    """Two texts and the similarity of their meanings, on the scale of their file."""

    source: str
    target: str
    score: float


def read_texts(paths: Sequence[Path], text: str | None = None) -> list[str]:
    """The documents of files, folders and glob patterns, in order.

    A plain text file is one document, and so is each row of a table, from the column `text` (a
    name, or a number from 1; without it, the column with a known title). A folder stands for all
    .txt files in it.
    """
    files = find_documents(paths, text)
    return [document for path in files for document in join_chunks(file_chunks(path, text, 0))]


def read_lines(
    paths: Sequence[Path], text: str | None = None, bad_rows: BadRows | None = None
) -> list[str]:
    """Short texts, in order: each line of a plain file that is not blank, each row of a table.

    `text` and folders as in `read_texts`; `bad_rows` as in `read_labelled`.
    """
    bad_rows = bad_rows or BadRows()
    texts: list[str] = []
    for path in find_documents(paths, text):
        if is_table(path):
            texts += (row for (row,) in read_table(path, {"text": text}, bad_rows))
            continue
        lines = [line for line in text_lines(path) if line.strip()]
        if not lines:
            raise DataError(f"{path} is empty; it holds no lines")
        texts += lines
    bad_rows.check()
    return texts


def read_labelled(
    paths: Sequence[Path],
    text: str | None = None,
    label: str | None = None,
    min_labels: int = 2,
    bad_rows: BadRows | None = None,
) -> list[LabelledText]:
    """The labelled texts of tables; a DataError with fewer than `min_labels` different labels.

    Columns are named, or numbered from 1. By default they are found by their titles; in a table of
    two columns without a header, the text is first and the label second.

    Rows that cannot be used are collected in `bad_rows` and, unless it skips them, raised together.
    """
    request = {"text": text, "label": label}
    bad_rows = bad_rows or BadRows()
    examples: list[LabelledText] = []
    for path in find_files(paths, folders=False):
        table = read_table(path, request, bad_rows)
        rows = [LabelledText(text, label.strip()) for text, label in table]
        if request == {"text": None, "label": None}:
            _check_order(path, rows)
        examples += rows
    bad_rows.check()
    if len({example.label for example in examples}) < min_labels:
        raise DataError(
            f'{paths[0]}: every row has the label "{examples[0].label}" ({len(examples)} in all); '
            "at least two different labels are needed"
        )
    return examples


def read_pairs(
    paths: Sequence[Path],
    source: str | None = None,
    target: str | None = None,
    bad_rows: BadRows | None = None,
) -> list[Pair]:
    """Texts with their translations, from two columns of tables or from two parallel files.

    With `paths`, source and target are columns as in `read_labelled`. Without, they are the paths
    of two files with a sentence and its translation on the same line. `bad_rows` as in
    `read_labelled`; in parallel files, empty lines.
    """
    bad_rows = bad_rows or BadRows()
    if not paths:
        return _read_parallel_files(source, target, bad_rows)
    pairs: list[Pair] = []
    for path in find_files(paths, folders=False):
        if not is_table(path):
            raise DataError(
                f"{path} is not a table; give {join_or(TABLE_SUFFIXES)}, or two parallel files "
                "with source=FILE and target=FILE"
            )
        request = {"source": source, "target": target}
        pairs += (Pair(*row) for row in read_table(path, request, bad_rows))
    bad_rows.check()
    return pairs


def read_scored(
    paths: Sequence[Path],
    source: str | None = None,
    target: str | None = None,
    score: str | None = None,
    bad_rows: BadRows | None = None,
) -> list[ScoredPair]:
    """Pairs of texts with a similarity score, from three columns of tables.

    Columns as in `read_labelled`; a table of three columns without a header has them in order.
    `bad_rows` as in `read_labelled`.
    """
    request = {"source": source, "target": target, "score": score}
    bad_rows = bad_rows or BadRows()
    pairs: list[ScoredPair] = []
    for path in find_files(paths, folders=False):
        count = len(pairs)
        first = True
        for number, (first_text, second_text, cell) in table_rows(path, request, bad_rows):
            value = _finite_number(cell)
            if value is None:
                advice = "every row needs a finite number in the score column"
                if first:
                    advice = "if this is a header, name the columns for source, target and score"
                bad_rows.add(path, BadRow(number, f'the score "{cell}" is not a number', advice))
            else:
                pairs.append(ScoredPair(first_text, second_text, value))
            first = False
        if len(pairs) == count:
            raise bad_rows.error()
    bad_rows.check()
    return pairs


def _finite_number(cell: str) -> float | None:
    try:
        value = float(cell)
    except ValueError:
        return None
    if math.isfinite(value):
        return value
    return None


def _read_parallel_files(source: str | None, target: str | None, bad_rows: BadRows) -> list[Pair]:
    if source is None or target is None:
        raise DataError("parallel files need both source=FILE and target=FILE")
    sides = [(Path(name), list(text_lines(Path(name)))) for name in (source, target)]
    for path, side in sides:
        if not side:
            raise DataError(f"{path} is empty; it holds no lines")
    (source_path, sources), (target_path, targets) = sides
    if len(sources) != len(targets):
        raise DataError(
            f"{source_path} has {len(sources):,} lines but {target_path} has {len(targets):,}; "
            "parallel files need the same number of lines"
        )
    pairs = []
    for number, pair in enumerate(zip(sources, targets, strict=True), start=1):
        blank = [path for (path, _), line in zip(sides, pair, strict=True) if not line.strip()]
        if blank:
            bad_rows.add(blank[0], BadRow(number, "the line is empty", "every line needs text"))
        else:
            pairs.append(Pair(*pair))
    bad_rows.check()
    if not pairs:
        raise bad_rows.error()
    return pairs


def _check_order(path: Path, examples: Sequence[LabelledText]) -> None:
    """Columns were guessed: few different texts with many labels are probably swapped."""
    texts = len({example.text for example in examples})
    labels = len({example.label for example in examples})
    if len(examples) >= 10 and texts * 2 <= labels:
        raise DataError(
            f"{path}: {texts} different texts have {labels} different labels; if the label comes "
            "first, pass text=2 and label=1"
        )
