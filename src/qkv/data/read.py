"""People's own files as examples: documents, labelled texts, pairs of texts."""

from collections.abc import Sequence
from pathlib import Path

from qkv.data.examples import Labelled, Pair
from qkv.data.files import find_files
from qkv.data.lines import lines, read_document
from qkv.data.table import is_table, read_table
from qkv.errors import DataError


def read_texts(paths: Sequence[Path], text: str | None = None) -> list[str]:
    """The documents of files, folders and patterns, in order.

    A plain text file is one document, a folder all its .txt files; each row of a .csv, .tsv or
    .jsonl is one, from the column `text` (a name, or a number from 1; else the usual one).
    """
    documents: list[str] = []
    for path in find_files(paths, folders=True):
        if is_table(path):
            documents += (document for (document,) in read_table(path, {"text": text}))
        elif text is not None:
            raise DataError(f"{path} is plain text and has no column {text}; leave --text out")
        else:
            documents.append(read_document(path))
    return documents


def read_labelled(
    paths: Sequence[Path], text: str | None = None, label: str | None = None
) -> list[Labelled]:
    """The labelled texts of .csv, .tsv and .jsonl files; two different labels at least.

    Columns are asked for by name or by number from 1. Without either, those with the usual titles
    are meant, or in a table of two columns without a header: first the text, then its label.
    """
    asked = {"text": text, "label": label}
    examples: list[Labelled] = []
    for path in find_files(paths, folders=False):
        read = [Labelled(text, label.strip()) for text, label in read_table(path, asked)]
        if asked == {"text": None, "label": None}:
            _check_order(path, read)
        examples += read
    if len({example.label for example in examples}) == 1:
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
                f"{path} is no table; give .csv, .tsv or .jsonl, or two parallel files with "
                "--source FILE --target FILE"
            )
        pairs += (Pair(*row) for row in read_table(path, {"source": source, "target": target}))
    return pairs


def _parallel(source: str | None, target: str | None) -> list[Pair]:
    if source is None or target is None:
        raise DataError("parallel files need both: --source FILE and --target FILE")
    sides = [(Path(name), list(lines(Path(name)))) for name in (source, target)]
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


def _check_order(path: Path, examples: Sequence[Labelled]) -> None:
    """Nobody said which column is which: few texts with many labels are the wrong way round."""
    texts, labels = (len({getattr(e, role) for e in examples}) for role in ("text", "label"))
    if len(examples) >= 10 and texts * 2 <= labels:
        raise DataError(
            f"{path}: {texts} different texts have {labels} different labels; if the label comes "
            "first, say --text 2 --label 1"
        )
