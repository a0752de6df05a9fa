"""The training kernels as functions of tensors, which are float32, on the CPU and contiguous.

They know nothing of autograd: `qkv.training.fused_ops` pairs each forward with its backward pass.
The ctypes structures mirror those of `training_abi.h`.
"""

from __future__ import annotations

import ctypes
from ctypes import byref, c_float, c_int, c_long, c_uint32, c_uint64, c_void_p
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from qkv.kernels.library import Library, pointer, thread_count

SOURCES = (
    "training/attention.cpp",
    "training/cross_entropy.cpp",
    "training/elementwise.cpp",
    "training/gemm.cpp",
    "training/gemm_strip.cpp",
    "training/layer_norm_grad.cpp",
    "training/newton_schulz.cpp",
    "training/training_abi.cpp",
)

LANES = 16  # floats of the widest register: a multiple of it is whole vectors on any CPU


class DropoutMask(NamedTuple):
    """A dropout mask that is a function of a seed, so that it need not be stored.

    Of 256 numbers `threshold` become 0; the others are scaled by 256 / (256 − threshold).
    """

    seed: int
    threshold: int

    @classmethod
    def sample(cls, threshold: int) -> DropoutMask:
        """A mask with a seed from torch's global generator."""
        if not threshold:
            return NO_DROPOUT  # without advancing the generator
        # From torch's generator, so that torch.manual_seed and a checkpoint's RNG state cover it.
        seed = int(torch.empty((), dtype=torch.int64).random_())
        return cls(seed, threshold)


NO_DROPOUT = DropoutMask(0, 0)


class _Projection(ctypes.Structure):
    _fields_ = (("data", c_void_p), ("stride", c_long))

    @classmethod
    def of(cls, t: Tensor, column: int = 0) -> _Projection:
        """The columns of t (N, width) from that one on."""
        return cls(t.data_ptr() + t.element_size() * column, t.stride(0))


class _AttentionSpec(ctypes.Structure):
    _fields_ = (
        ("sequences", c_long),
        ("heads", c_long),
        ("kv_heads", c_long),
        ("head_width", c_long),
        ("q_starts", c_void_p),
        ("q_counts", c_void_p),
        ("k_starts", c_void_p),
        ("k_counts", c_void_p),
        ("rope_starts", c_void_p),
        ("q_gain", c_void_p),
        ("k_gain", c_void_p),
        ("q_eps", c_float),
        ("k_eps", c_float),
        ("cos", c_void_p),
        ("sin", c_void_p),
        ("scale", c_float),
        ("causal", c_int),
    )


class _Quintic(ctypes.Structure):
    _fields_ = (("a", c_float), ("b", c_float), ("c", c_float))


STRUCTURES = (_Projection, _AttentionSpec, _Quintic)


@dataclass(frozen=True)
class AttentionSpec:
    """Attention within sequences that are packed one after the other.

    Sequence b has the queries from q_starts[b] on, q_counts[b] of them, and likewise its keys. Its
    position 0 is row rope_starts[b] of cos and sin (positions, head_width), which rotate feature i
    together with i + head_width / 2. q_gain and k_gain (head_width,) are those of the QK norms.
    """

    heads: int
    kv_heads: int
    head_width: int
    q_starts: Tensor
    q_counts: Tensor
    k_starts: Tensor
    k_counts: Tensor
    rope_starts: Tensor
    scale: float
    causal: bool
    cos: Tensor | None = None
    sin: Tensor | None = None
    q_gain: Tensor | None = None
    k_gain: Tensor | None = None
    q_eps: float = 0.0
    k_eps: float = 0.0

    def _structure(self) -> _AttentionSpec:
        return _AttentionSpec(
            sequences=len(self.q_starts),
            heads=self.heads,
            kv_heads=self.kv_heads,
            head_width=self.head_width,
            q_starts=self.q_starts.data_ptr(),
            q_counts=self.q_counts.data_ptr(),
            k_starts=self.k_starts.data_ptr(),
            k_counts=self.k_counts.data_ptr(),
            rope_starts=self.rope_starts.data_ptr(),
            q_gain=pointer(self.q_gain),
            k_gain=pointer(self.k_gain),
            q_eps=self.q_eps,
            k_eps=self.k_eps,
            cos=pointer(self.cos),
            sin=pointer(self.sin),
            scale=self.scale,
            causal=self.causal,
        )

    def _split(self, queries: Tensor, memory: Tensor | None) -> list[_Projection]:
        """Queries, keys and values: of one projection, or keys and values of another."""
        q_width = self.heads * self.head_width
        k_width = self.kv_heads * self.head_width
        if memory is None:
            return [_Projection.of(queries, at) for at in (0, q_width, q_width + k_width)]
        return [_Projection.of(queries), _Projection.of(memory), _Projection.of(memory, k_width)]


