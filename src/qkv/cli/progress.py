"""Progress of long commands on standard error.

On a terminal one line is overwritten; elsewhere (a log file, a pipe) plain lines are printed.
"""

import os
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from qkv.training import Evaluation, Event, Run, Step

CLEAR_LINE = "\r\033[K"  # back to column 1, then erase to the end of the line

# Seconds between two updates of TextProgress, on a terminal and elsewhere.
TERMINAL_INTERVAL = 0.2
LINE_INTERVAL = 10.0


def print_stderr(line: str) -> None:
    """Print one line to standard error, over a line of progress if there is one."""
    if sys.stderr.isatty():
        line = CLEAR_LINE + line
    print(line, file=sys.stderr, flush=True)


def print_rows(rows: list[tuple[str, str]]) -> None:
    """Print titles and values as two aligned columns to standard output."""
    width = max(len(title) for title, _ in rows)
    for title, value in rows:
        print(f"{title:<{width}}  {value}")


class TrainingProgress:
    """Prints the events of a training run; times and speed are those since it was resumed."""

    def __init__(self, run: "Run") -> None:
        self.run = run
        self.start_time = time.perf_counter()
        self.start = run.progress

    def show(self, event: "Event") -> None:
        """Print an evaluation as a line; a step only updates the line of a terminal."""
        from qkv.training import Evaluation

        if isinstance(event, Evaluation):
            print_stderr(self._evaluation_line(event))
        else:
            self._show_step(event)

    def _show_step(self, step: "Step") -> None:
        if not step.finite:
            print_stderr(
                f"step {step.number}: loss {step.loss} is not finite; the weights were not updated"
            )
        if not sys.stderr.isatty():
            return
        # Fast steps would only make the line flicker.
        if step.number % 5 == 0 or step.seconds > 1:
            best = ""
            if self.run.progress.best is not None:
                best = f"  best {self.run.data_module.metric.name} {self.run.progress.best:.4f}"
            sys.stderr.write(
                f"{CLEAR_LINE}step {step.number:,}/{self.run.recipe.steps:,}  "
                f"loss {step.loss:.3f}{best}  {step.tokens / step.seconds:,.0f} tokens/s  "
                f"{self._times(step.number)}"
            )
            sys.stderr.flush()

    def _evaluation_line(self, event: "Evaluation") -> str:
        progress = self.run.progress
        scores = "  ".join(f"{name} {value:.4f}" for name, value in event.scores.items())
        best = " (best)"
        if not event.best:
            best = f" (best {progress.best:.4f})"
        sample = " ".join(event.sample.split())[:100]
        return (
            f"step {event.number:,}/{self.run.recipe.steps:,}  validation {scores}{best}  "
            f"{self._speed()}{self._times(event.number)}  “{sample}”"
        )

    def _speed(self) -> str:
        progress = self.run.progress
        tokens = progress.tokens - self.start.tokens
        if tokens == 0:  # evaluated right after it was resumed
            return ""
        seconds = progress.seconds - self.start.seconds
        return f"{tokens / max(1e-9, seconds):,.0f} tokens/s  "

    def _times(self, step: int) -> str:
        elapsed = f"{_minutes_and_seconds(time.perf_counter() - self.start_time)} elapsed"
        steps = step - self.start.step
        if steps == 0:
            return elapsed
        seconds_per_step = (time.perf_counter() - self.start_time) / steps
        remaining = seconds_per_step * (self.run.recipe.steps - step)
        return f"{elapsed}, {_minutes_and_seconds(remaining)} remaining"


def _minutes_and_seconds(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}:{rest:02d}"


class GracefulStop:
    """A context in which Ctrl-C and SIGTERM only set `requested`; a second one interrupts.

    The loop inside looks at `requested` between two steps, so that it can save before it stops.
    `message` is printed at the first signal.
    """

    SIGNALS = (signal.SIGINT, signal.SIGTERM)

    def __init__(self, message: str = "") -> None:
        self.message = message
        self.requested = False
        self.at_once = False  # a second signal came

    def __enter__(self) -> "GracefulStop":
        self.previous_handlers = [signal.signal(number, self._handle) for number in self.SIGNALS]
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in zip(self.SIGNALS, self.previous_handlers, strict=True):
            signal.signal(number, handler)

    def _handle(self, *_: object) -> None:
        if self.requested:
            self.at_once = True
            raise KeyboardInterrupt
        self.requested = True
        if self.message:
            # Not print: a signal may arrive while the buffer of standard error is being written.
            line = f"\n{self.message}\n"
            os.write(2, line.encode())


class TextProgress:
    """Prints how many texts are done, and how many per second, while a command takes long."""

    def __init__(self, total: int | None, unit: str = "texts") -> None:
        self.total = total
        self.unit = unit
        self.done = 0
        self.start_time: float | None = None
        self.start_count = 0
        self.last_time = 0.0
        self.is_terminal = sys.stderr.isatty()
        self.interval = LINE_INTERVAL
        if self.is_terminal:
            self.interval = TERMINAL_INTERVAL

    def __call__(self, done: int) -> None:
        """`done` texts are done; those of the first call do not count for the speed."""
        now = time.perf_counter()
        self.done = done
        if self.start_time is None:
            self.start_time = now
            self.start_count = done
            self.last_time = now
        if now - self.last_time < self.interval:
            return
        self.last_time = now
        total = ""
        if self.total is not None:
            total = f" of {self.total:,}"
        speed = (done - self.start_count) / (now - self.start_time)
        line = f"{done:,}{total} {self.unit}  {speed:,.0f} {self.unit}/s"
        if self.is_terminal:
            sys.stderr.write(CLEAR_LINE + line)
            sys.stderr.flush()
        else:
            print_stderr(line)

    def end(self) -> None:
        """Erase the line of a terminal."""
        if self.is_terminal:
            sys.stderr.write(CLEAR_LINE)


def count_lines(file: Path) -> int | None:
    """The number of lines of a text file; None if that cannot be counted in advance."""
    if not file.is_file():  # a pipe can be read only once
        return None
    lines = 0
    last = b"\n"
    try:
        with file.open("rb") as stream:
            while block := stream.read(1 << 20):
                lines += block.count(b"\n")
                last = block[-1:]
    except OSError:  # the command that reads the file raises the error
        return None
    if last != b"\n":
        lines += 1  # the last line has no line break
    return lines
