"""Whose turn it is in the engine: fair queueing by weight, in units of about 50 ms.

Every workload has a clock that advances with the time its units take, divided by its weight, and
the workload whose clock is behind goes next. Decoding steps so come first, and an explanation of
many seconds gets its share without holding up a stream.
"""

import time
from collections.abc import Callable

from qkv.errors import NotFiniteError, QkvError
from qkv.serve.cooperative import BudgetExceededError
from qkv.serve.link import Failed, Message

UNIT_SECONDS = 0.05  # the aim for one unit of work

Send = Callable[[Message], None]


class Workload:
    """One kind of work of one model; `clock` is its virtual time."""

    weight = 1.0

    def __init__(self, send: Send) -> None:
        self.send = send
        self.clock = 0.0
        self.was_ready = False

    @property
    def ready(self) -> bool:
        """Whether there is work to do now."""
        raise NotImplementedError

    @property
    def pending(self) -> int:
        """How many requests have not been answered."""
        raise NotImplementedError

    def run(self) -> None:
        """One unit of work."""
        raise NotImplementedError

    def cancel(self, id: int) -> None:
        """Forget a request."""
        raise NotImplementedError

    def fail(self, id: int, error: Exception) -> None:
        """Tell the front why a request came to nothing."""
        if isinstance(error, BudgetExceededError):
            error = QkvError("the explanation takes longer than budget_ms; ask for less, or more")
        user = isinstance(error, QkvError) and not isinstance(error, NotFiniteError)
        message = (
            str(error)
            if isinstance(error, QkvError)
            else f"{type(error).__name__} inside the model: {error}"
        )
        self.send(Failed(id, user, message))


class FairQueue:
    """Chooses whose turn it is."""

    def __init__(self) -> None:
        self.workloads: list[Workload] = []
        self._now = 0.0

    @property
    def ready(self) -> bool:
        return any(workload.ready for workload in self.workloads)

    @property
    def pending(self) -> int:
        return sum(workload.pending for workload in self.workloads)

    def run(self) -> bool:
        """One unit of the workload that is furthest behind; False if there is none."""
        ready = []
        for workload in self.workloads:
            is_ready = workload.ready
            if is_ready and not workload.was_ready:
                # Idle time is not saved up.
                workload.clock = max(workload.clock, self._now)
            workload.was_ready = is_ready
            if is_ready:
                ready.append(workload)
        if not ready:
            return False
        workload = min(ready, key=lambda each: each.clock)
        self._now = workload.clock
        started = time.perf_counter()
        workload.run()
        workload.clock += (time.perf_counter() - started) / workload.weight
        return True
