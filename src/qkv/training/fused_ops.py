"""Autograd functions whose forward and backward passes are compiled kernels.

Each equals a few torch operations; its docstring lists what it saves for the backward pass. Dropout
masks are not saved: they are a function of their seed.
"""

from typing import Any

import torch
from torch import Tensor

from qkv.kernels import LANES, AttentionSpec, DropoutMask, training_kernels
from qkv.model import LazyLogits, LossAndGrads, TiedLogits, UntiedLogits


def linear(x: Tensor, weights: list[Tensor], biases: list[Tensor | None]) -> Tensor:
    """x·Wᵀ + b for several matrices in one product: (…, D) -> (…, all their rows)."""
    if len(weights) == 1:
        weight = weights[0]
        bias = biases[0]
    else:
        weight = torch.cat(weights)
        bias = _stack_biases(weights, biases)
    rows = x.reshape(-1, x.shape[-1])
    out: Tensor = _Linear.apply(rows, weight, bias)  # type: ignore[no-untyped-call]
    return out.view(*x.shape[:-1], -1)


def layer_norm(x: Tensor, gain: Tensor, shift: Tensor | None, eps: float) -> Tensor:
    """LayerNorm over the last axis; saves x and two numbers per row."""
    out: Tensor = _LayerNorm.apply(x, gain, shift, eps)  # type: ignore[no-untyped-call]
    return out


def dropout_add(x: Tensor, y: Tensor, mask: DropoutMask) -> Tensor:
    """x + dropout(y); saves nothing."""
    out: Tensor = _DropoutAdd.apply(x, y, mask)  # type: ignore[no-untyped-call]
    return out


def dropout(x: Tensor, mask: DropoutMask) -> Tensor:
    """dropout(x); saves nothing."""
    out: Tensor = _DropoutAdd.apply(None, x, mask)  # type: ignore[no-untyped-call]
    return out


def activation_dropout(x: Tensor, kind: int, mask: DropoutMask) -> Tensor:
    """dropout(activation(x)); saves x."""
    out: Tensor = _ActivationDropout.apply(x, kind, mask)  # type: ignore[no-untyped-call]
    return out


def varlen_attention(spec: AttentionSpec, queries: Tensor, memory: Tensor | None) -> Tensor:
    """Attention of projected queries, keys and values (N, …) -> (N, H·E); saves them, the result
    and a number per query and head.
    """
    out: Tensor = _VarlenAttention.apply(  # type: ignore[no-untyped-call]
        spec, queries, memory, spec.q_gain, spec.k_gain
    )
    return out


def matmul(a: Tensor, b: Tensor) -> Tensor:
    """a (M, K) · b (K, N), by the kernel where it is faster than torch."""
    kernels = training_kernels()
    if kernels.gemm_is_faster(a, b):
        return kernels.gemm(a, b)
    return a @ b


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        context.save_for_backward(x, weight)
        context.has_bias = bias is not None
        out = matmul(x, weight.mT)  # fresh, so the bias is added in place
        if bias is None:
            return out
        return out.add_(bias)

    @staticmethod
    def backward(context: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = context.saved_tensors
        grad_out = grads[0].contiguous()
        needs_x, needs_weight, _ = context.needs_input_grad
        grad_x = matmul(grad_out, weight) if needs_x else None
        grad_weight = matmul(grad_out.mT, x) if needs_weight else None
        grad_bias = grad_out.sum(dim=0) if context.has_bias else None
        return grad_x, grad_weight, grad_bias


class _LayerNorm(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, x: Tensor, gain: Tensor, shift: Tensor | None, eps: float) -> Tensor:
        x = x.contiguous()
        out, statistics = training_kernels().layer_norm(x, gain, shift, eps)
        context.save_for_backward(x, gain, statistics)
        context.has_shift = shift is not None
        return out

    @staticmethod
    def backward(context: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        x, gain, statistics = context.saved_tensors
        grad_out = grads[0].contiguous()
        return *training_kernels().layer_norm_backward(
            x, gain, statistics, grad_out, context.has_shift
        ), None


class _DropoutAdd(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, x: Tensor | None, y: Tensor, mask: DropoutMask) -> Tensor:
        context.mask = mask
        context.has_x = x is not None
        if x is not None:
            x = x.contiguous()
        return training_kernels().dropout_add(x, y.contiguous(), mask)

    @staticmethod
    def backward(context: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        grad_out = grads[0].contiguous()
        grad_y = grad_out
        if context.mask.threshold:
            grad_y = training_kernels().dropout_add(None, grad_out, context.mask)
        return grad_out if context.has_x else None, grad_y, None


class _ActivationDropout(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, x: Tensor, kind: int, mask: DropoutMask) -> Tensor:
        context.save_for_backward(x)
        context.kind = kind
        context.mask = mask
        return training_kernels().activation(x, kind, mask)

    @staticmethod
    def backward(context: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (x,) = context.saved_tensors
        grad_out = grads[0].contiguous()
        grad_x = training_kernels().activation_backward(x, grad_out, context.kind, context.mask)
        return grad_x, None, None


class _VarlenAttention(torch.autograd.Function):
    @staticmethod
    def forward(
        context: Any,
        spec: AttentionSpec,
        queries: Tensor,
        memory: Tensor | None,
        *gains: Tensor | None,  # of the spec: named here so that they get their gradients
    ) -> Tensor:
        out, log_sum_exp = training_kernels().attention(spec, queries, memory)
        context.save_for_backward(queries, memory, out, log_sum_exp)
        context.spec = spec
        return out

    @staticmethod
    def backward(context: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        queries, memory, out, log_sum_exp = context.saved_tensors
        grad_out = grads[0].contiguous()
        return None, *training_kernels().attention_backward(
            context.spec, queries, memory, out, log_sum_exp, grad_out
        )


def _stack_biases(weights: list[Tensor], biases: list[Tensor | None]) -> Tensor | None:
    """The biases of all matrices, zeros where one has none; None if no matrix has one."""
    if all(bias is None for bias in biases):
        return None
    stacked = list[Tensor]()
    for weight, bias in zip(weights, biases, strict=True):
        stacked.append(weight.new_zeros(len(weight)) if bias is None else bias)
    return torch.cat(stacked)


class FusedTiedLogits(TiedLogits):
    """Tied logits whose loss and gradients are computed together, a few rows at a time."""

    def lazy(self, states: Tensor, table: Tensor) -> LazyLogits:
        return _with_fused_loss(super().lazy(states, table))


class FusedUntiedLogits(UntiedLogits):
    """Untied logits whose loss and gradients are computed together, a few rows at a time."""

    def lazy(self, states: Tensor, table: Tensor) -> LazyLogits:
        return _with_fused_loss(super().lazy(states, table))


def _with_fused_loss(logits: LazyLogits) -> LazyLogits:
    """The logits with the kernel as their loss, if it supports them."""
    if logits.cap is not None or logits.table.shape[1] % LANES:
        return logits
    return logits._replace(fused_loss=cross_entropy)


def cross_entropy(
    logits: LazyLogits, targets: Tensor, smoothing: float, r_drop: float
) -> LossAndGrads:
    """The summed cross-entropy and its gradients; only the logits of a few rows exist at a time."""
    losses, grad_states, grad_table, grad_bias = training_kernels().cross_entropy(
        logits.states.contiguous(),
        logits.table.contiguous(),
        logits.bias,
        targets.contiguous(),
        smoothing,
        r_drop,
    )
    return losses.sum(), grad_states, grad_table, grad_bias
