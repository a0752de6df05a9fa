"""How many cores there are, and how many of them this process may use."""

import math
import os
from dataclasses import dataclass

from qkv.machine.cgroup import allowed_cores


@dataclass(frozen=True)
class Cores:
    there: int  # as the system counts them: two for a core that runs two threads
    bound: int  # those this process is bound to
    share: float | None  # so many cores' worth of time, where a container is limited

    @property
    def usable(self) -> int:
        """How many threads can compute at once; one more would only wait."""
        return self.bound if self.share is None else min(self.bound, max(1, math.ceil(self.share)))


def cores() -> Cores:
    there = os.cpu_count() or 1
    bound = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else there
    return Cores(there, bound, allowed_cores())
