"""What the machine under the program has: cores, memory, disk, packages, and how fast it is.

Nothing here needs torch to be imported, so that a machine where torch is broken can be looked at.
"""

from qkv.machine.packages import Package, packages
from qkv.machine.resources import (
    Cores,
    Cpu,
    Room,
    cores,
    cpu,
    disk,
    matrix_speed,
    memory,
    rate,
    reading_speed,
)

__all__ = [
    "Cores",
    "Cpu",
    "Package",
    "Room",
    "cores",
    "cpu",
    "disk",
    "matrix_speed",
    "memory",
    "packages",
    "rate",
    "reading_speed",
]
