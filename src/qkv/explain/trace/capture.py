"""Values picked up while a model computes, by hooks that are there for one pass only.

The fused kernel answers as always. Where the steps between are asked for, they are computed beside
it from the same queries, keys, values and mask: all of them, or those of some queries alone.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from qkv.attention import Mask, Steps, Tile
from qkv.attention.reference import steps_in
from qkv.explain.trace.node import Node, Pick
from qkv.model import View
from qkv.model.attention import Mix

Values = dict[str, Tensor]
STEPS = tuple(part.name for part in fields(Steps))


@contextmanager
def capturing(
    model: nn.Module, nodes: Iterable[Node], rows: Mapping[str, tuple[int, ...]]
) -> Iterator[Values]:
    """Inside, what passes these nodes is put into the values given; rows as in `Trace`."""
    wanted: dict[str, dict[int, list[Node]]] = defaultdict(lambda: defaultdict(list))
    for node in nodes:
        if node.pick is not None:
            wanted[node.pick.module][node.pick.call].append(node)
    values: Values = {}
    handles: list[RemovableHandle] = []
    try:
        for path, calls in wanted.items():
            module = model.get_submodule(path)
            hook = _Hook(calls, values, rows)
            handles.append(module.register_forward_hook(hook))
            if isinstance(module, Mix) and module.steps.watched:  # an edit changes the steps
                handles.append(module.steps.register_forward_hook(hook.see))
        yield values
    finally:
        for handle in handles:
            handle.remove()


class _Hook:
    """Picks the asked values of one module, call after call."""

    def __init__(
        self,
        calls: dict[int, list[Node]],
        values: Values,
        rows: Mapping[str, tuple[int, ...]],
    ) -> None:
        self.calls, self.values, self.rows, self.call = calls, values, rows, 0
        self.edited: Steps | None = None

    def see(self, tap: nn.Module, arguments: tuple[Any, ...], steps: Steps) -> None:
        """The steps as an edit left them."""
        self.edited = steps

    def __call__(self, module: nn.Module, arguments: tuple[Any, ...], result: Tensor) -> None:
        nodes, self.call = self.calls.get(self.call, []), self.call + 1
        stepwise = [node for node in nodes if node.by_row]
        if stepwise:
            assert isinstance(module, Mix)
            q, k, v, mask = arguments
            rows = self.rows.get(stepwise[0].along["T"])
            steps, seen, bias = _explicit(module, q, k, v, mask, rows, self.edited)
        for node in nodes:
            assert node.pick is not None
            value = (
                _explicit_part(node.pick, steps, seen, bias)
                if node.by_row
                else _picked(node.pick, arguments, result)
            )
            self.values[node.name] = value.detach()


def _picked(pick: Pick, arguments: tuple[Any, ...], result: Tensor) -> Tensor:
    if pick.place == "result":
        return result
    value = arguments[int(pick.which)] if pick.place == "argument" else _turning(arguments, pick)
    assert isinstance(value, Tensor)
    return value


def _turning(arguments: tuple[Any, ...], pick: Pick) -> Any:
    view = arguments[1]
    assert isinstance(view, View)
    return getattr(view.rotation, pick.which)


def _explicit_part(pick: Pick, steps: Steps, seen: Tensor, bias: Tensor) -> Tensor:
    if pick.place == "mask":
        return seen if pick.which == "seen" else bias
    step: Tensor = getattr(steps, pick.which)
    return step


def _explicit(
    module: Mix,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Mask,
    rows: Sequence[int] | None,
    edited: Steps | None,
) -> tuple[Steps, Tensor, Tensor]:
    """Every step of the asked queries, with what they see and what is added to their scores."""
    T, S = q.shape[2], k.shape[2]
    spans = [range(T)] if rows is None else [range(row, row + 1) for row in rows]
    tiles = [Tile(span, range(S), S - T, q.device) for span in spans]
    found = [
        _cut(edited, tile.queries)
        if edited is not None
        else steps_in(_of(q, tile.queries), k, v, mask, tile, module.scale, module.cap)
        for tile in tiles
    ]
    steps = Steps(*(_together([getattr(one, name) for one in found], dim=2) for name in STEPS))
    seen = _together([_grid(mask.seen_in, tile, True) for tile in tiles], dim=-2)
    bias = _together([_grid(mask.bias_in, tile, 0.0) for tile in tiles], dim=-2)
    return steps, seen, bias


def _cut(steps: Steps, queries: range) -> Steps:
    return Steps(*(_of(getattr(steps, name), queries) for name in STEPS))


def _of(tensor: Tensor, queries: range) -> Tensor:
    """Those queries of (B, H, T, …)."""
    return tensor[:, :, queries.start : queries.stop]


def _grid(ask: Callable[[Tile], Tensor | None], tile: Tile, usual: bool | float) -> Tensor:
    """What a mask says of a tile, at its full size."""
    size = (len(tile.queries), len(tile.keys))
    found, filled = ask(tile), torch.full(size, usual, device=tile.device)
    return filled if found is None else found.expand(*found.shape[:-2], *size)


def _together(parts: list[Tensor], dim: int) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(parts, dim=dim)
