"""`qkv translate`: texts into another language."""

import sys
import time
from collections.abc import Iterable, Iterator
from itertools import groupby, islice
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from qkv.cli.options import (
    LONG_TRANSLATIONS,
    Compile,
    File,
    Int8,
    Json,
    ModelPath,
    Texts,
    Threads,
    complete_from,
    join_or,
    load_engine,
    read_texts,
)
from qkv.cli.progress import print_stderr
from qkv.errors import UsageError

if TYPE_CHECKING:
    from qkv.engine.translate import Link, Translation
    from qkv.engine.translate.segments import Long

USUAL = 4  # beams
# texts answered together: few at first, so that something is soon seen
FIRST = 16
MOST = 1024
EVERY = 5.0  # seconds between two lines of progress


def translate(
    model: ModelPath,
    texts: Texts = None,
    file: File = None,
    beams: Annotated[
        int | None, typer.Option(min=1, show_default="4", help="Ways followed; 1 is greedy.")
    ] = None,
    best: Annotated[int, typer.Option(min=1, help="How many ways to put each text.")] = 1,
    length_penalty: Annotated[
        float, typer.Option(min=0.0, help="0 compares sums of log p, 1 their means.")
    ] = 1.0,
    long: Annotated[
        str,
        typer.Option(
            help=f"Texts longer than the model reads: {join_or(LONG_TRANSLATIONS)}.",
            autocompletion=complete_from(LONG_TRANSLATIONS),
        ),
    ] = "error",
    alignment: Annotated[
        bool, typer.Option("--alignment", help="Which source words each word looked at.")
    ] = False,
    layer: Annotated[
        int | None,
        typer.Option(show_default="last but one", help="Whose looks --alignment shows, from 0."),
    ] = None,
    json: Json = False,
    int8: Int8 = False,
    compile_: Compile = False,
    threads: Threads = None,
) -> None:
    """Translate texts: a line for each, in their order.

    An empty text has an empty translation. Line breaks inside a text stay where they are.

    \b
    Examples:
      qkv translate runs/en-de "the meeting is on May 2"
      qkv translate runs/en-de --best 3 --alignment "the meeting is on May 2"
      qkv translate runs/en-de --file letters.txt --beams 1 > briefe.txt
      qkv translate runs/en-de --long sentences --json < book.txt
    """
    from json import dumps

    if layer is not None and not alignment:
        raise UsageError(f"--layer {layer} says whose looks --alignment shows; give both")
    asked = read_texts(texts, file)
    engine = load_engine(model, int8, threads, compile_)
    told = Told()
    for portion in _portions(asked):
        told.progress()
        for translation in engine.translate(
            portion,
            beams=max(USUAL, best) if beams is None else beams,
            best=best,
            length_penalty=length_penalty,
            long=cast("Long", long),
            alignment=alignment,
            layer=layer,
        ):
            told.add(translation)
            if json:
                typer.echo(dumps(_fields(translation, best), ensure_ascii=False))
            else:
                typer.echo(_shown(translation, best))
        sys.stdout.flush()
    told.end()


class Told:
    """What is said on standard error: texts that were cut, how far it is, what was stopped."""

    def __init__(self) -> None:
        self.started = self.said = time.monotonic()
        self.count = 0
        self.stopped = 0

    def add(self, translation: "Translation") -> None:
        self.count += 1
        self.stopped += translation.stop_reason == "length"
        if translation.remark is not None:
            print_stderr(f"note: text {self.count:,}: {translation.remark}")

    def progress(self) -> None:
        now = time.monotonic()
        if self.count and now - self.said >= EVERY:
            self.said = now
            print_stderr(f"{self.count:,} texts, {self.count / (now - self.started):,.1f} a second")

    def end(self) -> None:
        if self.stopped:
            print_stderr(
                f"note: {self.stopped:,} of {self.count:,} translations had not ended when they "
                f"reached the most tokens one may have"
            )


def _portions(texts: Iterable[str]) -> Iterator[list[str]]:
    """The texts in order, in lists that grow."""
    texts = iter(texts)
    size = FIRST
    while portion := list(islice(texts, size)):
        yield portion
        size = min(2 * size, MOST)


def _fields(translation: "Translation", best: int) -> dict[str, Any]:
    names = ("source", "text", "score", "stop_reason")
    found = {name: getattr(translation, name) for name in names}
    if best > 1:
        found["alternatives"] = [vars(way) for way in translation.alternatives]
    if translation.alignment is not None:
        found["alignment"] = [_link(link) for link in translation.alignment]
    return found


def _link(link: "Link") -> dict[str, Any]:
    return {
        "source": link.source.text,
        "target": link.target.text,
        "weight": round(link.weight, 4),
        "source_span": [link.source.start, link.source.end],
        "target_span": [link.target.start, link.target.end],
    }


def _shown(translation: "Translation", best: int) -> str:
    """The translation, or all ways with their scores; below them the alignment, a word a row."""
    rows = [translation.text]
    if best > 1:
        ways = enumerate(translation.alternatives, start=1)
        rows = [f"{n:>3}  {way.score:8.3f}  {way.text}" for n, way in ways]
    links = translation.alignment or ()
    wide = max((len(link.target.text) for link in links), default=0)
    for word, looks in groupby(links, key=lambda link: link.target):
        seen = "  ".join(f"{link.source.text} {link.weight:.2f}" for link in looks)
        rows.append(f"    {word.text:<{wide}}  {seen}")
    return "\n".join(rows)
