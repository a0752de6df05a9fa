"""The block formats of GGUF, dequantized to float32.

Weights are stored in blocks that share a scale, with a few bits per weight:

    Q8_0   scale · 32 int8                          value = scale × int8
    Q4_0   scale · 32 nibbles                       value = scale × (nibble − 8)
    Q4_1   scale, offset · 32 nibbles               value = scale × nibble + offset
    Q5_0   scale · 32 fifth bits · 32 nibbles       value = scale × (five bits − 16)
    Q5_1   scale, offset · as Q5_0                  value = scale × five bits + offset

K-quants are superblocks of 256 weights, in groups whose scales are quantized themselves:

    Q6_K   16 groups of 16, six bits each           value = (scale × group scale) × (six bits − 32)
    Q4_K    8 groups of 32, four bits each          value = scale × group scale × bits
                                                            − offset × group offset
    Q5_K    8 groups of 32, five bits each          as Q4_K

Files called Q4_0 or Q4_K_M store their output layer as Q6_K, so none can be read without it.

Nibbles are stored in pairs: the low ones are the first half of the block, the high ones the second.
All arithmetic is float32 in the order in which ggml does it, so results are equal bit for bit.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
Floats = NDArray[np.float32]


class GgmlType(NamedTuple):
    """A storage format: blocks of `block_size` weights in `block_bytes` bytes.

    decode: (blocks, block_bytes) -> (blocks, block_size); None if it is not supported.
    """

    name: str
    block_size: int
    block_bytes: int
    decode: Callable[[Bytes], Floats] | None = None


def dequantize(ggml_type: GgmlType, data: Any) -> Floats:
    """The weights in these blocks, as one vector."""
    if ggml_type.decode is None:
        raise ValueError(f"{ggml_type.name} is not supported")
    blocks = np.frombuffer(data, np.uint8).reshape(-1, ggml_type.block_bytes)
    # A damaged scale may be infinite: 0 × ∞ is NaN in the result, without a warning.
    with np.errstate(all="ignore"):
        return ggml_type.decode(blocks).reshape(-1)


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
    return f16(blocks[:, :2]) * _centered(_nibbles(blocks[:, 2:]), 8)


def q4_1(blocks: Bytes) -> Floats:
    return f16(blocks[:, :2]) * _nibbles(blocks[:, 4:]) + f16(blocks[:, 2:4])


def q5_0(blocks: Bytes) -> Floats:
    return f16(blocks[:, :2]) * _centered(_five_bits(blocks[:, 2:]), 16)


def q5_1(blocks: Bytes) -> Floats:
    return f16(blocks[:, :2]) * _five_bits(blocks[:, 4:]) + f16(blocks[:, 2:4])


def q6_k(blocks: Bytes) -> Floats:
    """128 bytes of nibbles · 64 bytes of upper bit pairs · 16 group scales · scale"""
    low = _bit_fields(blocks[:, :128].reshape(-1, 2, 64), (0, 4), 15).reshape(-1, 16, 16)
    high = _bit_fields(blocks[:, 128:192].reshape(-1, 2, 32), (0, 2, 4, 6), 3).reshape(-1, 16, 16)
    scales = f16(blocks[:, 208:]) * blocks[:, 192:208].view(np.int8).astype(np.float32)
    values = scales[:, :, None] * _centered(low | high << np.uint8(4), 32)
    return _flatten(values)


def q4_k(blocks: Bytes) -> Floats:
    """scale · offset · 12 bytes of group scales and offsets · 128 bytes of nibbles"""
    bits = _bit_fields(blocks[:, 16:].reshape(-1, 4, 32), (0, 4), 15)
    return _scale_groups(blocks, bits)


def q5_k(blocks: Bytes) -> Floats:
    """As q4_k, with 32 bytes of fifth bits before the nibbles"""
    high = _bit_fields(blocks[:, 16:48].reshape(-1, 1, 32), range(8), 1).reshape(-1, 8, 32)
    low = _bit_fields(blocks[:, 48:].reshape(-1, 4, 32), (0, 4), 15).reshape(-1, 8, 32)
    return _scale_groups(blocks, low | high << np.uint8(4))


def _nibbles(packed: Bytes) -> Bytes:
    """(blocks, 16) -> (blocks, 32) from 0 to 15"""
    return np.concatenate([packed & 15, packed >> 4], axis=1)


def _five_bits(packed: Bytes) -> Bytes:
    """(blocks, 4 + 16) -> (blocks, 32) from 0 to 31"""
    high = np.unpackbits(packed[:, :4], axis=1, bitorder="little")
    return _nibbles(packed[:, 4:]) | high << np.uint8(4)


def _centered(bits: Bytes, zero_point: int) -> Floats:
    return bits.astype(np.float32) - np.float32(zero_point)


def _scale_groups(blocks: Bytes, bits: Bytes) -> Floats:
    group_scales, group_offsets = _group_scales(blocks[:, 4:16])
    scales = f16(blocks[:, :2]) * group_scales
    offsets = f16(blocks[:, 2:4]) * group_offsets
    values = scales[:, :, None] * bits.reshape(-1, 8, 32).astype(np.float32)
    return _flatten(values - offsets[:, :, None])


def _group_scales(packed: Bytes) -> tuple[Floats, Floats]:
    """The six-bit scales and offsets of eight groups, (blocks, 8) each.

    Of bytes 0–3 the lower six bits are the scales of groups 0–3, of bytes 4–7 the offsets. Groups
    4–7 have their lower four bits in bytes 8–11 (scale low, offset high) and their upper two bits
    in the upper bits of bytes 0–7.
    """
    scale = packed[:, :4]
    offset = packed[:, 4:8]
    both = packed[:, 8:]
    scales = np.concatenate([scale & 63, (both & 15) | (scale >> 6 << 4)], axis=1)
    offsets = np.concatenate([offset & 63, (both >> 4) | (offset >> 6 << 4)], axis=1)
    return scales.astype(np.float32), offsets.astype(np.float32)


def _bit_fields(packed: Bytes, shifts: Sequence[int], mask: int) -> Bytes:
    """(blocks, groups, bytes) -> (blocks, groups, shifts, bytes), lowest bits first"""
    steps = np.array(shifts, np.uint8)[:, None]
    return packed[:, :, None, :] >> steps & np.uint8(mask)


def _flatten(values: Any) -> Floats:
    return np.asarray(values, np.float32).reshape(len(values), 256)


# By ggml's type id. Types without a decoder are listed with their size, so that the header of a
# file that contains one can be read and the error can name the type.
GGML_TYPES = {
    0: GgmlType("F32", 1, 4, f32),
    1: GgmlType("F16", 1, 2, f16),
    2: GgmlType("Q4_0", 32, 18, q4_0),
    3: GgmlType("Q4_1", 32, 20, q4_1),
    6: GgmlType("Q5_0", 32, 22, q5_0),
    7: GgmlType("Q5_1", 32, 24, q5_1),
    8: GgmlType("Q8_0", 32, 34, q8_0),
    9: GgmlType("Q8_1", 32, 40),
    10: GgmlType("Q2_K", 256, 84),
    11: GgmlType("Q3_K", 256, 110),
    12: GgmlType("Q4_K", 256, 144, q4_k),
    13: GgmlType("Q5_K", 256, 176, q5_k),
    14: GgmlType("Q6_K", 256, 210, q6_k),
    15: GgmlType("Q8_K", 256, 292),
    16: GgmlType("IQ2_XXS", 256, 66),
    17: GgmlType("IQ2_XS", 256, 74),
    18: GgmlType("IQ3_XXS", 256, 98),
    19: GgmlType("IQ1_S", 256, 50),
    20: GgmlType("IQ4_NL", 32, 18),
    21: GgmlType("IQ3_S", 256, 110),
    22: GgmlType("IQ2_S", 256, 82),
    23: GgmlType("IQ4_XS", 256, 136),
    24: GgmlType("I8", 1, 1),
    25: GgmlType("I16", 1, 2),
    26: GgmlType("I32", 1, 4),
    27: GgmlType("I64", 1, 8),
    28: GgmlType("F64", 1, 8),
    29: GgmlType("IQ1_M", 256, 56),
    30: GgmlType("BF16", 1, 2, bf16),
    34: GgmlType("TQ1_0", 256, 54),
    35: GgmlType("TQ2_0", 256, 66),
    39: GgmlType("MXFP4", 32, 17),
    40: GgmlType("NVFP4", 64, 36),
    41: GgmlType("Q1_0", 128, 18),
}

SUPPORTED_TYPES = tuple(t.name for t in GGML_TYPES.values() if t.decode)
