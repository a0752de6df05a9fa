"""R-Drop: two passes with other dropout should give the same answer (Wu et al. 2021)."""

from collections.abc import Callable

import torch
from torch import Tensor

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

    def judge(scores: Tensor, targets: Tensor, smoothing: float) -> tuple[Tensor, Tensor]:
        logs = scores.log_softmax(dim=-1)  # (2·N, V)
        chosen = targets[:, None]
        loss = (smoothing - 1.0) * logs.gather(1, chosen).sum()
        loss = (loss - smoothing * logs.mean(dim=-1).sum()) / 2
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
        slope.mul_(price).add_(shares).sub_(smoothing / scores.shape[-1])
        slope.scatter_add_(1, chosen, slope.new_full((len(slope), 1), smoothing - 1.0))
        return loss, slope.div_(2)

    return judge
