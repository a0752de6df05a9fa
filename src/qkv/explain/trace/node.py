"""One named value of a forward pass: what made it, from what, and where it can be picked up."""

from dataclasses import dataclass, field
from typing import Literal

from qkv.explain.trace.operation import Given, Operation

Axes = tuple[str, ...]


@dataclass(frozen=True)
class Pick:
    """Where a value shows up: at the so-many-th call of a module, in one of these places.

    A module that several layers share is called once for each of them.
    """

    module: str  # its path in the model
    call: int = 0
    place: Literal["result", "argument", "step", "mask", "rotation"] = "result"
    which: str = "0"  # which argument, which step of attention, which side of a mask or rotation


@dataclass(frozen=True)
class Node:
    """A value by name. Inputs are other nodes or parameters of the model.

    along: the sequence an axis of positions runs along, as in {"T": "target", "S": "source"}.
    """

    name: str
    operation: Operation
    inputs: tuple[str, ...] = ()
    axes: Axes = ()
    along: dict[str, str] = field(default_factory=dict)
    pick: Pick | None = None  # None for what is given, and for what follows from other nodes

    @property
    def title(self) -> str:
        """The last part of its name."""
        return self.name.rpartition(".")[2].replace("_", " ")

    @property
    def equation(self) -> str:
        return self.operation.equation

    @property
    def latex(self) -> str:
        return self.operation.latex

    @property
    def given(self) -> bool:
        return isinstance(self.operation, Given)

    @property
    def by_row(self) -> bool:
        """Whether it can be had for some queries alone."""
        return self.pick is not None and self.pick.place in ("step", "mask")
