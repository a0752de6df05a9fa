"""`qkv evaluate`: the metrics of a model on text it was not trained on."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from qkv.cli.progress import print_stderr
from qkv.cli.train_args import Device, Label, Score, Source, Target, Text, flags_in_errors

if TYPE_CHECKING:
    from qkv.training.tasks import EvalResult

MAX_CONFUSION_LABELS = 12  # of a matrix that fits on a terminal


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
    """Measure a model on other data, next to a baseline.

    \b
    language    loss per token, character and byte, each document's end included; letter
                frequencies
    masked      loss and accuracy on masked tokens; token frequencies
    classify    accuracy, macro-F1; TF-IDF and logistic regression on the same training split
    translate   BLEU and chrF by sacreBLEU; copying the source
    embed       rank correlation, clusters or retrieval; cosines of TF-IDF vectors and LSA

    \b
    Examples:
      qkv evaluate runs/book other-book.txt
      qkv evaluate runs/reviews test.csv --json
      qkv evaluate runs/en-de --source test.en --target test.de
    """
    from json import dumps

    columns = {"text": text, "label": label, "source": source, "target": target, "score": score}
    with flags_in_errors():
        result = _evaluate(model, data or [], columns, device)
    for remark in result.remarks:
        print_stderr(f"note: {remark}")
    if not json:
        _print_result(result)
        return
    fields = {**result.scores, "examples": result.examples, "baseline": dict(result.baseline)}
    if result.baseline_name:
        fields["baseline_is"] = result.baseline_name
    if result.other_baselines:
        fields["other_baselines"] = {k: dict(v) for k, v in result.other_baselines.items()}
    if result.signatures:
        fields["signatures"] = dict(result.signatures)
    typer.echo(dumps(fields))


def _evaluate(
    path: Path, files: list[Path], columns: dict[str, str | None], device: str
) -> "EvalResult":
    from qkv.bundle import Bundle
    from qkv.errors import UsageError
    from qkv.training import RECIPE, read_recipe
    from qkv.training.tasks import DataConfig, check_columns, task_for

    bundle = Bundle.load(path, device)
    if bundle.tokenizer is None:
        raise UsageError(
            f"{path} has no tokenizer, so it cannot read text; put its tokenizer.json into its "
            "directory, or save it with one"
        )
    task = task_for(bundle.model)
    if not files and not (columns["source"] and columns["target"]):
        raise UsageError(f"name the files to measure with, as in: {task.usage[0].format(path)}")
    data = DataConfig(
        files=tuple(map(str, files)),
        text=columns["text"],
        label=columns["label"],
        source=columns["source"],
        target=columns["target"],
        score=columns["score"],
    )
    check_columns(task, data)
    recipe = None
    if (path / RECIPE).exists():
        recipe = read_recipe((path / RECIPE).read_text("utf-8"))
    return task.evaluate(bundle, data, recipe)


def _print_result(result: "EvalResult") -> None:
    """Each metric, and the baseline's where it has one."""
    width = max(map(len, result.scores))
    for name, value in result.scores.items():
        line = f"{name.replace('_', ' '):<{width}}  {_number(value)}"
        if name in result.baseline:
            line += f"   {result.baseline_name}: {_number(result.baseline[name])}"
        for baseline_name, values in result.other_baselines.items():
            if name in values:
                line += f"   {baseline_name}: {_number(values[name])}"
        typer.echo(line)
    typer.echo(f"{'examples':<{width}}  {result.examples:,}")
    for name, value in result.baseline.items():
        if name not in result.scores:
            typer.echo(f"{result.baseline_name}: {name} {_number(value)}")
    if result.confusion and len(result.labels) <= MAX_CONFUSION_LABELS:
        _print_confusion(result)
    for name, signature in result.signatures.items():
        typer.echo(f"{name}: {signature}")


def _print_confusion(result: "EvalResult") -> None:
    typer.echo("rows are the true labels, columns the predictions")
    width = max(6, *map(len, result.labels))
    typer.echo(" " * width + "".join(f"  {label:>{width}}" for label in result.labels))
    for label, row in zip(result.labels, result.confusion, strict=True):
        typer.echo(f"{label:>{width}}" + "".join(f"  {count:>{width},}" for count in row))


def _number(value: float) -> str:
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:.4f}"
