"""Tensors as text in parts: little-endian float32 in base64, each with a checksum.

A page decodes a part when somebody looks at it, so a part is small; a head is never split.
"""

import base64
import zlib
from collections.abc import Iterator
from typing import Any

import numpy as np
from torch import Tensor

from qkv.explain.trace.operation import Array

PART = 1 << 18  # bytes; a single head or row may be larger


class Parts:
    """All parts of one page, by the id they have in it."""

    def __init__(self) -> None:
        self.texts: dict[str, str] = {}

    def floats(self, values: Array) -> list[dict[str, Any]]:
        """Where the numbers of (heads, rows, columns) or (rows, columns) are; exact."""
        exact = np.ascontiguousarray(values, dtype="<f4")
        return [
            {"first": first, "count": len(piece), "numbers": piece.size}
            | self._add(piece.tobytes())
            for first, piece in _pieces(exact)
        ]

    def bits(self, seen: Array) -> dict[str, Any]:
        """A mask (rows, columns), one bit a cell, rows after each other."""
        packed = np.packbits(np.asarray(seen, dtype=bool).ravel(), bitorder="little")
        return {"columns": int(seen.shape[1])} | self._add(packed.tobytes())

    def _add(self, raw: bytes) -> dict[str, Any]:
        name = f"p{len(self.texts)}"
        self.texts[name] = base64.b64encode(raw).decode("ascii")
        return {"id": name, "crc": zlib.crc32(raw)}


def float32(tensor: Tensor) -> Array:
    """The numbers of a tensor as the page writes them."""
    return np.asarray(tensor.detach().cpu().float().numpy())


def pooled(weights: Array, most: int) -> tuple[Array, tuple[int, int]]:
    """The largest of each block, so that no side is longer than `most`; and the block's size.

    weights (H, T, S) -> (H, ≤ most, ≤ most). Blocks at the end may be smaller.
    """
    block = -(-weights.shape[1] // most), -(-weights.shape[2] // most)
    down, across = (np.arange(0, weights.shape[axis + 1], block[axis]) for axis in (0, 1))
    return np.maximum.reduceat(np.maximum.reduceat(weights, across, axis=2), down, axis=1), block


def _pieces(values: Array) -> Iterator[tuple[int, Array]]:
    one = max(1, values[:1].nbytes)
    step = max(1, PART // one)
    for first in range(0, len(values), step):
        yield first, values[first : first + step]
