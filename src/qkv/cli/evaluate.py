"""`qkv evaluate`: the metrics of a model on text it was not trained on, and where it is wrong."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from qkv.cli.options import Force, Threads, choose_threads
from qkv.cli.progress import print_stderr
from qkv.cli.train_args import (
    Device,
    Label,
    Score,
    SkipBad,
    Source,
    Target,
    Text,
    flags_in_errors,
)

if TYPE_CHECKING:
    from qkv.training.tasks import EvalResult, Predictions

MAX_CONFUSION_LABELS = 12  # of a matrix that fits on a terminal
MAX_WORST_PRINTED = 5
MAX_WORST_JSON = 10
MAX_SHORT_WIDTH = 32  # characters of a label; anything longer gets a line of its own


def evaluate(
    model: Annotated[Path, typer.Argument(help="A bundle or a public checkpoint.")],
    data: Annotated[list[Path] | None, typer.Argument(help="Files, as for training.")] = None,
    text: Text = None,
    label: Label = None,
    source: Source = None,
    target: Target = None,
    score: Score = None,
    skip_bad: SkipBad = False,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="A table of every example and its prediction, worst first.",
        ),
    ] = None,
    force: Force = False,
    json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
    threads: Threads = None,
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

    With -o every example is written with its prediction, the most confident mistakes first;
    translations are ordered by their chrF, lowest first.

    \b
    Examples:
      qkv evaluate runs/book other-book.txt
      qkv evaluate runs/reviews test.csv --json
      qkv evaluate runs/reviews test.csv -o mistakes.csv
      qkv evaluate runs/en-de --source test.en --target test.de
    """
    from json import dumps

    choose_threads(threads)
    columns = {"text": text, "label": label, "source": source, "target": target, "score": score}
    if output is not None:
        from qkv.data import check_table_path

        check_table_path(output, force)
    with flags_in_errors():
        result = _evaluate(model, data or [], columns, skip_bad, device, output)
    for remark in result.remarks:
        print_stderr(f"note: {remark}")
    if output is not None:
        from qkv.data import write_rows

        assert result.predictions is not None
        write_rows(output, result.predictions.records(result.predictions.rows))
        print_stderr(f"wrote {output}: {len(result.predictions.rows):,} examples, the worst first")
    if not json:
        _print_result(result)
        return
    fields: dict[str, Any] = {**result.scores}
    for name, interval in result.intervals.items():
        fields[f"{name}_interval"] = list(interval)
    fields |= {"examples": result.examples, "baseline": dict(result.baseline)}
    if result.baseline_name:
        fields["baseline_is"] = result.baseline_name
    if result.other_baselines:
        fields["other_baselines"] = {k: dict(v) for k, v in result.other_baselines.items()}
    if result.signatures:
        fields["signatures"] = dict(result.signatures)
    if result.predictions is not None:
        worst = result.predictions.worst(MAX_WORST_JSON)
        fields["worst"] = result.predictions.records(worst)
    typer.echo(dumps(fields))


def _evaluate(
    path: Path,
    files: list[Path],
    columns: dict[str, str | None],
    skip_bad: bool,
    device: str,
    output: Path | None,
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
    if output is not None and not task.ranks_examples:
        raise UsageError(
            f"-o is for models that answer example by example; a {task.name()} model is measured "
            "on running text, so leave it out"
        )
    if not files and not (columns["source"] and columns["target"]):
        raise UsageError(f"name the files to measure with, as in: {task.usage[0].format(path)}")
    data = DataConfig(
        files=tuple(map(str, files)),
        text=columns["text"],
        label=columns["label"],
        source=columns["source"],
        target=columns["target"],
        score=columns["score"],
        skip_bad=skip_bad,
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
        if name in result.intervals:
            low, high = result.intervals[name]
            line += f"   95% interval {_number(low)} to {_number(high)}"
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
    if result.predictions is not None:
        _print_worst(result.predictions)


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


def _print_worst(predictions: "Predictions") -> None:
    """The worst examples: a line of labels and numbers for each, and its texts below."""
    import shutil

    from rich.cells import cell_len, set_cell_size

    from qkv.files import one_line

    rows = predictions.worst(MAX_WORST_PRINTED)
    if not rows:
        return
    columns = predictions.columns
    long_columns = []
    for column, name in enumerate(columns):
        if any(cell_len(_cell(row[column])) > MAX_SHORT_WIDTH for row in rows):
            long_columns.append(name)
    title_width = max(map(len, long_columns), default=0)
    width = shutil.get_terminal_size().columns
    typer.echo(f"{predictions.title.lower()}:")
    for row in rows:
        cells = dict(zip(columns, row, strict=True))
        facts = []
        for name in predictions.summary:
            if name not in long_columns:
                facts.append(f"{name.replace('_', ' ')} {_cell(cells[name])}")
        typer.echo(f"  {', '.join(facts)}")
        for name in long_columns:
            line = f"      {one_line(cells[name])}"
            if len(long_columns) > 1:
                line = f"      {name.replace('_', ' '):<{title_width}}  {one_line(cells[name])}"
            if cell_len(line) > width:
                line = f"{set_cell_size(line, width - 1)}…"
            typer.echo(line)


def _cell(value: str | float | bool) -> str:
    if isinstance(value, str):
        return " ".join(value.split())
    if isinstance(value, bool):
        return "yes" if value else "no"
    return _number(value)
