"""One more token of one sequence, in as few operations as possible.

At batch size 1 a small model spends its time between the matrix products: each operation costs
microseconds whatever its size. So the commonest kind of decoder (Llama's: pre-norm with RMSNorm,
RoPE, a gated feed-forward) has a short path for a single token. `DecodeStepLayers` takes it with
about thirty torch operations per layer, half of what the general path needs;
`KernelDecodeStepLayers` computes all layers in one call of a compiled kernel. Numbers and cache are
those of the general path.
"""

from __future__ import annotations

import ctypes
import operator
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from qkv.attention import KVCache, LayerCache, Mask, NoRope, RopeRotation, scale_factor
from qkv.engine.optimized.fused import (
    FastRMSNorm,
    FusedGatedFeedForward,
    FusedQKVRopeAttention,
    PreNormBlock,
)
from qkv.engine.optimized.kernel_modules import (
    KernelLinear,
    KernelQuantizedLinear,
    activation_code,
    require_activation_code,
)
from qkv.engine.optimized.linear import DenseLinear
from qkv.engine.optimized.quantized import QuantizedLinear
from qkv.kernels import (
    DecoderLayer,
    DecoderShape,
    Matrix,
    RmsNorm,
    contiguous_float32,
    inference_kernels,
)
from qkv.model import Block, Layers, StepsHook
from qkv.model.position import RopePosition

MIN_CACHED_KEYS = 16  # with fewer, torch's attention kernel turns a NaN query into zeros
ROPE_TABLE_STEP = 256  # positions whose angles are computed at a time

RowLinear = DenseLinear | QuantizedLinear


class DecodeStepLayers(Layers):
    """The layers of a decoder, with a short path for a single token of a single sequence."""

    min_cached_keys: ClassVar[int] = MIN_CACHED_KEYS

    def forward(
        self,
        x: Tensor,
        mask: Mask,
        positions: Tensor | None = None,
        cache: KVCache | None = None,
        memory: Tensor | None = None,
        memory_mask: Mask | None = None,
    ) -> Tensor:
        if (
            cache is None
            or positions is not None
            or x.shape[:2] != (1, 1)
            or cache.length < self.min_cached_keys
            or type(cache.layers[0]) is not LayerCache
            or not mask.only_causal()
            or torch.is_grad_enabled()
            or any(hook_point.has_hooks for hook_point in self.hook_points)
        ):
            return super().forward(x, mask, positions, cache, memory, memory_mask)
        return self._decode(x.view(-1), cache).view(1, 1, -1)

    @cached_property
    def layer_steps(self) -> list[LayerStep]:
        """The parts of each layer, looked up once."""
        steps = [layer_step(block) for block in self.blocks()]
        return [step for step in steps if step is not None]

    @cached_property
    def hook_points(self) -> list[StepsHook]:
        """Where somebody may observe the steps of an attention, which the short path skips."""
        return [step.attention.core.hook_point for step in self.layer_steps]

    def _decode(self, x: Tensor, cache: KVCache) -> Tensor:
        """x (D,) through all layers and the final norm; appends its keys and values."""
        position = torch.tensor([cache.length], device=x.device)
        rotation = self.position.rope(position, x.dtype)
        for layer_cache, step in zip(cache.layers, self.layer_steps, strict=True):
            x = step.feed_forward(step.attend(x, layer_cache, rotation))
        normed: Tensor = self.norm_out(x)
        return normed


@dataclass(frozen=True)
class LayerStep:
    """One layer for one row: x + attention(norm(x)), then x + feed_forward(norm(x))."""

    attention: FusedQKVRopeAttention
    qkv: RowLinear
    attention_output: RowLinear
    attention_norm: FastRMSNorm
    activation: nn.Module
    gate_up: RowLinear
    down: RowLinear
    feed_forward_norm: FastRMSNorm

    def attend(self, x: Tensor, cache: LayerCache, rotation: RopeRotation | NoRope) -> Tensor:
        attention = self.attention
        H, K, _ = attention.heads
        projected = _norm_linear(self.attention_norm, x, self.qkv)
        qk, v = torch.split(projected, attention.qk_v_widths)
        # Queries and keys are neighbours in the projection, so one rotation serves both.
        qk = rotation.rotate(qk.view(H + K, -1))  # (H + K, E)
        k, v = cache.append(qk[H:].view(1, K, 1, -1), v.view(1, K, 1, -1))  # (1, K, S, E)
        q = qk[:H].view(1, H, 1, -1)
        out = scaled_dot_product_attention(q, k, v, scale=attention.core.scale, enable_gqa=H != K)
        return self.attention_output.matvec_add(x, out.view(-1))

    def feed_forward(self, x: Tensor) -> Tensor:
        gate, up = _norm_linear(self.feed_forward_norm, x, self.gate_up).chunk(2)
        return self.down.matvec_add(x, self.activation(gate).mul_(up))


