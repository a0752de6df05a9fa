"""Cross-entropy as a sum, to be divided once by the number of targets, and R-Drop.

`fused_cross_entropy` multiplies states with the output embedding chunk by chunk and computes the
gradient along with the loss, so the logits of all positions never exist at once: a large vocabulary
costs memory for one chunk only.
"""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from qkv.model import LazyLogits, LossAndGrads
from qkv.shapes import expect

IGNORED = -100  # a target that is not real, as in PyTorch

MAX_CHUNK_LOGITS = 4_000_000

# (logits (N, V), targets (N,), label smoothing) -> the summed loss, and its gradient (N, V)
LossAndGrad = Callable[[Tensor, Tensor, float], tuple[Tensor, Tensor]]


def cross_entropy(logits: Tensor, targets: Tensor, label_smoothing: float = 0.0) -> Tensor:
    """Σ −log p(target) over the real targets, in float32.

    logits (N, V), targets (N,) with IGNORED where there is none -> a scalar. With label smoothing
    s, the target distribution is 1 − s on the target plus s/V on every token.
    """
    expect(logits=(logits, "N V"), targets=(targets, "N"))
    return F.cross_entropy(
        logits.float(),
        targets,
        ignore_index=IGNORED,
        reduction="sum",
        label_smoothing=label_smoothing,
    )