class TrainingKernels:
    """The compiled library."""

    def __init__(self, path: Path) -> None:
        library = Library(path, STRUCTURES)
        define = library.function
        P = c_void_p
        L = c_long
        F = c_float
        N = c_int
        dropout = (c_uint64, c_uint32, N)  # seed, threshold; then the number of threads
        self._dropout_add = define("dropout_add", P, P, P, L, *dropout)
        self._activation = define("activation", P, P, L, N, *dropout)
        self._activation_backward = define("activation_backward", P, P, P, L, N, *dropout)
        self._layer_norm = define("layer_norm", P, P, P, F, P, P, L, L, N)
        self._layer_norm_backward = define("layer_norm_backward", *[P] * 7, L, L, N)
        self.gemm_max_area: int = define("gemm_max_area", result=L)()
        self._gemm = define("gemm", P, L, L, P, L, N, P, *[L] * 4, N, N)
        self.newton_schulz_is_faster = bool(define("newton_schulz_is_faster", result=N)())
        self._newton_schulz = define("newton_schulz", P, P, L, L, L, P, N, N)
        self._cross_entropy = define("cross_entropy", P, P, P, P, F, F, *[P] * 4, *[L] * 3, N)
        self._attention = define("attention", *[P] * 6, L, N)
        self._attention_backward = define("attention_backward", *[P] * 12, L, N)

    def gemm_is_faster(self, a: Tensor, b: Tensor) -> bool:
        """Whether `gemm` is faster here than torch's own product."""
        # The area of the smallest matrix involved: what has to stay in a core's cache.
        sides: list[int] = sorted((len(a), *b.shape))
        return sides[0] * sides[1] <= self.gemm_max_area

    def gemm(
        self, a: Tensor, b: Tensor, out: Tensor | None = None, accumulate: bool = False
    ) -> Tensor:
        """a (M, K) · b (K, N), into `out` or added to it; either may be a transposed view."""
        rows, depth = a.shape
        columns = b.shape[1]
        if out is None:
            out = a.new_empty(rows, columns)
        # Transposed views are read as they are; nothing is copied here.
        transposed = b.stride(1) != 1
        self._gemm(
            a.data_ptr(),
            *a.stride(),
            b.data_ptr(),
            b.stride(int(transposed)),
            transposed,
            out.data_ptr(),
            out.stride(0),
            *(rows, columns, depth),
            accumulate,
            thread_count(),
        )
        return out

    def dropout_add(self, x: Tensor | None, y: Tensor, mask: DropoutMask) -> Tensor:
        """x + dropout(y), or only dropout(y)."""
        out = torch.empty_like(y)
        self._dropout_add(
            pointer(x), y.data_ptr(), out.data_ptr(), y.numel(), *mask, thread_count()
        )
        return out

    def activation(self, x: Tensor, kind: int, mask: DropoutMask) -> Tensor:
        """dropout(activation(x))"""
        out = torch.empty_like(x)
        self._activation(x.data_ptr(), out.data_ptr(), x.numel(), kind, *mask, thread_count())
        return out

    def activation_backward(
        self, x: Tensor, grad_out: Tensor, kind: int, mask: DropoutMask
    ) -> Tensor:
        """The gradient of x from that of `activation`'s result."""
        grad_x = torch.empty_like(x)
        self._activation_backward(
            x.data_ptr(),
            grad_out.data_ptr(),
            grad_x.data_ptr(),
            x.numel(),
            kind,
            *mask,
            thread_count(),
        )
        return grad_x

    def layer_norm(
        self, x: Tensor, gain: Tensor, shift: Tensor | None, eps: float
    ) -> tuple[Tensor, Tensor]:
        """layer_norm(x) of rows (…, N), and the mean and 1/σ of each row, (rows, 2)."""
        columns = x.shape[-1]
        rows = x.numel() // columns
        out = torch.empty_like(x)
        statistics = x.new_empty(rows, 2)
        self._layer_norm(
            x.data_ptr(),
            gain.data_ptr(),
            pointer(shift),
            eps,
            out.data_ptr(),
            statistics.data_ptr(),
            rows,
            columns,
            thread_count(),
        )
        return out, statistics

    def layer_norm_backward(
        self, x: Tensor, gain: Tensor, statistics: Tensor, grad_out: Tensor, has_shift: bool
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """The gradients of x, gain and shift from that of `layer_norm`'s result."""
        grad_x = torch.empty_like(x)
        grad_gain = torch.zeros_like(gain)  # the kernel adds to these
        grad_shift = torch.zeros_like(gain) if has_shift else None
        self._layer_norm_backward(
            x.data_ptr(),
            gain.data_ptr(),
            statistics.data_ptr(),
            grad_out.data_ptr(),
            grad_x.data_ptr(),
            grad_gain.data_ptr(),
            pointer(grad_shift),
            len(statistics),
            x.shape[-1],
            thread_count(),
        )
        return grad_x, grad_gain, grad_shift

    def cross_entropy(
        self,
        states: Tensor,
        embedding: Tensor,
        bias: Tensor | None,
        targets: Tensor,
        smoothing: float,
        r_drop: float = 0.0,
    ) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
        """−log p of each target (N,) and the gradients of their sum by states, embedding and bias.

        The logits are states (N, D) · embedding (V, D)ᵀ + bias (V,); D is a multiple of LANES.
        r_drop: if not 0, rows 2i and 2i + 1 predict the same target; their loss is the mean of
        both plus r_drop times their divergence, and is returned with the first.
        """
        # The kernel indexes with the targets without looking: a wrong one would write anywhere.
        if targets.dtype != torch.int64:
            raise TypeError(f"targets must be torch.int64, not {targets.dtype}")
        if r_drop and len(targets) % 2:
            raise TypeError(f"r_drop takes pairs of rows, not {len(targets)} rows")
        if len(targets) and not 0 <= int(targets.min()) <= int(targets.max()) < len(embedding):
            raise IndexError(f"a target is not one of {len(embedding)} tokens")
        losses = states.new_empty(len(states))
        grad_states = torch.empty_like(states)
        # Without rows the kernel writes nothing.
        grad_embedding = torch.empty_like(embedding) if len(states) else torch.zeros_like(embedding)
        grad_bias = None if bias is None else torch.zeros_like(bias)
        self._cross_entropy(
            states.data_ptr(),
            embedding.data_ptr(),
            pointer(bias),
            targets.data_ptr(),
            smoothing,
            r_drop,
            losses.data_ptr(),
            grad_states.data_ptr(),
            grad_embedding.data_ptr(),
            pointer(grad_bias),
            len(states),
            *embedding.shape,
            thread_count(),
        )
        return losses, grad_states, grad_embedding, grad_bias

    def newton_schulz(
        self, matrices: Tensor, quintic: tuple[float, float, float], steps: int
    ) -> Tensor:
        """(N, rows, columns) after so many Newton–Schulz steps with those coefficients."""
        out = torch.empty_like(matrices)
        self._newton_schulz(
            matrices.data_ptr(),
            out.data_ptr(),
            *matrices.shape,
            byref(_Quintic(*quintic)),
            steps,
            thread_count(),
        )
        return out

    def attention(
        self, spec: AttentionSpec, queries: Tensor, memory: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """The heads' outputs (N, H·E), and the log-sum-exp (H, N) of each query's scores.

        queries (N, width): projected queries, followed by keys and values unless `memory` (M,
        width) has those.
        """
        out = queries.new_empty(len(queries), spec.heads * spec.head_width)
        log_sum_exp = queries.new_empty(spec.heads, len(queries))
        self._attention(
            byref(spec._structure()),
            *map(byref, spec._split(queries, memory)),
            byref(_Projection.of(out)),
            log_sum_exp.data_ptr(),
            len(queries),
            thread_count(),
        )
        return out, log_sum_exp

    def attention_backward(
        self,
        spec: AttentionSpec,
        queries: Tensor,
        memory: Tensor | None,
        out: Tensor,
        log_sum_exp: Tensor,
        grad_out: Tensor,
    ) -> tuple[Tensor, Tensor | None, Tensor | None, Tensor | None]:
        """The gradients of queries, memory and the two gains from that of `attention`'s result.

        Every row of queries and memory must belong to a sequence.
        """
        grad_queries = torch.empty_like(queries)
        grad_memory = None if memory is None else torch.empty_like(memory)
        grad_q_gain = None if spec.q_gain is None else torch.zeros_like(spec.q_gain)
        grad_k_gain = None if spec.k_gain is None else torch.zeros_like(spec.k_gain)
        self._attention_backward(
            byref(spec._structure()),
            *map(byref, spec._split(queries, memory)),
            byref(_Projection.of(out)),
            log_sum_exp.data_ptr(),
            byref(_Projection.of(grad_out)),
            *map(byref, spec._split(grad_queries, grad_memory)),
            pointer(grad_q_gain),
            pointer(grad_k_gain),
            len(queries),
            thread_count(),
        )
        return grad_queries, grad_memory, grad_q_gain, grad_k_gain


@cache
def training_kernels() -> TrainingKernels:
    """The library of this machine; compiles it now if it is not cached."""
    from qkv.kernels.build import compile_library

    return TrainingKernels(compile_library("training", SOURCES))
