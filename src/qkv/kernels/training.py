"""The passes as functions of tensors, which are float32, on the CPU, and in one piece.

They know nothing of autograd: `qkv.training.fused_model` puts forward and backward passes together.
"""

from __future__ import annotations

import ctypes
from ctypes import byref, c_float, c_int, c_long, c_uint32, c_uint64, c_void_p
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor

from qkv.kernels.inference import _place, _threads, _typed

SOURCES = tuple(
    f"training/{name}.cpp"
    for name in ("attention", "orthogonal", "products", "rows", "surprise", "tiles")
)

LANES = 16  # a multiple of this is whole lanes on any CPU


class Chance(NamedTuple):
    """Which numbers become 0: `dropped` of 256, drawn from the seed and their place alone."""

    seed: int
    dropped: int

    @classmethod
    def draw(cls, dropped: int) -> Chance:
        """With a seed from torch's own generator."""
        return cls(int(torch.empty((), dtype=torch.int64).random_()), dropped) if dropped else NEVER


NEVER = Chance(0, 0)


class _Projected(ctypes.Structure):
    _fields_ = (("numbers", c_void_p), ("row", c_long))

    @classmethod
    def of(cls, t: Tensor, column: int = 0) -> _Projected:
        """The columns of t (N, width) from that one on."""
        return cls(t.data_ptr() + 4 * column, t.stride(0))


class _Heads(ctypes.Structure):
    _fields_ = (
        ("texts", c_long), ("heads", c_long), ("kv_heads", c_long), ("width", c_long),
        ("q_starts", c_void_p), ("q_counts", c_void_p), ("k_starts", c_void_p),
        ("k_counts", c_void_p), ("turn_starts", c_void_p), ("q_gain", c_void_p),
        ("k_gain", c_void_p), ("q_eps", c_float), ("k_eps", c_float), ("cos", c_void_p),
        ("sin", c_void_p), ("scale", c_float), ("causal", c_int),
    )  # fmt: skip


@dataclass(frozen=True)
class Heads:
    """Attention of texts that stand one after the other.

    Text b has the queries q_starts[b] and the q_counts[b] − 1 behind it; so its keys; its position
    0 is row turn_starts[b] of cos and sin (positions, width), whose features turn by halves.
    q_gain and k_gain (width,) are those of norms over a head's features.
    """

    heads: int
    kv_heads: int
    width: int
    q_starts: Tensor
    q_counts: Tensor
    k_starts: Tensor
    k_counts: Tensor
    turn_starts: Tensor
    scale: float
    causal: bool
    cos: Tensor | None = None
    sin: Tensor | None = None
    q_gain: Tensor | None = None
    k_gain: Tensor | None = None
    q_eps: float = 0.0
    k_eps: float = 0.0

    def _structure(self) -> _Heads:
        return _Heads(
            len(self.q_starts), self.heads, self.kv_heads, self.width, self.q_starts.data_ptr(),
            self.q_counts.data_ptr(), self.k_starts.data_ptr(), self.k_counts.data_ptr(),
            self.turn_starts.data_ptr(), _place(self.q_gain), _place(self.k_gain), self.q_eps,
            self.k_eps, _place(self.cos), _place(self.sin), self.scale, self.causal,
        )  # fmt: skip


