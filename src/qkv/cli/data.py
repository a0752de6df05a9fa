"""`qkv data`: write a built-in corpus to a file."""

from pathlib import Path
from typing import Annotated

import typer

from qkv.cli.options import CORPORA, complete_from, join_or


def data(
    name: Annotated[
        str,
        typer.Argument(
            help=f"{join_or(CORPORA)}.", show_default=False, autocompletion=complete_from(CORPORA)
        ),
    ],
    output: Annotated[
        Path,
        typer.Option(
            "--output",
            "-o",
            help="File to write: .txt or .jsonl for language, else .tsv, .csv or .jsonl.",
            show_default=False,
        ),
    ],
    force: Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")] = False,
) -> None:
    """Write a built-in corpus to a file; nothing is downloaded.

    \b
    language    documentation that ships inside Python: topics and docstrings
    classify    review sentences, negative or positive; synthetic, from a grammar
    translate   English and German sentences about dates and amounts; synthetic
    embed       first sentences of Python's docstrings, with their package as label

    \b
    Examples:
      qkv data language -o python.txt
      qkv data classify -o reviews.tsv
      qkv data translate -o dates.csv
      qkv data embed -o sentences.jsonl --force
    """
    from qkv.data import check_output_path, write_built_in
    from qkv.errors import UsageError

    check_output_path(name, output)
    if output.exists() and not force:
        raise UsageError(f"{output} exists; pass --force to overwrite it")
    rows = write_built_in(name, output)
    size = output.stat().st_size / 1e6
    typer.echo(f"wrote {rows:,} examples of {name} to {output} ({size:.1f} MB)", err=True)
