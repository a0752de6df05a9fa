"""`qkv plan`: what a training would cost here, before it starts."""

from typing import TYPE_CHECKING, Annotated

import typer

from qkv.cli.wish import Asked, begin, make_wish, takes_a_wish

if TYPE_CHECKING:
    from qkv.train.forecast import Forecast


@takes_a_wish
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
    from qkv.train.forecast import forecast
    from qkv.train.plan import prepare

    where = begin(asked)
    found = forecast(prepare(make_wish(asked)), where)
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
