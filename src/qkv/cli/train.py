"""`qkv train`: a model from your own text, in one command."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from qkv.cli.progress import Stop, Teller, say
from qkv.cli.train_args import Asked, begin, make_args, with_train_options
from qkv.errors import TrainingError

if TYPE_CHECKING:
    import torch

    from qkv.training.plan import TrainArgs
    from qkv.training.run import Run

if TYPE_CHECKING:
    from qkv.training.forecast import Forecast

# FOLDED cli/plan: `qkv plan`: what a training would cost here, before it starts.


@with_train_options
def train(
    context: typer.Context,
    asked: Asked,
    output: Annotated[Path, typer.Option("--output", "-o", help="Where the model goes.")],
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with the run in --output.")
    ] = False,
) -> None:
    """Train a model on your own text, or on a built-in corpus.

    \b
    language    the next token: text files or folders
    masked      hidden tokens, for encoders: text files or folders
    classify    labels: a .csv, .tsv, .jsonl or .parquet with text and label
    translate   pairs: a table with source and target, or two parallel files
    embed       vectors: texts with labels, pairs, scored pairs, or texts alone

    A tenth of the examples is held out to measure with, unless --validation names files. Ctrl-C
    saves; --resume goes on exactly where it stopped.

    \b
    Examples:
      qkv train language book.txt -o runs/book --minutes 5
      qkv train classify reviews.csv -o runs/reviews --epochs 10
      qkv train translate --source a.en --target a.de -o runs/en-de --minutes 20
      qkv train embed -o runs/vectors --minutes 1
      qkv train language -o runs/book --resume
    """
    from qkv.bundle.manifest import recover
    from qkv.machine.resources import reuse_freed_memory

    where = begin(asked)
    reuse_freed_memory()
    recover(output)  # a run that was killed at its very end may have been moved aside
    if resume:
        _refuse_beside_resume(context)
        run = _resumed(output, asked["job"], where)
    else:
        args = make_args(asked)
        run = _started(output, args, asked["minutes"], where)
    _follow(run, asked["minutes"])


def _started(
    output: Path, args: "TrainArgs", minutes: float | None, device: "torch.device"
) -> "Run":
    from qkv.bundle.manifest import MANIFEST
    from qkv.training.forecast import refuse_too_large
    from qkv.training.plan import prepare
    from qkv.training.run import RECIPE, Run
    from qkv.training.run import begin as begin_run

    if output.is_file():
        raise TrainingError(f"{output} is a file, and a model is a folder; choose another place")
    if output.exists() and (not output.is_dir() or any(output.iterdir())):
        begun = (output / RECIPE).exists() and not (output / MANIFEST).exists()
        hint = "pass --resume to go on" if begun else "choose another"
        raise TrainingError(f"{output} is not empty; {hint}")
    prepared = prepare(args)
    refuse_too_large(prepared.recipe)
    run = Run(prepared, output, device)
    if minutes is not None:
        seconds, steps = run.fit_to_minutes(minutes), run.recipe.steps
        say(f"a step takes {1000 * seconds:.0f} ms here: {steps:,} steps in {minutes:g} minutes")
    begin_run(run)
    _introduce(run)
    return run


def _resumed(output: Path, job: str, device: "torch.device") -> "Run":
    from qkv.bundle.manifest import MANIFEST
    from qkv.training.run import RECIPE, reopen

    if (output / MANIFEST).exists():
        raise TrainingError(f"the run in {output} is finished; there is nothing to resume")
    if not (output / RECIPE).exists():
        raise TrainingError(f"there is no run in {output} to resume; start one without --resume")
    run = reopen(output, device, job)
    run.resume(say)
    say(f"going on after step {run.progress.step:,} of {run.recipe.steps:,}")
    return run


def _refuse_beside_resume(context: typer.Context) -> None:
    """Everything is in the recipe already; what is asked differently would not be done."""
    allowed = {"job", "output", "resume", "threads", "device"}
    for name in context.params.keys() - allowed:
        if context.get_parameter_source(name).name == "COMMANDLINE":  # type: ignore[union-attr]
            raise TrainingError(
                f"--resume takes everything from the recipe; leave {_option(context, name)} out, "
                "or start a new run elsewhere"
            )


def _option(context: typer.Context, name: str) -> str:
    written = next(p.opts[0] for p in context.command.params if p.name == name)
    return "the files" if name == "data" else written


def _introduce(run: "Run") -> None:
    recipe = run.recipe
    say(
        f"{recipe.model.parameters():,} parameters, {run.tokenizer.vocab_size:,} tokens in the "
        f"vocabulary, {recipe.steps:,} steps"
    )
    say(", ".join(f"{name} {value}" for name, value in run.data_module.facts))
    for remark in run.data_module.remarks:
        say(f"note: {remark}")


def _follow(run: "Run", minutes: float | None) -> None:
    """Take every step and say how it goes; asked to stop, finish the step and save."""
    from qkv.cli.check import quick_check
    from qkv.engine.engine import Engine

    teller = Teller(run, minutes)
    with Stop() as stop:
        for event in run.events():
            teller.tell(event)
            if stop.asked and run.progress.step < run.recipe.steps:
                run.save()
                say(f"saved after step {run.progress.step:,}; to go on, add --resume")
                raise KeyboardInterrupt
        if run.out_of_patience:
            say(f"no better for {run.recipe.patience} evaluations: stopping here")
        place, judged = run.finish()
    name = run.data_module.metric.name
    beside = judged.baseline.get(name)
    baseline = "" if beside is None else f" ({judged.baseline_is}: {beside:.4f})"
    typer.echo(f"{place}: held-out {name} {judged.scores[name]:.4f}{baseline}")
    say(f"read {place / 'report.html'}")
    if not quick_check(Engine.load(place)):
        raise typer.Exit(1)


@with_train_options
def plan(
    asked: Asked,
    json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Say what `qkv train` with the same arguments would cost: memory, time, padding, advice.

    The data is read, and a few steps are taken for five seconds and thrown away.

    \b
    Examples:
      qkv plan language book.txt
      qkv plan classify reviews.csv --size medium --epochs 5
    """
    from qkv.training.forecast import forecast
    from qkv.training.plan import prepare

    where = begin(asked)
    found = forecast(prepare(make_args(asked)), where)
    if asked["minutes"] is not None:
        found = found.in_minutes(asked["minutes"])
    if json:
        from dataclasses import asdict
        from json import dumps

        typer.echo(dumps(asdict(found)))
    else:
        _show(found)


def _show(found: "Forecast") -> None:
    rows = [
        ("parameters", f"{found.parameters:,}"),
        ("memory", f"{found.memory_bytes / 1e6:,.0f} MB, besides torch itself"),
        ("speed", f"{found.tokens_a_second:,.0f} tokens/s, measured"),
        ("steps", f"{found.steps:,} of {1000 * found.seconds_a_step:,.0f} ms"),
        ("epochs", f"{found.steps / found.steps_an_epoch:.1f}"),
        ("time", f"{found.minutes:.1f} minutes, evaluations not counted"),
        ("tokens per parameter", f"{found.tokens_per_parameter:.1f}"),
        *found.facts,
    ]
    room = max(len(name) for name, _ in rows)
    for name, value in rows:
        typer.echo(f"{name:<{room}}  {value}")
    typer.echo("tokens an example")
    most = max(1, *(count for _, count in found.lengths))
    for name, count in found.lengths:
        typer.echo(f"  {name:>11}  {'█' * round(30 * count / most):<30} {count:,}")
    for remark in found.remarks:
        typer.echo(f"note: {remark}")
    for line in found.advice:
        typer.echo(f"advice: {line}")
