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
    from qkv.cli.convert import show
    from qkv.layout.options import options_of
    from qkv.train.recipe import read_recipe
    from qkv.train.run import METRICS, RECIPE

    bundle = Bundle.load(model)
    told: dict[str, Any] = dict(options_of(bundle.model.config))
    tokenizer = bundle.tokenizer
    told["tokenizer"] = (
        "none" if tokenizer is None else f"{tokenizer.kind}, {tokenizer.size:,} tokens"
    )
    if (model / RECIPE).is_file():
        recipe = read_recipe((model / RECIPE).read_text("utf-8"))
        told["trained for"] = f"{recipe.task.kind}, {recipe.steps:,} steps, seed {recipe.seed}"
        told["data"] = recipe.data.sha256
        if recipe.origin is not None:
            told["began as"] = recipe.origin.path
    if (model / METRICS).is_file():
        told |= _measured(model / METRICS)
    if bundle.card is not None:
        told |= dict([*bundle.card.origin(), *bundle.card.proof()])
    if json:
        typer.echo(dumps(told, ensure_ascii=False))
    else:
        show([(name.replace("_", " "), str(value)) for name, value in told.items()])


def _measured(path: Path) -> dict[str, str]:
    """The last line of the metrics: what the finished model was measured with."""
    from json import loads

    lines = path.read_text("utf-8").splitlines()
    last = loads(lines[-1]) if lines else {}
    found = last.get("scores", last.get("held_out", {}))
    return {f"held-out {name}": f"{value:.4f}" for name, value in dict(found).items()}
