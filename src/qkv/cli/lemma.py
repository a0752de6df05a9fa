"""`qkv lemma`: why attention divides by √d_k, measured."""

from pathlib import Path
from typing import Annotated

import typer

from qkv.cli.options import Threads, choose_threads


def lemma(
    seed: Annotated[int, typer.Option(min=0, help="Seed of the random vectors.")] = 0,
    samples: Annotated[int, typer.Option(help="Random pairs of q and k.")] = 20_000,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Plot it: .png, .svg or .pdf.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
    threads: Threads = None,
) -> None:
    """Measure why attention divides by √d_k.

    The variance of q·k is d_k: without the division, softmax saturates.

    \b
    Examples:
      qkv lemma
      qkv lemma --seed 7 --samples 200000
      qkv lemma -o lemma.png
      qkv lemma --json
    """
    from json import dumps

    from qkv.interpret import check_image_path, lemma_text, measure_lemma, plot_lemma

    choose_threads(threads)
    if output is not None:
        check_image_path(output)
    measurement = measure_lemma(seed, samples)
    if json:
        typer.echo(dumps(measurement.json()))
    else:
        typer.echo(lemma_text(measurement))
    if output is not None:
        plot_lemma(measurement, output)
        typer.echo(f"wrote {output}", err=True)
