"""`qkv similar`: how alike two texts are, and which words make them so."""

from typing import TYPE_CHECKING, Annotated

import typer

from qkv.cli.options import Compile, Int8, Json, ModelPath, Threads, load_engine

if TYPE_CHECKING:
    from qkv.interpret.attribution import SimilarityAttribution

SHOWN = 10  # pairs, to people who did not say how many


def similar(
    model: ModelPath,
    a: Annotated[str, typer.Argument(help="A text.", show_default=False)],
    b: Annotated[str, typer.Argument(help="Another.", show_default=False)],
    top: Annotated[
        int | None,
        typer.Option(
            "--top",
            min=0,
            help=f"How many pairs; without it {SHOWN}, and with --json all.",
            show_default=False,
        ),
    ] = None,
    json: Json = False,
    int8: Int8 = False,
    compile_: Compile = False,
    threads: Threads = None,
) -> None:
    """Compare two texts: the cosine of their vectors, and which pairs of words add up to it.

    \b
    All pairs together, marks such as [CLS] among them, sum to the cosine. The strongest come
    first; one below zero pulls the texts apart. Then the words whose pairs add most are deleted,
    and as many at random: the last lines say how far to trust the parts, and what they cannot say.

    \b
    Examples:
      qkv similar runs/vectors "the train is late" "my bus did not come"
      qkv similar models/all-MiniLM-L6-v2 "a dog runs" "ein Hund läuft" --top 5
      qkv similar runs/vectors "a dog" "a cat" --json
    """
    from json import dumps

    from qkv.interpret.attribution import why_similar
    from qkv.model import Encoder

    engine = load_engine(model, int8, threads, compile_)
    found = why_similar(engine.require(Encoder), engine.tokenizer, a, b)
    if json:
        shown = {**found.json(), "pairs": [pair.json() for pair in found.pairs[:top]]}
        typer.echo(dumps(shown, ensure_ascii=False))
    else:
        _show(found, SHOWN if top is None else top)
        _warn(found)


def _show(found: "SimilarityAttribution", top: int) -> None:
    """The cosine, and a small table of the strongest pairs."""
    from rich.cells import cell_len

    typer.echo(f"cosine {found.cosine:.4f}")
    shown = found.pairs[:top]
    rows = [(pair.contribution, _seen(pair.a), _seen(pair.b)) for pair in shown]
    if not rows:
        return
    width = max(cell_len(row[1]) for row in rows)
    for part, a, b in rows:
        typer.echo(f"{part:+8.4f}  {a}{' ' * (width - cell_len(a))}  {b}")
    rest = sum(pair.contribution for pair in found.pairs[top:])
    if len(found.pairs) > top:
        typer.echo(f"{rest:+8.4f}  {len(found.pairs) - top:,} other pairs")


def _warn(found: "SimilarityAttribution") -> None:
    """How far to trust the parts, and what they cannot say."""
    if found.faithfulness is not None:
        typer.echo(f"trust: {found.faithfulness.trust.verdict}")
    for remark in found.remarks:
        typer.echo(f"note: {remark}")


def _seen(word: str) -> str:
    """On one line, and a space so that it can be seen."""
    from qkv.files import one_line

    if word.strip():
        return one_line(word)
    return repr(word)
