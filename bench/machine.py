"""The machine a result was measured on: what every bench prints next to it."""

import platform
from typing import Any

import torch

from qkv.machine import cpu, matmul_gflops


def machine() -> dict[str, Any]:
    processor = cpu()
    return {
        "cpu": processor.name
        if processor.features["AVX-512"]
        else f"{processor.name} without AVX-512",
        "matrix_gflops": round(matmul_gflops()),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "python": platform.python_version(),
    }
