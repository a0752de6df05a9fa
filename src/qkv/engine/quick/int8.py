"""Products of whole numbers: a quarter of the memory, and several times the speed.

A matrix is kept in 8 bits with one scale for each output. The rows it is multiplied with are
rounded to 8 bits as they come, each with a scale of its own, so that no row depends on the rows
beside it. Sums are exact in 32 bits.
"""

from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from qkv.model.embedding import Table, TypedTable
from qkv.model.feed_forward import FeedForward

LARGEST = 127
MIDDLE = 128  # what 0 becomes where numbers are kept without a sign
TINY = 1e-30  # so that a row of zeros stays one
STRIP = 128  # rows


class Rounded(nn.Module):
    """A matrix in 8 bits; row n of the true one is about whole[n] × scale[n]."""

    def __init__(self, matrix: Tensor) -> None:
        super().__init__()
        size = sizes(matrix.detach())
        self.register_buffer("whole", whole_numbers(matrix.detach(), size))  # (N, K)
        self.register_buffer("scale", (size / LARGEST)[:, 0])  # (N,)
        self.whole: Tensor
        self.scale: Tensor

    def rows(self, ids: Tensor) -> Tensor:
        """Some rows of the matrix: (…) -> (…, K)."""
        return F.embedding(ids, self.whole) * F.embedding(ids, self.scale[:, None])


class Int8(nn.Module):
    """x·Wᵀ + b with W in 8 bits, as it is: for a few rows."""

    def __init__(self, weight: Tensor | Rounded, bias: Tensor | None) -> None:
        super().__init__()
        self.weight = weight if isinstance(weight, Rounded) else Rounded(weight)
        self.bias = None if bias is None else bias.detach()

    def forward(self, x: Tensor) -> Tensor:
        rows = x.reshape(-1, x.shape[-1])
        size = sizes(rows)
        sums = torch._int_mm(whole_numbers(rows, size), self.weight.whole.t())  # (M, N), exact
        out = sums.to(x.dtype).mul_(size.div_(LARGEST)).mul_(self.weight.scale)
        return _plus(out, self.bias).view(*x.shape[:-1], -1)


class PackedInt8(nn.Module):
    """The same for many rows: the matrix lies as oneDNN reads it, which also scales the sums."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        rounded = Rounded(weight)
        self.packed = torch.ops.onednn.qlinear_prepack(rounded.whole, [STRIP, weight.shape[1]])
        self.scale, self.zeros = rounded.scale, torch.zeros(len(weight), dtype=torch.int32)
        self.bias = None if bias is None else bias.detach()

    def forward(self, x: Tensor) -> Tensor:
        rows = x.reshape(-1, x.shape[-1])
        size = sizes(rows)
        return self.sized(whole_numbers(rows, size), size).view(*x.shape[:-1], -1)

    def sized(self, whole: Tensor, size: Tensor) -> Tensor:
        """The product with rows that are whole numbers already, (M, K) -> (M, N)."""
        above_zero = whole.view(torch.uint8).bitwise_xor_(MIDDLE)  # adds it to all numbers
        out = torch.ops.onednn.qlinear_pointwise(
            above_zero, 1.0, MIDDLE, self.packed, self.scale, self.zeros, None,
            1.0, 0, size.dtype, "none", [], "",
        )  # fmt: skip
        return _plus(out.mul_(size.div_(LARGEST)), self.bias)


class StripFeedForward(nn.Module):
    """A `FeedForward` in strips of rows, whose widened rows then never leave the cache.

    The activation has a small dip below 0 and rises after it, so the largest result in a row is
    that of the largest number, or the dip.
    """

    DIPS: ClassVar[dict[type[nn.Module], float]] = {nn.GELU: 0.17, nn.SiLU: 0.279, nn.ReLU: TINY}

    @classmethod
    def fits(cls, plain: FeedForward) -> bool:
        return type(plain.activation) in cls.DIPS

    def __init__(self, plain: FeedForward, up: nn.Module, down: PackedInt8) -> None:
        super().__init__()
        self.up, self.activation, self.down = up, plain.activation, down
        self.dip = self.DIPS[type(plain.activation)]

    def forward(self, x: Tensor) -> Tensor:
        strips = x.reshape(-1, x.shape[-1]).split(STRIP)
        return torch.cat([self._strip(rows) for rows in strips]).view_as(x)

    def _strip(self, rows: Tensor) -> Tensor:
        wide = self.up(rows)
        size = self.activation(wide.amax(dim=-1, keepdim=True)).clamp_(min=self.dip)  # (M, 1)
        bent = self.activation(wide)
        return self.down.sized(bent.mul_(LARGEST / size).round_().to(torch.int8), size)


class Int8Table(nn.Module):
    """An embedding whose table is in 8 bits."""

    def __init__(self, plain: Table) -> None:
        super().__init__()
        self.table, self.scale = Rounded(plain.weight), plain.scale
        self.types = plain.types if isinstance(plain, TypedTable) else None
        self.dtype = plain.weight.dtype

    @property
    def weight(self) -> Tensor:
        return self.table.whole

    def forward(self, ids: Tensor, types: Tensor | None = None) -> Tensor:
        rows = self.scale(self.table.rows(ids))
        if self.types is None:
            return rows
        kinds = torch.zeros_like(ids) if types is None else types
        return rows + F.embedding(kinds, self.types)


def sizes(rows: Tensor) -> Tensor:
    """The largest absolute number of each row, (M, K) -> (M, 1)."""
    most, least = rows.amax(dim=-1, keepdim=True), rows.amin(dim=-1, keepdim=True)
    return torch.maximum(most, least.neg_()).clamp_(min=TINY)


def whole_numbers(rows: Tensor, size: Tensor) -> Tensor:
    """Each row (M, K) from −127 to 127, where its own size (M, 1) becomes 127."""
    return (rows * (LARGEST / size)).round_().to(torch.int8)


def _plus(out: Tensor, bias: Tensor | None) -> Tensor:
    return out if bias is None else out.add_(bias)
