"""R-Drop: two passes with other dropout should give the same answer (Wu et al. 2021)."""

import torch
from torch import Tensor


def twice(tensor: Tensor | None) -> Tensor | None:
    """The same rows again below, so that one pass of the model makes both answers."""
    return None if tensor is None else torch.cat((tensor, tensor))


def disagreement(one: Tensor, other: Tensor) -> Tensor:
    """The mean of both Kullback–Leibler divergences between two rows of scores, (N, V) -> (N,)."""
    p, q = one.float().log_softmax(dim=-1), other.float().log_softmax(dim=-1)
    return ((p.exp() - q.exp()) * (p - q)).sum(dim=-1) / 2
