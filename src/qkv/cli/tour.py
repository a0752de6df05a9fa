"""`qkv tour`: all of qkv on built-in data, in two minutes."""

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from qkv.cli.options import DEVICES, Threads, choose_threads, complete_from
from qkv.cli.progress import CLEAR_LINE, GracefulStop, print_stderr
from qkv.errors import UsageError

if TYPE_CHECKING:
    from qkv.tour import ProgressUpdate

MAX_THREADS = 2  # more do not help models this small

SECONDS_BETWEEN_LINES = 10.0  # where a line cannot be overwritten

LINE_WIDTH = 79  # of a line that is overwritten: one that wraps could not be


def tour(
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Folder for the models and the page.")
    ] = Path("tour"),
    quick: Annotated[
        bool, typer.Option("--quick", help="Within a minute, with less training.")
    ] = False,
    full: Annotated[
        bool, typer.Option("--full", help="Longer training and a larger language model.")
    ] = False,
    again: Annotated[
        bool, typer.Option("--again", help="Delete the tour in the folder, and start over.")
    ] = False,
    threads: Threads = None,
    device: Annotated[
        str,
        typer.Option(
            help="cpu, cuda, mps, or auto for the best there is.",
            autocompletion=complete_from(DEVICES),
        ),
    ] = "cpu",
) -> None:
    """Train, evaluate and explain three small models: a first look.

    On built-in data, an encoder (sentiment), a decoder (language) and an encoder–decoder
    (translation) are trained in about two minutes on two cores. After an interruption the same
    command continues where it stopped. The result is three bundles that every other command can
    use, and a page with plots.

    \b
    Examples:
      qkv tour
      qkv tour --quick -o first-look
      qkv tour --full -o long-tour
      qkv tour --again
    """
    from qkv.machine import reuse_freed_memory, watch_load

    watch_load()
    import torch

    from qkv.device import resolve_device
    from qkv.tour import FULL, QUICK, STANDARD, TourFolder
    from qkv.tour import tour as tour_lines

    if quick and full:
        raise UsageError("--quick and --full exclude each other; give one of them")
    plan = STANDARD
    if quick:
        plan = QUICK
    elif full:
        plan = FULL
    torch_device = resolve_device(device)
    folder = TourFolder(output, plan.name)
    if folder.begin(again):
        print_stderr(f"continuing the tour in {output}")
    if folder.finished:
        typer.echo(folder.results, nl=False)
        print_stderr(
            f"the tour in {output} is already finished; pass --again to start over, or -o for "
            "another folder"
        )
        return
    reuse_freed_memory()
    if threads is None:
        torch.set_num_threads(min(MAX_THREADS, torch.get_num_threads()))
    choose_threads(threads)
    try:
        with GracefulStop() as stop:
            for line in tour_lines(folder, plan, ProgressPrinter(stop), print_stderr, torch_device):
                _clear_line()
                typer.echo(line)
    except KeyboardInterrupt:
        print_stderr("stopped; the same command continues from here")
        raise


class ProgressPrinter:
    """Prints the progress of the tour to standard error; stops it between two steps on Ctrl-C."""

    def __init__(self, stop: GracefulStop) -> None:
        self.stop = stop
        self.last_time = 0.0

    def __call__(self, update: "ProgressUpdate") -> None:
        if self.stop.requested:
            raise KeyboardInterrupt
        is_terminal = sys.stderr.isatty()
        if is_terminal:
            interval = 0.2
        else:
            interval = SECONDS_BETWEEN_LINES
        now = time.perf_counter()
        if not update.is_start and now - self.last_time < interval:
            return
        self.last_time = now
        minutes, seconds = divmod(round(update.seconds_left), 60)
        line = (
            f"[{update.number}/{update.stages}] {update.stage}: {update.message}; "
            f"about {minutes}:{seconds:02d} left in all"
        )
        if is_terminal:
            sys.stderr.write(f"{CLEAR_LINE}{line[:LINE_WIDTH]}")
        else:
            sys.stderr.write(f"{line}\n")
        sys.stderr.flush()


def _clear_line() -> None:
    if sys.stderr.isatty():
        sys.stderr.write(CLEAR_LINE)
        sys.stderr.flush()
