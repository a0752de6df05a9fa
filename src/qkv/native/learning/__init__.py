"""Forward and backward passes in C++ for training, compiled for this machine when asked for."""

from qkv.native.learning.passes import LANES, NEVER, Chance, Heads, Passes, passes

__all__ = ["LANES", "NEVER", "Chance", "Heads", "Passes", "passes"]
