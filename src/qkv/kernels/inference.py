"""The loops as functions of tensors.

All tensors are float32 unless said otherwise, on the CPU, and rows of theirs lie in one piece.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from ctypes import byref, c_float, c_int, c_long, c_void_p
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

NO_ACTIVATION = -1
ACTIVATIONS = {"relu": 0, "gelu": 1, "gelu_tanh": 2, "silu": 3, "relu2": 4}  # as in numbers.h


class Matrix(ctypes.Structure):
    """A product x·Wᵀ + b; with a scale for each row of W, W is in 8 bits."""

    _fields_ = (
        ("numbers", c_void_p), ("scale", c_void_p), ("bias", c_void_p),
        ("rows", c_long), ("columns", c_long),
    )  # fmt: skip

    @classmethod
    def of(cls, weight: Tensor, scale: Tensor | None, bias: Tensor | None) -> Matrix:
        """It holds no tensor: whoever uses it must."""
        wanted = torch.float32 if scale is None else torch.int8
        if weight.dtype != wanted or not weight.is_contiguous():
            raise TypeError(f"the loops take a {wanted} matrix in one piece, not {weight.dtype}")
        rows, columns = weight.shape
        return cls(weight.data_ptr(), _place(scale), _place(bias), rows, columns)


class Panels(ctypes.Structure):
    """A product x·Wᵀ + b of several rows; W lies in panels, see panels.h."""

    _fields_ = (
        ("numbers", c_void_p), ("bias", c_void_p), ("outputs", c_long), ("inputs", c_long),
        ("after", c_void_p),
    )  # fmt: skip
    held: Tensor
    next: Panels

    @classmethod
    def of(cls, packed: Tensor, bias: Tensor | None, outputs: int) -> Panels:
        """From what `InferenceKernels.packed` made, which it holds; the bias it does not."""
        made = cls(packed.data_ptr(), _place(bias), outputs, packed.shape[1])
        made.held = packed
        return made

    def then(self, after: Panels) -> None:
        """Tells which matrix is likely read next, so that it is asked for in time; it is held."""
        self.next, self.after = after, ctypes.addressof(after)


class Norm(ctypes.Structure):
    """Division by the root of the mean square, and a gain for each number."""

    _fields_ = (("gain", c_void_p), ("eps", c_float))

    @classmethod
    def of(cls, gain: Tensor, eps: float) -> Norm:
        """It holds no tensor either."""
        assert gain.is_contiguous()
        return cls(floats(gain).data_ptr(), eps)


class Layer(ctypes.Structure):
    """One layer of a decoder; see step.cpp."""

    _fields_ = (
        ("attention", Norm), ("feed_forward", Norm),
        ("project", Matrix), ("output", Matrix), ("widen", Matrix), ("narrow", Matrix),
        ("keys", c_void_p), ("values", c_void_p),
    )  # fmt: skip


class Shape(ctypes.Structure):
    """What all layers of a decoder have in common; see step.cpp."""

    _fields_ = (
        ("width", c_long), ("heads", c_long), ("kv_heads", c_long), ("head_width", c_long),
        ("hidden", c_long), ("capacity", c_long), ("turned", c_long), ("adjacent", c_int),
        ("activation", c_int), ("scale", c_float), ("last", Norm),
    )  # fmt: skip


class _Strides(ctypes.Structure):
    _fields_ = (("batch", c_long), ("head", c_long), ("position", c_long))

    @classmethod
    def of(cls, t: Tensor) -> _Strides:
        return cls(*t.stride()[:3])


class InferenceKernels:
    """The compiled library."""

    def __init__(self, path: Path) -> None:
        found = ctypes.CDLL(str(path))
        P, L, F, N = c_void_p, c_long, c_float, c_int
        self._add_and_norm = _typed(found.add_and_norm, P, P, P, P, F, L, L, N)
        self._round_rows = _typed(found.round_rows, P, P, P, L, L, N)
        self._multiply_whole = _typed(found.multiply_whole, P, P, P, L, L, L, N)
        self._unround_rows = _typed(found.unround_rows, P, P, P, P, L, L, N)
        self._unround_bend_round = _typed(found.unround_bend_round, *[P] * 6, L, L, N, N)
        self._attend_few = _typed(found.attend_few, *[P] * 9, *[L] * 6, F, N)
        self._attend_texts = _typed(found.attend_texts, *[P] * 8, *[L] * 4, F, N)
        self.panel_width: int = _typed(found.panel_width, result=L)()
        self._pack_panels = _typed(found.pack_panels, P, P, L, L)
        self._multiply_rows = _typed(found.multiply_rows, P, P, L, P, N, N)
        self._multiply_twice = _typed(found.multiply_twice, P, P, P, L, P, N, N)
        self._decode = _typed(found.decode, P, L, P, P, P, P, L, P, N)
        self._row_of = _typed(found.row_of, P, L, P)
        self._multiply_one = _typed(found.multiply_one, P, P, P, N)
        self._likeliest = _typed(found.likeliest, P, P, L, P, N, result=L)

    def add_and_norm(self, x: Tensor, more: Tensor, norm: nn.LayerNorm) -> Tensor:
        """x (…, N), which must be contiguous, becomes norm(x + more)."""
        columns = x.shape[-1]
        assert x.is_contiguous()
        x, more = floats(x), floats(more)
        self._add_and_norm(
            x.data_ptr(), more.data_ptr(), norm.weight.data_ptr(), norm.bias.data_ptr(), norm.eps,
            x.numel() // columns, columns, _threads(),
        )  # fmt: skip
        return x

    def rounded(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Rows (M, K) as whole numbers of 8 bits, and the step (M,) that each counts in."""
        x = floats(x)
        whole, step = x.new_empty(x.shape, dtype=torch.int8), x.new_empty(len(x))
        self._round_rows(x.data_ptr(), whole.data_ptr(), step.data_ptr(), *x.shape, _threads())
        return whole, step

    def sums(self, whole: Tensor, weight: Tensor) -> Tensor:
        """whole·Wᵀ of rows (M, K) and a matrix (N, K), both in 8 bits: (M, N) in 32, exact."""
        (rows, inputs), outputs = whole.shape, len(weight)
        assert whole.dtype == weight.dtype == torch.int8
        assert whole.is_contiguous()
        assert weight.is_contiguous()
        out = whole.new_empty(rows, outputs, dtype=torch.int32)
        self._multiply_whole(
            whole.data_ptr(), weight.data_ptr(), out.data_ptr(), rows, outputs, inputs, _threads()
        )
        return out

    def unrounded(self, sums: Tensor, step: Tensor, scale: Tensor, bias: Tensor) -> Tensor:
        """What sums (M, N) of 32 bits stand for: × step (M,) × scale (N,) + bias (N,) -> (M, N).

        It takes their place.
        """
        self._unround_rows(
            sums.data_ptr(), step.data_ptr(), scale.data_ptr(), bias.data_ptr(), *sums.shape,
            _threads(),
        )  # fmt: skip
        return sums.view(torch.float32)

    def bent_and_rounded(
        self, sums: Tensor, step: Tensor, scale: Tensor, bias: Tensor, activation: int
    ) -> tuple[Tensor, Tensor]:
        """The activation of what sums stand for, rounded again."""
        whole, following = sums.new_empty(sums.shape, dtype=torch.int8), torch.empty_like(step)
        self._unround_bend_round(
            sums.data_ptr(), step.data_ptr(), scale.data_ptr(), bias.data_ptr(),
            whole.data_ptr(), following.data_ptr(), *sums.shape, activation, _threads(),
        )  # fmt: skip
        return whole, following

    def attend(self, q: Tensor, k: Tensor, v: Tensor, seen: Tensor | None, scale: float) -> Tensor:
        """Attention of q (B, H, T, E) over k, v (B, K, S, E); seen is bool (…, S) or all."""
        B, H, T, E = q.shape
        K, S = k.shape[1:3]
        out = q.new_empty(B, T, H, E)
        mask = None if seen is None else seen.expand(B, H, T, S)
        if mask is not None and mask.stride(-1) != 1:
            mask = mask.contiguous()
        self._attend_few(
            q.data_ptr(), k.data_ptr(), v.data_ptr(), _place(mask), out.data_ptr(),
            byref(_Strides.of(q)), byref(_Strides.of(k)), byref(_Strides.of(v)),
            None if mask is None else byref(_Strides.of(mask)),
            B, H, K, T, S, E, scale, _threads(),
        )  # fmt: skip
        return out.transpose(1, 2)

    def attend_texts(
        self, q: Tensor, k: Tensor, v: Tensor, lengths: Sequence[int], scale: float
    ) -> Tensor:
        """Each token of q (1, H, N, E) looks at all tokens of its own text: k, v (1, K, N, E)."""
        _, H, N, E = q.shape
        out = q.new_empty(1, N, H, E)
        starts = torch.tensor([0, *lengths]).cumsum(dim=0)
        self._attend_texts(
            q.data_ptr(), k.data_ptr(), v.data_ptr(), out.data_ptr(),
            byref(_Strides.of(q)), byref(_Strides.of(k)), byref(_Strides.of(v)),
            starts.data_ptr(), len(lengths), H, k.shape[1], E, scale, _threads(),
        )  # fmt: skip
        return out.transpose(1, 2)

    def packed(self, weight: Tensor) -> Tensor:
        """The matrix (N, K) in the order that `products` reads it in."""
        (outputs, inputs), width = weight.shape, self.panel_width
        panels = weight.new_empty((outputs + width - 1) // width, inputs, width)
        weight = floats(weight)
        self._pack_panels(weight.data_ptr(), panels.data_ptr(), outputs, inputs)
        return panels

    def products(self, matrix: Panels, x: Tensor, activation: int = NO_ACTIVATION) -> Tensor:
        """activation(x·Wᵀ + b) of rows (…, K) -> (…, N)."""
        x = floats(x)
        out = x.new_empty(*x.shape[:-1], matrix.outputs)
        rows = x.numel() // matrix.inputs
        self._multiply_rows(
            byref(matrix), x.data_ptr(), rows, out.data_ptr(), activation, _threads()
        )
        return out

    def fed_forward(self, up: Panels, down: Panels, x: Tensor, activation: int) -> Tensor:
        """activation(x·Upᵀ + b)·Downᵀ + c of rows (…, K) -> (…, N)."""
        x = floats(x)
        out = x.new_empty(*x.shape[:-1], down.outputs)
        rows = x.numel() // up.inputs
        self._multiply_twice(
            byref(up), byref(down), x.data_ptr(), rows, out.data_ptr(), activation, _threads()
        )
        return out

    def decode(
        self, layers: ctypes.Array[Layer], shape: Shape, x: Tensor, turns: tuple[Tensor, Tensor],
        position: int, room: Tensor,
    ) -> None:  # fmt: skip
        """x (D,) through all layers and the last norm; its keys and values are added at that
        position, for which turns (positions, R) must have a row.
        """
        self._decode(
            byref(layers), len(layers), byref(shape), x.data_ptr(), turns[0].data_ptr(),
            turns[1].data_ptr(), position, room.data_ptr(), _threads(),
        )  # fmt: skip

    def room(self, shape: Shape) -> Tensor:
        """For what `decode` computes on the way; of one sequence at a time."""
        s = shape
        heads = (2 * s.heads + 2 * s.kv_heads) * s.head_width  # queries, keys, values, what is seen
        return torch.empty(heads + 2 * s.hidden + s.width)

    def row(self, matrix: Matrix, at: int) -> Tensor:
        """One row of a matrix in 8 bits, (K,)."""
        if not 0 <= at < matrix.rows:
            raise IndexError(f"row {at} of {matrix.rows}")
        out = torch.empty(matrix.columns)
        self._row_of(byref(matrix), at, out.data_ptr())
        return out

    def multiply(self, matrix: Matrix, x: Tensor) -> Tensor:
        """x·Wᵀ + b of a single row (K,) -> (N,)."""
        x, out = floats(x), x.new_empty(matrix.rows)
        self._multiply_one(byref(matrix), x.data_ptr(), out.data_ptr(), _threads())
        return out

    def argmax(self, matrix: Matrix, x: Tensor, known: int) -> tuple[int, float]:
        """Which of the first `known` numbers of x·Wᵀ + b is the largest, for a single row (K,), and
        its log-probability among them.
        """
        if not 0 < known <= matrix.rows:
            raise IndexError(f"{known} of {matrix.rows} rows")
        logarithm = c_float()
        x = floats(x)
        at = self._likeliest(byref(matrix), x.data_ptr(), known, byref(logarithm), _threads())
        return at, logarithm.value


@cache
def inference_kernels() -> InferenceKernels:
    """The library of this machine; compiled now if it never was."""
    from qkv.kernels.build import library

    return InferenceKernels(library())


def floats(x: Tensor) -> Tensor:
    """The numbers in one piece, as the loops read them."""
    if x.dtype != torch.float32:
        raise TypeError(f"the loops take torch.float32, not {x.dtype}; leave out autocast")
    return x.contiguous()


def _typed(function: Any, *kinds: Any, result: Any = None) -> Callable[..., Any]:
    function.argtypes, function.restype = kinds, result
    typed: Callable[..., Any] = function
    return typed


def _place(t: Tensor | None) -> int | None:
    return None if t is None else t.data_ptr()


def _threads() -> int:
    return torch.get_num_threads()