def _norm_linear(norm: FastRMSNorm, x: Tensor, linear: RowLinear) -> Tensor:
    """linear(norm(x)); 1/rms is a Python float, and multiplies the product instead of x."""
    rstd = (float(torch.dot(x, x)) / len(x) + norm.eps) ** -0.5
    return linear.matvec(x * norm.gain, rstd)


def supports_decode_step(layers: Layers) -> bool:
    """Whether all parts are of the kinds that have the short path."""
    return (
        isinstance(layers.norm_in, nn.Identity)
        and isinstance(layers.widen, nn.Identity)
        and isinstance(layers.position, RopePosition)
        and len(layers.patterns) == 1
        and all(layer_step(block) is not None for block in layers.blocks())
    )


def layer_step(block: Block) -> LayerStep | None:
    """The layer for one row, if its parts are of the kinds that have the short path."""
    attention = block.attention
    feed_forward = block.feed_forward
    attention_norm = block.attention_in
    feed_forward_norm = block.feed_forward_in
    if not (
        isinstance(block, PreNormBlock)
        and isinstance(attention, FusedQKVRopeAttention)
        and attention.core.cap is None
        and attention.widths[1] == attention.widths[2]
        and isinstance(feed_forward, FusedGatedFeedForward)
        and isinstance(attention_norm, FastRMSNorm)
        and isinstance(feed_forward_norm, FastRMSNorm)
    ):
        return None
    return LayerStep(
        attention=attention,
        qkv=_row_linear(attention.project),
        attention_output=_row_linear(attention.output),
        attention_norm=attention_norm,
        activation=feed_forward.activation,
        gate_up=_row_linear(feed_forward.gate_up),
        down=_row_linear(feed_forward.down),
        feed_forward_norm=feed_forward_norm,
    )


def _row_linear(module: nn.Module) -> RowLinear:
    assert isinstance(module, RowLinear)
    return module


@dataclass(frozen=True)
class KernelState:
    """What the kernel needs for one sequence: layers that point to its cache."""

    layers: ctypes.Array[DecoderLayer]
    shape: DecoderShape
    tensors: list[Tensor]  # keeps alive what the layers point to
    workspace: Tensor

    @classmethod
    def of(
        cls, cache: KVCache, layers: ctypes.Array[DecoderLayer], shape: DecoderShape
    ) -> KernelState:
        layers = type(layers).from_buffer_copy(layers)
        for layer, layer_cache in zip(layers, cache.layers, strict=True):
            layer.keys = layer_cache.k.data_ptr()
            layer.values = layer_cache.v.data_ptr()
        shape = DecoderShape.from_buffer_copy(shape)
        shape.capacity = cache.layers[0].capacity
        workspace = inference_kernels().decode_workspace(shape)
        return cls(layers, shape, _cache_tensors(cache), workspace)

    def is_current(self, cache: KVCache) -> bool:
        """Whether the cache still has the tensors that the layers point to."""
        return all(map(operator.is_, self.tensors, _cache_tensors(cache)))


