"""`qkv embed`: a vector for each text."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from qkv.cli.options import (
    AsText,
    BatchTokens,
    Compile,
    File,
    Force,
    Int8,
    Json,
    LongTexts,
    ModelPath,
    TextColumn,
    Texts,
    Threads,
    check_long,
    join_or,
    load_engine,
    note_renamed,
    open_output,
    read_records,
    shorten,
    warn_long,
)
from qkv.cli.progress import TextProgress, print_stderr
from qkv.errors import UsageError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from qkv.data import Records
    from qkv.engine.embed import Embedder

RESUMABLE = (".npy", ".parquet")  # formats to which rows can be added after an interruption

FIRST_NUMBERS = 4  # of a vector that is printed


def embed(
    model: ModelPath,
    texts: Texts = None,
    file: File = None,
    text: TextColumn = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="A .npy file, or a table with all columns: .parquet, .jsonl, .csv, .tsv, .xlsx.",
        ),
    ] = None,
    raw: Annotated[bool, typer.Option("--raw", help="Do not normalize to length 1.")] = False,
    long: LongTexts = "error",
    batch_tokens: BatchTokens = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue a file that was interrupted.")
    ] = False,
    force: Force = False,
    as_text: AsText = False,
    json: Json = False,
    int8: Int8 = False,
    compile_: Compile = False,
    threads: Threads = None,
) -> None:
    """Compute a vector for each text.

    Vectors have length 1, so that the dot product of two is their cosine. Of a table, the texts of
    one column are embedded; a .npy has a row for each, a table all columns and the vector.

    \b
    Examples:
      qkv embed runs/vectors "a dog runs" "a cat sleeps"
      qkv embed runs/vectors --file sentences.txt -o sentences.npy
      qkv embed runs/vectors --file sentences.txt -o sentences.npy --resume
      qkv embed runs/vectors --file products.csv --text name -o products.parquet
      cat sentences.txt | qkv embed runs/vectors --json --long truncate
    """
    from qkv.bundle import fingerprint
    from qkv.engine.embed import Embedder, pooling_note

    long_mode = check_long(long)
    _check_output(output, resume, force, json)
    records = read_records(texts, file, text, as_text)
    engine = load_engine(model, int8, threads, compile_)
    settings: dict[str, Any] = {"raw": raw, "long": long_mode, "batch_tokens": batch_tokens}
    embedder = Embedder(engine.optimized, engine.tokenizer, **settings)
    remark = pooling_note(engine.model)
    if remark:
        print_stderr(f"note: {remark}")
    progress = TextProgress(records.count)
    if output is None:
        _print_vectors(embedder, records.texts(), json, progress)
        return
    if output.suffix.lower() not in RESUMABLE:
        _write_table(embedder, records, output, progress)
        return
    # A run is resumed only with the same model and settings.
    options = {"model": fingerprint(model), **settings, "int8": int8}
    _save_vectors(embedder, records, output, options, resume, force, progress)


def _check_output(output: Path | None, resume: bool, force: bool, json: bool) -> None:
    """Raise an error about the output file before the model is loaded."""
    from qkv.data import TABLE_SUFFIXES, check_table_path
    from qkv.engine.embed import check_vector_path

    if output is None:
        if resume or force:
            raise UsageError("--resume and --force are for a file; name it with -o")
        return
    if json:
        raise UsageError("-o and --json exclude each other; give one of them")
    if output.suffix.lower() in RESUMABLE:
        check_vector_path(output, resume=resume, force=force)
        return
    if output.suffix.lower() not in TABLE_SUFFIXES:
        suffixes = list(dict.fromkeys((*RESUMABLE, *TABLE_SUFFIXES)))
        raise UsageError(f"{output} must end in {join_or(suffixes)}")
    if resume:
        raise UsageError(f"{output} cannot be resumed; only {' and '.join(RESUMABLE)} can")
    check_table_path(output, force)


def _vectors(
    embedder: "Embedder", texts: Iterable[str], progress: "TextProgress"
) -> Iterator[tuple[str, "NDArray[np.float32]"]]:
    """Each text with its vector, with progress; at the end a note about long texts."""
    from qkv.engine.embed import text_batches

    done = 0
    long_texts = 0
    progress(done)
    for batch in text_batches(texts):
        result = embedder(batch, done + 1)
        progress.end()
        yield from zip(batch, result.vectors, strict=True)
        done += len(batch)
        long_texts += result.long_texts
        progress(done)
    progress.end()
    warn_long(long_texts, done, embedder.long)


def _print_vectors(
    embedder: "Embedder", texts: Iterable[str], json: bool, progress: "TextProgress"
) -> None:
    for text, vector in _vectors(embedder, texts, progress):
        if json:
            typer.echo(_json_line(text, vector))
        else:
            typer.echo(_text_line(text, vector))


def _write_table(
    embedder: "Embedder", records: "Records", output: Path, progress: "TextProgress"
) -> None:
    from qkv.data import Column

    with open_output(output, records, [Column("vector")], blank_texts=True) as table:
        for _, vector in _vectors(embedder, table.texts(), progress):
            table.add({"vector": vector})


def _json_line(text: str, vector: "NDArray[np.float32]") -> str:
    from json import dumps

    from qkv.data import json_value

    return dumps({"text": text, "vector": json_value(vector)}, ensure_ascii=False)


def _text_line(text: str, vector: "NDArray[np.float32]") -> str:
    numbers = " ".join(f"{number:+.4f}" for number in vector[:FIRST_NUMBERS])
    if len(vector) > FIRST_NUMBERS:
        numbers += " …"
    return f"{numbers} ({len(vector)})  {shorten(text)}"


def _save_vectors(
    embedder: "Embedder",
    records: "Records",
    output: Path,
    options: dict[str, Any],
    resume: bool,
    force: bool,
    progress: "TextProgress",
) -> None:
    from qkv.data import Column, add_columns
    from qkv.engine.embed import embed_to_file

    _, renamed = add_columns(records.columns, [Column("vector")])
    if output.suffix.lower() == ".parquet":
        note_renamed(renamed)
    try:
        result = embed_to_file(
            embedder, records, output, options, resume=resume, force=force, progress=progress
        )
    except BaseException:
        if progress.done:
            print_stderr(f"{output}: {progress.done:,} rows are saved; continue with --resume")
        raise
    progress.end()
    warn_long(result.long_texts, result.rows, embedder.long)
    width = embedder.model.config.encoder.width
    print_stderr(f"wrote {result.rows:,} vectors of {width:,} numbers to {output}")
