"""Texts that are longer than a model reads: what to do with them, and what is told of them."""

from typing import TYPE_CHECKING, Annotated

import typer

from qkv.cli.names import LONG as WAYS
from qkv.cli.names import either, one_of
from qkv.cli.progress import say
from qkv.errors import UsageError, unknown

if TYPE_CHECKING:
    from qkv.engine.embed import Long

LongTexts = Annotated[
    str,
    typer.Option(
        "--long",
        help=f"Texts longer than the model reads: {either(WAYS)}.",
        autocompletion=one_of(WAYS),
    ),
]


def chosen(long: str) -> "Long":
    """What was said of long texts, if it is one of the three ways."""
    from qkv.engine.embed import LONG

    if long not in LONG:
        raise UsageError(unknown("way with --long texts", long, LONG))
    return long  # type: ignore[return-value]


def tell_long(long: int, total: int, way: str) -> None:
    """No text is cut silently."""
    if long:
        done = "only their beginnings are read" if way == "truncate" else "read in windows"
        say(f"note: {long:,} of {total:,} texts are longer than the model reads; {done}")
