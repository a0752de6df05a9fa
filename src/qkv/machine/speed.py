"""How fast this machine computes and reads memory, measured: the best of many tries."""

import time
from collections.abc import Callable

SECONDS = 0.5  # for each measurement
LEAST = 3  # tries, however long they take


def rate(do: Callable[[], object], work: float, seconds: float = SECONDS) -> float:
    """So much of the work a second, in the quickest of all tries that this time allows."""
    do()  # the first is slower than all others
    end, tries, best = time.perf_counter() + seconds, 0, float("inf")
    while tries < LEAST or time.perf_counter() < end:
        start = time.perf_counter()
        do()
        best = min(best, time.perf_counter() - start)
        tries += 1
    return work / best


def matrix_speed(size: int = 1024, seconds: float = SECONDS) -> float:
    """GFLOP/s of a float32 matrix product."""
    import torch

    a, b = torch.randn(2, size, size)
    return rate(lambda: a @ b, 2 * size**3 / 1e9, seconds)


def reading_speed(megabytes: int = 256, seconds: float = SECONDS) -> float:
    """GB/s when a matrix is read once for one row, as it is when a model writes a token."""
    import torch

    columns = 4096
    matrix = torch.ones(megabytes * 1_000_000 // (4 * columns), columns)
    row = torch.ones(columns)
    return rate(lambda: torch.mv(matrix, row), matrix.nbytes / 1e9, seconds)
