"""int8 quantization: a quarter of the memory, and several times the speed.

Weights are quantized symmetrically with one scale for each output channel, as one scale for the
matrix ruins the outputs. Activations are quantized dynamically, with one scale for each row, so
that no row depends on the others in its batch. Sums are exact in int32.
"""

from functools import cache
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from qkv.engine.optimized.fused import up_down_linears
from qkv.engine.optimized.linear import LinearLike, LinearWeights, stack_biases
from qkv.model import FeedForward, TokenEmbedding, TokenTypeEmbedding

INT8_LIMIT = 127
UINT8_ZERO = 128  # what 0 becomes when int8 is shifted to uint8, which oneDNN takes
TINY = 1e-30  # the least absmax, so that a row of zeros is divided by something
TILE_ROWS = 512  # rows that are multiplied at a time
QUANTIZE_ROWS = 64  # rows quantized at a time, so that a large matrix needs little extra memory


class QuantizedMatrix(nn.Module):
    """Matrices stacked and quantized to int8; row n is about values[n] × scale[n]."""

    def __init__(self, *matrices: Tensor) -> None:
        super().__init__()
        rows = sum(map(len, matrices))
        columns = matrices[0].shape[1]
        self.register_buffer("values", torch.empty(rows, columns, dtype=torch.int8))  # (N, K)
        self.register_buffer("scale", torch.empty(rows))  # (N,)
        self.values: Tensor
        self.scale: Tensor
        self.transposed = self.values.t()  # (K, N)
        start = 0
        for matrix in matrices:
            for chunk in torch.split(matrix.detach(), QUANTIZE_ROWS):
                stop = start + len(chunk)
                absmax = row_absmax(chunk)
                self.values[start:stop] = quantize_rows(chunk, absmax)
                self.scale[start:stop] = (absmax / INT8_LIMIT)[:, 0]
                start = stop

    def rows(self, ids: Tensor) -> Tensor:
        """Some rows, dequantized: (…) -> (…, K)."""
        return F.embedding(ids, self.values) * F.embedding(ids, self.scale[:, None])


class QuantizedLinear(nn.Module):
    """x·Wᵀ + b with W in int8, for a few rows."""

    def __init__(self, *layers: LinearLike, quantized: QuantizedMatrix | None = None) -> None:
        """quantized: the matrix, if it is in int8 already."""
        super().__init__()
        if quantized is None:
            quantized = QuantizedMatrix(*(layer.weight for layer in layers))
        self.weight = quantized
        self.bias = stack_biases(layers)

    def forward(self, x: Tensor) -> Tensor:
        rows = x.reshape(-1, x.shape[-1])
        if len(rows) == 1:
            return self.matvec(rows[0], 1.0).view(*x.shape[:-1], -1)
        absmax = row_absmax(rows)
        # In place from here on: these tensors are as large as the output.
        sums = self.matmul_int8(quantize_rows(rows, absmax))
        out = sums.to(x.dtype).mul_(absmax.div_(INT8_LIMIT)).mul_(self.weight.scale)
        return _add_bias(out, self.bias).view(*x.shape[:-1], len(self.weight.scale))

    def matmul_int8(self, quantized: Tensor) -> Tensor:
        """The product with int8 rows, (M, K) -> int32 (M, N), exact."""
        return torch._int_mm(quantized, self.weight.transposed)

    def matvec(self, row: Tensor, factor: float) -> Tensor:
        """row·Wᵀ × factor + b of a single row, (K,) -> (N,); its scale is a Python float."""
        smallest, largest = torch.aminmax(row)
        scale = max(float(largest), -float(smallest), TINY) / INT8_LIMIT
        quantized = (row * (1.0 / scale)).round_().to(torch.int8)
        sums = self.matmul_int8(quantized[None])[0]
        return _add_bias((sums * self.weight.scale).mul_(scale * factor), self.bias)

    def matvec_add(self, x: Tensor, row: Tensor) -> Tensor:
        """x + row·Wᵀ + b of a single row."""
        return self.matvec(row, 1.0).add_(x)


