"""Tensors as text: little-endian float32 in base64 chunks, each with a checksum.

The page decodes a chunk when somebody looks at it, so a chunk is small; a head is never split.
"""

import base64
import zlib
from collections.abc import Iterator
from typing import Any

import numpy as np
from torch import Tensor

from qkv.interpret.trace.operations import Array

CHUNK_BYTES = 1 << 18  # a single head or row may be larger


class TensorChunks:
    """All chunks of one page, by their id in the document."""

    def __init__(self) -> None:
        self.texts: dict[str, str] = {}

    def add_floats(self, values: Array) -> list[dict[str, Any]]:
        """Store (heads, rows, columns) or (rows, columns) exactly; returns where."""
        # Float32Array in a browser has the byte order of the CPU, and those are little-endian.
        exact = np.ascontiguousarray(values, dtype="<f4")
        chunks = []
        for first, part in _split(exact):
            chunk = {"first": first, "count": len(part), "numbers": part.size}
            chunks.append(chunk | self._add(part.tobytes()))
        return chunks

    def add_bits(self, mask: Array) -> dict[str, Any]:
        """Store a mask (rows, columns), one bit per cell, row after row; returns where."""
        packed = np.packbits(np.asarray(mask, dtype=bool).ravel(), bitorder="little")
        return {"columns": int(mask.shape[1])} | self._add(packed.tobytes())

    def _add(self, raw: bytes) -> dict[str, Any]:
        name = f"p{len(self.texts)}"
        self.texts[name] = base64.b64encode(raw).decode("ascii")
        return {"id": name, "crc": zlib.crc32(raw)}


def as_float32(tensor: Tensor) -> Array:
    """The numbers of a tensor as the page stores them."""
    return np.asarray(tensor.detach().cpu().float().numpy())


def max_pool(weights: Array, max_size: int) -> tuple[Array, tuple[int, int]]:
    """The largest of each block, so that no side is longer than `max_size`; and the block's size.

    weights (H, T, S) -> (H, ≤ max_size, ≤ max_size). Blocks at the end may be smaller.
    """
    _, T, S = weights.shape
    # −(−a // b) is a ÷ b rounded up.
    block = (-(-T // max_size), -(-S // max_size))
    rows = np.arange(0, T, block[0])
    columns = np.arange(0, S, block[1])
    pooled = np.maximum.reduceat(weights, columns, axis=2)
    return np.maximum.reduceat(pooled, rows, axis=1), block


def _split(values: Array) -> Iterator[tuple[int, Array]]:
    """Runs of heads (or rows) of about the size of a chunk, with the number of their first."""
    item_bytes = max(1, values[:1].nbytes)
    step = max(1, CHUNK_BYTES // item_bytes)
    for first in range(0, len(values), step):
        yield first, values[first : first + step]
