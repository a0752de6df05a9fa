"""`qkv classify`: a label for each text."""

from typing import TYPE_CHECKING, Annotated

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
from qkv.cli.progress import TextProgress, count_texts

if TYPE_CHECKING:
    from qkv.engine import Classification

MAX_LABEL_WIDTH = 24  # characters of the column of labels


def classify(
    model: ModelPath,
    texts: Texts = None,
    file: File = None,
    top: Annotated[
        int | None, typer.Option("--top", min=1, help="Show only the N most probable labels.")
    ] = None,
    long: LongTexts = "error",
    batch_tokens: BatchTokens = None,
    json: Json = False,
    int8: Int8 = False,
    compile_: Compile = False,
    threads: Threads = None,
) -> None:
    """Print a label and its probability for each text.

    \b
    Examples:
      qkv classify runs/reviews "what a film"
      qkv classify runs/reviews --file reviews.txt --top 3
      cat reviews.txt | qkv classify runs/reviews --json --long truncate
    """
    from qkv.engine import Classifier
    from qkv.engine.embed import text_batches

    long_mode = check_long(long)
    inputs = read_texts(texts, file)
    engine = load_engine(model, int8, threads, compile_)
    classifier = Classifier(
        engine.optimized, engine.tokenizer, long=long_mode, batch_tokens=batch_tokens
    )
    width = min(MAX_LABEL_WIDTH, max(map(len, classifier.labels)))
    progress = TextProgress(count_texts(texts, file))
    done = 0
    progress(done)
    for batch in text_batches(inputs):
        results = classifier(batch, done + 1)
        progress.end()
        for result in results:
            if json:
                typer.echo(_json_line(result, top))
            else:
                typer.echo(_text_line(result, top, width))
        done += len(batch)
        progress(done)
    progress.end()
    warn_long(classifier.long_texts, done, long_mode)


def _json_line(result: "Classification", top: int | None) -> str:
    from json import dumps

    probabilities = dict(list(result.probabilities.items())[:top])
    fields = {"text": result.text, "label": result.label, "probabilities": probabilities}
    return dumps(fields, ensure_ascii=False)


def _text_line(result: "Classification", top: int | None, width: int) -> str:
    probabilities = list(result.probabilities.items())[: top or 1]
    columns = [f"{shorten(label):<{width}} {p:.3f}" for label, p in probabilities]
    return "  ".join([*columns, shorten(result.text)])