class PackedQuantizedLinear(nn.Module):
    """The same for many rows: W is packed into oneDNN's layout, which also scales the sums."""

    def __init__(self, *layers: LinearLike) -> None:
        super().__init__()
        quantized = QuantizedMatrix(*(layer.weight for layer in layers))
        shape = [TILE_ROWS, quantized.values.shape[1]]
        self.packed = torch.ops.onednn.qlinear_prepack(quantized.values, shape)
        self.scale = quantized.scale
        # Symmetric quantization: every zero point is 0.
        self.zeros = torch.zeros_like(quantized.scale, dtype=torch.int32)
        self.bias = stack_biases(layers)

    def forward(self, x: Tensor) -> Tensor:
        rows = x.reshape(-1, x.shape[-1])
        out = rows.new_empty(len(rows), len(self.scale))
        if len(rows):
            tiles = zip(torch.split(rows, TILE_ROWS), torch.split(out, TILE_ROWS), strict=True)
            for tile, out_tile in tiles:
                absmax = row_absmax(tile)
                self.matmul_dequantize(quantize_rows(tile, absmax), absmax, out_tile)
        return out.view(*x.shape[:-1], len(self.scale))

    def matmul_dequantize(self, quantized: Tensor, absmax: Tensor, out: Tensor) -> None:
        """The product with int8 rows (M, K) of that absmax (M, 1), into `out` (M, N)."""
        # Flipping the sign bit of an int8 is adding 128 and reading it as uint8.
        unsigned = quantized.view(torch.uint8).bitwise_xor_(UINT8_ZERO)
        products = torch.ops.onednn.qlinear_pointwise(
            unsigned,
            1.0,  # scale and zero point of the input
            UINT8_ZERO,
            self.packed,
            self.scale,
            self.zeros,
            None,  # the bias comes after the rows' own scales
            1.0,  # scale and zero point of the output
            0,
            absmax.dtype,
            "none",  # no post-op
            [],
            "",
        )
        scale = absmax.div_(INT8_LIMIT)
        if self.bias is None:
            torch.mul(products, scale, out=out)
        else:
            torch.addcmul(self.bias, products, scale, out=out)


class TiledFeedForward(nn.Module):
    """An int8 `FeedForward`, a tile of rows at a time, whose hidden rows never leave the cache.

    The hidden rows are quantized without a pass that searches their absmax: the activation has a
    small dip below 0 and rises after it, so the largest magnitude in a row is that of its largest
    input, or the dip.
    """

    DIPS: ClassVar[dict[type[nn.Module], float]] = {nn.GELU: 0.17, nn.SiLU: 0.279, nn.ReLU: TINY}

    @classmethod
    def supports(cls, plain: FeedForward) -> bool:
        return type(plain.activation) in cls.DIPS

    def __init__(self, plain: FeedForward) -> None:
        super().__init__()
        up, down = up_down_linears(plain)
        self.up = PackedQuantizedLinear(up)
        self.down = PackedQuantizedLinear(down)
        self.activation = plain.activation
        self.dip = self.DIPS[type(plain.activation)]

    def forward(self, x: Tensor) -> Tensor:
        rows = x.reshape(-1, x.shape[-1])
        if not len(rows):
            return x
        out = torch.empty_like(rows)
        tiles = zip(torch.split(rows, TILE_ROWS), torch.split(out, TILE_ROWS), strict=True)
        for tile, out_tile in tiles:
            self._forward_tile(tile, out_tile)
        return out.view_as(x)

    def _forward_tile(self, rows: Tensor, out: Tensor) -> None:
        hidden = self.up(rows)
        largest = hidden.amax(dim=-1, keepdim=True)  # (M, 1)
        absmax = self.activation(largest).clamp_(min=self.dip)
        activated = self.activation(hidden)
        quantized = activated.mul_(INT8_LIMIT / absmax).round_().to(torch.int8)
        self.down.matmul_dequantize(quantized, absmax, out)


class QuantizedEmbedding(nn.Module):
    """A token embedding in int8."""

    def __init__(self, plain: TokenEmbedding) -> None:
        super().__init__()
        self.table = QuantizedMatrix(plain.weight)
        self.scale = plain.scale
        self.types = plain.types if isinstance(plain, TokenTypeEmbedding) else None
        self.dtype = plain.weight.dtype

    @property
    def weight(self) -> Tensor:
        return self.table.values

    def forward(self, ids: Tensor, types: Tensor | None = None) -> Tensor:
        rows = self.scale(self.rows(ids))
        if self.types is None:
            return rows
        type_ids = torch.zeros_like(ids) if types is None else types
        return rows + F.embedding(type_ids, self.types)

    def rows(self, ids: Tensor) -> Tensor:
        """(B, T) -> (B, T, D)"""
        return self.table.rows(ids)


@cache
def int8_supported() -> bool:
    """Whether torch multiplies int8 here, and fast enough to be worth it (AVX-512 VNNI).

    Where it does not, the compiled kernels do.
    """
    if not torch.cpu._is_vnni_supported():
        return False
    # Some builds of torch have the operations but fail when they are called.
    identity = LinearWeights(torch.eye(3), None)
    row = torch.ones(2, 3)
    try:
        return all(
            linear(identity)(row).allclose(row)
            for linear in (QuantizedLinear, PackedQuantizedLinear)
        )
    except RuntimeError:
        return False


def row_absmax(rows: Tensor) -> Tensor:
    """The largest magnitude of each row, (M, K) -> (M, 1)."""
    largest = rows.amax(dim=-1, keepdim=True)
    smallest = rows.amin(dim=-1, keepdim=True)
    return torch.maximum(largest, smallest.neg_()).clamp_(min=TINY)


def quantize_rows(rows: Tensor, absmax: Tensor) -> Tensor:
    """Each row (M, K) as int8 from −127 to 127, its absmax (M, 1) at 127."""
    return (rows * (INT8_LIMIT / absmax)).round_().to(torch.int8)


def _add_bias(out: Tensor, bias: Tensor | None) -> Tensor:
    if bias is None:
        return out
    return out.add_(bias)
