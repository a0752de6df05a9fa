"""The corpora that need no download: one for each job, made from what every machine has.

language    documentation that ships inside Python (a list of documents)
classify    synthetic review sentences from a grammar (labelled negative or positive)
translate   synthetic English sentences about dates and amounts, with their German ones
embed       first sentences of Python's docstrings (labelled with their package)
"""

import ast
import csv
import io
import json
import re
import sysconfig
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from qkv.data.files import WRITTEN, join_or
from qkv.data.read import LabelledText, Pair
from qkv.data.synthetic import reviews
from qkv.errors import DataError, unknown
from qkv.files import atomic_write, write_error_message

# FOLDED data/docstrings: The documentation inside every Python: docstrings of the standard
#   library, and its topics.
#
#   The sources are parsed, never imported, so reading them runs nothing. The same Python
#   gives the
#   same texts in the same order.

SKIPPED = {  # tests, third-party packages, programs, and what differs between machines
    "test", "tests", "idle_test", "lib2to3", "idlelib", "turtledemo", "pydoc_data", "ensurepip",
    "site-packages", "dist-packages", "__pycache__",
}  # fmt: skip

FEWEST = 20  # docstrings a module needs to be a label

Documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Docstring:
    """One docstring, the file it stands in, and the line that opens what it documents."""

    file: str
    opening: str
    text: str


def documentation() -> list[str]:
    """Python's topics, then one document a module: its docstrings under what they document."""
    from pydoc_data.topics import topics

    return [*_not_blank(topics[name] for name in sorted(topics)), *pages(docstrings())]


def first_sentences() -> list[LabelledText]:
    """How each docstring begins, with the package it comes from as its label."""
    return beginnings(docstrings())


def docstrings(root: Path | None = None) -> list[Docstring]:
    """Every docstring below that folder, by default the standard library, in order of file."""
    root = root or Path(sysconfig.get_path("stdlib"))
    found = [
        docstring
        for path in _sources(root)
        for docstring in _docstrings(path, path.relative_to(root).as_posix())
    ]
    if not found:
        raise DataError(f"there are no Python sources in {root}; give a text file of your own")
    return found


def pages(found: Sequence[Docstring]) -> list[str]:
    """One document a file."""
    parts: dict[str, list[str]] = {}
    for docstring in found:
        if docstring.opening:
            opening = f"{docstring.opening}\n"
        else:
            opening = ""
        parts.setdefault(docstring.file, []).append(opening + docstring.text)
    return ["\n\n".join(texts) + "\n" for texts in parts.values()]


def beginnings(found: Sequence[Docstring]) -> list[LabelledText]:
    """First sentences of three words or more that only one package uses, each once."""
    homes: dict[str, set[str]] = {}
    for docstring in found:
        sentence = _first_sentence(docstring.text)
        if len(sentence.split()) >= 3:
            label = docstring.file.partition("/")[0].removesuffix(".py")
            homes.setdefault(sentence, set()).add(label)
    only = [(text, *labels) for text, labels in homes.items() if len(labels) == 1]
    sizes = Counter(label for _, label in only)
    return [LabelledText(text, label) for text, label in only if sizes[label] >= FEWEST]


def _sources(folder: Path) -> Iterator[Path]:
    """Python files below the folder; site-packages, which may be huge, is not even looked at."""
    for entry in sorted(folder.iterdir()):
        if entry.name in SKIPPED:
            continue
        if entry.is_dir():
            yield from _sources(entry)
        elif entry.suffix == ".py" and not entry.name.startswith("_sysconfigdata"):
            yield entry


def _docstrings(path: Path, name: str) -> Iterator[Docstring]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # old sources have escapes that newer Pythons dislike
        try:
            tree = ast.parse(path.read_bytes())
        except (OSError, SyntaxError, ValueError):
            return  # a file kept broken on purpose documents nothing
    yield from _within(tree, name, owner="")


def _within(node: ast.AST, name: str, owner: str) -> Iterator[Docstring]:
    """The docstring of the node, then those of everything defined in it."""
    if isinstance(node, Documented):
        text = ast.get_docstring(node)
        if text and text.strip() and _encodes(text):
            yield Docstring(name, _opening(node, owner), text)
        if isinstance(node, ast.Module):
            owner = ""
        else:
            owner = f"{owner}{node.name}."
    for branch in ("body", "handlers", "orelse", "finalbody"):  # statements, not expressions
        inner = getattr(node, branch, ())
        for child in inner if isinstance(inner, list) else ():
            yield from _within(child, name, owner)


def _opening(node: Documented, owner: str) -> str:
    if isinstance(node, ast.Module):
        return ""
    if isinstance(node, ast.ClassDef):
        bases = ", ".join(map(ast.unparse, node.bases))
        if bases:
            return f"class {owner}{node.name}({bases})"
        return f"class {owner}{node.name}"
    return f"{owner}{node.name}({ast.unparse(node.args)})"


def _first_sentence(text: str) -> str:
    paragraph = " ".join(text.partition("\n\n")[0].split())
    return re.split(r"(?<=[.!?]) (?=[A-Z])", paragraph)[0]


def _encodes(text: str) -> bool:
    """A docstring about surrogates may hold one, which no UTF-8 file can."""
    return text.isascii() or text.encode("utf-8", "ignore").decode() == text


def _not_blank(texts: Iterator[str]) -> Iterator[str]:
    return (text for text in texts if text.strip())


def _translations() -> list[Pair]:
    """English sentences about dates and amounts with their German translations."""
    from qkv.data.synthetic import translations

    return translations()


BUILT_IN: dict[str, Callable[[], list[Any]]] = {
    "language": documentation,
    "classify": reviews,
    "translate": _translations,
    "embed": first_sentences,
}


def built_in(name: str) -> list[Any]:
    """The examples of that corpus: texts, labelled texts or pairs."""
    _check_name(name)
    return BUILT_IN[name]()


def write_built_in(name: str, path: Path) -> int:
    """Write the corpus in the format the file's ending asks for; the number of its examples.

    A table has a header. In a .txt a blank line stands between two documents, and may stand
    inside one: .jsonl keeps them apart. What was in the file is replaced once all is written.
    """
    check_output_path(name, path)
    examples = built_in(name)
    content = io.StringIO(newline="")
    _write(examples, path.suffix.lower(), content)
    try:
        atomic_write(path, content.getvalue().encode())
    except OSError as error:
        raise DataError(write_error_message(path, error)) from error
    return len(examples)


def check_output_path(name: str, path: Path) -> None:
    """Refuse what cannot be written there, before any work is done."""
    _check_name(name)
    endings: tuple[str, ...] = WRITTEN
    if name == "language":
        endings = (".txt", ".jsonl")
    if path.suffix.lower() not in endings:
        raise DataError(f"cannot write {name} to {path}; the name must end in {join_or(endings)}")
    if path.is_dir():
        raise DataError(f"{path} is a folder; name a file in it")
    if not path.parent.is_dir():
        raise DataError(f"there is no folder {path.parent}; make it first")


def _check_name(name: str) -> None:
    if name not in BUILT_IN:
        raise DataError(unknown("corpus", name, BUILT_IN))


def _write(examples: list[Any], suffix: str, file: TextIO) -> None:
    if suffix == ".txt":
        file.write("\n".join(document.rstrip("\n") + "\n" for document in examples))
        return
    rows = [{"text": e} if isinstance(e, str) else vars(e) for e in examples]
    if suffix == ".jsonl":
        file.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        return
    delimiter = "\t" if suffix == ".tsv" else ","
    writer = csv.DictWriter(file, list(rows[0]), delimiter=delimiter, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
