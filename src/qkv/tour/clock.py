"""How far the tour is, and how long it will still take: said from what it has taken so far."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

ENOUGH = 0.5  # seconds of expected work by which this machine can be told from a quiet one


@dataclass(frozen=True)
class Moment:
    """One sign of life."""

    number: int  # of the stage, from 1
    stages: int
    name: str
    said: str  # what is going on
    left: float  # seconds until the end of the tour
    begins: bool  # whether the stage does


Tell = Callable[[Moment], None]  # may raise KeyboardInterrupt, which stops the tour


class Clock:
    """Knows about what each stage takes on two quiet cores, and how much slower it is here."""

    def __init__(self, seconds: Mapping[str, float], tell: Tell) -> None:
        self.seconds, self.tell, self.names = seconds, tell, list(seconds)
        self.now, self.share, self.before = self.names[0], 0.0, 0.0
        self.started, self.expected = time.perf_counter(), 0.0

    def begin(self, name: str, said: str) -> None:
        """The next stage."""
        self.expected += (self.share - self.before) * self.seconds[self.now]
        self.now, self.share, self.before = name, 0.0, 0.0
        self._tell(said, begins=True)

    def had(self, share: float) -> None:
        """So much of the stage was done in another session."""
        self.share, self.before = share, share

    def at(self, share: float, said: str) -> None:
        """So much of the stage is done."""
        self.share = share
        self._tell(said)

    @property
    def left(self) -> float:
        """Seconds until the end."""
        later = self.names[self.names.index(self.now) + 1 :]
        quiet = self.seconds[self.now] * (1 - self.share) + sum(self.seconds[n] for n in later)
        return quiet * self.slowness

    @property
    def slowness(self) -> float:
        """Seconds here for one on a quiet machine; 1 while it is too early to tell."""
        expected = self.expected + (self.share - self.before) * self.seconds[self.now]
        return (time.perf_counter() - self.started) / expected if expected > ENOUGH else 1.0

    def _tell(self, said: str, begins: bool = False) -> None:
        number = self.names.index(self.now) + 1
        self.tell(Moment(number, len(self.names), self.now, said, self.left, begins))
