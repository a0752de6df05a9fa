"""`qkv tour`: everything there is, on built-in data, in a few minutes."""

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from qkv.cli.options import DEVICES, one_of
from qkv.cli.progress import Stop, say

if TYPE_CHECKING:
    from qkv.tour.pace import Moment

CORES = 2  # more do not help models this small
EVERY = 10.0  # seconds between two lines where the last one cannot be overwritten


def tour(
    output: Annotated[
        Path, typer.Option("--output", "-o", help="The folder it is kept in.")
    ] = Path("tour"),
    quick: Annotated[
        bool, typer.Option("--quick", help="Within a minute, with models that know less.")
    ] = False,
    again: Annotated[
        bool, typer.Option("--again", help="Throw away the tour in the folder, and redo it.")
    ] = False,
    device: Annotated[
        str,
        typer.Option(
            help="cpu, cuda, mps, or auto for the best there is.", autocompletion=one_of(DEVICES)
        ),
    ] = "cpu",
) -> None:
    """Train three small models on built-in data, measure, open and prove them: a first look.

    An encoder (sentiment), a decoder (language) and an encoder–decoder (translation) learn here in
    a few minutes on two cores. Interrupted, the same command goes on where it stopped. At the end
    there are three bundles for every other command, and a page with pictures.

    \b
    Examples:
      qkv tour
      qkv tour --quick -o first-look
      qkv tour --again
    """
    import torch

    from qkv.device import resolve
    from qkv.machine import cores
    from qkv.machine.resources import keep_memory
    from qkv.tour.pace import FULL, QUICK
    from qkv.tour.tour import Folder
    from qkv.tour.tour import tour as lines

    where, pace = resolve(device), QUICK if quick else FULL
    folder = Folder(output, pace.name)
    if folder.begin(again):
        say(f"going on with the tour in {output}")
    if folder.finished:
        typer.echo(folder.results, nl=False)
        say(f"the tour in {output} was finished before; to redo it: --again, or another folder: -o")
        return
    keep_memory()
    before = torch.get_num_threads()
    torch.set_num_threads(min(CORES, cores().usable))
    try:
        with Stop() as stop:
            for line in lines(folder, pace, Watcher(stop), say, where):
                _clear()
                typer.echo(line)
    except KeyboardInterrupt:
        say("stopped; the same command goes on from here")
        raise
    finally:
        torch.set_num_threads(before)


class Watcher:
    """Says how far the tour is, and stops it between two steps if that was asked for."""

    def __init__(self, stop: Stop) -> None:
        self.stop, self.last = stop, 0.0

    def __call__(self, moment: "Moment") -> None:
        if self.stop.asked:
            raise KeyboardInterrupt
        terminal, now = sys.stderr.isatty(), time.perf_counter()
        if not moment.begins and now - self.last < (0.2 if terminal else EVERY):
            return
        self.last = now
        minutes, seconds = divmod(round(moment.left), 60)
        line = (
            f"[{moment.number}/{moment.stages}] {moment.name}: {moment.said}; "
            f"about {minutes}:{seconds:02d} left in all"
        )
        sys.stderr.write(f"\r\033[K{line[:WIDTH]}" if terminal else f"{line}\n")
        sys.stderr.flush()


WIDTH = 79  # of a line that is overwritten


def _clear() -> None:
    if sys.stderr.isatty():
        sys.stderr.write("\r\033[K")
        sys.stderr.flush()
