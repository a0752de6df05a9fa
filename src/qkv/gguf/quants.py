"""How GGUF packs numbers: runs of them share a scale, and each keeps only a few bits.

    Q8_0   scale · 32 signed bytes                 value = scale × byte
    Q4_0   scale · 32 half bytes                   value = scale × (half byte − 8)
    Q4_1   scale, offset · 32 half bytes           value = scale × half byte + offset
    Q5_0   scale · 32 fifth bits · 32 half bytes   value = scale × (five bits − 16)
    Q5_1   scale, offset · the same                value = scale × five bits + offset

Half bytes are stored in pairs: the low halves are the first sixteen numbers, the high halves the
rest. Every sum and product is in float32 in the order ggml takes it, so the bits are ggml's.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

# FOLDED gguf/superblocks: GGUF's "K" packings: 256 numbers, cut into groups whose scales are
#   small numbers themselves.
#
#   Q6_K   16 groups of 16, six bits each     value = (scale × group scale) × (six bits − 32)
#   Q4_K    8 groups of 32, four bits each    value = scale × group scale × bits − offset ×
#   group's
#   Q5_K    8 groups of 32, five bits each    the same
#
#   A file called Q4_0 or Q4_K_M holds its output layer as Q6_K, so none can be read without
#   it.

BytesSuperblocks = NDArray[np.uint8]

FloatsSuperblocks = NDArray[np.float32]


def q6_k(blocks: BytesSuperblocks) -> FloatsSuperblocks:
    """128 bytes of low halves · 64 bytes of upper pairs of bits · 16 group scales · scale"""
    low = _fields(blocks[:, :128].reshape(-1, 2, 64), (0, 4), 15).reshape(-1, 16, 16)
    high = _fields(blocks[:, 128:192].reshape(-1, 2, 32), (0, 2, 4, 6), 3).reshape(-1, 16, 16)
    scales = _scale(blocks[:, 208:]) * blocks[:, 192:208].view(np.int8).astype(np.float32)
    numbers = (low | high << 4).astype(np.float32) - np.float32(32)
    return _flat(scales[:, :, None] * numbers)


def q4_k(blocks: BytesSuperblocks) -> FloatsSuperblocks:
    """scale · offset · 12 bytes of group scales and offsets · 128 bytes of half bytes"""
    return _scaled(blocks, _fields(blocks[:, 16:].reshape(-1, 4, 32), (0, 4), 15))


def q5_k(blocks: BytesSuperblocks) -> FloatsSuperblocks:
    """What q4_k has, and 32 bytes of fifth bits before the half bytes"""
    fifth = _fields(blocks[:, 16:48].reshape(-1, 1, 32), range(8), 1)
    low = _fields(blocks[:, 48:].reshape(-1, 4, 32), (0, 4), 15)
    return _scaled(blocks, low.reshape(-1, 8, 32) | fifth.reshape(-1, 8, 32) << np.uint8(4))


def _scaled(blocks: BytesSuperblocks, numbers: BytesSuperblocks) -> FloatsSuperblocks:
    scales, offsets = _six_bits(blocks[:, 4:16])
    scales = _scale(blocks[:, :2]) * scales
    offsets = _scale(blocks[:, 2:4]) * offsets
    values = scales[:, :, None] * numbers.reshape(-1, 8, 32).astype(np.float32)
    return _flat(values - offsets[:, :, None])


def _six_bits(packed: BytesSuperblocks) -> tuple[FloatsSuperblocks, FloatsSuperblocks]:
    """The scales and the offsets of eight groups, (blocks, 8) each.

    The first four of each have a byte of their own, whose upper two bits are lent to the last
    four; the third four bytes hold their lower halves, scale and offset.
    """
    scale = packed[:, :4]
    offset = packed[:, 4:8]
    both = packed[:, 8:]
    scales = np.concatenate([scale & 63, (both & 15) | (scale >> 6 << 4)], axis=1)
    offsets = np.concatenate([offset & 63, (both >> 4) | (offset >> 6 << 4)], axis=1)
    return scales.astype(np.float32), offsets.astype(np.float32)


def _fields(packed: BytesSuperblocks, shifts: Sequence[int], mask: int) -> BytesSuperblocks:
    """(blocks, groups, bytes) -> (blocks, groups, shifts, bytes): first all of the lowest bits."""
    steps = np.array(shifts, np.uint8)[:, None]
    return packed[:, :, None, :] >> steps & np.uint8(mask)


def _scale(pair: BytesSuperblocks) -> FloatsSuperblocks:
    return pair.view("<f2").astype(np.float32)


def _flat(values: Any) -> FloatsSuperblocks:
    return np.asarray(values, np.float32).reshape(len(values), 256)


Bytes = NDArray[np.uint8]

Floats = NDArray[np.float32]


class Kind(NamedTuple):
    """One way of storing numbers: so many of them in so many bytes."""

    name: str
    numbers: int
    bytes: int
    unpack: Callable[[Bytes], Floats] | None = None  # (blocks, bytes) -> (blocks, numbers)


def f32(blocks: Bytes) -> Floats:
    return blocks.view("<f4")


def f16(blocks: Bytes) -> Floats:
    return blocks.view("<f2").astype(np.float32)


def bf16(blocks: Bytes) -> Floats:
    """The upper half of a float32."""
    return (blocks.view("<u2").astype(np.uint32) << 16).view(np.float32)


def q8_0(blocks: Bytes) -> Floats:
    return f16(blocks[:, :2]) * blocks[:, 2:].view(np.int8).astype(np.float32)


def q4_0(blocks: Bytes) -> Floats:
    return f16(blocks[:, :2]) * _less(_halves(blocks[:, 2:]), 8)


def q4_1(blocks: Bytes) -> Floats:
    return f16(blocks[:, :2]) * _halves(blocks[:, 4:]) + f16(blocks[:, 2:4])


def q5_0(blocks: Bytes) -> Floats:
    return f16(blocks[:, :2]) * _less(_fives(blocks[:, 2:]), 16)


def q5_1(blocks: Bytes) -> Floats:
    return f16(blocks[:, :2]) * _fives(blocks[:, 4:]) + f16(blocks[:, 2:4])


def _halves(packed: Bytes) -> Bytes:
    """(blocks, 16) -> (blocks, 32) from 0 to 15"""
    return np.concatenate([packed & 15, packed >> 4], axis=1)


def _fives(packed: Bytes) -> Bytes:
    """(blocks, 4 + 16) -> (blocks, 32) from 0 to 31"""
    fifth = np.unpackbits(packed[:, :4], axis=1, bitorder="little")
    return _halves(packed[:, 4:]) | fifth << np.uint8(4)


def _less(numbers: Bytes, middle: int) -> Floats:
    return numbers.astype(np.float32) - np.float32(middle)


def unpack(kind: Kind, raw: Any) -> Floats:
    """The numbers in these whole blocks, one after another."""
    if kind.unpack is None:
        raise ValueError(f"{kind.name} is not read")
    # A damaged scale may be infinite; 0 × ∞ is then NaN in the result, and no warning.
    with np.errstate(all="ignore"):
        return kind.unpack(np.frombuffer(raw, np.uint8).reshape(-1, kind.bytes)).reshape(-1)


# By the number GGUF gives each. Those without a way to unpack are known by size only, so that a
# file which holds one can still be opened and say so.
KINDS = {
    0: Kind("F32", 1, 4, f32),
    1: Kind("F16", 1, 2, f16),
    2: Kind("Q4_0", 32, 18, q4_0),
    3: Kind("Q4_1", 32, 20, q4_1),
    6: Kind("Q5_0", 32, 22, q5_0),
    7: Kind("Q5_1", 32, 24, q5_1),
    8: Kind("Q8_0", 32, 34, q8_0),
    9: Kind("Q8_1", 32, 40),
    10: Kind("Q2_K", 256, 84),
    11: Kind("Q3_K", 256, 110),
    12: Kind("Q4_K", 256, 144, q4_k),
    13: Kind("Q5_K", 256, 176, q5_k),
    14: Kind("Q6_K", 256, 210, q6_k),
    15: Kind("Q8_K", 256, 292),
    16: Kind("IQ2_XXS", 256, 66),
    17: Kind("IQ2_XS", 256, 74),
    18: Kind("IQ3_XXS", 256, 98),
    19: Kind("IQ1_S", 256, 50),
    20: Kind("IQ4_NL", 32, 18),
    21: Kind("IQ3_S", 256, 110),
    22: Kind("IQ2_S", 256, 82),
    23: Kind("IQ4_XS", 256, 136),
    24: Kind("I8", 1, 1),
    25: Kind("I16", 1, 2),
    26: Kind("I32", 1, 4),
    27: Kind("I64", 1, 8),
    28: Kind("F64", 1, 8),
    29: Kind("IQ1_M", 256, 56),
    30: Kind("BF16", 1, 2, bf16),
    34: Kind("TQ1_0", 256, 54),
    35: Kind("TQ2_0", 256, 66),
    39: Kind("MXFP4", 32, 17),
    40: Kind("NVFP4", 64, 36),
    41: Kind("Q1_0", 128, 18),
}

READ = tuple(kind.name for kind in KINDS.values() if kind.unpack)
