"""`qkv evaluate`: how well a model does on text it has not seen."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from qkv.cli.progress import say
from qkv.cli.train_args import Device, Label, Score, Source, Target, Text

if TYPE_CHECKING:
    from qkv.training.jobs.base import EvalResult


def evaluate(
    model: Annotated[Path, typer.Argument(help="A bundle or a public checkpoint.")],
    data: Annotated[list[Path] | None, typer.Argument(help="Files, as for training.")] = None,
    text: Text = None,
    label: Label = None,
    source: Source = None,
    target: Target = None,
    score: Score = None,
    json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
    device: Device = "auto",
) -> None:
    """Measure a model on other data, beside a baseline.

    \b
    language    loss per token, character and byte, each document's end included; letter
                frequencies
    masked      loss and accuracy on hidden tokens; token frequencies
    classify    accuracy, macro-F1; TF-IDF and logistic regression on the same training part
    translate   BLEU and chrF by sacreBLEU; copying the source
    embed       rank correlation, clusters or retrieval; cosines of TF-IDF vectors

    \b
    Examples:
      qkv evaluate runs/book other-book.txt
      qkv evaluate runs/reviews test.csv --json
      qkv evaluate runs/en-de --source test.en --target test.de
    """
    from json import dumps

    from qkv.bundle import Bundle
    from qkv.errors import UsageError
    from qkv.training.jobs import job_of
    from qkv.training.jobs.base import refuse_roles
    from qkv.training.recipe import Data, read_recipe
    from qkv.training.run import RECIPE, USE

    bundle = Bundle.load(model, device)
    if bundle.tokenizer is None:
        raise UsageError(
            f"{model} has no tokenizer, so it cannot read text; put the tokenizer.json it came "
            "with into its directory, or save it with one"
        )
    job = job_of(bundle.model)
    if not data and not (source and target):
        example = USE[job.name][0].format(model)
        raise UsageError(f"name the files to measure with, as in: {example}")
    said: dict[str, Any] = {
        "text": text,
        "label": label,
        "source": source,
        "target": target,
        "score": score,
    }
    given = Data(
        files=tuple(map(str, data or ())), **{name: v for name, v in said.items() if v is not None}
    )
    refuse_roles(job, given)
    recipe = model / RECIPE
    judged = job.evaluate(
        bundle, given, read_recipe(recipe.read_text("utf-8")) if recipe.exists() else None
    )
    for remark in judged.remarks:
        say(f"note: {remark}")
    if json:
        fields = {**judged.scores, "examples": judged.examples, "baseline": dict(judged.baseline)}
        extra = {"baseline_is": judged.baseline_is, "signatures": dict(judged.signatures)}
        typer.echo(dumps({**fields, **{name: v for name, v in extra.items() if v}}))
    else:
        _show(judged)


def _show(judged: "EvalResult") -> None:
    """A table for people: each metric, and the baseline's where it has one."""
    width = max(map(len, judged.scores))
    for name, value in judged.scores.items():
        beside = judged.baseline.get(name)
        if beside is None:
            other = ""
        else:
            other = f"   {judged.baseline_is}: {_figure(beside)}"
        typer.echo(f"{name.replace('_', ' '):<{width}}  {_figure(value)}{other}")
    typer.echo(f"{'examples':<{width}}  {judged.examples:,}")
    for name, value in judged.baseline.items():
        if name not in judged.scores:
            typer.echo(f"{judged.baseline_is}: {name} {_figure(value)}")
    if judged.confusion and len(judged.labels) <= 12:
        _show_confusion(judged)
    for name, signature in judged.signatures.items():
        typer.echo(f"{name}: {signature}")


def _show_confusion(judged: "EvalResult") -> None:
    typer.echo("rows are the truth, columns the answers")
    room = max(6, *map(len, judged.labels))
    typer.echo(" " * room + "".join(f"  {label:>{room}}" for label in judged.labels))
    for label, row in zip(judged.labels, judged.confusion, strict=True):
        typer.echo(f"{label:>{room}}" + "".join(f"  {count:>{room},}" for count in row))


def _figure(value: float) -> str:
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:.4f}"
