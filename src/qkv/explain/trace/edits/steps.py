"""A step of attention changed on its way through the tap; the later ones follow from it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from qkv.attention import Steps, soft_cap, softmax
from qkv.attention.reference import scale_factor
from qkv.explain.trace.edits.edit import hooked
from qkv.explain.trace.node import Node
from qkv.model import Mix

Change = Callable[[Tensor], Tensor]
ORDER = ("scores", "scaled", "capped", "masked", "weights", "output")


@contextmanager
def changed_step(model: nn.Module, node: Node, change: Change) -> Iterator[None]:
    """Inside, the step is changed at the node's call of its attention."""
    pick = node.pick
    assert pick is not None
    mix = model.get_submodule(pick.module)
    assert isinstance(mix, Mix)
    seen: list[tuple[Tensor, Tensor]] = []  # queries and values of each call

    def look(module: nn.Module, arguments: tuple[Any, ...]) -> None:
        seen.append((arguments[0], arguments[2]))

    def hook(module: nn.Module, arguments: tuple[Any, ...], steps: Steps) -> Steps | None:
        if len(seen) - 1 != pick.call:
            return None
        q, v = seen[-1]
        factor = scale_factor(q.shape[-1], mix.scale)
        return followed(steps, pick.which, change, factor, mix.cap, v)

    hooks = [mix.register_forward_pre_hook(look), mix.steps.register_forward_hook(hook)]
    with hooked(hooks):
        yield


def followed(
    steps: Steps, name: str, change: Change, factor: float, cap: float | None, v: Tensor
) -> Steps:
    """The steps before the changed one as they were, those after it computed from it."""
    hidden = steps.masked == -torch.inf
    added = (steps.masked - steps.capped).masked_fill(hidden, 0.0)
    group = steps.weights.shape[1] // v.shape[1]
    computed: dict[str, Change] = {
        "scaled": lambda scores: scores * factor,
        "capped": lambda scaled: scaled if cap is None else soft_cap(scaled, cap),
        "masked": lambda capped: (capped + added).masked_fill(hidden, -torch.inf),
        "weights": softmax,
        "output": lambda weights: weights @ v.repeat_interleave(group, dim=1),
    }
    new = {step: getattr(steps, step) for step in ORDER}
    new[name] = last = change(new[name])
    for step in ORDER[ORDER.index(name) + 1 :]:
        new[step] = last = computed[step](last)
    return Steps(**new)
