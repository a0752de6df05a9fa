"""The texts a command answers for: its arguments, the lines of a file, or standard input."""

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated

import typer

from qkv.cli.exclusive import only_one
from qkv.cli.progress import say
from qkv.errors import UsageError

Texts = Annotated[
    list[str] | None,
    typer.Argument(help="Texts; none: lines of standard input.", show_default=False),
]
File = Annotated[Path | None, typer.Option("--file", help="A file with one text a line.")]
Json = Annotated[bool, typer.Option("--json", help="One JSON object a line.")]


def given_texts(texts: Sequence[str] | None, file: Path | None) -> Iterator[str]:
    """The texts, one after the other: a file may be larger than memory."""
    from qkv.data.lines import decoded, lines, without_end

    only_one({"texts as arguments": texts, "--file": file})
    if texts:
        return iter(texts)
    if file is not None:
        return _noticed(lines(file), str(file))
    if sys.stdin.isatty():
        raise UsageError("give texts as arguments, with --file, or on standard input")
    given = decoded(sys.stdin.buffer, "standard input")
    return _noticed((without_end(line) for line in given), "standard input")


def _noticed(texts: Iterator[str], where: str) -> Iterator[str]:
    """The same texts; that there are none is said."""
    none = True
    for text in texts:
        none = False
        yield text
    if none:
        say(f"note: {where} is empty, so there is nothing to answer")


def told(text: str) -> str:
    """A text on one line, for people: cut, and nothing in it moves the cursor."""
    from qkv.files import one_line

    line = one_line(text) if text.strip() else repr(text[:20])
    return line if len(line) <= 70 else f"{line[:70]}…"
