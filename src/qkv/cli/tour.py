"""`qkv tour`: a first look at everything there is so far."""

import shutil
import sys
from typing import Annotated

import typer


def tour(
    device: Annotated[
        str, typer.Option(help="cpu, cuda, mps, or auto for the best there is.")
    ] = "cpu",
) -> None:
    """Show the worked example and three small models that learn on this machine.

    An encoder, a decoder and an encoder–decoder are trained for a few seconds each on data made
    here, asked about examples they never saw, and looked into. Models this small are fastest on
    the CPU.

    \b
    Examples:
      qkv tour
      qkv tour --device auto
    """
    import torch

    from qkv.device import resolve
    from qkv.tour.run import tour as run

    torch.set_num_threads(1)  # models this small are slower on more
    shown = sys.stderr.isatty()

    def progress(model: str, step: int, loss: float) -> None:
        if shown and step % 10 == 0:
            sys.stderr.write(f"\r{model}: step {step}, loss {loss:.3f}   ")
            sys.stderr.flush()

    width = shutil.get_terminal_size((80, 24)).columns
    for line in run(width, progress, resolve(device)):
        if shown:
            sys.stderr.write("\r\033[K")
        typer.echo(line)
