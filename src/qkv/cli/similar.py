"""`qkv similar`: the cosine of two texts, and which words contribute to it."""

from typing import TYPE_CHECKING, Annotated

import typer

from qkv.cli.options import (
    AsText,
    Compile,
    Int8,
    Json,
    ModelPath,
    Threads,
    load_engine,
    refuse_file_names,
)

if TYPE_CHECKING:
    from qkv.interpret.attribution import SimilarityAttribution

DEFAULT_PAIRS = 10  # in the table; --json has all of them


def similar(
    model: ModelPath,
    a: Annotated[str, typer.Argument(help="A text.", show_default=False)],
    b: Annotated[str, typer.Argument(help="Another text.", show_default=False)],
    top: Annotated[
        int | None,
        typer.Option(
            "--top",
            min=0,
            help=f"How many pairs; {DEFAULT_PAIRS} by default, with --json all.",
            show_default=False,
        ),
    ] = None,
    as_text: AsText = False,
    json: Json = False,
    int8: Int8 = False,
    compile_: Compile = False,
    threads: Threads = None,
) -> None:
    """Compare two texts: their cosine, and the words behind it.

    The contributions of all pairs of words, special tokens such as [CLS] included, sum to the
    cosine. The strongest come first; a negative one pulls the texts apart. As a test of
    faithfulness, the words whose pairs contribute most are then deleted, and as many random ones:
    the last lines state how far to trust the contributions, and what they do not show.

    \b
    Examples:
      qkv similar runs/vectors "the train is late" "my bus did not come"
      qkv similar models/all-MiniLM-L6-v2 "a dog runs" "ein Hund läuft" --top 5
      qkv similar runs/vectors "a dog" "a cat" --json
    """
    from json import dumps

    from qkv.interpret.attribution import why_similar
    from qkv.model import Encoder

    if not as_text:
        refuse_file_names([a, b])
    engine = load_engine(model, int8, threads, compile_)
    attribution = why_similar(engine.require(Encoder), engine.tokenizer, a, b)
    if json:
        pairs = [pair.json() for pair in attribution.pairs[:top]]
        typer.echo(dumps({**attribution.json(), "pairs": pairs}, ensure_ascii=False))
        return
    if top is None:
        top = DEFAULT_PAIRS
    _print_pairs(attribution, top)
    _print_trust(attribution)


def _print_pairs(attribution: "SimilarityAttribution", top: int) -> None:
    """The cosine, and a small table of the strongest pairs."""
    from rich.cells import cell_len

    typer.echo(f"cosine {attribution.cosine:.4f}")
    rows = []
    for pair in attribution.pairs[:top]:
        rows.append((pair.contribution, _visible(pair.a), _visible(pair.b)))
    if not rows:
        return
    width = max(cell_len(a) for _, a, _ in rows)
    for contribution, a, b in rows:
        padding = " " * (width - cell_len(a))
        typer.echo(f"{contribution:+8.4f}  {a}{padding}  {b}")
    others = attribution.pairs[top:]
    if others:
        total = sum(pair.contribution for pair in others)
        typer.echo(f"{total:+8.4f}  {len(others):,} other pairs")


def _print_trust(attribution: "SimilarityAttribution") -> None:
    """How far to trust the contributions, and what they do not show."""
    if attribution.faithfulness is not None:
        typer.echo(f"trust: {attribution.faithfulness.trust.verdict}")
    for remark in attribution.remarks:
        typer.echo(f"note: {remark}")


def _visible(word: str) -> str:
    """The word on one line; a blank one in quotes."""
    from qkv.files import one_line

    if word.strip():
        return one_line(word)
    return repr(word)
