"""`qkv tour`: a first look at everything there is so far."""

import shutil
import sys

import typer


def tour() -> None:
    """Show the worked example and three small models that learn on this machine.

    An encoder, a decoder and an encoder–decoder are trained for a few seconds each on data made
    here, asked about examples they never saw, and looked into.

    \b
    Example:
      qkv tour
    """
    import torch

    from qkv.tour.run import tour as run

    torch.set_num_threads(1)  # models this small are slower on more
    shown = sys.stderr.isatty()

    def progress(model: str, step: int, loss: float) -> None:
        if shown and step % 10 == 0:
            sys.stderr.write(f"\r{model}: step {step}, loss {loss:.3f}   ")
            sys.stderr.flush()

    for line in run(shutil.get_terminal_size((80, 24)).columns, progress):
        if shown:
            sys.stderr.write("\r\033[K")
        typer.echo(line)
