"""Peers that work by turns, each in a process of its own.

By turns, so that what slows the machine slows them all. Apart, because libraries with threads of
their own disturb one another within a process: CTranslate2 beside torch was seen to take a third
of torch's speed away even while it had nothing to do.
"""

from __future__ import annotations

import multiprocessing
import statistics
import time
import warnings
from collections.abc import Callable, Mapping
from multiprocessing.connection import Connection
from typing import Any

Work = Callable[..., Any]


class Peer:
    """Does what `make(*given)` gives, made in another process, which sleeps until it is asked."""

    def __init__(self, make: Callable[..., Work], *given: Any) -> None:
        apart = multiprocessing.get_context("spawn")
        self._here, there = apart.Pipe()
        self._process = apart.Process(target=_serve, args=(there, make, given), daemon=True)
        self._process.start()
        there.close()
        self._here.recv()  # it is ready

    def answer(self, *asked: Any) -> Any:
        self._here.send((True, asked))
        return self._here.recv()[1]

    def seconds(self, *asked: Any) -> float:
        """How long it works on this, seen from inside."""
        self._here.send((False, asked))
        took: float = self._here.recv()[0]
        return took


def _serve(line: Connection, make: Callable[..., Work], given: tuple[Any, ...]) -> None:
    warnings.simplefilter("ignore")
    work = make(*given)
    line.send("ready")
    while True:
        try:
            wanted, asked = line.recv()
        except EOFError:
            return
        start = time.perf_counter()
        found = work(*asked)
        took = time.perf_counter() - start
        line.send((took, found if wanted else None))


def by_turns(
    works: Mapping[str, Callable[[], float]], amount: float, runs: int
) -> dict[str, float]:
    """How much is done a second by works that tell how many seconds they took: the median of
    `runs`, after one to warm up.
    """
    took: dict[str, list[float]] = {name: [] for name in works}
    for turn in range(runs + 1):
        for name, work in works.items():
            seconds = work()
            if turn:
                took[name].append(seconds)
    return {name: amount / statistics.median(each) for name, each in took.items()}


def timed(work: Work) -> Callable[[], float]:
    """Does the work in this process and tells how many seconds it took."""

    def seconds() -> float:
        start = time.perf_counter()
        work()
        return time.perf_counter() - start

    return seconds


def table(rates: Mapping[str, float], unit: str, beside: str) -> None:
    """One line a peer: its rate, and how it compares with the one named."""
    for name, rate in rates.items():
        print(f"{name:<28} {rate:9,.0f} {unit}   {rate / rates[beside]:5.2f} × {beside}")
