"""People's own files as examples: documents, lines, labelled texts, pairs of texts."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from qkv.data.documents import file_chunks, find_documents, join_chunks
from qkv.data.files import TABLES, find_files, is_table, join_or, text_lines
from qkv.data.table import read_table, row_location, table_rows
from qkv.errors import DataError

# FOLDED data/examples: What one example is, when it is more than a text.


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
    """Two texts and how alike their meanings are, on the scale of their file."""

    source: str
    target: str
    score: float


def read_texts(paths: Sequence[Path], text: str | None = None) -> list[str]:
    """The documents of files, folders and patterns, in order.

    A plain text file is one document, a folder all its .txt files; each row of a table
    is one, from the column `text` (a name, or a number from 1; else the usual one).
    """
    files = find_documents(paths, text)
    return [document for path in files for document in join_chunks(file_chunks(path, text, 0))]


def read_lines(paths: Sequence[Path], text: str | None = None) -> list[str]:
    """Short texts, in order: each line of a plain file that is not blank, each row of a table.

    `text` is the column of tables, and a folder all its .txt files, as in `read_texts`.
    """
    texts: list[str] = []
    for path in find_documents(paths, text):
        if is_table(path):
            texts += (row for (row,) in read_table(path, {"text": text}))
        elif found := [line for line in text_lines(path) if line.strip()]:
            texts += found
        else:
            raise DataError(f"{path} is empty; it holds no lines")
    return texts


def read_labelled(
    paths: Sequence[Path], text: str | None = None, label: str | None = None, least: int = 2
) -> list[LabelledText]:
    """The labelled texts of tables; `least` different labels at least.

    Columns are asked for by name or by number from 1. Without either, those with the usual titles
    are meant, or in a table of two columns without a header: first the text, then its label.
    """
    asked = {"text": text, "label": label}
    examples: list[LabelledText] = []
    for path in find_files(paths, folders=False):
        read = [LabelledText(text, label.strip()) for text, label in read_table(path, asked)]
        if asked == {"text": None, "label": None}:
            _check_order(path, read)
        examples += read
    if len({example.label for example in examples}) < least:
        raise DataError(
            f'{paths[0]}: every row has the label "{examples[0].label}" ({len(examples)} in all); '
            "two different labels are needed at least"
        )
    return examples


def read_pairs(
    paths: Sequence[Path], source: str | None = None, target: str | None = None
) -> list[Pair]:
    """Texts with their translations: from two columns of tables, or from two parallel files.

    With `paths`, source and target are columns as in `read_labelled`. Without, they are the paths
    of two files where the same line is the same sentence.
    """
    if not paths:
        return _parallel(source, target)
    pairs: list[Pair] = []
    for path in find_files(paths, folders=False):
        if not is_table(path):
            raise DataError(
                f"{path} is no table; give {join_or(TABLES)}, or two parallel files with "
                "source=FILE and target=FILE"
            )
        pairs += (Pair(*row) for row in read_table(path, {"source": source, "target": target}))
    return pairs


def read_scored(
    paths: Sequence[Path],
    source: str | None = None,
    target: str | None = None,
    score: str | None = None,
) -> list[ScoredPair]:
    """Pairs of texts with a number that says how alike they are, from three columns of tables.

    Columns as in `read_labelled`; a table of three columns without a header has them in order.
    """
    asked = {"source": source, "target": target, "score": score}
    pairs: list[ScoredPair] = []
    for path in find_files(paths, folders=False):
        first = True
        for number, (one, other, written) in table_rows(path, asked):
            value = _number(written)
            if value is None:
                if first:
                    hint = "if this is a header, name its columns with source=, target= and score="
                else:
                    hint = "every row needs a finite one in the column score="
                raise DataError(
                    f'{row_location(path, number)}: the score "{written}" is no number; {hint}'
                )
            pairs.append(ScoredPair(one, other, value))
            first = False
    return pairs


def _number(written: str) -> float | None:
    try:
        value = float(written)
    except ValueError:
        return None
    if math.isfinite(value):
        return value
    return None


def _parallel(source: str | None, target: str | None) -> list[Pair]:
    if source is None or target is None:
        raise DataError("parallel files need both: source=FILE and target=FILE")
    sides = [(Path(name), list(text_lines(Path(name)))) for name in (source, target)]
    for path, side in sides:
        if not side:
            raise DataError(f"{path} is empty; it holds no lines")
    (one, sources), (other, targets) = sides
    if len(sources) != len(targets):
        raise DataError(
            f"{one} has {len(sources):,} lines but {other} has {len(targets):,}; "
            "parallel files need equally many"
        )
    for path, side in sides:
        for number, line in enumerate(side, start=1):
            if not line.strip():
                raise DataError(f"{path} line {number}: the line is empty; every line needs a text")
    return [Pair(*pair) for pair in zip(sources, targets, strict=True)]


def _check_order(path: Path, examples: Sequence[LabelledText]) -> None:
    """Nobody said which column is which: few texts with many labels are the wrong way round."""
    texts, labels = (len({getattr(e, role) for e in examples}) for role in ("text", "label"))
    if len(examples) >= 10 and texts * 2 <= labels:
        raise DataError(
            f"{path}: {texts} different texts have {labels} different labels; if the label comes "
            "first, pass text=2 and label=1"
        )
