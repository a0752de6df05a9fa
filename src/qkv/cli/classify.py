"""`qkv classify`: a label for each text."""

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
    TableFile,
    TextColumn,
    Texts,
    Threads,
    check_long,
    check_output,
    load_engine,
    open_output,
    read_records,
    shorten,
    warn_long,
)
from qkv.cli.progress import TextProgress

if TYPE_CHECKING:
    from qkv.data import Records
    from qkv.engine import Classification, Classifier

MAX_LABEL_WIDTH = 24  # characters of the column of labels


def classify(
    model: ModelPath,
    texts: Texts = None,
    file: File = None,
    text: TextColumn = None,
    output: TableFile = None,
    top: Annotated[
        int | None, typer.Option("--top", min=1, help="Show only the N most probable labels.")
    ] = None,
    long: LongTexts = "error",
    batch_tokens: BatchTokens = None,
    force: Force = False,
    as_text: AsText = False,
    json: Json = False,
    int8: Int8 = False,
    compile_: Compile = False,
    threads: Threads = None,
) -> None:
    """Print a label and its probability for each text.

    With -o, write every row of a table, with all its columns, a label and its probability; with
    --top, and always in a .jsonl, the probabilities by label.

    \b
    Examples:
      qkv classify runs/reviews "what a film"
      qkv classify runs/reviews --file reviews.txt --top 3
      qkv classify runs/reviews --file new.csv --text review -o labelled.csv
      cat reviews.txt | qkv classify runs/reviews --json --long truncate
    """
    from qkv.engine import Classifier

    long_mode = check_long(long)
    check_output(output, force, json)
    records = read_records(texts, file, text, as_text)
    engine = load_engine(model, int8, threads, compile_)
    classifier = Classifier(
        engine.optimized, engine.tokenizer, long=long_mode, batch_tokens=batch_tokens
    )
    progress = TextProgress(records.count)
    if output is not None:
        _write_table(classifier, records, output, top, progress)
    else:
        _print_labels(classifier, records.texts(), json, top, progress)


def _results(
    classifier: "Classifier", texts: Iterable[str], progress: TextProgress
) -> Iterator["Classification"]:
    """The classification of each text, with progress; at the end a note about long texts."""
    from qkv.engine.embed import text_batches

    done = 0
    progress(done)
    for batch in text_batches(texts):
        results = classifier(batch, done + 1)
        progress.end()
        yield from results
        done += len(batch)
        progress(done)
    progress.end()
    warn_long(classifier.long_texts, done, classifier.long)


def _print_labels(
    classifier: "Classifier",
    texts: Iterable[str],
    json: bool,
    top: int | None,
    progress: TextProgress,
) -> None:
    width = min(MAX_LABEL_WIDTH, max(map(len, classifier.labels)))
    for result in _results(classifier, texts, progress):
        if json:
            typer.echo(_json_line(result, top))
        else:
            typer.echo(_text_line(result, top, width))


def _write_table(
    classifier: "Classifier",
    records: "Records",
    output: Path,
    top: int | None,
    progress: TextProgress,
) -> None:
    from qkv.data import Column

    columns = [Column("label"), Column("probability", "number")]
    # In the other formats they are JSON in a cell, which is for those who ask.
    if top is not None or output.suffix.lower() == ".jsonl":
        columns.append(Column("probabilities"))
    with open_output(output, records, columns) as table:
        for result in _results(classifier, table.texts(), progress):
            if not result.text.strip():
                continue
            fields: dict[str, Any] = {
                "label": result.label,
                "probability": result.probabilities[result.label],
                "probabilities": _top(result, top),
            }
            table.add({column.name: fields[column.name] for column in columns})


def _json_line(result: "Classification", top: int | None) -> str:
    from json import dumps

    fields = {"text": result.text, "label": result.label, "probabilities": _top(result, top)}
    return dumps(fields, ensure_ascii=False)


def _top(result: "Classification", top: int | None) -> dict[str, float]:
    """The most probable labels, all without `top`."""
    return dict(list(result.probabilities.items())[:top])


def _text_line(result: "Classification", top: int | None, width: int) -> str:
    probabilities = list(result.probabilities.items())[: top or 1]
    columns = [f"{shorten(label):<{width}} {p:.3f}" for label, p in probabilities]
    return "  ".join([*columns, shorten(result.text)])
