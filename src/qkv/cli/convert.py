"""`qkv import` and `qkv export`: convert public checkpoints to bundles, and models to them."""

from pathlib import Path
from typing import Annotated

import typer

from qkv.cli.options import FORMATS, Threads, choose_threads, complete_from
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
        typer.Option("--output", "-o", help="Directory for the bundle.", show_default=False),
    ],
    pooler: Annotated[
        bool,
        typer.Option("--pooler", help="Embed texts with the model's own pooler (BERT)."),
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print the import card as JSON.")] = False,
    threads: Threads = None,
) -> None:
    """Convert a public checkpoint to a bundle.

    A tensor that is missing, unexpected or of another shape is an error that names it. No code
    from the directory is run, no pickle is read, nothing is downloaded. Every command also takes a
    public checkpoint directly; a bundle is verified against its hashes each time it is loaded, and
    loads without converting the checkpoint again.

    \b
    Examples:
      qkv import models/all-MiniLM-L6-v2 -o bundles/minilm
      qkv import models/bert-base-uncased -o bundles/bert --pooler
      qkv import llama.Q8_0.gguf -o bundles/llama --json
    """
    from json import dumps

    from qkv.bundle import MANIFEST, Bundle
    from qkv.checkpoints import read_checkpoint, self_test
    from qkv.cli.check import quick_check
    from qkv.engine import Engine
    from qkv.errors import BundleError

    choose_threads(threads)
    if (output / MANIFEST).exists():
        raise BundleError(f"{output} already holds a bundle; choose another directory")
    checkpoint = read_checkpoint(source, pooler)
    card = checkpoint.card.with_self_test(self_test(checkpoint.model))
    bundle = Bundle(checkpoint.model, checkpoint.tokenizer, card)
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
        Path,
        typer.Option(
            "--output", "-o", help="Directory, or .gguf file, to write.", show_default=False
        ),
    ],
    to: Annotated[
        str,
        typer.Option(
            "--to",
            help="hf: config.json, safetensors and tokenizer files; gguf: one file for llama.cpp.",
            autocompletion=complete_from(FORMATS),
        ),
    ] = "hf",
    threads: Threads = None,
    dtype: Annotated[
        str, typer.Option("--dtype", help="Of the matrices in a GGUF file: f32 or f16.")
    ] = "f32",
) -> None:
    """Write a model as a public checkpoint.

    Other programs load it, with the same outputs. The first format that can express the model is
    used; where none can, the error names what cannot be expressed. Encoders that embed texts also
    load in sentence-transformers. A GGUF file holds a decoder and its tokenizer.

    \b
    Examples:
      qkv export bundles/minilm --to hf -o out/minilm
      qkv export runs/book --to hf -o out/book
      qkv export runs/book --to gguf -o out/book.gguf
    """
    from qkv.bundle import Bundle, export_checkpoint, export_gguf
    from qkv.errors import UsageError, unknown

    choose_threads(threads)
    if to not in FORMATS:
        raise UsageError(unknown("format", to, FORMATS))
    if to == "gguf":
        checkpoint = export_gguf(Bundle.load(model), output, dtype)
    elif dtype != "f32":
        raise UsageError(f"dtype={dtype} is for to=gguf; to=hf writes f32")
    else:
        checkpoint = export_checkpoint(Bundle.load(model), output)
    for note in checkpoint.notes:
        print_stderr(f"note: {note}")
    print_stderr(f"wrote {output} as {checkpoint.model_type}")
