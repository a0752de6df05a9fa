"""`qkv translate`: texts into another language."""

import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby, islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from qkv.cli.options import (
    LONG_TRANSLATIONS,
    AsText,
    Compile,
    File,
    Force,
    Int8,
    Json,
    ModelPath,
    TableFile,
    TextColumn,
    Texts,
    Threads,
    check_output,
    complete_from,
    join_or,
    load_engine,
    open_output,
    read_records,
)
from qkv.cli.progress import print_stderr
from qkv.errors import UsageError

if TYPE_CHECKING:
    from qkv.data import Records
    from qkv.engine import Engine
    from qkv.engine.translate import Translation

DEFAULT_BEAMS = 4

# Texts translated together: few at first, so that the first translations come soon.
FIRST_BATCH = 16
MAX_BATCH = 1024

PROGRESS_INTERVAL = 5.0  # seconds between two lines of progress


def translate(
    model: ModelPath,
    texts: Texts = None,
    file: File = None,
    text: TextColumn = None,
    output: TableFile = None,
    beams: Annotated[
        int | None, typer.Option(min=1, show_default="4", help="Beam width; 1 is greedy.")
    ] = None,
    best: Annotated[int, typer.Option(min=1, help="Translations per text, best first.")] = 1,
    length_penalty: Annotated[
        float, typer.Option(min=0.0, help="0 compares sums of log p, 1 their means.")
    ] = 1.0,
    long: Annotated[
        str,
        typer.Option(
            help=f"Texts longer than the model's context: {join_or(LONG_TRANSLATIONS)}.",
            autocompletion=complete_from(LONG_TRANSLATIONS),
        ),
    ] = "error",
    alignment: Annotated[
        bool, typer.Option("--alignment", help="Show which source words each word attended to.")
    ] = False,
    layer: Annotated[
        int | None,
        typer.Option(
            show_default="the one that aligns best",
            help="Decoder layer for --alignment, counted from 0.",
        ),
    ] = None,
    force: Force = False,
    as_text: AsText = False,
    json: Json = False,
    int8: Int8 = False,
    compile_: Compile = False,
    threads: Threads = None,
) -> None:
    """Translate texts: one line for each, in their order.

    An empty text has an empty translation. Line breaks inside a text stay where they are. With -o,
    write every row of a table, with all its columns, a translation and its score.

    \b
    Examples:
      qkv translate runs/en-de "the meeting is on May 2"
      qkv translate runs/en-de --best 3 --alignment "the meeting is on May 2"
      qkv translate runs/en-de --file letters.txt --beams 1 > briefe.txt
      qkv translate runs/en-de --file products.xlsx --text name -o produkte.xlsx
      qkv translate runs/en-de --long sentences --json < book.txt
    """
    if layer is not None and not alignment:
        raise UsageError(f"--layer {layer} is the layer of the alignment; add --alignment")
    check_output(output, force, json)
    records = read_records(texts, file, text, as_text, role="source")
    engine = load_engine(model, int8, threads, compile_)
    if beams is None:
        beams = max(DEFAULT_BEAMS, best)

    options = {
        "beams": beams,
        "best": best,
        "length_penalty": length_penalty,
        "long": long,
        "alignment": alignment,
        "layer": layer,
    }
    if output is not None:
        _write_table(engine, records, output, options)
    else:
        _print_translations(_translations(engine, records.texts(), options), json, best)


def _translations(
    engine: "Engine", texts: Iterable[str], options: Mapping[str, Any]
) -> Iterator["Translation"]:
    """The translation of each text, with progress and notes."""
    progress = TranslationProgress()
    warned = len(engine.warnings)
    for batch in _growing_batches(texts):
        progress.show()
        translations = engine.translate(batch, **options)
        for warning in engine.warnings[warned:]:
            print_stderr(f"note: {warning}")
        warned = len(engine.warnings)
        for translation in translations:
            progress.add(translation)
            yield translation
        sys.stdout.flush()
    progress.end()


def _print_translations(translations: Iterable["Translation"], json: bool, best: int) -> None:
    from json import dumps

    for translation in translations:
        if json:
            typer.echo(dumps(translation.json(best), ensure_ascii=False))
        else:
            typer.echo(_text_lines(translation, best))


def _write_table(
    engine: "Engine", records: "Records", output: Path, options: Mapping[str, Any]
) -> None:
    from qkv.data import Column

    best = options["best"]
    columns = [Column("translation"), Column("score", "number")]
    if best > 1:
        columns.append(Column("alternatives"))
    if options["alignment"]:
        columns.append(Column("alignment"))
    with open_output(output, records, columns) as table:
        for translation in _translations(engine, table.texts(), options):
            if translation.source.strip():
                fields = translation.json(best)
                fields["translation"] = translation.text
                table.add({column.name: fields[column.name] for column in columns})


class TranslationProgress:
    """Prints speed, remarks about single texts and the number of truncated translations."""

    def __init__(self) -> None:
        self.start_time = time.monotonic()
        self.last_time = self.start_time
        self.count = 0
        self.truncated = 0

    def add(self, translation: "Translation") -> None:
        self.count += 1
        if translation.stop_reason == "length":
            self.truncated += 1
        if translation.remark is not None:
            print_stderr(f"note: text {self.count:,}: {translation.remark}")

    def show(self) -> None:
        now = time.monotonic()
        if self.count and now - self.last_time >= PROGRESS_INTERVAL:
            self.last_time = now
            speed = self.count / (now - self.start_time)
            print_stderr(f"{self.count:,} texts, {speed:,.1f} texts/s")

    def end(self) -> None:
        if self.truncated:
            print_stderr(
                f"note: {self.truncated:,} of {self.count:,} translations reached the maximum "
                "length before they ended"
            )


def _growing_batches(texts: Iterable[str]) -> Iterator[list[str]]:
    """The texts in order, in lists that double in size."""
    texts = iter(texts)
    size = FIRST_BATCH
    while batch := list(islice(texts, size)):
        yield batch
        size = min(2 * size, MAX_BATCH)


def _text_lines(translation: "Translation", best: int) -> str:
    """The translation, or the best ones with their scores; below them the alignment by word."""
    lines = [translation.text]
    if best > 1:
        hypotheses = enumerate(translation.alternatives, start=1)
        lines = [
            f"{n:>3}  {hypothesis.score:8.3f}  {hypothesis.text}" for n, hypothesis in hypotheses
        ]
    links = translation.alignment or ()
    width = max((len(link.target.text) for link in links), default=0)
    for target, target_links in groupby(links, key=lambda link: link.target):
        sources = "  ".join(f"{link.source.text} {link.weight:.2f}" for link in target_links)
        lines.append(f"    {target.text:<{width}}  {sources}")
    return "\n".join(lines)
