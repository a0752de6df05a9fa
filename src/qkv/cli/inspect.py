"""`qkv inspect`: the card of a model, and what its heads do."""

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import typer

from qkv.cli.options import read_texts
from qkv.errors import UsageError


def inspect(
    model: Annotated[
        Path, typer.Argument(help="A bundle or a public checkpoint.", show_default=False)
    ],
    texts: Annotated[
        list[str] | None,
        typer.Argument(help="With --heads: texts to judge by; a few sentences if none."),
    ] = None,
    heads: Annotated[
        bool, typer.Option("--heads", help="What each attention head looks at, and does.")
    ] = False,
    file: Annotated[
        Path | None, typer.Option("--file", help="With --heads: a file with one text a line.")
    ] = None,
    json: Annotated[
        bool, typer.Option("--json", help="One JSON object; with --heads one a line for each head.")
    ] = False,
) -> None:
    """Show what a model is: its shape, parameters, tokenizer, metrics and where it comes from.

    With --heads: what every attention head looks at (the token before, the first one, the same one,
    what followed it last time, a fixed distance, everything), how much its absence changes, and
    which heads do nothing or the same as another.

    \b
    Examples:
      qkv inspect runs/reviews
      qkv inspect models/all-MiniLM-L6-v2 --json
      qkv inspect runs/reviews --heads
      qkv inspect runs/reviews --heads "what a film" "never again"
    """
    if heads:
        _heads(model, texts, file, json)
    elif texts or file:
        raise UsageError("texts are for --heads, which judges attention heads by them; add --heads")
    else:
        _card(model, json)


def _card(model: Path, json: bool) -> None:
    from json import dumps

    from qkv.bundle import Bundle
    from qkv.checkpoints.config_fields import options_of
    from qkv.checkpoints.load import said
    from qkv.cli.progress import print_rows

    bundle = Bundle.load(model)
    facts: dict[str, Any] = dict(options_of(bundle.model.config))
    facts["tokenizer"] = "none" if bundle.tokenizer is None else bundle.tokenizer.summary
    facts |= _training(model)
    if json:
        if bundle.card is None:
            card = {}
        else:
            card = {"import": bundle.card.model_dump()}
        typer.echo(dumps(facts | card, ensure_ascii=False))
        return
    lines = [(name.replace("_", " "), said(value)) for name, value in facts.items()]
    if bundle.card is not None:
        lines += [*bundle.card.origin(), *bundle.card.proof()]
    print_rows(lines)


def _heads(model: Path, texts: list[str] | None, file: Path | None, json: bool) -> None:
    from json import dumps

    from qkv.cli.progress import TextProgress, count_texts, print_stderr
    from qkv.engine.engine import Engine
    from qkv.interpret.head_stats import SAMPLE_TEXTS
    from qkv.interpret.head_stats import measure_heads as judge
    from qkv.interpret.head_stats.patterns import head_table
    from qkv.model import TextVector

    engine = Engine.load(model)
    sentences: Iterable[str] = SAMPLE_TEXTS
    if texts or file:
        sentences = read_texts(texts, file)
    else:
        count = len(SAMPLE_TEXTS)
        print_stderr(f"judged by {count} built-in English sentences; your own texts may tell more")
    pace = TextProgress(count_texts(texts, file) or len(SAMPLE_TEXTS))
    reports = judge(engine, sentences, progress=pace)
    pace.end()
    if json:
        for report in reports:
            typer.echo(dumps(report.json(), ensure_ascii=False))
        return
    for line in head_table(reports, isinstance(engine.model.config.output, TextVector)):
        typer.echo(line)


def _training(model: Path) -> dict[str, Any]:
    """What it was trained for, with what, from what, and how well it did; nothing if it was not."""
    from qkv.training.recipe import read_recipe
    from qkv.training.run import METRICS, RECIPE, read_summary

    if not (model / RECIPE).is_file():
        return {}
    recipe = read_recipe((model / RECIPE).read_text("utf-8"))
    found: dict[str, Any] = {
        "trained_for": recipe.task.kind,
        "steps": recipe.steps,
        "seed": recipe.seed,
        "data_sha256": recipe.data.sha256,
    }
    if recipe.origin is not None:
        found["began_as"] = recipe.origin.path
    scores = read_summary(model / METRICS).get("validation", {})
    return found | {f"held_out_{name}": value for name, value in dict(scores).items()}
