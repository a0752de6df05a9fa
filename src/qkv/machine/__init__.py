"""What the machine under the program has: cores, memory, disk, packages, and how fast it is.

Nothing here needs torch to be imported, so that a machine where torch is broken can be looked at.
"""

from qkv.machine.packages import Package, find_packages
from qkv.machine.resources import (
    Capacity,
    Cores,
    Cpu,
    best_throughput,
    cores,
    cpu,
    disk,
    idle_cores,
    matmul_gflops,
    memory,
    memory_bandwidth,
)

__all__ = [
    "Capacity",
    "Cores",
    "Cpu",
    "Package",
    "best_throughput",
    "cores",
    "cpu",
    "disk",
    "find_packages",
    "idle_cores",
    "matmul_gflops",
    "memory",
    "memory_bandwidth",
]
