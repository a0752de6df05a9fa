"""`qkv lemma`: why attention divides by √d_k, measured."""

from pathlib import Path
from typing import Annotated

import typer

from qkv.cli.options import Threads, choose_threads
from qkv.errors import UsageError


def lemma(
    seed: Annotated[int, typer.Option(min=0, help="Seed of the random vectors.")] = 0,
    samples: Annotated[int, typer.Option(help="Random pairs of q and k.")] = 20_000,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="Also write a plot .png .svg .pdf, a page .html, or a document .tex .md .json.",
        ),
    ] = None,
    standalone: Annotated[
        bool,
        typer.Option("--standalone", help="With -o FILE.tex: a document that compiles as it is."),
    ] = False,
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
      qkv lemma -o lemma.tex --standalone
      qkv lemma --json
    """
    from json import dumps

    from qkv.interpret import lemma_text, measure_lemma
    from qkv.interpret.export import check_walk_path, write_lemma

    choose_threads(threads)
    if output is not None:
        check_walk_path(output, standalone)
    elif standalone:
        raise UsageError("--standalone is for a LaTeX file; name one, as in -o lemma.tex")
    measurement = measure_lemma(seed, samples)
    if json:
        typer.echo(dumps(measurement.json()))
    else:
        typer.echo(lemma_text(measurement))
    if output is not None:
        write_lemma(measurement, output, standalone=standalone)
        typer.echo(f"wrote {output}", err=True)
