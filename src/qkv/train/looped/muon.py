"""Muon's steps through compiled products, of which half are symmetric and half computed."""

from collections.abc import Iterable

import torch
from torch import Tensor

from qkv.native.learning import passes
from qkv.train.muon import QUINTIC, Muon


def loop_muon(optimisers: Iterable[torch.optim.Optimizer]) -> None:
    """Let those of them that are Muon go through the passes."""
    for optimiser in optimisers:
        if isinstance(optimiser, Muon) and passes().quick_turns:
            optimiser.turn = orthogonal


def orthogonal(matrices: Tensor, steps: int) -> Tensor:
    """`qkv.train.muon.orthogonal`, sooner."""
    return passes().orthogonal(matrices.contiguous(), QUINTIC, steps)
