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
    import numpy as np
    from numpy.typing import NDArray

    from qkv.engine.embed import Embedder

FIRST_NUMBERS = 4  # of a vector that is printed


def embed(
    model: ModelPath,
    texts: Texts = None,
    file: File = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="A .npy file, or a .parquet file with the texts."),
    ] = None,
    raw: Annotated[bool, typer.Option("--raw", help="Do not normalize to length 1.")] = False,
    long: LongTexts = "error",
    batch_tokens: BatchTokens = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue a file that was interrupted.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")] = False,
    json: Json = False,
    int8: Int8 = False,
    compile_: Compile = False,
    threads: Threads = None,
) -> None:
    """Compute a vector for each text.

    Vectors have length 1, so that the dot product of two is their cosine.

    \b
    Examples:
      qkv embed runs/vectors "a dog runs" "a cat sleeps"
      qkv embed runs/vectors --file sentences.txt -o sentences.npy
      qkv embed runs/vectors --file sentences.txt -o sentences.npy --resume
      cat sentences.txt | qkv embed runs/vectors --json --long truncate
    """
    from qkv.bundle import fingerprint
    from qkv.engine.embed import Embedder, pooling_note

    long_mode = check_long(long)
    _check_output(output, resume, force, json)
    inputs = read_texts(texts, file)
    engine = load_engine(model, int8, threads, compile_)
    settings: dict[str, Any] = {"raw": raw, "long": long_mode, "batch_tokens": batch_tokens}
    embedder = Embedder(engine.optimized, engine.tokenizer, **settings)
    remark = pooling_note(engine.model)
    if remark:
        print_stderr(f"note: {remark}")
    progress = TextProgress(count_texts(texts, file))
    if output is None:
        _print_vectors(embedder, inputs, json, progress)
        return
    # A run is resumed only with the same model and settings.
    options = {"model": fingerprint(model), **settings, "int8": int8}
    _save_vectors(embedder, inputs, output, options, resume, force, progress)


def _check_output(output: Path | None, resume: bool, force: bool, json: bool) -> None:
    """Raise an error about the output file before the model is loaded."""
    from qkv.engine.embed import check_vector_path

    if output is None:
        if resume or force:
            raise UsageError("--resume and --force are for a file; name it with -o")
        return
    if json:
        raise UsageError("-o and --json exclude each other; give one of them")
    check_vector_path(output, resume=resume, force=force)


def _print_vectors(
    embedder: "Embedder", texts: Iterable[str], json: bool, progress: "TextProgress"
) -> None:
    from qkv.engine.embed import text_batches

    done = 0
    long_texts = 0
    progress(done)
    for batch in text_batches(texts):
        result = embedder(batch, done + 1)
        progress.end()
        for text, vector in zip(batch, result.vectors, strict=True):
            if json:
                typer.echo(_json_line(text, vector))
            else:
                typer.echo(_text_line(text, vector))
        done += len(batch)
        long_texts += result.long_texts
        progress(done)
    progress.end()
    warn_long(long_texts, done, embedder.long)


def _json_line(text: str, vector: "NDArray[np.float32]") -> str:
    from json import dumps

    # str of a float32 has the fewest digits that give the same float32; float() of it would have 17
    numbers = [float(str(number)) for number in vector]
    return dumps({"text": text, "vector": numbers}, ensure_ascii=False)


def _text_line(text: str, vector: "NDArray[np.float32]") -> str:
    numbers = " ".join(f"{number:+.4f}" for number in vector[:FIRST_NUMBERS])
    if len(vector) > FIRST_NUMBERS:
        numbers += " …"
    return f"{numbers} ({len(vector)})  {shorten(text)}"


def _save_vectors(
    embedder: "Embedder",
    texts: Iterable[str],
    output: Path,
    options: dict[str, Any],
    resume: bool,
    force: bool,
    progress: "TextProgress",
) -> None:
    from qkv.engine.embed import embed_to_file

    try:
        result = embed_to_file(
            embedder, texts, output, options, resume=resume, force=force, progress=progress
        )
    except BaseException:
        if progress.done:
            print_stderr(f"{output}: {progress.done:,} rows are saved; continue with --resume")
        raise
    progress.end()
    warn_long(result.long_texts, result.rows, embedder.long)
    width = embedder.model.config.encoder.width
    print_stderr(f"wrote {result.rows:,} vectors of {width:,} numbers to {output}")
