"""The corpora that need no download: one for each job, made from what every machine has.

language    documentation that ships inside Python (a list of documents)
classify    synthetic review sentences from a grammar (labelled negative or positive)
translate   synthetic English sentences about dates and amounts, with their German ones
embed       first sentences of Python's docstrings (labelled with their package)
"""

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TextIO

from qkv.data.docstrings import documentation, first_sentences
from qkv.data.endings import WRITTEN, either
from qkv.data.examples import Pair
from qkv.data.reviews import reviews
from qkv.errors import DataError, unknown
from qkv.files import replace_file, unwritten


def _translations() -> list[Pair]:
    """English sentences about dates and amounts with their German translations."""
    from qkv.data.translations import translations  # Babel is only needed here

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
    check_place(name, path)
    examples, content = built_in(name), io.StringIO(newline="")
    _write(examples, path.suffix.lower(), content)
    try:
        replace_file(path, content.getvalue().encode())
    except OSError as error:
        raise DataError(unwritten(path, error)) from error
    return len(examples)


def check_place(name: str, path: Path) -> None:
    """Refuse what cannot be written there, before any work is done."""
    _check_name(name)
    endings = (".txt", ".jsonl") if name == "language" else WRITTEN
    if path.suffix.lower() not in endings:
        raise DataError(f"cannot write {name} to {path}; the name must end in {either(endings)}")
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