class KernelDecodeStepLayers(DecodeStepLayers):
    """The layers of a decoder; a single token of a single sequence is one call of a kernel."""

    min_cached_keys: ClassVar[int] = 0  # the kernel gives NaN for NaN, however few the keys

    def _decode(self, x: Tensor, cache: KVCache) -> Tensor:
        state = self._state(cache)
        position = cache.length
        if state is None or position == state.shape.capacity:
            return super()._decode(x, cache)  # which raises an error that explains
        x = x.clone()  # the kernel works in place, and x is the embedding's row
        rotation = self._rotation(position)
        inference_kernels().llama_decode(
            state.layers, state.shape, x, rotation.cos, rotation.sin, position, state.workspace
        )
        # The kernel has written the keys and values; only the lengths are left to do.
        for layer_cache in cache.layers:
            layer_cache.length += 1
        return x

    def _state(self, cache: KVCache) -> KernelState | None:
        """The state of this cache, one for each as several threads may decode; None if the cache
        has a layout the kernel does not read.
        """
        state = self.states.get(cache)
        # A cache that has grown or moved has other tensors: the pointers would dangle.
        if state is None or not state.is_current(cache):
            if not _has_kernel_layout(cache, self.shape, len(self.layer_steps)):
                return None
            state = KernelState.of(cache, self.kernel_layers, self.shape)
            self.states[cache] = state
        return state

    @cached_property
    def states(self) -> WeakKeyDictionary[KVCache, KernelState]:
        """By cache, for as long as that is in use."""
        return WeakKeyDictionary()

    @cached_property
    def kernel_layers(self) -> ctypes.Array[DecoderLayer]:
        """The layers as the kernel reads them; `layer_steps` keeps their tensors alive."""
        return (DecoderLayer * len(self.layer_steps))(*map(_kernel_layer, self.layer_steps))

    @cached_property
    def shape(self) -> DecoderShape:
        """Without the capacity, which each cache has its own."""
        step = self.layer_steps[0]
        assert isinstance(self.position, RopePosition)
        heads, kv_heads, _ = step.attention.heads
        head_width = step.attention.widths[0] // heads
        return DecoderShape(
            width=len(step.attention_norm.gain),
            heads=heads,
            kv_heads=kv_heads,
            head_width=head_width,
            feed_forward_width=_kernel_matrix(step.gate_up).rows // 2,
            rope_width=self.position.width,
            rope_interleaved=self.position.config.interleaved,
            activation=require_activation_code(step.activation),
            scale=scale_factor(head_width, step.attention.core.scale),
            final_norm=_kernel_norm(self.norm_out),
        )

    def _rotation(self, position: int) -> RopeRotation:
        """Cosines and sines of all positions up to this one and some more: (positions, R) each."""
        # In __dict__, as a tensor attribute of an nn.Module would move and be saved with it.
        rotation: RopeRotation | None = self.__dict__.get("rotation")
        if rotation is None or position >= len(rotation.cos):
            positions = torch.arange((position // ROPE_TABLE_STEP + 1) * ROPE_TABLE_STEP)
            angles = self.position.rope(positions, torch.float32)
            assert isinstance(angles, RopeRotation)
            rotation = RopeRotation(
                contiguous_float32(angles.cos.float()),
                contiguous_float32(angles.sin.float()),
                angles.interleaved,
            )
            self.__dict__["rotation"] = rotation
        return rotation


def supports_kernel_decode_step(layers: Layers) -> bool:
    """Whether the kernel has all that these layers, which have the short path, consist of."""
    if not isinstance(layers.norm_out, FastRMSNorm):
        return False
    steps = map(layer_step, layers.blocks())
    return all(step is not None and activation_code(step.activation) is not None for step in steps)


def _cache_tensors(cache: KVCache) -> list[Tensor]:
    return [t for layer_cache in cache.layers for t in (layer_cache.k, layer_cache.v)]


def _has_kernel_layout(cache: KVCache, shape: DecoderShape, layers: int) -> bool:
    """Whether it has keys and values of one sequence, contiguous and of the same size."""
    size = (1, shape.kv_heads, cache.layers[0].capacity, shape.head_width)
    return len(cache.layers) == layers and all(
        t.shape == size and t.dtype == torch.float32 and t.is_contiguous()
        for t in _cache_tensors(cache)
    )


def _kernel_layer(step: LayerStep) -> DecoderLayer:
    return DecoderLayer(
        attention_norm=_kernel_norm(step.attention_norm),
        feed_forward_norm=_kernel_norm(step.feed_forward_norm),
        qkv=_kernel_matrix(step.qkv),
        attention_output=_kernel_matrix(step.attention_output),
        gate_up=_kernel_matrix(step.gate_up),
        down=_kernel_matrix(step.down),
    )


def _kernel_norm(norm: nn.Module) -> RmsNorm:
    assert isinstance(norm, FastRMSNorm)
    return RmsNorm.of(norm.gain, norm.eps)


def _kernel_matrix(linear: RowLinear) -> Matrix:
    assert isinstance(linear, KernelLinear | KernelQuantizedLinear)
    return linear.matrix
