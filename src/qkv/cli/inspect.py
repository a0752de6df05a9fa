"""`qkv inspect`: the card of a model, and statistics of its attention heads."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from qkv.cli.options import AsText, TextColumn, Threads, choose_threads, read_records
from qkv.errors import UsageError

if TYPE_CHECKING:
    from qkv.data import Records


def inspect(
    model: Annotated[
        Path, typer.Argument(help="A bundle or a public checkpoint.", show_default=False)
    ],
    texts: Annotated[
        list[str] | None,
        typer.Argument(help="With --heads: texts to measure on; by default a few sentences."),
    ] = None,
    heads: Annotated[
        bool, typer.Option("--heads", help="What each attention head attends to, and its effect.")
    ] = False,
    file: Annotated[
        Path | None,
        typer.Option("--file", help="With --heads: a table, or a file with one text per line."),
    ] = None,
    text: TextColumn = None,
    as_text: AsText = False,
    json: Annotated[
        bool,
        typer.Option("--json", help="One JSON object; with --heads one for each head."),
    ] = False,
    threads: Threads = None,
) -> None:
    """Print the card of a model.

    Its shape, parameters, tokenizer, metrics and provenance.

    With --heads: what each attention head attends to (the previous token, the first one, the same
    one, what followed it last time (induction), a fixed distance, everything), how much its
    ablation changes, and which heads do nothing or the same as another.

    \b
    Examples:
      qkv inspect runs/reviews
      qkv inspect models/all-MiniLM-L6-v2 --json
      qkv inspect runs/reviews --heads
      qkv inspect runs/reviews --heads "what a film" "never again"
    """
    choose_threads(threads)
    if heads:
        _print_heads(model, _read_sample(texts, file, text, as_text), json)
    elif texts or file:
        raise UsageError("texts are only used to measure attention heads; add --heads")
    else:
        _print_card(model, json)


def _print_card(model: Path, json: bool) -> None:
    from json import dumps

    from qkv.bundle import Bundle
    from qkv.checkpoints import describe_config, format_value
    from qkv.cli.progress import print_rows

    bundle = Bundle.load(model)
    facts: dict[str, Any] = dict(describe_config(bundle.model.config))
    facts["tokenizer"] = "none"
    if bundle.tokenizer is not None:
        facts["tokenizer"] = bundle.tokenizer.summary
    facts |= _training_facts(model)
    if json:
        if bundle.card is not None:
            facts["import"] = bundle.card.model_dump()
        typer.echo(dumps(facts, ensure_ascii=False))
        return
    rows = [(name.replace("_", " "), format_value(value)) for name, value in facts.items()]
    if bundle.card is not None:
        rows += [*bundle.card.origin(), *bundle.card.proof()]
    print_rows(rows)


def _read_sample(
    texts: list[str] | None, file: Path | None, text: str | None, as_text: bool
) -> "Records | None":
    """The texts to measure on; None for the built-in ones."""
    if texts or file or text is not None:
        return read_records(texts, file, text, as_text)
    return None


def _print_heads(model: Path, records: "Records | None", json: bool) -> None:
    from json import dumps

    from qkv.cli.progress import TextProgress, print_stderr
    from qkv.data import text_records
    from qkv.engine import Engine
    from qkv.interpret.head_stats import SAMPLE_TEXTS, head_table, measure_heads
    from qkv.model import TextVector

    engine = Engine.load(model)
    if records is None:
        count = len(SAMPLE_TEXTS)
        print_stderr(f"measured on {count} built-in English sentences; your own may show more")
        records = text_records(SAMPLE_TEXTS, count)
    progress = TextProgress(records.count)
    reports = measure_heads(engine, records.texts(), progress=progress)
    progress.end()
    if json:
        for report in reports:
            typer.echo(dumps(report.json(), ensure_ascii=False))
        return
    for line in head_table(reports, isinstance(engine.model.config.output, TextVector)):
        typer.echo(line)


def _training_facts(model: Path) -> dict[str, Any]:
    """Job, steps, seed, data, origin and validation metrics; empty if qkv did not train it."""
    from qkv.bundle import MANIFEST
    from qkv.training import RECIPE, read_recipe

    if not (model / RECIPE).is_file():
        return {}
    recipe = read_recipe((model / RECIPE).read_text("utf-8"))
    facts: dict[str, Any] = {
        "trained_for": recipe.task.kind,
        "steps": recipe.steps,
        "seed": recipe.seed,
        "data_sha256": recipe.data.sha256,
    }
    if recipe.origin is not None:
        facts["began_as"] = recipe.origin.path
    if (model / MANIFEST).exists():
        return facts | _finished_facts(model, recipe.steps)
    return facts | _unfinished_facts(model)


def _finished_facts(model: Path, planned_steps: int) -> dict[str, Any]:
    from qkv.training import METRICS, read_summary

    facts: dict[str, Any] = {}
    summary = read_summary(model / METRICS)
    if summary.get("steps", planned_steps) != planned_steps:  # it ended early
        facts["steps_taken"] = summary["steps"]
    for name, value in dict(summary.get("validation", {})).items():
        facts[f"held_out_{name}"] = value
    return facts


def _unfinished_facts(model: Path) -> dict[str, Any]:
    """How far the training is, as of its newest checkpoint."""
    from qkv.training import CHECKPOINTS, METRICS, read_progress, read_scores

    progress = read_progress(model / CHECKPOINTS)
    if progress is None:
        return {"training": "not finished"}
    facts: dict[str, Any] = {"training": "not finished", "steps_taken": progress.step}
    if progress.best_step is None:
        facts["training"] = "not finished, not evaluated yet"
        return facts
    facts["best_step"] = progress.best_step
    for name, value in read_scores(model / METRICS, progress.best_step).items():
        facts[f"held_out_{name}"] = value
    return facts
