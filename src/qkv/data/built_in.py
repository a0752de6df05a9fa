"""Corpora that need no download, one for each task, made from what every machine has.

language    documentation that ships with Python (a list of documents)
classify    synthetic review sentences from a grammar (labelled negative or positive)
translate   synthetic English sentences about dates and amounts, with German translations
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

from qkv.data.files import join_or
from qkv.data.read import LabelledText, Pair
from qkv.data.synthetic import reviews
from qkv.errors import DataError, unknown
from qkv.files import atomic_write, write_error_message

SKIPPED_DIRS = {  # tests, third-party packages, programs, and what differs between machines
    "test", "tests", "idle_test", "lib2to3", "idlelib", "turtledemo", "pydoc_data", "ensurepip",
    "site-packages", "dist-packages", "__pycache__",
}  # fmt: skip

MIN_DOCSTRINGS = 20  # of a package, to be a label

DocumentedNode = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Docstring:
    """One docstring, its file, and the signature of what it documents, empty for a module."""

    file: str
    signature: str
    text: str


def documentation() -> list[str]:
    """Python's help topics, then one document per module: its docstrings under their signatures."""
    from pydoc_data.topics import topics

    help_topics = [topics[name] for name in sorted(topics) if topics[name].strip()]
    return [*help_topics, *pages(docstrings())]


def first_sentences() -> list[LabelledText]:
    """The first sentence of each docstring, labelled with its package."""
    return beginnings(docstrings())


def docstrings(root: Path | None = None) -> list[Docstring]:
    """Every docstring below a folder, by default the standard library, in the order of the files.

    Sources are parsed, never imported, so nothing is executed. The same Python version gives the
    same docstrings.
    """
    root = root or Path(sysconfig.get_path("stdlib"))
    result: list[Docstring] = []
    for path in _sources(root):
        result += _docstrings(path, path.relative_to(root).as_posix())
    if not result:
        raise DataError(f"there are no Python sources in {root}; use a text file of your own")
    return result


def pages(docstrings: Sequence[Docstring]) -> list[str]:
    """One document per file."""
    by_file: dict[str, list[str]] = {}
    for docstring in docstrings:
        text = docstring.text
        if docstring.signature:
            text = f"{docstring.signature}\n{text}"
        by_file.setdefault(docstring.file, []).append(text)
    return ["\n\n".join(texts) + "\n" for texts in by_file.values()]


def beginnings(docstrings: Sequence[Docstring]) -> list[LabelledText]:
    """First sentences of three words or more that only one package uses, each once."""
    packages: dict[str, set[str]] = {}
    for docstring in docstrings:
        sentence = _first_sentence(docstring.text)
        if len(sentence.split()) >= 3:
            label = docstring.file.partition("/")[0].removesuffix(".py")
            packages.setdefault(sentence, set()).add(label)
    unique = [LabelledText(text, *labels) for text, labels in packages.items() if len(labels) == 1]
    sizes = Counter(example.label for example in unique)
    return [example for example in unique if sizes[example.label] >= MIN_DOCSTRINGS]


def _sources(folder: Path) -> Iterator[Path]:
    """Python files below the folder, without descending into site-packages, which may be huge."""
    for entry in sorted(folder.iterdir()):
        if entry.name in SKIPPED_DIRS:
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
            return  # some files are broken on purpose, as test data
    yield from _walk(tree, name, owner="")


def _walk(node: ast.AST, name: str, owner: str) -> Iterator[Docstring]:
    """The docstring of the node, then those of everything defined in it."""
    if isinstance(node, DocumentedNode):
        text = ast.get_docstring(node)
        if text and text.strip() and _is_utf8(text):
            yield Docstring(name, _signature(node, owner), text)
        if not isinstance(node, ast.Module):
            owner = f"{owner}{node.name}."
    for branch in ("body", "handlers", "orelse", "finalbody"):
        children = getattr(node, branch, ())
        if isinstance(children, list):  # statements; the body of a lambda is an expression
            for child in children:
                yield from _walk(child, name, owner)


def _signature(node: DocumentedNode, owner: str) -> str:
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


def _is_utf8(text: str) -> bool:
    """Whether it can be written as UTF-8: a docstring about surrogates may hold one."""
    return text.isascii() or text.encode("utf-8", "ignore").decode() == text


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
    """Write the corpus in the format of the file's suffix; returns the number of examples.

    Tables have a header. In a .txt a blank line separates documents but may also occur inside one;
    .jsonl keeps them apart. The file is replaced atomically.
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
    """Raise if the corpus cannot be written to this path, before any work is done."""
    _check_name(name)
    suffixes: tuple[str, ...] = (".csv", ".tsv", ".jsonl")
    if name == "language":
        suffixes = (".txt", ".jsonl")
    if path.suffix.lower() not in suffixes:
        raise DataError(f"cannot write {name} to {path}; the name must end in {join_or(suffixes)}")
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
    rows = []
    for example in examples:
        if isinstance(example, str):
            rows.append({"text": example})
        else:
            rows.append(vars(example))
    if suffix == ".jsonl":
        file.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        return
    delimiter = "\t" if suffix == ".tsv" else ","
    writer = csv.DictWriter(file, list(rows[0]), delimiter=delimiter, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
