"""A long call in slices: it runs in a thread of its own, but only while the engine waits for it.

So an explanation of many forward passes can be interrupted for a decoding step between two of
them, without any of its code knowing. The thread pauses at `pause_point`, which the layers of a
model and every step of a computation call. Never do two threads compute at the same time, except
for a call that has declared itself detached.
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from qkv.machine import on_step


class CancelledCall(BaseException):
    """Raised inside a call that nobody waits for; no `except Exception` on the way holds it up."""


class BudgetExceededError(Exception):
    """Raised inside a call that has used up its time."""


class _Current(threading.local):
    call: "CooperativeCall | None" = None


_current = _Current()


class CooperativeCall:
    """A function that is run slice by slice; `result` or `error` is set when it is done.

    budget: seconds of computation after which it is ended with a BudgetExceededError.
    """

    def __init__(self, function: Callable[[], Any], budget: float | None = None) -> None:
        self.function = function
        self.budget = budget
        self.seconds = 0.0
        self.done = False
        self.detached = False
        self.result: Any = None
        self.error: Exception | None = None
        self._cancelled = False
        self._slice_end = 0.0
        self._resume = threading.Semaphore(0)
        self._paused = threading.Semaphore(0)
        self._thread: threading.Thread | None = None

    @property
    def ready(self) -> bool:
        """Whether a slice would do anything now."""
        return not self.done and not self.detached

    def run_slice(self, seconds: float) -> None:
        """Let the call go on for about so long."""
        if self._thread is None:
            if self._cancelled:
                self.done = True
                return
            self._thread = threading.Thread(target=self._run, name="qkv call", daemon=True)
            self._thread.start()
        started = time.perf_counter()
        self._slice_end = started + seconds
        self._resume.release()
        self._paused.acquire()
        self.seconds += time.perf_counter() - started

    def cancel(self) -> None:
        """End the call at its next pause point."""
        self._cancelled = True

    def pause_point(self) -> None:
        """In the thread of the call: give way if the slice is over."""
        self._check()
        if time.perf_counter() >= self._slice_end:
            self._paused.release()
            self._resume.acquire()
            self._check()

    @contextmanager
    def detach(self) -> Iterator[None]:
        """In the thread of the call: what is inside runs next to other work, on its own."""
        self.detached = True
        self._paused.release()
        try:
            yield
        finally:
            self.detached = False
            self._resume.acquire()

    def _check(self) -> None:
        if self._cancelled:
            raise CancelledCall
        if self.budget is not None and self.seconds > self.budget:
            raise BudgetExceededError

    def _run(self) -> None:
        self._resume.acquire()
        _current.call = self
        on_step(self.pause_point)
        try:
            self._check()
            self.result = self.function()
        except CancelledCall:
            pass
        except Exception as error:
            self.error = error
        finally:
            self.done = True
            self._paused.release()


def pause_point(*_: object) -> None:
    """Between two steps of any computation: give way, if this thread is a cooperative call."""
    if _current.call is not None:
        _current.call.pause_point()


@contextmanager
def detached() -> Iterator[None]:
    """For code that does not use the model: others may compute meanwhile."""
    if _current.call is None:
        yield
        return
    with _current.call.detach():
        yield
