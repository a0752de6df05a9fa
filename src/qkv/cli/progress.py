"""How a run is told on standard error: one line that changes on a terminal, plain lines else."""

import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from qkv.training.run import Evaluation, Event, Run
    from qkv.training.trainer import Step

# FOLDED cli/pace: How far a long work is, and how fast it goes, on standard error.

SLOWER = 1.3  # times the time that was asked for: said aloud


class Teller:
    """Says what happens in a run, and warns when it takes much longer than was asked."""

    def __init__(self, run: "Run", minutes: float | None) -> None:
        self.run = run
        self.minutes = minutes
        self.started = time.perf_counter()
        self.before = run.progress.step
        self.warned = False

    def tell(self, event: "Event") -> None:
        from qkv.training.run import Evaluation

        if isinstance(event, Evaluation):
            say(self._evaluated(event))
            self._warn_if_slow(event.number)
        else:
            self._step(event)

    def _step(self, step: "Step") -> None:
        if not step.finite:
            say(f"step {step.number}: loss {step.loss}, not finite; the weights were left alone")
        if sys.stderr.isatty() and (step.number % 5 == 0 or step.seconds > 1):
            best = self.run.progress.best
            if best is None:
                good = ""
            else:
                good = f"  best {self.run.data_module.metric.name} {best:.4f}"
            line = (
                f"step {step.number:,}/{self.run.recipe.steps:,}  loss {step.loss:.3f}{good}  "
                f"{step.tokens / step.seconds:,.0f} tokens/s  {self._times(step.number)}"
            )
            sys.stderr.write(f"\r\033[K{line}")
            sys.stderr.flush()

    def _evaluated(self, event: "Evaluation") -> str:
        progress = self.run.progress
        steps = self.run.recipe.steps
        speed = progress.tokens / max(1e-9, progress.seconds)
        scores = "  ".join(f"{name} {value:.4f}" for name, value in event.scores.items())
        if event.best:
            best = " (best)"
        else:
            best = f" (best {progress.best:.4f})"
        sample = " ".join(event.sample.split())[:100]
        return (
            f"step {event.number:,}/{steps:,}  held-out {scores}{best}  {speed:,.0f} tokens/s  "
            f"{self._times(event.number)}  “{sample}”"
        )

    def _times(self, number: int) -> str:
        spent = time.perf_counter() - self.started
        return f"{_clock(spent)} gone, {_clock(self._left(number))} left"

    def _left(self, number: int) -> float:
        spent = time.perf_counter() - self.started
        return spent / max(1, number - self.before) * (self.run.recipe.steps - number)

    def _warn_if_slow(self, number: int) -> None:
        if self.minutes is None or self.warned:
            return
        spent = time.perf_counter() - self.started
        left = self._left(number)
        if spent + left > SLOWER * self.minutes * 60 and left > 10:
            self.warned = True
            say(
                f"note: slower than measured at the start: {_clock(left)} left, so "
                f"{(spent + left) / 60:.1f} minutes in all instead of {self.minutes:g}. Let it "
                "run; or press Ctrl-C, which saves, and go on with --resume when there is time"
            )


class Stop:
    """Ctrl-C and SIGTERM ask for a stop between two steps; a second Ctrl-C stops at once."""

    SIGNALS = (signal.SIGINT, signal.SIGTERM)

    def __init__(self) -> None:
        self.asked = False

    def __enter__(self) -> "Stop":
        self.before = [signal.signal(number, self._ask) for number in self.SIGNALS]
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in zip(self.SIGNALS, self.before, strict=True):
            signal.signal(number, handler)

    def _ask(self, *_: object) -> None:
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True


def say(line: str) -> None:
    start = "\r\033[K" if sys.stderr.isatty() else ""
    print(f"{start}{line}", file=sys.stderr, flush=True)


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}:{rest:02d}"


def show(lines: list[tuple[str, str]]) -> None:
    """Titles to the left, texts to the right, on standard output."""
    width = max(len(title) for title, _ in lines)
    for title, text in lines:
        print(f"{title:<{width}}  {text}")


# seconds between two signs of life on a terminal, and elsewhere
EVERY = 0.2
EVERY_LINE = 10.0


class Pace:
    """Tells how many texts are done and how fast, while it takes long."""

    def __init__(self, total: int | None) -> None:
        self.total = total
        self.done = 0
        self.began: tuple[float, int] | None = None
        self.told = 0.0
        self.terminal = sys.stderr.isatty()

    def __call__(self, done: int) -> None:
        """So many are done; those of the first call were done before."""
        now = time.perf_counter()
        self.done = done
        if self.began is None:
            self.began = (now, done)
            self.told = now
        if now - self.told < (EVERY if self.terminal else EVERY_LINE):
            return
        self.told = now
        started, before = self.began
        if self.total is None:
            of = ""
        else:
            of = f" of {self.total:,}"
        line = f"{done:,}{of} texts  {(done - before) / (now - started):,.0f} texts/s"
        if self.terminal:
            sys.stderr.write(f"\r\033[K{line}")
            sys.stderr.flush()
        else:
            say(line)

    def end(self) -> None:
        if self.terminal:
            sys.stderr.write("\r\033[K")


def known_total(texts: Sequence[str] | None, file: Path | None) -> int | None:
    """How many texts there are, if that can be known before they are read."""
    if texts:
        return len(texts)
    if file is None or not file.is_file():  # a pipe can be read but once
        return None
    lines = 0
    last = b"\n"
    try:
        with file.open("rb") as content:
            while block := content.read(1 << 20):
                lines = lines + block.count(b"\n")
                last = block[-1:]
    except OSError:  # told when it is read
        return None
    return lines + (last != b"\n")
