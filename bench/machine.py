"""The machine a result was measured on: what every bench prints beside it."""

import platform
import time
from typing import Any

import torch


def matrix_speed(size: int = 1024, times: int = 20) -> float:
    """GFLOP/s of a float32 matrix product, the best of many."""
    a, b = torch.randn(2, size, size)
    best = float("inf")
    for _ in range(times):
        start = time.perf_counter()
        a @ b
        best = min(best, time.perf_counter() - start)
    return 2 * size**3 / best / 1e9


def machine() -> dict[str, Any]:
    return {
        "matrix_gflops": round(matrix_speed()),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "python": platform.python_version(),
    }
