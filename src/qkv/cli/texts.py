"""The texts a command answers for: its arguments, the lines of a file, or standard input."""

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated

import typer

from qkv.cli.exclusive import only_one
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
        return lines(file)
    if sys.stdin.isatty():
        raise UsageError("give texts as arguments, with --file, or on standard input")
    return (without_end(line) for line in decoded(sys.stdin.buffer, "standard input"))


def told(text: str) -> str:
    """A text on one line, for people: cut, and nothing in it moves the cursor."""
    from qkv.files import one_line

    line = one_line(text) if text.strip() else repr(text[:20])
    return line if len(line) <= 70 else f"{line[:70]}…"
