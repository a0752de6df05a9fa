"""The options of all commands that run a model, and the model they open."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from qkv.errors import UsageError

if TYPE_CHECKING:
    from qkv.engine.engine import Engine

ModelPath = Annotated[
    Path,
    typer.Argument(help="A bundle or a public checkpoint.", show_default=False),
]
Int8 = Annotated[bool, typer.Option("--int8", help="Matrices in 8 bits: smaller and quicker.")]
Compile = Annotated[
    bool,
    typer.Option("--compile", help="Inner loops compiled for this machine, once: quicker."),
]
Threads = Annotated[
    int | None, typer.Option("--threads", min=1, help="Cores to use; all of them if not given.")
]

BatchTokens = Annotated[
    int | None, typer.Option("--batch-tokens", min=1, help="Tokens computed at a time.")
]


def opened(
    model: Path, int8: bool = False, threads: int | None = None, compile: bool = False
) -> "Engine":
    """The model, ready to answer."""
    import os

    from qkv.cli.progress import say
    from qkv.garbage import kept

    with kept():
        import torch

        from qkv.engine.engine import Engine
        from qkv.machine import cores
        from qkv.machine.reuse import keep_memory

    if threads is not None:
        there = cores().usable
        if threads > there:
            raise UsageError(
                f"--threads {threads} asks for more than the {there} cores this program may use; "
                f"pass {there} or fewer, more would only wait"
            )
        torch.set_num_threads(threads)
        os.environ["RAYON_NUM_THREADS"] = str(threads)  # of the tokenizers, before their first use
    engine = Engine.load(model, int8=int8, compile=compile)
    keep_memory()  # from here on: what was only needed to load it is given back
    for remark in engine.remarks:
        say(f"note: {remark}")
    return engine
