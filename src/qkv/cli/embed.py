"""`qkv embed`: a vector for each text."""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from qkv.cli.options import (
    BatchTokens,
    Compile,
    File,
    Int8,
    Json,
    LongTexts,
    ModelPath,
    Texts,
    Threads,
    check_long,
    load_engine,
    read_texts,
    shorten,
    warn_long,
)
from qkv.cli.progress import TextProgress, count_texts, print_stderr
from qkv.errors import UsageError

if TYPE_CHECKING:
    from qkv.engine.embed import Embedder

FIRST = 4  # numbers of a vector that people are shown


def embed(
    model: ModelPath,
    texts: Texts = None,
    file: File = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="A .npy file, or .parquet with the texts."),
    ] = None,
    raw: Annotated[bool, typer.Option("--raw", help="Vectors of the length they have.")] = False,
    long: LongTexts = "error",
    batch_tokens: BatchTokens = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with a file that was interrupted.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace a file that exists.")] = False,
    json: Json = False,
    int8: Int8 = False,
    compile_: Compile = False,
    threads: Threads = None,
) -> None:
    """A vector for each text, of length 1, so that a dot product of two is their cosine.

    \b
    Examples:
      qkv embed runs/vectors "a dog runs" "a cat sleeps"
      qkv embed runs/vectors --file sentences.txt -o sentences.npy
      qkv embed runs/vectors --file sentences.txt -o sentences.npy --resume
      cat sentences.txt | qkv embed runs/vectors --json --long truncate
    """
    from qkv.engine.embed import Embedder
    from qkv.engine.embed.embedder import borrowed

    way = check_long(long)
    _expect(output, resume, force, json)
    given = read_texts(texts, file)
    engine = load_engine(model, int8, threads, compile_)
    asked: dict[str, Any] = {"raw": raw, "long": way, "batch_tokens": batch_tokens}
    embedder = Embedder(engine.optimized, engine.tokenizer, **asked)
    remark = borrowed(engine.model)
    if remark:
        print_stderr(f"note: {remark}")
    pace = TextProgress(count_texts(texts, file))
    if output is None:
        _print(embedder, given, json, pace)
        return
    options = {"model": hashed(model), **asked, "int8": int8}
    _save(embedder, given, output, options, resume, force, pace)


def _expect(output: Path | None, resume: bool, force: bool, json: bool) -> None:
    """Refuses, before a model is loaded, what cannot be written where it was asked for."""
    from qkv.engine.embed import expect_place

    if output is None:
        if resume or force:
            raise UsageError("--resume and --force are for a file; name it with -o")
        return
    if json:
        raise UsageError("-o and --json exclude each other; give one of them")
    expect_place(output, resume=resume, force=force)


def _print(embedder: "Embedder", texts: Iterable[str], json: bool, pace: "TextProgress") -> None:
    from json import dumps

    from qkv.engine.embed import portions

    done = long = 0
    pace(done)
    for portion in portions(texts):
        found = embedder(portion, done + 1)
        pace.end()
        for text, vector in zip(portion, found.vectors, strict=True):
            if json:
                # The shortest decimals that are these numbers of 32 bits.
                numbers = [float(str(number)) for number in vector]
                typer.echo(dumps({"text": text, "vector": numbers}, ensure_ascii=False))
            else:
                begin = " ".join(f"{number:+.4f}" for number in vector[:FIRST])
                more = " …" if len(vector) > FIRST else ""
                typer.echo(f"{begin}{more} ({len(vector)})  {shorten(text)}")
        done = done + len(portion)
        long = long + found.long
        pace(done)
    pace.end()
    warn_long(long, done, embedder.long)


def _save(
    embedder: "Embedder",
    texts: Iterable[str],
    output: Path,
    options: dict[str, Any],
    resume: bool,
    force: bool,
    pace: "TextProgress",
) -> None:
    from qkv.engine.embed import embed_to_file

    try:
        written = embed_to_file(
            embedder, texts, output, options, resume=resume, force=force, progress=pace
        )
    except BaseException:
        if pace.done:
            print_stderr(f"{output}: {pace.done:,} rows are kept; go on with --resume")
        raise
    pace.end()
    warn_long(written.long, written.rows, embedder.long)
    width = embedder.model.config.encoder.width
    print_stderr(f"wrote {written.rows:,} vectors of {width:,} numbers to {output}")


def hashed(model: Path) -> str:
    from qkv.bundle import fingerprint

    return fingerprint(model)
