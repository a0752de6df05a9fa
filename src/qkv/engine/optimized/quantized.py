"""Products of whole numbers: a quarter of the memory, and several times the speed.

A matrix is kept in 8 bits with one scale for each output. The rows it is multiplied with are
rounded to 8 bits as they come, each with a scale of its own, so that no row depends on the rows
beside it. Sums are exact in 32 bits.
"""

from functools import cache
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from qkv.engine.optimized.fused import up_and_down
from qkv.engine.optimized.linear import Layer, Matrix, bias_of
from qkv.model.embedding import TokenEmbedding, TokenTypeEmbedding
from qkv.model.feed_forward import FeedForward

LARGEST = 127
MIDDLE = 128  # what 0 becomes where numbers are kept without a sign
TINY = 1e-30  # so that a row of zeros stays one
STRIP = 512  # rows that are multiplied at a time
FEW = 64  # rows that are rounded at a time, so that memory hardly grows beside what is kept


class Rounded(nn.Module):
    """Matrices in 8 bits, one above the other; row n is about whole[n] × scale[n]."""

    def __init__(self, *matrices: Tensor) -> None:
        super().__init__()
        rows, columns = sum(map(len, matrices)), matrices[0].shape[1]
        self.register_buffer("whole", torch.empty(rows, columns, dtype=torch.int8))  # (N, K)
        self.register_buffer("scale", torch.empty(rows))  # (N,)
        self.whole: Tensor
        self.scale: Tensor
        self.turned = self.whole.t()  # (K, N)
        at = 0
        for strip in (s for m in matrices for s in torch.split(m.detach(), FEW)):
            size = sizes(strip)
            self.whole[at : at + len(strip)] = whole_numbers(strip, size)
            self.scale[at : at + len(strip)] = (size / LARGEST)[:, 0]
            at += len(strip)

    def rows(self, ids: Tensor) -> Tensor:
        """Some rows of the matrix: (…) -> (…, K)."""
        return F.embedding(ids, self.whole) * F.embedding(ids, self.scale[:, None])


class Int8(nn.Module):
    """x·Wᵀ + b with W in 8 bits, as it is: for a few rows."""

    def __init__(self, *layers: Layer, rounded: Rounded | None = None) -> None:
        """rounded: the matrix, where it is in 8 bits already."""
        super().__init__()
        self.weight = Rounded(*(layer.weight for layer in layers)) if rounded is None else rounded
        self.bias = bias_of(layers)

    def forward(self, x: Tensor) -> Tensor:
        rows = x.reshape(-1, x.shape[-1])
        if len(rows) == 1:
            return self.one(rows[0], 1.0).view(*x.shape[:-1], -1)
        size = sizes(rows)
        sums = self.sums(whole_numbers(rows, size))
        out = sums.to(x.dtype).mul_(size.div_(LARGEST)).mul_(self.weight.scale)
        return _plus(out, self.bias).view(*x.shape[:-1], len(self.weight.scale))

    def sums(self, whole: Tensor) -> Tensor:
        """The product with rows of whole numbers, (M, K) -> (M, N), exact."""
        return torch._int_mm(whole, self.weight.turned)

    def one(self, row: Tensor, factor: float) -> Tensor:
        """row·Wᵀ × factor + b of a single row, (K,) -> (N,); its size is a plain number."""
        least, most = torch.aminmax(row)
        step = max(float(most), -float(least), TINY) / LARGEST
        whole = (row * (1.0 / step)).round_().to(torch.int8)
        return _plus((self.sums(whole[None])[0] * self.weight.scale).mul_(step * factor), self.bias)

    def one_more(self, x: Tensor, row: Tensor) -> Tensor:
        """x + row·Wᵀ + b of a single row."""
        return self.one(row, 1.0).add_(x)


