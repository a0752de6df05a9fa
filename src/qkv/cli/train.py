"""`qkv train`: a model from your own text, in one command; and `qkv plan`: what it would cost."""

import shlex
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from qkv.cli.options import JOBS, choose_threads, join_or
from qkv.cli.progress import GracefulStop, TrainingProgress, print_stderr
from qkv.cli.train_args import Options, train_keywords, with_train_options
from qkv.errors import TrainingError, UsageError

if TYPE_CHECKING:
    from qkv.training import Finished, Forecast, Run
    from qkv.training.tasks import EvalResult

EXAMPLE = "qkv train language book.txt -o runs/book"
LENGTHS = ("steps", "epochs", "tokens", "minutes")  # that a run may be resumed with
BAR_WIDTH = 30  # characters of the histogram's longest bar


@with_train_options
def train(
    context: typer.Context,
    options: Options,
    output: Annotated[Path, typer.Option("--output", "-o", help="Directory for the model.")],
    resume: Annotated[
        bool,
        typer.Option("--resume", help="Continue the run in --output; a new length may be given."),
    ] = False,
    finish: Annotated[
        bool,
        typer.Option("--finish", help="Train no further: evaluate and report what is in --output."),
    ] = False,
) -> None:
    """Train a model on your own text, or on a built-in corpus.

    \b
    language    the next token: text files or folders
    masked      masked tokens, for encoders: text files or folders
    classify    labels: a .csv, .tsv, .jsonl, .parquet or .xlsx with text and label
    translate   pairs: a table with source and target, or two parallel files
    embed       vectors: texts with labels, pairs, scored pairs, or texts alone

    A tenth of the examples is split off for validation, unless --validation names files.

    Stop it whenever you like: after Ctrl-C the best model so far is in --output and can be used.
    --resume continues exactly where it stopped, to the same end or to another --steps, --epochs,
    --tokens or --minutes; --finish evaluates the model and writes its report.

    \b
    Examples:
      qkv train language book.txt -o runs/book --minutes 5
      qkv train classify reviews.csv -o runs/reviews --epochs 10
      qkv train translate --source a.en --target a.de -o runs/en-de --minutes 20
      qkv train embed -o runs/vectors --minutes 1
      qkv train -o runs/book --resume --minutes 5
      qkv train -o runs/book --finish
    """
    start_time = time.perf_counter()
    from qkv.machine import reuse_freed_memory
    from qkv.training import train as start_training

    import_seconds = time.perf_counter() - start_time
    reuse_freed_memory()
    if resume and finish:
        raise UsageError("--resume and --finish exclude each other; give one of them")
    if resume:
        _refuse_other_options(context, "resume", LENGTHS)
    if finish:
        _refuse_other_options(context, "finish", ())
    if options["job"] is None and options["config"] is None and not (resume or finish):
        raise UsageError(f"name a job: {join_or(JOBS)}; as in: {EXAMPLE}")
    run = start_training(**train_keywords(options), output=output, resume=resume, finish=finish)
    if run.limit is not None:
        run.limit.started_earlier(import_seconds)
    for note in run.notes:
        print_stderr(note)
    if not (resume or finish):
        _introduce(run)
    _follow(run)


def _refuse_other_options(context: typer.Context, flag: str, lengths: Sequence[str]) -> None:
    """Everything else is in the recipe; other options would have no effect."""
    allowed = {"job", "output", "threads", "device", flag, *lengths}
    for name in context.params.keys() - allowed:
        if context.get_parameter_source(name).name == "COMMANDLINE":  # type: ignore[union-attr]
            raise TrainingError(
                f"--{flag} takes everything from the recipe; leave {_flag(context, name)} out, "
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


def _follow(run: "Run") -> None:
    """Trains to the end and prints its progress; Ctrl-C finishes the step and saves."""
    from qkv.training import Finished

    printer = TrainingProgress(run)
    run.note = lambda note: print_stderr(f"note: {note}")
    finished: Finished | None = None
    with GracefulStop("stopping; press Ctrl-C again to end at once, without saving") as stop:
        run.should_stop = lambda: stop.requested
        try:
            for event in run:
                if isinstance(event, Finished):
                    finished = event
                    break
                printer.show(event)
                if stop.requested:
                    raise KeyboardInterrupt
                if run.out_of_patience:
                    patience = run.recipe.patience
                    print_stderr(f"no improvement for {patience} evaluations: stopping here")
        except KeyboardInterrupt:
            if not stop.at_once:
                run.save()
            _print_stopped(run)
            raise
    assert finished is not None
    _conclude(run, finished)


def _intervals(result: "EvalResult") -> str:
    """The metrics that have a confidence interval, such as the accuracy."""
    from qkv.report import format_interval

    text = ""
    for name, interval in result.intervals.items():
        text += f"{name} {result.scores[name]:.4f} (95% interval {format_interval(interval)}), "
    return text


def _print_stopped(run: "Run") -> None:
    """How far it is, and the commands that work now."""
    from qkv.bundle import MANIFEST, bundle_directory

    resume = f"{_command(run)} --resume"
    saved = run.saved
    if saved is None or saved.step == 0:
        print_stderr(f"stopped before anything was saved; to go on: {resume}")
        return
    line = f"stopped; saved after step {saved.step:,} of {run.recipe.steps:,}"
    if saved.best is None:
        line += "; the model has not been evaluated yet"
    else:
        metric = run.data_module.metric.name
        line += f"; the best model so far is that of step {saved.best_step:,}, {metric} "
        line += f"{saved.best:.4f}"
    print_stderr(line)
    if (bundle_directory(run.directory) / MANIFEST).exists():
        print_stderr(f"  use it:             {run.task.commands(run.directory)[0]}")
    print_stderr(f"  train on:           {resume}")
    print_stderr(f"  evaluate, report:   {_command(run)} --finish")


def _command(run: "Run") -> str:
    return f"qkv train {run.task.kind} -o {shlex.quote(str(run.directory))}"


def _conclude(run: "Run", finished: "Finished") -> None:
    from qkv.cli.check import quick_check
    from qkv.engine import Engine
    from qkv.report import optimism
    from qkv.training import count_evaluations

    metric = run.data_module.metric.name
    result = finished.result
    line = f"{finished.directory}: not evaluated"
    if metric in result.scores:
        line = f"{finished.directory}: validation {_intervals(result)}{metric} "
        line += f"{result.scores[metric]:.4f}"
    if metric in result.baseline:
        line += f" ({result.baseline_name}: {result.baseline[metric]:.4f})"
    for remark in result.remarks:
        print_stderr(f"note: {remark}")
    if not result.complete:
        print_stderr(f"for the complete evaluation: {_command(run)} --finish")
    typer.echo(line)
    print_stderr(optimism(count_evaluations(run.directory)))
    print_stderr(f"read {finished.directory / 'report.html'}, or try:")
    for command in run.task.commands(run.directory):
        print_stderr(f"  {command}")
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

    from qkv.device import resolve_device
    from qkv.machine import watch_load
    from qkv.training import forecast, prepare, train_args

    keywords = train_keywords(options)
    device = resolve_device(keywords.pop("device"))
    watch_load()
    choose_threads(keywords.pop("threads"))
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
        ("tokens per parameter", f"{result.data_tokens_per_parameter:.2g}, in the data"),
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
