"""Peers that work by turns, so that what slows the machine slows them all; medians of the rates."""

import statistics
import time
from collections.abc import Callable, Mapping


def by_turns(
    works: Mapping[str, Callable[[], object]], amount: float, runs: int
) -> dict[str, float]:
    """How much of its work each peer does a second: the median of `runs`, after one to warm up."""
    seconds: dict[str, list[float]] = {name: [] for name in works}
    for turn in range(runs + 1):
        for name, work in works.items():
            start = time.perf_counter()
            work()
            if turn:
                seconds[name].append(time.perf_counter() - start)
    return {name: amount / statistics.median(took) for name, took in seconds.items()}


def table(rates: Mapping[str, float], unit: str, beside: str) -> None:
    """One line a peer: its rate, and how it compares with the one named."""
    for name, rate in rates.items():
        print(f"{name:<28} {rate:9,.0f} {unit}   {rate / rates[beside]:5.2f} × {beside}")
