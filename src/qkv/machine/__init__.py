"""What the machine under the program has: cores, memory, disk, packages, and how fast it is.

Nothing here needs torch to be imported, so that a machine where torch is broken can be looked at.
"""

from qkv.machine.packages import DEVELOPMENT_EXTRAS, EXTRAS, Package, find_packages
from qkv.machine.resources import (
    Capacity,
    Cores,
    Cpu,
    avoid_broken_amx,
    best_throughput,
    cores,
    cpu,
    disk,
    find_compiler,
    matmul_gflops,
    memory,
    memory_bandwidth,
    reuse_freed_memory,
)
from qkv.machine.threads import adapt_threads, on_step, set_threads, watch_load

__all__ = [
    "DEVELOPMENT_EXTRAS",
    "EXTRAS",
    "Capacity",
    "Cores",
    "Cpu",
    "Package",
    "adapt_threads",
    "avoid_broken_amx",
    "best_throughput",
    "cores",
    "cpu",
    "disk",
    "find_compiler",
    "find_packages",
    "matmul_gflops",
    "memory",
    "memory_bandwidth",
    "on_step",
    "reuse_freed_memory",
    "set_threads",
    "watch_load",
]
