"""Activations changed by tensors: activation patching, steering vectors, zero and mean ablation.

    other = model.trace("The Colosseum is in the city of")
    patch = PatchActivation("decoder.3", other, positions=[2])
    model.trace("The Eiffel Tower is in the city of", edits=[patch])

Activation patching: Vig et al. 2020, "Investigating gender bias in language models using causal
mediation analysis"; Meng et al. 2022, "Locating and editing factual associations in GPT".
Steering vectors: Turner et al. 2023, "Activation addition".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn

from qkv.errors import UsageError
from qkv.interpret.trace.edits import Edit, change_value
from qkv.interpret.trace.graph import Graph, Node
from qkv.interpret.trace.trace import Trace

Indices = int | Sequence[int] | None  # None is all

Selection = list[tuple[int, Tensor]]  # an axis and the indices along it

POSITION_AXES = ("T", "S")
HEAD_AXES = ("H", "K")


@dataclass(frozen=True, eq=False)
class ChangeActivation(Edit):
    """A named activation is changed; subclasses override `new_values`.

    positions: where; all by default, −1 is the last. Of scores and weights they are the queries.
    heads: of an activation that has heads; all by default.
    """

    name: str
    positions: Indices = field(default=None, kw_only=True)
    heads: Indices = field(default=None, kw_only=True)

    def overrides(self) -> tuple[str, ...]:
        return (self.name,)

    @contextmanager
    def applied(self, model: nn.Module, graph: Graph) -> Iterator[None]:
        node = graph[self.name]
        if self._is_empty():
            yield
            return

        def change(tensor: Tensor) -> Tensor:
            selection = self.selection(node, tensor)
            return _change_at(tensor, selection, lambda part: self._fit(node, tensor, part))

        with change_value(model, node, change):
            yield

    def new_values(self, node: Node, tensor: Tensor, part: Tensor) -> Tensor:
        """What the selected part of the activation becomes; it may be broadcast to its shape."""
        raise NotImplementedError

    def selection(self, node: Node, tensor: Tensor) -> Selection:
        """The axes and indices that the edit changes."""
        selection = []
        for axes, indices, what in (
            (POSITION_AXES, self.positions, "position"),
            (HEAD_AXES, self.heads, "head"),
        ):
            if indices is not None:
                axis = _axis_of(node, axes, what)
                selection.append((axis, _indices(node.name, tensor, axis, indices, what)))
        return selection

    def _fit(self, node: Node, tensor: Tensor, part: Tensor) -> Tensor:
        values = self.new_values(node, tensor, part).to(part)  # device and dtype
        try:
            return values.expand_as(part)
        except RuntimeError:
            raise UsageError(
                f"a tensor of shape {tuple(values.shape)} does not fit: {node.name} has shape "
                f"{tuple(part.shape)} there"
            ) from None

    def _is_empty(self) -> bool:
        """Whether no position or no head is named, so that nothing changes."""
        chosen = [each for each in (self.positions, self.heads) if isinstance(each, Sequence)]
        return not all(map(len, chosen))

    def _where(self) -> str:
        parts = [self.name]
        for word, indices in (("position", self.positions), ("head", self.heads)):
            if indices is None:
                continue
            numbers = [indices] if isinstance(indices, int) else list(indices)
            plural = "" if len(numbers) == 1 else "s"
            parts.append(f"{word}{plural} {', '.join(map(str, numbers)) or 'none'}")
        return ", ".join(parts)


@dataclass(frozen=True, eq=False)
class PatchActivation(ChangeActivation):
    """Activation patching: the value comes from another trace, or is a tensor.

    source: a trace that has captured the activation; or a tensor of the activation's whole shape,
    with or without the batch axis; or one that can be broadcast to the selected positions and
    heads. source_positions: in the other trace; by default the same as here.
    """

    source: Trace | ArrayLike
    source_positions: Indices = field(default=None, kw_only=True)

    def __str__(self) -> str:
        if isinstance(self.source, Trace):
            return f"{self._where()} from “{_text_of(self.source)}”"
        return f"{self._where()} replaced"

    def new_values(self, node: Node, tensor: Tensor, part: Tensor) -> Tensor:
        if isinstance(self.source, Trace):
            return self._from_trace(node, tensor, self.source)
        if self.source_positions is not None:
            raise UsageError("source_positions are positions of another trace; pass one as source")
        value = to_tensor(self.source)
        if value.shape not in (tensor.shape, tensor.shape[1:]):
            return value
        return _take(value.expand(tensor.shape), self.selection(node, tensor))

    def _from_trace(self, node: Node, tensor: Tensor, source: Trace) -> Tensor:
        value = source[node.name]
        if source.query_rows(node.name) is not None:
            raise UsageError(f"the other trace has {node.name} of some queries only; trace all")
        if self.positions is None and self.source_positions is None:
            for axis, name in enumerate(node.axes):
                if name in POSITION_AXES and value.shape[axis] != tensor.shape[axis]:
                    raise UsageError(
                        f"the other text has {value.shape[axis]} tokens and this one "
                        f"{tensor.shape[axis]}; name positions, and source_positions where they "
                        "differ"
                    )
        selection = []
        positions = self.positions if self.source_positions is None else self.source_positions
        if positions is not None:
            axis = _axis_of(node, POSITION_AXES, "position")
            selection.append((axis, _indices(node.name, value, axis, positions, "position")))
        if self.heads is not None:
            axis = _axis_of(node, HEAD_AXES, "head")
            selection.append((axis, _indices(node.name, value, axis, self.heads, "head")))
        return _take(value, selection)


@dataclass(frozen=True, eq=False)
class AddSteeringVector(ChangeActivation):
    """A vector is added to the activation, `strength` times.

    vector: for every position, or one for each of the positions; such as the difference of two
    traces' activations.
    """

    vector: ArrayLike
    strength: float = 1.0

    def __str__(self) -> str:
        return f"{self._where()} + {self.strength:g} × vector"

    def new_values(self, node: Node, tensor: Tensor, part: Tensor) -> Tensor:
        return part + self.strength * to_tensor(self.vector).to(part)


@dataclass(frozen=True, eq=False)
class ZeroAblate(ChangeActivation):
    """Zero ablation: the activation is 0."""

    def __str__(self) -> str:
        return f"{self._where()} = 0"

    def new_values(self, node: Node, tensor: Tensor, part: Tensor) -> Tensor:
        return torch.zeros_like(part)


@dataclass(frozen=True, eq=False)
class MeanAblate(ChangeActivation):
    """Mean ablation: the activation is its mean over positions.

    traces: whose positions are averaged; by default those of the same pass.
    """

    traces: Sequence[Trace] = ()

    def __str__(self) -> str:
        texts = f" of {len(self.traces)} texts" if self.traces else ""
        return f"{self._where()} = mean{texts}"

    def new_values(self, node: Node, tensor: Tensor, part: Tensor) -> Tensor:
        axis = _axis_of(node, POSITION_AXES, "position")
        values = [trace[node.name] for trace in self.traces] or [tensor]
        try:
            mean = torch.cat(values, dim=axis).mean(dim=axis, keepdim=True)
        except RuntimeError:
            raise UsageError(
                f"{node.name} cannot be averaged over these traces: its shapes differ"
            ) from None
        selection = self.selection(node, tensor)
        return _take(mean, [(where, indices) for where, indices in selection if where != axis])


def to_tensor(value: ArrayLike) -> Tensor:
    """A tensor, NumPy array, list or number as a tensor."""
    if isinstance(value, Tensor):
        return value
    return torch.from_numpy(np.asarray(value, dtype=np.float32))


def _axis_of(node: Node, names: Sequence[str], what: str) -> int:
    """The first of these axes that the node has."""
    for name in names:
        if name in node.axes:
            return node.axes.index(name)
    raise UsageError(f"{node.name} has no {what}s to choose among: its axes are {node.axes}")


def _indices(
    name: str, tensor: Tensor, axis: int, indices: int | Sequence[int], what: str
) -> Tensor:
    """Indices counted from the front; negative ones count from the end."""
    size = tensor.shape[axis]
    numbers = [indices] if isinstance(indices, int) else list(indices)
    for number in numbers:
        if not -size <= number < size:
            raise UsageError(f"{what} {number} does not exist; {name} has {what}s 0 to {size - 1}")
    return torch.tensor([number % size for number in numbers], dtype=torch.long)


def _take(tensor: Tensor, selection: Selection) -> Tensor:
    for axis, indices in selection:
        tensor = tensor.index_select(axis, indices.to(tensor.device))
    return tensor


def _change_at(tensor: Tensor, selection: Selection, change: Callable[[Tensor], Tensor]) -> Tensor:
    """A copy of the tensor in which the selected part is changed."""
    if not selection:
        return change(tensor).clone()
    (axis, indices), *rest = selection
    indices = indices.to(tensor.device)
    part = _change_at(tensor.index_select(axis, indices), rest, change)
    return tensor.index_copy(axis, indices, part)


def _text_of(trace: Trace) -> str:
    """The text that was read."""
    return trace.metadata.get("text") or " ".join(next(iter(trace.tokens.values()), ()))
