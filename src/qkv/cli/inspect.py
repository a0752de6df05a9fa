"""`qkv inspect`: the card of a model."""

from pathlib import Path
from typing import Annotated, Any

import typer


def inspect(
    model: Annotated[
        Path, typer.Argument(help="A bundle or a public checkpoint.", show_default=False)
    ],
    json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Show what a model is: its shape, parameters, tokenizer, metrics and where it comes from.

    \b
    Examples:
      qkv inspect runs/reviews
      qkv inspect models/all-MiniLM-L6-v2 --json
    """
    from json import dumps

    from qkv.bundle import Bundle
    from qkv.cli.progress import show
    from qkv.layout.card import said
    from qkv.layout.options import options_of

    bundle = Bundle.load(model)
    facts: dict[str, Any] = dict(options_of(bundle.model.config))
    facts["tokenizer"] = "none" if bundle.tokenizer is None else bundle.tokenizer.summary
    facts |= _training(model)
    if json:
        card = {} if bundle.card is None else {"import": bundle.card.model_dump()}
        typer.echo(dumps(facts | card, ensure_ascii=False))
        return
    lines = [(name.replace("_", " "), said(value)) for name, value in facts.items()]
    if bundle.card is not None:
        lines += [*bundle.card.origin(), *bundle.card.proof()]
    show(lines)


def _training(model: Path) -> dict[str, Any]:
    """What it was trained for, with what, from what, and how well it did; nothing if it was not."""
    from qkv.train.recipe import read_recipe
    from qkv.train.run import METRICS, RECIPE, last_summary

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
    scores = last_summary(model / METRICS).get("held_out", {})
    return found | {f"held_out_{name}": value for name, value in dict(scores).items()}