def fused_cross_entropy(
    lazy: LazyLogits,
    targets: Tensor,
    label_smoothing: float = 0.0,
    chunk: int | None = None,
    r_drop: float = 0.0,
) -> Tensor:
    """`cross_entropy(lazy.logits(), targets)` without holding all logits.

    states (N, D), table (V, D), bias (V,), targets (N,) -> a scalar. `chunk` is the number of
    positions computed at a time, by default an even number of about MAX_CHUNK_LOGITS logits.
    With r_drop > 0, rows 2i and 2i + 1 are two forward passes for one target; see `r_drop_loss`.
    """
    states = lazy.states
    expect(states=(states, "N D"), table=(lazy.table, "V D"), targets=(targets, "N"))
    if chunk is None:
        # Even, so that both passes of a target are in the same chunk.
        chunk = max(2, MAX_CHUNK_LOGITS // len(lazy.table) // 2 * 2)
    real = targets != IGNORED
    if not real.all():
        states = states[real]
        targets = targets[real]
        lazy = lazy._replace(states=states)
    if not torch.is_grad_enabled():
        return _loss_only(lazy, targets, label_smoothing, chunk, r_drop)

    def loss_and_grads(detached: LazyLogits) -> LossAndGrads:
        if lazy.fused_loss is not None:
            return lazy.fused_loss(detached, targets, label_smoothing, r_drop)
        loss_and_grad = r_drop_loss(r_drop) if r_drop else _cross_entropy_and_grad
        return _chunked(detached, targets, label_smoothing, chunk, loss_and_grad)

    loss: Tensor = _FusedCrossEntropy.apply(  # type: ignore[no-untyped-call]
        states, lazy.table, lazy.bias, lazy.cap, loss_and_grads
    )
    return loss


class _FusedCrossEntropy(torch.autograd.Function):
    """Forward computes the loss and all gradients; backward only scales them."""

    @staticmethod
    def forward(
        context: Any,
        states: Tensor,
        table: Tensor,
        bias: Tensor | None,
        cap: float | None,
        loss_and_grads: Callable[[LazyLogits], LossAndGrads],
    ) -> Tensor:
        loss, *grads = loss_and_grads(LazyLogits(states, table, bias, cap))
        context.save_for_backward(*grads)
        return loss

    @staticmethod
    def backward(context: Any, *grad_outputs: Tensor) -> tuple[Tensor | None, ...]:
        grads = []
        for grad in context.saved_tensors:
            grads.append(None if grad is None else grad * grad_outputs[0])
        return *grads, None, None


def _loss_only(
    lazy: LazyLogits, targets: Tensor, label_smoothing: float, chunk: int, r_drop: float
) -> Tensor:
    losses = []
    for start in range(0, len(targets), chunk):
        rows = slice(start, start + chunk)
        logits = lazy._replace(states=lazy.states[rows]).logits()
        if r_drop:
            loss, _ = r_drop_loss(r_drop)(logits.float(), targets[rows], label_smoothing)
        else:
            loss = cross_entropy(logits, targets[rows], label_smoothing)
        losses.append(loss)
    if not losses:
        return lazy.states.new_zeros(())
    return torch.stack(losses).sum()


def _chunked(
    lazy: LazyLogits,
    targets: Tensor,
    label_smoothing: float,
    chunk: int,
    loss_and_grad: LossAndGrad,
) -> LossAndGrads:
    """The loss and its gradients with respect to states, table and bias."""
    states = lazy.states
    table = lazy.table
    total = torch.zeros((), dtype=torch.float32, device=states.device)
    grad_states = torch.empty_like(states)
    grad_table = torch.zeros_like(table)
    grad_bias = None if lazy.bias is None else torch.zeros_like(lazy.bias)
    for start in range(0, len(states), chunk):
        rows = slice(start, start + chunk)
        logits = lazy._replace(states=states[rows]).logits().float()  # (rows, V)
        loss, grad = loss_and_grad(logits, targets[rows], label_smoothing)
        if lazy.cap is not None:  # the derivative of cap·tanh(x ÷ cap) is 1 − tanh²
            grad *= 1.0 - (logits / lazy.cap) ** 2
        total += loss
        grad = grad.to(states.dtype)
        torch.matmul(grad, table, out=grad_states[rows])
        grad_table.addmm_(grad.T, states[rows])
        if grad_bias is not None:
            grad_bias += grad.sum(dim=0)
    return total, grad_states, grad_table, grad_bias


def _cross_entropy_and_grad(
    logits: Tensor, targets: Tensor, label_smoothing: float
) -> tuple[Tensor, Tensor]:
    """The summed loss of one chunk, and softmax − target distribution."""
    targets = targets[:, None]
    log_probs = logits.log_softmax(dim=-1)  # (rows, V)
    loss = -(1.0 - label_smoothing) * log_probs.gather(1, targets).sum()
    if label_smoothing:
        loss = loss - label_smoothing * log_probs.mean(dim=-1).sum()
    grad = log_probs.exp_()  # softmax, in the memory of log_probs
    if label_smoothing:
        grad -= label_smoothing / logits.shape[-1]
    grad.scatter_add_(1, targets, grad.new_full((len(grad), 1), label_smoothing - 1.0))
    return loss, grad


def duplicate(tensor: Tensor | None) -> Tensor | None:
    """The rows twice, for two passes with different dropout in one forward."""
    if tensor is None:
        return None
    return torch.cat((tensor, tensor))


def interleave(outputs: Tensor) -> Tensor:
    """Of two passes one after the other (2·N, …), those of each example as neighbours."""
    return torch.stack(outputs.chunk(2), dim=1).flatten(0, 1)


def symmetric_kl(logits_1: Tensor, logits_2: Tensor) -> Tensor:
    """The mean of both Kullback–Leibler divergences between two rows, (N, V) -> (N,)."""
    log_p = logits_1.float().log_softmax(dim=-1)
    log_q = logits_2.float().log_softmax(dim=-1)
    return ((log_p.exp() - log_q.exp()) * (log_p - log_q)).sum(dim=-1) / 2


def r_drop_loss(weight: float) -> LossAndGrad:
    """R-Drop (Wu et al. 2021): the mean loss of two passes plus weight × their symmetric KL.

    Neighbouring rows of the logits are the two passes for one target.
    """

    def loss_and_grad(
        logits: Tensor, targets: Tensor, label_smoothing: float
    ) -> tuple[Tensor, Tensor]:
        log_probs = logits.log_softmax(dim=-1)  # (2·N, V)
        targets = targets[:, None]
        loss = (label_smoothing - 1.0) * log_probs.gather(1, targets).sum()
        loss = (loss - label_smoothing * log_probs.mean(dim=-1).sum()) / 2
        pairs = (len(logits) // 2, 2, -1)
        log_p, log_q = log_probs.view(pairs).unbind(1)  # (N, V)
        log_ratio = log_p - log_q
        probs = log_probs.exp()
        p, q = probs.view(pairs).unbind(1)
        kl_p = (p * log_ratio).sum(dim=-1, keepdim=True)  # (N, 1)
        kl_q = (q * log_ratio).sum(dim=-1, keepdim=True)
        loss = loss + weight * (kl_p - kl_q).sum() / 2
        # The gradient of Σ (p − q)·(log p − log q) by the logits of p is
        # p·(log p − log q − Σ p·(log p − log q)) + p − q, and that of both losses is
        # p − target and q − target; all are halved.
        grad = torch.empty_like(logits)
        difference = p - q
        grad_p, grad_q = grad.view(pairs).unbind(1)
        torch.sub(log_ratio, kl_p, out=grad_p).mul_(p).add_(difference)
        torch.sub(kl_q, log_ratio, out=grad_q).mul_(q).sub_(difference)
        grad.mul_(weight).add_(probs).sub_(label_smoothing / logits.shape[-1])
        grad.scatter_add_(1, targets, grad.new_full((len(grad), 1), label_smoothing - 1.0))
        return loss, grad.div_(2)

    return loss_and_grad
