"""`qkv evaluate`: how well a model does on text it has not seen."""

from pathlib import Path
from typing import Annotated

import typer


def evaluate(
    model: Annotated[Path, typer.Argument(help="The directory of a trained model.")],
    data: Annotated[list[Path], typer.Argument(help="Text files or folders.")],
    json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or mps.")] = "auto",
) -> None:
    """Measure a language model: loss per token, character and byte, beside a baseline.

    \b
    Examples:
      qkv evaluate runs/book other-book.txt
      qkv evaluate runs/book other-book.txt --json
    """
    from dataclasses import asdict
    from json import dumps

    from qkv.bundle import Bundle
    from qkv.data import read_texts
    from qkv.train.evaluate import evaluate_language

    bundle = Bundle.load(model, device)
    score = evaluate_language(bundle, read_texts(data))
    if json:
        typer.echo(dumps(asdict(score)))
        return
    typer.echo(f"{score.examples:,} documents, {score.tokens:,} tokens")
    typer.echo(f"loss per token      {score.loss_per_token:.4f} nats")
    typer.echo(f"perplexity          {score.perplexity:.2f}")
    typer.echo(f"loss per character  {score.loss_per_character:.4f} nats")
    typer.echo(f"loss per byte       {score.loss_per_byte:.4f} nats")
    typer.echo(f"baseline            {score.baseline:.4f} nats per character (letter frequencies)")
