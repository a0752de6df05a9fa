"""What the machine under the program has: cores, memory, disk, packages, and how fast it is.

Nothing here needs torch to be imported, so that a machine where torch is broken can be looked at.
"""

from qkv.machine.cores import Cores, cores
from qkv.machine.cpu import Cpu, cpu
from qkv.machine.packages import Package, packages
from qkv.machine.room import Room, disk, memory
from qkv.machine.speed import matrix_speed, rate, reading_speed

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
