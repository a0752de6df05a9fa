"""`qkv train`: a model from your own text, in one command; and `qkv plan`: what it would cost."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from qkv.cli.progress import GracefulStop, TrainingProgress, print_stderr
from qkv.cli.train_args import Options, train_keywords, with_train_options
from qkv.errors import TrainingError

if TYPE_CHECKING:
    from qkv.training import Finished, Forecast, Run

BAR_WIDTH = 30  # characters of the histogram's longest bar


@with_train_options
def train(
    context: typer.Context,
    options: Options,
    output: Annotated[Path, typer.Option("--output", "-o", help="Directory for the model.")],
    resume: Annotated[bool, typer.Option("--resume", help="Continue the run in --output.")] = False,
) -> None:
    """Train a model on your own text, or on a built-in corpus.

    \b
    language    the next token: text files or folders
    masked      masked tokens, for encoders: text files or folders
    classify    labels: a .csv, .tsv, .jsonl or .parquet with text and label
    translate   pairs: a table with source and target, or two parallel files
    embed       vectors: texts with labels, pairs, scored pairs, or texts alone

    A tenth of the examples is split off for validation, unless --validation names files. Ctrl-C
    saves; --resume continues exactly where it stopped.

    \b
    Examples:
      qkv train language book.txt -o runs/book --minutes 5
      qkv train classify reviews.csv -o runs/reviews --epochs 10
      qkv train translate --source a.en --target a.de -o runs/en-de --minutes 20
      qkv train embed -o runs/vectors --minutes 1
      qkv train language -o runs/book --resume
    """
    from qkv.machine import reuse_freed_memory
    from qkv.training import train as start_training

    reuse_freed_memory()
    if resume:
        _refuse_other_options(context)
    run = start_training(**train_keywords(options), output=output, resume=resume)
    for note in run.notes:
        print_stderr(note)
    if not resume:
        _introduce(run)
    _follow(run, options["minutes"])


def _refuse_other_options(context: typer.Context) -> None:
    """Everything is in the recipe; other options would have no effect."""
    allowed = {"job", "output", "resume", "threads", "device"}
    for name in context.params.keys() - allowed:
        if context.get_parameter_source(name).name == "COMMANDLINE":  # type: ignore[union-attr]
            raise TrainingError(
                f"--resume takes everything from the recipe; leave {_flag(context, name)} out, "
                "or start a new run elsewhere"
            )


def _flag(context: typer.Context, name: str) -> str:
    if name == "data":
        return "the files"
    return next(p.opts[0] for p in context.command.params if p.name == name)


def _introduce(run: "Run") -> None:
    recipe = run.recipe
    print_stderr(
        f"{recipe.model.parameters():,} parameters, {run.tokenizer.vocab_size:,} tokens in the "
        f"vocabulary, {recipe.steps:,} steps"
    )
    print_stderr(", ".join(f"{name} {value}" for name, value in run.data_module.facts))
    for remark in run.data_module.remarks:
        print_stderr(f"note: {remark}")


def _follow(run: "Run", minutes: float | None) -> None:
    """Trains to the end and prints its progress; Ctrl-C finishes the step and saves."""
    from qkv.training import Finished

    printer = TrainingProgress(run, minutes)
    finished: Finished | None = None
    with GracefulStop() as stop:
        for event in run:
            if isinstance(event, Finished):
                finished = event
                break
            printer.show(event)
            if stop.requested and run.progress.step < run.recipe.steps:
                run.save()
                print_stderr(f"saved after step {run.progress.step:,}; to go on, add --resume")
                raise KeyboardInterrupt
            if run.out_of_patience:
                print_stderr(f"no improvement for {run.recipe.patience} evaluations: stopping here")
    assert finished is not None
    _conclude(run, finished)


def _conclude(run: "Run", finished: "Finished") -> None:
    from qkv.cli.check import quick_check
    from qkv.engine import Engine

    metric = run.data_module.metric.name
    result = finished.result
    line = f"{finished.directory}: validation {metric} {result.scores[metric]:.4f}"
    if metric in result.baseline:
        line += f" ({result.baseline_name}: {result.baseline[metric]:.4f})"
    typer.echo(line)
    for remark in result.remarks:
        print_stderr(f"note: {remark}")
    print_stderr(f"read {finished.directory / 'report.html'}")
    if not quick_check(Engine.load(finished.directory)):
        raise typer.Exit(1)


@with_train_options
def plan(
    options: Options,
    json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Print what `qkv train` with the same arguments would cost: memory, time, padding, advice.

    It reads the data and trains for five seconds; the result is thrown away.

    \b
    Examples:
      qkv plan language book.txt
      qkv plan classify reviews.csv --size medium --epochs 5
    """
    import torch

    from qkv.device import resolve_device
    from qkv.training import forecast, prepare, train_args

    keywords = train_keywords(options)
    device = resolve_device(keywords.pop("device"))
    threads = keywords.pop("threads")
    if threads is not None:
        torch.set_num_threads(threads)
    result = forecast(prepare(train_args(**keywords)), device)
    if options["minutes"] is not None:
        result = result.in_minutes(options["minutes"])
    if json:
        from dataclasses import asdict
        from json import dumps

        typer.echo(dumps(asdict(result)))
    else:
        _print_forecast(result)


def _print_forecast(result: "Forecast") -> None:
    rows = [
        ("parameters", f"{result.parameters:,}"),
        ("memory", f"{result.memory_bytes / 1e6:,.0f} MB, besides torch itself"),
        ("speed", f"{result.tokens_a_second:,.0f} tokens/s, measured"),
        ("steps", f"{result.steps:,} of {1000 * result.seconds_a_step:,.0f} ms"),
        ("epochs", f"{result.steps / result.steps_an_epoch:.1f}"),
        ("time", f"{result.minutes:.1f} minutes, evaluations not counted"),
        ("tokens per parameter", f"{result.tokens_per_parameter:.1f}"),
        *result.facts,
    ]
    width = max(len(name) for name, _ in rows)
    for name, value in rows:
        typer.echo(f"{name:<{width}}  {value}")
    typer.echo("tokens per example")
    largest = max(1, *(count for _, count in result.lengths))
    for name, count in result.lengths:
        bar = "█" * round(BAR_WIDTH * count / largest)
        typer.echo(f"  {name:>11}  {bar:<{BAR_WIDTH}} {count:,}")
    for remark in result.remarks:
        typer.echo(f"note: {remark}")
    for line in result.advice:
        typer.echo(f"advice: {line}")
