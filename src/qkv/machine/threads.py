"""How many threads to compute with: as many as there are cores that other processes leave.

The threads of one operation wait for each other at its end. If another process holds a core, the
thread on that core is late at every operation, and two threads can be several times slower than
one. So the number of threads follows the load of the machine while a program runs, unless it was
set: by `set_threads` (`--threads` on the command line), or by OMP_NUM_THREADS.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from qkv.errors import UsageError
from qkv.machine.resources import cores

SECONDS_BETWEEN_READINGS = 0.5  # the system counts CPU time in hundredths of a second
MIN_SECONDS = 0.2  # a shorter reading is mostly rounding

# Others may use this much of a core before the thread on it is given up.
TOLERATED_LOAD = 0.4


@dataclass(frozen=True)
class CpuReading:
    """CPU seconds since the system started: idle on the cores we may use, and ours."""

    time: float
    idle: float
    own: float
    cores: int

    @classmethod
    def now(cls) -> CpuReading | None:
        """The present counts; None where the system does not report them."""
        import psutil  # type: ignore[import-untyped]

        try:
            times = psutil.cpu_times(percpu=True)
            affinity = set(range(len(times)))
            if hasattr(os, "sched_getaffinity"):  # not on macOS and Windows
                affinity = os.sched_getaffinity(0)
            usable = [times[core] for core in affinity]
        except (OSError, RuntimeError, IndexError):
            return None
        idle = sum(core.idle + getattr(core, "iowait", 0.0) for core in usable)
        return cls(time.monotonic(), idle, time.process_time(), len(usable))


def available_cores(before: CpuReading, after: CpuReading) -> float:
    """The cores that other processes left: idle, or used by this one."""
    seconds = after.time - before.time
    left = (after.idle - before.idle) + (after.own - before.own)
    return min(float(after.cores), left / seconds)


def suggest_threads(available: float, limit: int) -> int:
    """At least one thread, at most `limit`, and otherwise one per core that is mostly available."""
    return max(1, min(limit, int(available + TOLERATED_LOAD)))


class ThreadController(threading.local):
    """Sets torch's number of threads by the load; its state is per thread, as torch's number is.

    limit: never more threads than torch had at first, or than somebody has set since.
    """

    def __init__(self) -> None:
        self.limit = 0
        self.current = 0
        self.next_time = 0.0
        self.reading: CpuReading | None = None

    def update(self) -> None:
        """Look at the load if it is time to, and adapt. Cheap enough for every step."""
        now = time.monotonic()
        if now < self.next_time or _fixed:
            return
        self.next_time = now + SECONDS_BETWEEN_READINGS
        import torch

        current = torch.get_num_threads()
        if current != self.current:  # the first time, or somebody has set it
            self.limit = current
            self.current = current
        if self.limit == 1:
            return
        threads = self._suggestion()
        if threads is not None and threads != current:
            torch.set_num_threads(threads)
            self.current = threads

    def start_reading(self) -> None:
        """Begin to measure the load, so that the first `update` can already adapt."""
        if not _fixed:
            self.reading = CpuReading.now()

    def _suggestion(self) -> int | None:
        before = self.reading
        after = CpuReading.now()
        if before is None or after is None:
            self.reading = after
            return None
        if after.time - before.time < MIN_SECONDS:
            return None
        self.reading = after
        available = min(available_cores(before, after), float(cores().usable))
        return suggest_threads(available, self.limit)


_controller = ThreadController()
_fixed = bool(os.environ.get("OMP_NUM_THREADS"))
_default_threads: int | None = None  # torch's own number, once it has been changed


class StepHook(threading.local):
    """What this thread calls between two steps of a computation."""

    function: Callable[[], None] | None = None


_step_hook = StepHook()


def on_step(function: Callable[[], None] | None) -> None:
    """Call this between two steps of any computation in this thread; None ends that."""
    _step_hook.function = function


def adapt_threads() -> None:
    """Between two steps of any computation: follow the load, at most twice a second."""
    _controller.update()
    if _step_hook.function is not None:
        _step_hook.function()


def watch_load() -> None:
    """Before a model is loaded: measure the load meanwhile, so that the first step is right."""
    _controller.start_reading()


def set_threads(threads: int | None) -> None:
    """Compute with exactly so many threads; None: follow the load of the machine again.

    A fixed number is needed for results that are the same bit for bit, since sums are split
    differently over another number of threads.
    """
    global _default_threads, _fixed
    import torch

    usable = cores().usable
    if threads is not None and not 1 <= threads <= usable:
        raise UsageError(
            f"threads={threads} is not between 1 and {usable}, the cores this program may use"
        )
    if _default_threads is None:
        _default_threads = torch.get_num_threads()
    _fixed = threads is not None
    torch.set_num_threads(threads or _default_threads)
    # The Rust threads of the tokenizers library; it reads this at its first use.
    if threads is not None:
        os.environ["RAYON_NUM_THREADS"] = str(threads)
