"""GGUF's "K" packings: 256 numbers, cut into groups whose scales are small numbers themselves.

    Q6_K   16 groups of 16, six bits each     value = (scale × group scale) × (six bits − 32)
    Q4_K    8 groups of 32, four bits each    value = scale × group scale × bits − offset × group's
    Q5_K    8 groups of 32, five bits each    the same

A file called Q4_0 or Q4_K_M holds its output layer as Q6_K, so none can be read without it.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
Floats = NDArray[np.float32]


def q6_k(blocks: Bytes) -> Floats:
    """128 bytes of low halves · 64 bytes of upper pairs of bits · 16 group scales · scale"""
    low = _fields(blocks[:, :128].reshape(-1, 2, 64), (0, 4), 15).reshape(-1, 16, 16)
    high = _fields(blocks[:, 128:192].reshape(-1, 2, 32), (0, 2, 4, 6), 3).reshape(-1, 16, 16)
    scales = _scale(blocks[:, 208:]) * blocks[:, 192:208].view(np.int8).astype(np.float32)
    numbers = (low | high << 4).astype(np.float32) - np.float32(32)
    return _flat(scales[:, :, None] * numbers)


def q4_k(blocks: Bytes) -> Floats:
    """scale · offset · 12 bytes of group scales and offsets · 128 bytes of half bytes"""
    return _scaled(blocks, _fields(blocks[:, 16:].reshape(-1, 4, 32), (0, 4), 15))


def q5_k(blocks: Bytes) -> Floats:
    """What q4_k has, and 32 bytes of fifth bits before the half bytes"""
    fifth = _fields(blocks[:, 16:48].reshape(-1, 1, 32), range(8), 1)
    low = _fields(blocks[:, 48:].reshape(-1, 4, 32), (0, 4), 15)
    return _scaled(blocks, low.reshape(-1, 8, 32) | fifth.reshape(-1, 8, 32) << np.uint8(4))


def _scaled(blocks: Bytes, numbers: Bytes) -> Floats:
    scales, offsets = _six_bits(blocks[:, 4:16])
    scales = _scale(blocks[:, :2]) * scales
    offsets = _scale(blocks[:, 2:4]) * offsets
    values = scales[:, :, None] * numbers.reshape(-1, 8, 32).astype(np.float32)
    return _flat(values - offsets[:, :, None])


def _six_bits(packed: Bytes) -> tuple[Floats, Floats]:
    """The scales and the offsets of eight groups, (blocks, 8) each.

    The first four of each have a byte of their own, whose upper two bits are lent to the last
    four; the third four bytes hold their lower halves, scale and offset.
    """
    scale, offset, both = packed[:, :4], packed[:, 4:8], packed[:, 8:]
    scales = np.concatenate([scale & 63, (both & 15) | (scale >> 6 << 4)], axis=1)
    offsets = np.concatenate([offset & 63, (both >> 4) | (offset >> 6 << 4)], axis=1)
    return scales.astype(np.float32), offsets.astype(np.float32)


def _fields(packed: Bytes, shifts: Sequence[int], mask: int) -> Bytes:
    """(blocks, groups, bytes) -> (blocks, groups, shifts, bytes): first all of the lowest bits."""
    steps = np.array(shifts, np.uint8)[:, None]
    return packed[:, :, None, :] >> steps & np.uint8(mask)


def _scale(pair: Bytes) -> Floats:
    return pair.view("<f2").astype(np.float32)


def _flat(values: Any) -> Floats:
    return np.asarray(values, np.float32).reshape(len(values), 256)
