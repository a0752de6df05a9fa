"""Peers measured interleaved, each in a process of its own.

Interleaved, so that whatever slows the machine down slows all of them down. In separate processes,
because libraries with thread pools of their own disturb one another: CTranslate2 next to torch took
a third of torch's speed even while it was idle.
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
    """Runs `make(*arguments)` in another process, which sleeps until it is called."""

    def __init__(self, make: Callable[..., Work], *arguments: Any) -> None:
        spawn = multiprocessing.get_context("spawn")
        self._connection, other_end = spawn.Pipe()
        self._process = spawn.Process(target=_serve, args=(other_end, make, arguments), daemon=True)
        self._process.start()
        other_end.close()
        self._connection.recv()  # until the peer is ready

    def answer(self, *arguments: Any) -> Any:
        self._connection.send((True, arguments))
        return self._connection.recv()[1]

    def seconds(self, *arguments: Any) -> float:
        """How long one call takes, measured inside the process."""
        self._connection.send((False, arguments))
        elapsed: float = self._connection.recv()[0]
        return elapsed


def _serve(line: Connection, make: Callable[..., Work], arguments: tuple[Any, ...]) -> None:
    warnings.simplefilter("ignore")
    work = make(*arguments)
    line.send("ready")
    while True:
        try:
            with_result, arguments = line.recv()
        except EOFError:
            return
        start = time.perf_counter()
        result = work(*arguments)
        elapsed = time.perf_counter() - start
        line.send((elapsed, result if with_result else None))


def interleave(
    works: Mapping[str, Callable[[], float]], amount: float, runs: int
) -> dict[str, float]:
    """Throughput of functions that return their seconds: the median of `runs`, after a warm-up."""
    elapsed: dict[str, list[float]] = {name: [] for name in works}
    for turn in range(runs + 1):
        for name, work in works.items():
            seconds = work()
            if turn:
                elapsed[name].append(seconds)
    return {name: amount / statistics.median(each) for name, each in elapsed.items()}


def timed(work: Work) -> Callable[[], float]:
    """A function that does the work in this process and returns the seconds it took."""

    def seconds() -> float:
        start = time.perf_counter()
        work()
        return time.perf_counter() - start

    return seconds


def table(rates: Mapping[str, float], unit: str, baseline: str) -> None:
    """Print one line per peer: its throughput, and the ratio to the peer named."""
    for name, rate in rates.items():
        print(f"{name:<28} {rate:9,.0f} {unit}   {rate / rates[baseline]:5.2f} × {baseline}")
