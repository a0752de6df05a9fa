"""`qkv plan`: what a training would cost here, before it starts."""

from typing import TYPE_CHECKING, Annotated

import typer

from qkv.cli.exclusive import only_one
from qkv.cli.wish import (
    Batch,
    Compile,
    Config,
    Context,
    Device,
    Epochs,
    Files,
    Freeze,
    From,
    Job,
    Label,
    Minutes,
    Optimiser,
    Preset,
    Score,
    Seed,
    Set,
    Size,
    Source,
    Steps,
    Target,
    Text,
    Threads,
    Tokenizer,
    Tokens,
    Validation,
    Vocabulary,
    make_wish,
)  # fmt: skip

if TYPE_CHECKING:
    from qkv.train.forecast import Forecast


def plan(
    job: Job,
    data: Files = None,
    size: Size = None,
    preset: Preset = None,
    config: Config = None,
    set_: Set = None,
    steps: Steps = None,
    epochs: Epochs = None,
    tokens: Tokens = None,
    minutes: Minutes = None,
    from_: From = None,
    freeze: Freeze = False,
    text: Text = None,
    label: Label = None,
    source: Source = None,
    target: Target = None,
    score: Score = None,
    validation: Validation = None,
    tokenizer: Tokenizer = None,
    vocabulary: Vocabulary = None,
    context_length: Context = None,
    batch: Batch = None,
    optimiser: Optimiser = None,
    seed: Seed = None,
    compile_: Compile = False,
    threads: Threads = None,
    device: Device = "auto",
    json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Say what `qkv train` with the same arguments would cost: memory, time, padding, advice.

    The data is read, and a few steps are taken for five seconds and thrown away.

    \b
    Examples:
      qkv plan language book.txt
      qkv plan classify reviews.csv --size medium --epochs 5
    """
    import torch

    from qkv.device import resolve
    from qkv.train.forecast import forecast
    from qkv.train.plan import prepare

    only_one({"--steps": steps, "--epochs": epochs, "--tokens": tokens, "--minutes": minutes})
    if threads is not None:
        torch.set_num_threads(threads)
    wish = make_wish(
        job=job, files=data, size=size, preset=preset, config=config, assignments=set_,
        steps=steps, epochs=epochs, tokens=tokens, origin=from_, freeze=freeze, text=text,
        label=label, source=source, target=target, score=score, validation=validation,
        tokenizer=tokenizer, vocabulary=vocabulary, context=context_length, batch=batch,
        optimiser=optimiser, seed=seed, compiled=compile_,
    )  # fmt: skip
    found = forecast(prepare(wish), resolve(device))
    if minutes is not None:
        found = found.in_minutes(minutes)
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