class PackedQuantizedLinear(nn.Module):
    """The same for many rows: the matrix lies as oneDNN reads it, which also scales the sums."""

    def __init__(self, *layers: Layer) -> None:
        super().__init__()
        rounded = Rounded(*(layer.weight for layer in layers))
        shape = [STRIP, rounded.whole.shape[1]]
        self.packed = torch.ops.onednn.qlinear_prepack(rounded.whole, shape)
        self.scale, self.zeros = rounded.scale, torch.zeros_like(rounded.scale, dtype=torch.int32)
        self.bias = bias_of(layers)

    def forward(self, x: Tensor) -> Tensor:
        rows = x.reshape(-1, x.shape[-1])
        out = rows.new_empty(len(rows), len(self.scale))
        if not len(rows):
            return out.view(*x.shape[:-1], len(self.scale))
        for strip, place in zip(torch.split(rows, STRIP), torch.split(out, STRIP), strict=True):
            size = sizes(strip)
            self.sized(whole_numbers(strip, size), size, place)
        return out.view(*x.shape[:-1], len(self.scale))

    def sized(self, whole: Tensor, size: Tensor, out: Tensor) -> None:
        """The product with rows that are whole numbers already: (M, K) into (M, N)."""
        above_zero = whole.view(torch.uint8).bitwise_xor_(MIDDLE)  # adds it to all numbers
        sums = torch.ops.onednn.qlinear_pointwise(
            above_zero, 1.0, MIDDLE, self.packed, self.scale, self.zeros, None,
            1.0, 0, size.dtype, "none", [], "",
        )  # fmt: skip
        size = size.div_(LARGEST)
        if self.bias is None:
            torch.mul(sums, size, out=out)
        else:
            torch.addcmul(self.bias, sums, size, out=out)


class TiledFeedForward(nn.Module):
    """A `FeedForward` in strips of rows, whose widened rows then never leave the cache.

    The activation has a small dip below 0 and rises after it, so the largest result in a row is
    that of the largest number, or the dip.
    """

    DIPS: ClassVar[dict[type[nn.Module], float]] = {nn.GELU: 0.17, nn.SiLU: 0.279, nn.ReLU: TINY}

    @classmethod
    def fits(cls, plain: FeedForward) -> bool:
        return type(plain.activation) in cls.DIPS

    def __init__(self, plain: FeedForward) -> None:
        super().__init__()
        self.up, self.down = map(PackedQuantizedLinear, up_and_down(plain))
        self.activation = plain.activation
        self.dip = self.DIPS[type(plain.activation)]

    def forward(self, x: Tensor) -> Tensor:
        rows = x.reshape(-1, x.shape[-1])
        out = torch.empty_like(rows)
        if not len(rows):
            return x
        for strip, place in zip(torch.split(rows, STRIP), torch.split(out, STRIP), strict=True):
            self._strip(strip, place)
        return out.view_as(x)

    def _strip(self, rows: Tensor, out: Tensor) -> None:
        wide = self.up(rows)
        size = self.activation(wide.amax(dim=-1, keepdim=True)).clamp_(min=self.dip)  # (M, 1)
        bent = self.activation(wide)
        self.down.sized(bent.mul_(LARGEST / size).round_().to(torch.int8), size, out)


class QuantizedEmbedding(nn.Module):
    """An embedding whose table is in 8 bits."""

    def __init__(self, plain: TokenEmbedding) -> None:
        super().__init__()
        self.table, self.scale = Rounded(plain.weight), plain.scale
        self.types = plain.types if isinstance(plain, TokenTypeEmbedding) else None
        self.dtype = plain.weight.dtype

    @property
    def weight(self) -> Tensor:
        return self.table.whole

    def forward(self, ids: Tensor, types: Tensor | None = None) -> Tensor:
        rows = self.scale(self.rows(ids))
        if self.types is None:
            return rows
        kinds = torch.zeros_like(ids) if types is None else types
        return rows + F.embedding(kinds, self.types)

    def rows(self, ids: Tensor) -> Tensor:
        """(B, T) -> (B, T, D)"""
        return self.table.rows(ids)


@cache
def int8_supported() -> bool:
    """Whether torch multiplies in 8 bits here, and as quickly as that is worth it (AVX-512 VNNI).

    Where it does not, compiled loops do.
    """
    if not torch.cpu._is_vnni_supported():
        return False
    one, row = Matrix(torch.eye(3), None), torch.ones(2, 3)
    try:
        return all(product(one)(row).allclose(row) for product in (Int8, PackedQuantizedLinear))
    except RuntimeError:
        return False


def sizes(rows: Tensor) -> Tensor:
    """The largest absolute number of each row, (M, K) -> (M, 1)."""
    most, least = rows.amax(dim=-1, keepdim=True), rows.amin(dim=-1, keepdim=True)
    return torch.maximum(most, least.neg_()).clamp_(min=TINY)


def whole_numbers(rows: Tensor, size: Tensor) -> Tensor:
    """Each row (M, K) from −127 to 127, where its own size (M, 1) becomes 127."""
    return (rows * (LARGEST / size)).round_().to(torch.int8)


def _plus(out: Tensor, bias: Tensor | None) -> Tensor:
    return out if bias is None else out.add_(bias)