class TrainingKernels:
    """The compiled library."""

    def __init__(self, path: str) -> None:
        found = ctypes.CDLL(path)
        P, L, F, N = c_void_p, c_long, c_float, c_int
        chance = c_uint64, c_uint32, N
        self._join = _typed(found.join, P, P, P, L, *chance)
        self._bend = _typed(found.bend, P, P, L, N, *chance)
        self._bend_back = _typed(found.bend_back, P, P, P, L, N, *chance)
        self._norm = _typed(found.norm, P, P, P, F, P, P, L, L, N)
        self._norm_back = _typed(found.norm_back, *[P] * 7, L, L, N)
        self.quick_products: int = _typed(found.quick_products, result=L)()
        self._multiply = _typed(found.multiply, P, L, L, P, L, N, P, *[L] * 4, N, N)
        self.quick_turns = bool(_typed(found.quick_turns, result=N)())
        self._orthogonal = _typed(found.orthogonal, P, P, L, L, L, P, N, N)
        self._scored = _typed(found.scored, P, P, P, P, F, F, *[P] * 4, *[L] * 3, N)
        self._attend = _typed(found.attend, *[P] * 6, L, N)
        self._attend_back = _typed(found.attend_back, *[P] * 12, L, N)

    def suits(self, a: Tensor, b: Tensor) -> bool:
        """Whether `multiply` is quicker here than torch's own product."""
        sides: list[int] = sorted((len(a), *b.shape))
        return sides[0] * sides[1] <= self.quick_products

    def multiply(
        self, a: Tensor, b: Tensor, out: Tensor | None = None, add: bool = False
    ) -> Tensor:
        """a (M, K) · b (K, N), into `out` or added to it; each may be a transposed matrix."""
        rows, count = a.shape
        if out is None:
            out = a.new_empty(rows, b.shape[1])
        turned = b.stride(1) != 1
        self._multiply(
            a.data_ptr(), *a.stride(), b.data_ptr(), b.stride(int(turned)), turned, out.data_ptr(),
            out.stride(0), rows, b.shape[1], count, add, _threads(),
        )  # fmt: skip
        return out

    def join(self, x: Tensor | None, y: Tensor, chance: Chance) -> Tensor:
        """x + what is kept of y, or only that."""
        out = torch.empty_like(y)
        self._join(_place(x), y.data_ptr(), out.data_ptr(), y.numel(), *chance, _threads())
        return out

    def bend(self, x: Tensor, kind: int, chance: Chance) -> Tensor:
        """What is kept of the activation of x."""
        out = torch.empty_like(x)
        self._bend(x.data_ptr(), out.data_ptr(), x.numel(), kind, *chance, _threads())
        return out

    def bend_back(self, x: Tensor, upstream: Tensor, kind: int, chance: Chance) -> Tensor:
        """The slope by x from that by `bend`'s result."""
        out = torch.empty_like(x)
        places = x.data_ptr(), upstream.data_ptr(), out.data_ptr()
        self._bend_back(*places, x.numel(), kind, *chance, _threads())
        return out

    def norm(
        self, x: Tensor, gain: Tensor, shift: Tensor | None, eps: float
    ) -> tuple[Tensor, Tensor]:
        """x (…, N) normed, and the mean and factor of each row, (rows, 2)."""
        columns = x.shape[-1]
        rows = x.numel() // columns
        out, sizes = torch.empty_like(x), x.new_empty(rows, 2)
        self._norm(
            x.data_ptr(), gain.data_ptr(), _place(shift), eps, out.data_ptr(), sizes.data_ptr(),
            rows, columns, _threads(),
        )  # fmt: skip
        return out, sizes

    def norm_back(
        self, x: Tensor, gain: Tensor, sizes: Tensor, upstream: Tensor, shifted: bool
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Slopes by x, gain and shift from those by `norm`'s result."""
        out, to_gain = torch.empty_like(x), torch.zeros_like(gain)
        to_shift = torch.zeros_like(gain) if shifted else None
        self._norm_back(
            x.data_ptr(), gain.data_ptr(), sizes.data_ptr(), upstream.data_ptr(), out.data_ptr(),
            to_gain.data_ptr(), _place(to_shift), len(sizes), x.shape[-1], _threads(),
        )  # fmt: skip
        return out, to_gain, to_shift

    def scored(
        self, states: Tensor, table: Tensor, bias: Tensor | None, targets: Tensor,
        smoothing: float, agreement: float = 0.0,
    ) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:  # fmt: skip
        """−log p of each target (N,), where scores are states (N, D) · table (V, D)ᵀ + bias (V,);
        and the slopes of their sum by states, table and bias. D is a multiple of 16.

        agreement: if not 0, neighbours are two answers to one target, and lose the mean of both and
        this times their disagreement, which stands with the first.
        """
        if targets.dtype != torch.int64 or (agreement and len(targets) % 2):
            raise TypeError(
                "targets are whole numbers of 64 bits, and come in pairs to be agreed on"
            )
        if len(targets) and not 0 <= int(targets.min()) <= int(targets.max()) < len(table):
            raise IndexError(f"a target is not one of {len(table)} tokens")
        losses, to_states = states.new_empty(len(states)), torch.empty_like(states)
        to_table = torch.empty_like(table) if len(states) else torch.zeros_like(table)
        to_bias = None if bias is None else torch.zeros_like(bias)
        self._scored(
            states.data_ptr(), table.data_ptr(), _place(bias), targets.data_ptr(), smoothing,
            agreement, losses.data_ptr(), to_states.data_ptr(), to_table.data_ptr(),
            _place(to_bias),
            *states.shape[:1], *table.shape, _threads(),
        )  # fmt: skip
        return losses, to_states, to_table, to_bias

    def orthogonal(
        self, matrices: Tensor, quintic: tuple[float, float, float], steps: int
    ) -> Tensor:
        """(N, rows, columns) after so many steps of Newton and Schulz with that quintic."""
        out, numbers = torch.empty_like(matrices), (c_float * 3)(*quintic)
        self._orthogonal(
            matrices.data_ptr(), out.data_ptr(), *matrices.shape, numbers, steps, _threads()
        )
        return out

    def attend(self, heads: Heads, own: Tensor, other: Tensor | None) -> tuple[Tensor, Tensor]:
        """What every query sees, (N, H·E), and the logarithms (H, N) of what it was divided by.

        own (N, width): queries, and keys and values behind them unless `other` has those.
        """
        out = own.new_empty(len(own), heads.heads * heads.width)
        logs = own.new_empty(heads.heads, len(own))
        q, k, v = _split(heads, own, other)
        self._attend(
            byref(heads._structure()), byref(q), byref(k), byref(v), byref(_Projected.of(out)),
            logs.data_ptr(), len(own), _threads(),
        )  # fmt: skip
        return out, logs

    def attend_back(
        self, heads: Heads, own: Tensor, other: Tensor | None, out: Tensor, logs: Tensor,
        upstream: Tensor,
    ) -> tuple[Tensor, Tensor | None, Tensor | None, Tensor | None]:  # fmt: skip
        """Slopes by own, other and the two gains from those by `attend`'s result.

        Every row of own and other must belong to a text.
        """
        to_own = torch.empty_like(own)
        to_other = None if other is None else torch.empty_like(other)
        to_q_gain, to_k_gain = (
            None if gain is None else torch.zeros_like(gain)
            for gain in (heads.q_gain, heads.k_gain)
        )
        given = [*_split(heads, own, other), _Projected.of(out)]
        wanted = [_Projected.of(upstream), *_split(heads, to_own, to_other)]
        self._attend_back(
            byref(heads._structure()), *map(byref, given), logs.data_ptr(), *map(byref, wanted),
            _place(to_q_gain), _place(to_k_gain), len(own), _threads(),
        )  # fmt: skip
        return to_own, to_other, to_q_gain, to_k_gain


@cache
def training_kernels() -> TrainingKernels:
    """The library of this machine; compiled now if it never was."""
    from qkv.kernels.build import library

    return TrainingKernels(str(library("passes", SOURCES)))


def _split(heads: Heads, own: Tensor, other: Tensor | None) -> list[_Projected]:
    """Queries, keys and values."""
    queries, keys = heads.heads * heads.width, heads.kv_heads * heads.width
    if other is None:
        return [_Projected.of(own, at) for at in (0, queries, queries + keys)]
    return [_Projected.of(own), _Projected.of(other), _Projected.of(other, keys)]
