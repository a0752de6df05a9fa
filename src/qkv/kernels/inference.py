"""The inference kernels as functions of tensors.

Tensors are float32 unless stated otherwise, on the CPU, and contiguous along their last axis. The
ctypes structures mirror those of `abi.h`.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from ctypes import byref, c_float, c_int, c_long, c_void_p
from functools import cache
from pathlib import Path

import torch
from torch import Tensor, nn

from qkv.kernels.library import Library, contiguous_float32, pointer, thread_count

SOURCES = (
    "abi.cpp",
    "attention_decode.cpp",
    "attention_varlen.cpp",
    "gemm_int8.cpp",
    "layer_norm.cpp",
    "linear.cpp",
    "llama_decode.cpp",
    "quantize.cpp",
)
NO_ACTIVATION = -1
ACTIVATIONS = {"relu": 0, "gelu": 1, "gelu_tanh": 2, "silu": 3, "relu2": 4}  # as in activations.h


class Matrix(ctypes.Structure):
    """The weights of x·Wᵀ + b for a single row x; with a scale for each row of W, W is int8."""

    _fields_ = (
        ("data", c_void_p),
        ("scale", c_void_p),
        ("bias", c_void_p),
        ("rows", c_long),
        ("columns", c_long),
    )

    @classmethod
    def of(cls, weight: Tensor, scale: Tensor | None, bias: Tensor | None) -> Matrix:
        """Points to the tensors without owning them: the caller keeps them alive."""
        dtype = torch.float32 if scale is None else torch.int8
        if weight.dtype != dtype or not weight.is_contiguous():
            raise TypeError(f"the kernels take a contiguous {dtype} matrix, not {weight.dtype}")
        rows, columns = weight.shape
        return cls(weight.data_ptr(), pointer(scale), pointer(bias), rows, columns)


class PackedMatrix(ctypes.Structure):
    """The weights of x·Wᵀ + b for several rows x, packed into panels; see packed_matrix.h."""

    _fields_ = (
        ("data", c_void_p),
        ("bias", c_void_p),
        ("outputs", c_long),
        ("inputs", c_long),
        ("next", c_void_p),
    )
    panels: Tensor
    successor: PackedMatrix

    @classmethod
    def of(cls, panels: Tensor, bias: Tensor | None, outputs: int) -> PackedMatrix:
        """From the result of `InferenceKernels.pack`, which it owns; the bias it does not."""
        matrix = cls(panels.data_ptr(), pointer(bias), outputs, panels.shape[1])
        matrix.panels = panels
        return matrix

    def prefetch_next(self, successor: PackedMatrix) -> None:
        """Sets which matrix is likely read next, so that its first panels can be prefetched."""
        self.successor = successor  # keeps alive what the pointer points to
        self.next = ctypes.addressof(successor)


class RmsNorm(ctypes.Structure):
    """Root-mean-square normalization with a gain for each feature."""

    _fields_ = (("gain", c_void_p), ("eps", c_float))

    @classmethod
    def of(cls, gain: Tensor, eps: float) -> RmsNorm:
        """Points to the gain without owning it."""
        assert gain.is_contiguous()
        return cls(contiguous_float32(gain).data_ptr(), eps)


class DecoderLayer(ctypes.Structure):
    """One layer of a Llama-style decoder with its keys and values."""

    _fields_ = (
        ("attention_norm", RmsNorm),
        ("feed_forward_norm", RmsNorm),
        ("qkv", Matrix),
        ("attention_output", Matrix),
        ("gate_up", Matrix),
        ("down", Matrix),
        ("keys", c_void_p),
        ("values", c_void_p),
    )


class DecoderShape(ctypes.Structure):
    """What all layers of a decoder have in common."""

    _fields_ = (
        ("width", c_long),
        ("heads", c_long),
        ("kv_heads", c_long),
        ("head_width", c_long),
        ("feed_forward_width", c_long),
        ("capacity", c_long),
        ("rope_width", c_long),
        ("rope_interleaved", c_int),
        ("activation", c_int),
        ("scale", c_float),
        ("final_norm", RmsNorm),
    )


class _Strides(ctypes.Structure):
    _fields_ = (("batch", c_long), ("head", c_long), ("position", c_long))

    @classmethod
    def of(cls, t: Tensor) -> _Strides:
        return cls(*t.stride()[:3])


STRUCTURES = (Matrix, PackedMatrix, RmsNorm, DecoderLayer, DecoderShape, _Strides)


class InferenceKernels:
    """The compiled library."""

    def __init__(self, path: Path) -> None:
        library = Library(path, STRUCTURES)
        define = library.function
        # The parameters of the C++ functions in their order; the last is the number of threads.
        P = c_void_p
        L = c_long
        F = c_float
        N = c_int
        self._add_layer_norm = define("add_layer_norm", P, P, P, P, F, L, L, N)
        self._quantize_rows = define("quantize_rows", P, P, P, L, L, N)
        self._gemm_int8 = define("gemm_int8", P, P, P, L, L, L, N)
        self._dequantize = define("dequantize", P, P, P, P, L, L, N)
        self._dequantize_activate_quantize = define(
            "dequantize_activate_quantize", *[P] * 6, L, L, N, N
        )
        self._attention_decode = define("attention_decode", *[P] * 9, *[L] * 6, F, N)
        self._attention_varlen = define("attention_varlen", *[P] * 8, *[L] * 4, F, N)
        self.panel_width: int = define("panel_width", result=L)()
        self._pack_panels = define("pack_panels", P, P, L, L)
        self._linear = define("linear", P, P, L, P, N, N)
        self._feed_forward = define("feed_forward", P, P, P, L, P, N, N)
        self._llama_decode = define("llama_decode", P, L, P, P, P, P, L, P, N)
        self._dequantize_row = define("dequantize_row", P, L, P)
        self._matvec = define("matvec", P, P, P, N)
        self._argmax_logprob = define("argmax_logprob", P, P, L, P, N, result=L)

    def add_layer_norm(self, x: Tensor, residual: Tensor, norm: nn.LayerNorm) -> Tensor:
        """norm(x + residual), in place of x (…, N), which must be contiguous."""
        assert x.is_contiguous()
        columns = x.shape[-1]
        x = contiguous_float32(x)
        residual = contiguous_float32(residual)
        self._add_layer_norm(
            x.data_ptr(),
            residual.data_ptr(),
            norm.weight.data_ptr(),
            norm.bias.data_ptr(),
            norm.eps,
            x.numel() // columns,
            columns,
            thread_count(),
        )
        return x

    def quantize_rows(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Rows (M, K) as int8 and the scale (M,) of each: x ≈ int8 × scale."""
        x = contiguous_float32(x)
        quantized = x.new_empty(x.shape, dtype=torch.int8)
        scale = x.new_empty(len(x))
        self._quantize_rows(
            x.data_ptr(), quantized.data_ptr(), scale.data_ptr(), *x.shape, thread_count()
        )
        return quantized, scale

    def gemm_int8(self, x: Tensor, weight: Tensor) -> Tensor:
        """x·Wᵀ of int8 matrices (M, K) and (N, K): int32 (M, N), exact."""
        assert x.dtype == weight.dtype == torch.int8
        assert x.is_contiguous()
        assert weight.is_contiguous()
        rows, inputs = x.shape
        outputs = len(weight)
        sums = x.new_empty(rows, outputs, dtype=torch.int32)
        self._gemm_int8(
            x.data_ptr(), weight.data_ptr(), sums.data_ptr(), rows, outputs, inputs, thread_count()
        )
        return sums

    def dequantize(
        self, sums: Tensor, row_scale: Tensor, column_scale: Tensor, bias: Tensor
    ) -> Tensor:
        """int32 sums (M, N) × row_scale (M,) × column_scale (N,) + bias (N,), in their memory."""
        self._dequantize(
            sums.data_ptr(),
            row_scale.data_ptr(),
            column_scale.data_ptr(),
            bias.data_ptr(),
            *sums.shape,
            thread_count(),
        )
        # int32 and float32 have the same size, so the result reuses the memory of the sums.
        return sums.view(torch.float32)

    def dequantize_activate_quantize(
        self, sums: Tensor, row_scale: Tensor, column_scale: Tensor, bias: Tensor, activation: int
    ) -> tuple[Tensor, Tensor]:
        """The activation of what `dequantize` returns, quantized again: int8 and scales."""
        quantized = sums.new_empty(sums.shape, dtype=torch.int8)
        next_scale = torch.empty_like(row_scale)
        self._dequantize_activate_quantize(
            sums.data_ptr(),
            row_scale.data_ptr(),
            column_scale.data_ptr(),
            bias.data_ptr(),
            quantized.data_ptr(),
            next_scale.data_ptr(),
            *sums.shape,
            activation,
            thread_count(),
        )
        return quantized, next_scale

    def attention_decode(
        self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, scale: float
    ) -> Tensor:
        """Attention of a few queries: q (B, H, T, E) over k, v (B, K, S, E) -> (B, H, T, E).

        mask: bool (…, S), `True` = may attend; None lets every query see every key.
        """
        B, H, T, E = q.shape
        K, S = k.shape[1:3]
        # Heads next to each other, as the projection after attention reads them.
        out = q.new_empty(B, T, H, E)
        mask_strides = None
        if mask is not None:
            mask = mask.expand(B, H, T, S)
            # Axes that are broadcast have stride 0 and are not copied; only the last has to lie
            # in one piece.
            if mask.stride(-1) != 1:
                mask = mask.contiguous()
            mask_strides = byref(_Strides.of(mask))
        self._attention_decode(
            q.data_ptr(),
            k.data_ptr(),
            v.data_ptr(),
            pointer(mask),
            out.data_ptr(),
            byref(_Strides.of(q)),
            byref(_Strides.of(k)),
            byref(_Strides.of(v)),
            mask_strides,
            *(B, H, K, T, S, E),
            scale,
            thread_count(),
        )
        return out.transpose(1, 2)

    def attention_varlen(
        self, q: Tensor, k: Tensor, v: Tensor, lengths: Sequence[int], scale: float
    ) -> Tensor:
        """Attention within sequences packed into one row: q (1, H, N, E), k, v (1, K, N, E)."""
        _, H, N, E = q.shape
        out = q.new_empty(1, N, H, E)
        starts = torch.tensor([0, *lengths]).cumsum(dim=0)
        self._attention_varlen(
            q.data_ptr(),
            k.data_ptr(),
            v.data_ptr(),
            out.data_ptr(),
            byref(_Strides.of(q)),
            byref(_Strides.of(k)),
            byref(_Strides.of(v)),
            starts.data_ptr(),
            *(len(lengths), H, k.shape[1], E),
            scale,
            thread_count(),
        )
        return out.transpose(1, 2)

    def pack(self, weight: Tensor) -> Tensor:
        """The matrix (N, K) as panels (panels, K, panel_width), the order `linear` reads it in."""
        weight = contiguous_float32(weight)
        outputs, inputs = weight.shape
        count = -(-outputs // self.panel_width)  # rounded up
        panels = weight.new_empty(count, inputs, self.panel_width)
        self._pack_panels(weight.data_ptr(), panels.data_ptr(), outputs, inputs)
        return panels

    def linear(self, matrix: PackedMatrix, x: Tensor, activation: int = NO_ACTIVATION) -> Tensor:
        """activation(x·Wᵀ + b) of rows (…, K) -> (…, N)."""
        x = contiguous_float32(x)
        out = x.new_empty(*x.shape[:-1], matrix.outputs)
        rows = x.numel() // matrix.inputs
        self._linear(byref(matrix), x.data_ptr(), rows, out.data_ptr(), activation, thread_count())
        return out

    def feed_forward(
        self, up: PackedMatrix, down: PackedMatrix, x: Tensor, activation: int
    ) -> Tensor:
        """activation(x·Upᵀ + b)·Downᵀ + c of rows (…, K) -> (…, N)."""
        x = contiguous_float32(x)
        out = x.new_empty(*x.shape[:-1], down.outputs)
        rows = x.numel() // up.inputs
        self._feed_forward(
            byref(up),
            byref(down),
            x.data_ptr(),
            rows,
            out.data_ptr(),
            activation,
            thread_count(),
        )
        return out

    def llama_decode(
        self,
        layers: ctypes.Array[DecoderLayer],
        shape: DecoderShape,
        x: Tensor,
        cos: Tensor,
        sin: Tensor,
        position: int,
        workspace: Tensor,
    ) -> None:
        """x (D,) through all layers and the final norm, in place.

        Its keys and values are written at that position, for which cos and sin (positions, R) must
        have a row.
        """
        self._llama_decode(
            byref(layers),
            len(layers),
            byref(shape),
            x.data_ptr(),
            cos.data_ptr(),
            sin.data_ptr(),
            position,
            workspace.data_ptr(),
            thread_count(),
        )

    def decode_workspace(self, shape: DecoderShape) -> Tensor:
        """Scratch memory of `llama_decode`; no two sequences may use it at the same time."""
        s = shape
        # The four vectors at the top of qkv_llama_decode, in their order.
        queries_keys_values = (s.heads + 2 * s.kv_heads) * s.head_width
        attended = s.heads * s.head_width
        gate_up = 2 * s.feed_forward_width
        return torch.empty(queries_keys_values + attended + gate_up + s.width)

    def dequantize_row(self, matrix: Matrix, index: int) -> Tensor:
        """One row (K,) of an int8 matrix, as floats."""
        if not 0 <= index < matrix.rows:
            raise IndexError(f"index={index} must be from 0 to {matrix.rows - 1}")
        out = torch.empty(matrix.columns)
        self._dequantize_row(byref(matrix), index, out.data_ptr())
        return out

    def matvec(self, matrix: Matrix, x: Tensor) -> Tensor:
        """x·Wᵀ + b of a single row (K,) -> (N,)."""
        x = contiguous_float32(x)
        out = x.new_empty(matrix.rows)
        self._matvec(byref(matrix), x.data_ptr(), out.data_ptr(), thread_count())
        return out

    def argmax(self, matrix: Matrix, x: Tensor, count: int) -> tuple[int, float]:
        """The argmax of the first `count` logits x·Wᵀ + b of a row (K,), and its log-probability.

        The logits never exist as a whole: each block of them stays in a core's cache.
        """
        if not 0 < count <= matrix.rows:
            raise IndexError(f"count={count} must be from 1 to {matrix.rows}")
        logprob = c_float()
        x = contiguous_float32(x)
        index = self._argmax_logprob(
            byref(matrix), x.data_ptr(), count, byref(logprob), thread_count()
        )
        return index, logprob.value


@cache
def inference_kernels() -> InferenceKernels:
    """The library of this machine; compiles it now if it is not cached."""
    from qkv.kernels.build import compile_library

    return InferenceKernels(compile_library("inference", SOURCES))
