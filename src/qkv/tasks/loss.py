"""Cross-entropy as a sum, to be divided once by the number of real targets.

`scored_cross_entropy` never holds the scores of all positions: a large vocabulary costs memory for
one chunk of positions at a time. It computes its gradient along with the loss.
"""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from qkv.model.output import LazyLogits, LossAndGrads
from qkv.shapes import expect

# FOLDED task/r_drop: R-Drop: two passes with other dropout should give the same answer (Wu
#   et al. 2021).

Judge = Callable[[Tensor, Tensor, float], tuple[Tensor, Tensor]]

"""Of scores (N, V), targets (N,) and a smoothing: the summed loss, and its slope by the scores."""


def twice(tensor: Tensor | None) -> Tensor | None:
    """The same rows again below, so that one pass of the model makes both answers."""
    return None if tensor is None else torch.cat((tensor, tensor))


def side_by_side(answers: Tensor) -> Tensor:
    """Of two answers one below the other, (2·N, …), both to each question as neighbours."""
    return torch.stack(answers.chunk(2), dim=1).flatten(0, 1)


def disagreement(one: Tensor, other: Tensor) -> Tensor:
    """The mean of both Kullback–Leibler divergences between two rows of scores, (N, V) -> (N,)."""
    p, q = one.float().log_softmax(dim=-1), other.float().log_softmax(dim=-1)
    return ((p.exp() - q.exp()) * (p - q)).sum(dim=-1) / 2


