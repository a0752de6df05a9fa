"""`qkv import` and `qkv export`: public checkpoints in and out."""

from pathlib import Path
from typing import Annotated

import typer

from qkv.cli.options import FORMATS, complete_from
from qkv.cli.progress import print_rows, print_stderr


def import_(
    source: Annotated[
        Path,
        typer.Argument(
            help="A directory with config.json, safetensors and tokenizer files; or a .gguf file.",
            show_default=False,
        ),
    ],
    output: Annotated[
        Path,
        typer.Option("--output", "-o", help="The directory of the bundle.", show_default=False),
    ],
    pooler: Annotated[
        bool,
        typer.Option("--pooler", help="A text's vector through the model's own pooler (BERT)."),
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="The import card as JSON.")] = False,
) -> None:
    """Make a bundle of a public checkpoint, and say what was made of it.

    Every tensor must find its place: one that is missing, left over or of another shape is an
    error that names it. No code from the directory is run, no pickle is read, nothing is
    downloaded. Every command also takes a public checkpoint as it is; a bundle is checked against
    its hashes each time it is load_engine, and needs no second look at the layout.

    \b
    Examples:
      qkv import models/all-MiniLM-L6-v2 -o bundles/minilm
      qkv import models/bert-base-uncased -o bundles/bert --pooler
      qkv import llama.Q8_0.gguf -o bundles/llama --json
    """
    from json import dumps

    from qkv.bundle import Bundle
    from qkv.bundle.manifest import MANIFEST
    from qkv.checkpoints import read_checkpoint, self_test
    from qkv.cli.check import quick_check
    from qkv.engine.engine import Engine
    from qkv.errors import BundleError

    if (output / MANIFEST).exists():
        raise BundleError(f"{output} holds a bundle already; choose another place")
    found = read_checkpoint(source, pooler)
    card = found.card.tested(self_test(found.model))
    bundle = Bundle(found.model, found.tokenizer, card)
    bundle.save(output)
    if json:
        typer.echo(dumps(card.model_dump(), ensure_ascii=False))
    else:
        print_rows(card.lines())
    print_stderr(f"wrote {output}")
    if not quick_check(Engine(bundle, str(output))):
        raise typer.Exit(1)


def export(
    model: Annotated[
        Path, typer.Argument(help="A bundle or a public checkpoint.", show_default=False)
    ],
    output: Annotated[
        Path, typer.Option("--output", "-o", help="The directory to write.", show_default=False)
    ],
    to: Annotated[
        str,
        typer.Option(
            "--to",
            help="hf: config.json, safetensors and tokenizer files.",
            autocompletion=complete_from(FORMATS),
        ),
    ] = "hf",
) -> None:
    """Write a model as a public checkpoint that other programs open with the same outputs.

    A layout is chosen that can say everything the model does; where none can, the error names
    what stands in the way. Encoders that give vectors are written for sentence-transformers too.

    \b
    Examples:
      qkv export bundles/minilm --to hf -o out/minilm
      qkv export runs/book --to hf -o out/book
    """
    from qkv.bundle import Bundle
    from qkv.bundle.bundle import export_checkpoint as write
    from qkv.errors import UsageError, unknown

    if to != "hf":
        raise UsageError(unknown("format", to, ["hf"]))
    written = write(Bundle.load(model), output)
    for note in written.notes:
        print_stderr(f"note: {note}")
    print_stderr(f"wrote {output} as {written.layout.kinds[0]}")
