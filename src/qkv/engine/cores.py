"""Work spread over the cores, in the layout that proves quicker here.

Either all cores compute one piece together, or each core computes a piece of its own. Which is
quicker depends on the model and the machine, so the first pieces of a long work are timed both
ways. There are never more threads at work than torch was given.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

import torch

Piece = TypeVar("Piece")
Result = TypeVar("Result")


def spread(do: Callable[[Piece], Result], pieces: Sequence[Piece]) -> list[Result]:
    """What `do` makes of each piece, in order; pieces are about equally much work."""
    cores = torch.get_num_threads()
    if cores == 1 or len(pieces) < 2:
        return [do(piece) for piece in pieces]
    if len(pieces) < 3 + cores:
        with _apart(cores) as pool:
            return list(pool.map(do, pieces))
    found = [do(pieces[0])]  # the first is slower than all others
    began = time.perf_counter()
    found.append(do(pieces[1]))
    together = time.perf_counter() - began
    with _apart(cores) as pool:
        began = time.perf_counter()
        found += pool.map(do, pieces[2 : 2 + cores])
        apart = (time.perf_counter() - began) / cores
        if apart <= together:
            return found + list(pool.map(do, pieces[2 + cores :]))
    return found + [do(piece) for piece in pieces[2 + cores :]]


@contextmanager
def _apart(cores: int) -> Iterator[ThreadPoolExecutor]:
    """One worker a core, each of which computes with one thread."""
    torch.set_num_threads(1)  # also for the libraries whose number holds for all threads
    try:
        with ThreadPoolExecutor(cores, initializer=torch.set_num_threads, initargs=(1,)) as pool:
            yield pool
    finally:
        torch.set_num_threads(cores)