def agreeing(price: float) -> Judge:
    """Judges scores whose neighbouring rows are two answers to one question: the mean of their
    losses, and the price times their disagreement.
    """

    def judge(scores: Tensor, targets: Tensor, label_smoothing: float) -> tuple[Tensor, Tensor]:
        logs = scores.log_softmax(dim=-1)  # (2·N, V)
        chosen = targets[:, None]
        loss = (label_smoothing - 1.0) * logs.gather(1, chosen).sum()
        loss = (loss - label_smoothing * logs.mean(dim=-1).sum()) / 2
        pairs = (len(scores) // 2, 2, -1)
        p, q = logs.view(pairs).unbind(1)  # (N, V)
        apart, shares = p - q, logs.exp()
        P, Q = shares.view(pairs).unbind(1)
        to_one, to_other = ((each * apart).sum(dim=-1, keepdim=True) for each in (P, Q))  # (N, 1)
        loss = loss + price * (to_one - to_other).sum() / 2
        # The slope of Σ (P − Q)·(p − q) by the scores behind p is P·(p − q − Σ P·(p − q)) + P − Q,
        # and that of both losses P − wanted and Q − wanted; all are halved.
        slope, more = torch.empty_like(scores), P - Q
        one, other = slope.view(pairs).unbind(1)
        torch.sub(apart, to_one, out=one).mul_(P).add_(more)
        torch.sub(to_other, apart, out=other).mul_(Q).sub_(more)
        slope.mul_(price).add_(shares).sub_(label_smoothing / scores.shape[-1])
        slope.scatter_add_(1, chosen, slope.new_full((len(slope), 1), label_smoothing - 1.0))
        return loss, slope.div_(2)

    return judge


IGNORED = -100  # a target that is not real

CHUNK = 4_000_000  # scores held at a time


def cross_entropy(scores: Tensor, targets: Tensor, label_smoothing: float = 0.0) -> Tensor:
    """Σ −log p(target) over the real targets, in float32.

    scores (N, V), targets (N,) with IGNORED where there is none -> a single number. With smoothing
    s a target asks for 1 − s of the probability and every token for s/V of it.
    """
    expect(scores=(scores, "N V"), targets=(targets, "N"))
    return F.cross_entropy(
        scores.float(),
        targets,
        ignore_index=IGNORED,
        reduction="sum",
        label_smoothing=label_smoothing,
    )


def scored_cross_entropy(
    factors: LazyLogits,
    targets: Tensor,
    label_smoothing: float = 0.0,
    chunk: int | None = None,
    r_drop: float = 0.0,
) -> Tensor:
    """`cross_entropy(factors.scores(), targets)` without ever holding all scores.

    states (N, D), table (V, D), bias (V,), targets (N,) -> a single number. `chunk` is the number
    of positions scored at a time, by default an even number of about as many as CHUNK scores.
    r_drop: if not 0, neighbouring rows are two answers to one target, and it is `agreeing` with
    that price which is given.
    """
    states, table, bias, cap, quicker = factors
    expect(states=(states, "N D"), table=(table, "V D"), targets=(targets, "N"))
    rows = max(2, CHUNK // len(table) // 2 * 2) if chunk is None else chunk
    real = targets != IGNORED
    if not real.all():
        states, targets = states[real], targets[real]
    if not torch.is_grad_enabled():
        parts = (slice(start, start + rows) for start in range(0, len(states), rows))
        losses = [
            agreeing(r_drop)(scores.float(), targets[p], label_smoothing)[0]
            if r_drop
            else cross_entropy(scores, targets[p], label_smoothing)
            for p, scores in ((p, factors._replace(states=states[p]).logits()) for p in parts)
        ]
        return torch.stack(losses).sum() if losses else states.new_zeros(())

    def made(given: LazyLogits) -> LossAndGrads:
        if quicker is not None:
            return quicker(given, targets, label_smoothing, r_drop)
        judge = agreeing(r_drop) if r_drop else _loss_and_slope
        return _in_parts(given, targets, label_smoothing, rows, judge)

    total: Tensor = _Scored.apply(states, table, bias, cap, made)  # type: ignore[no-untyped-call]
    return total


class _Scored(torch.autograd.Function):
    """Forward makes loss and slopes; backward only scales them."""

    @staticmethod
    def forward(
        context: Any,
        states: Tensor,
        table: Tensor,
        bias: Tensor | None,
        cap: float | None,
        made: Callable[[LazyLogits], LossAndGrads],
    ) -> Tensor:
        total, *slopes = made(LazyLogits(states, table, bias, cap))
        context.save_for_backward(*slopes)
        return total

    @staticmethod
    def backward(context: Any, *upstream: Tensor) -> tuple[Tensor | None, ...]:
        slopes = context.saved_tensors
        return *(None if slope is None else slope * upstream[0] for slope in slopes), None, None


def _in_parts(
    factors: LazyLogits, targets: Tensor, label_smoothing: float, rows: int, judge: Judge
) -> LossAndGrads:
    """The loss and its slopes, so many rows at a time."""
    states, table, bias, cap, _ = factors
    total = torch.zeros((), dtype=torch.float32, device=states.device)
    to_states, to_table = torch.empty_like(states), torch.zeros_like(table)
    to_bias = None if bias is None else torch.zeros_like(bias)
    for start in range(0, len(states), rows):
        part = slice(start, start + rows)
        scores = factors._replace(states=states[part]).logits().float()  # (rows, V)
        loss, slope = judge(scores, targets[part], label_smoothing)
        if cap is not None:  # the slope of cap·tanh(x ÷ cap) is 1 − tanh²
            slope *= 1.0 - (scores / cap) ** 2
        total += loss
        slope = slope.to(states.dtype)
        torch.matmul(slope, table, out=to_states[part])
        to_table.addmm_(slope.T, states[part])
        if to_bias is not None:
            to_bias += slope.sum(dim=0)
    return total, to_states, to_table, to_bias


def _loss_and_slope(
    scores: Tensor, targets: Tensor, label_smoothing: float
) -> tuple[Tensor, Tensor]:
    """The summed loss of one chunk and its derivative by the scores."""
    chosen = targets[:, None]
    shares = scores.log_softmax(dim=-1)  # (rows, V)
    loss = -(1.0 - label_smoothing) * shares.gather(1, chosen).sum()
    if label_smoothing:
        loss = loss - label_smoothing * shares.mean(dim=-1).sum()
    slope = shares.exp_()
    if label_smoothing:
        slope -= label_smoothing / scores.shape[-1]
    slope.scatter_add_(1, chosen, slope.new_full((len(slope), 1), label_smoothing - 1.0))
    return loss, slope
