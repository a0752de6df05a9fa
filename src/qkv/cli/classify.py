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
    from qkv.engine.classify import Classification

WIDEST = 24  # letters of a label that columns are kept for


def classify(
    model: ModelPath,
    texts: Texts = None,
    file: File = None,
    top: Annotated[
        int | None, typer.Option("--top", min=1, help="Show only the N likeliest labels.")
    ] = None,
    long: LongTexts = "error",
    batch_tokens: BatchTokens = None,
    json: Json = False,
    int8: Int8 = False,
    compile_: Compile = False,
    threads: Threads = None,
) -> None:
    """A label for each text, with how probable it is.

    \b
    Examples:
      qkv classify runs/reviews "what a film"
      qkv classify runs/reviews --file reviews.txt --top 3
      cat reviews.txt | qkv classify runs/reviews --json --long truncate
    """
    from qkv.engine.classify import Classifier
    from qkv.engine.embed import portions

    way = check_long(long)
    given = read_texts(texts, file)
    engine = load_engine(model, int8, threads, compile_)
    classifier = Classifier(engine.optimized, engine.tokenizer, long=way, batch_tokens=batch_tokens)
    width = min(WIDEST, max(map(len, classifier.labels)))
    pace = TextProgress(count_texts(texts, file))
    done = 0
    pace(done)
    for portion in portions(given):
        answers = classifier(portion, done + 1)
        pace.end()
        for answer in answers:
            typer.echo(_as_json(answer, top) if json else _for_people(answer, top, width))
        done += len(portion)
        pace(done)
    pace.end()
    warn_long(classifier.long_texts, done, way)


def _as_json(answer: "Classification", top: int | None) -> str:
    from json import dumps

    shares = dict(list(answer.probabilities.items())[:top])
    fields = {"text": answer.text, "label": answer.label, "probabilities": shares}
    return dumps(fields, ensure_ascii=False)


def _for_people(answer: "Classification", top: int | None, width: int) -> str:
    shares = list(answer.probabilities.items())[: top or 1]
    said = "  ".join(f"{shorten(label):<{width}} {share:.3f}" for label, share in shares)
    return f"{said}  {shorten(answer.text)}"
