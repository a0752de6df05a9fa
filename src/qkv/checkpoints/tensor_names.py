"""Which public tensor becomes which of ours: a table a layout, read in both directions.

    "encoder.{i}.attention.query": "encoder.layer.{i}.attention.self.query"

A row names a parameter, or a module whose weight and bias go the same way; {i} is a layer. Where
the two sides are not stored alike, the right side says how: `Turned` matrices are transposed,
`Flat` vectors are matrices of one row there, and `Joined` ones stand in one tensor there and in
several here.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from qkv.errors import ConfigError

LAYER = re.compile(r"^(encoder|decoder)\.(\d+)\.")
Sizes = Mapping[str, torch.Size]


@dataclass(frozen=True)
class Same:
    """One tensor, as it is."""

    what: ClassVar[str] = "as they are"
    changed: ClassVar[bool] = False  # whether ours is stored otherwise than theirs

    theirs: str
    ours: tuple[str, ...] = ()

    def shape(self, sizes: Sizes) -> tuple[int, ...]:
        """Of theirs, given those of ours."""
        return tuple(sizes[self.ours[0]])

    def take(self, whole: Tensor, sizes: Sizes) -> dict[str, Tensor]:
        """Ours, made of theirs; perhaps as views of it."""
        return {self.ours[0]: whole}

    def give(self, weights: Mapping[str, Tensor]) -> Tensor:
        """Theirs, made of ours."""
        return weights[self.ours[0]]


@dataclass(frozen=True)
class Turned(Same):
    """A matrix stored inputs first, where ours has outputs first."""

    what = "transposed"
    changed = True

    def shape(self, sizes: Sizes) -> tuple[int, ...]:
        return super().shape(sizes)[::-1]

    def take(self, whole: Tensor, sizes: Sizes) -> dict[str, Tensor]:
        return {self.ours[0]: whole.t()}

    def give(self, weights: Mapping[str, Tensor]) -> Tensor:
        return weights[self.ours[0]].t().contiguous()


@dataclass(frozen=True)
class Flat(Same):
    """A vector stored as a matrix of one row."""

    what = "flattened"
    changed = True

    def shape(self, sizes: Sizes) -> tuple[int, ...]:
        return (1, *super().shape(sizes))

    def take(self, whole: Tensor, sizes: Sizes) -> dict[str, Tensor]:
        return {self.ours[0]: whole.squeeze(0)}

    def give(self, weights: Mapping[str, Tensor]) -> Tensor:
        return weights[self.ours[0]].unsqueeze(0)


@dataclass(frozen=True)
class Joined(Same):
    """Several of ours, rows below rows; `heads`: the rows of each head stand together.

    Turned as well, their matrix has its inputs first.
    """

    what = "taken apart"
    changed = True

    turned: bool = False
    heads: int = 1

    def shape(self, sizes: Sizes) -> tuple[int, ...]:
        rows, *columns = sum(sizes[name][0] for name in self.ours), *sizes[self.ours[0]][1:]
        if self.turned:
            return (*columns, rows)
        return (rows, *columns)

    def take(self, whole: Tensor, sizes: Sizes) -> dict[str, Tensor]:
        whole = whole.t() if self.turned else whole  # of a vector the vector
        by_head = whole.reshape(self.heads, -1, *whole.shape[1:])
        rows = [sizes[name][0] // self.heads for name in self.ours]
        parts = torch.split(by_head, rows, dim=1)
        return {
            name: part.reshape(sizes[name]) for name, part in zip(self.ours, parts, strict=True)
        }

    def give(self, weights: Mapping[str, Tensor]) -> Tensor:
        parts = [weights[name] for name in self.ours]
        by_head = [part.reshape(self.heads, -1, *part.shape[1:]) for part in parts]
        whole = torch.cat(by_head, dim=1).flatten(0, 1)
        if self.turned:
            return whole.t().contiguous()
        return whole


Table = dict[str | tuple[str, ...], str | Same]


def rows(table: Table, parameters: Iterable[str]) -> list[Same]:
    """One row for each public tensor that these parameters are made of, layers written out.

    The first row of the table that fits a parameter, or its module, is taken.
    """
    found: dict[str, Same] = {}
    for name in parameters:
        row = _row(table, name)
        if row.theirs not in found:
            found[row.theirs] = row
    return list(found.values())


def _row(table: Table, name: str) -> Same:
    """The row of that parameter: by its own name, or by that of its module."""
    layer = LAYER.search(name)
    if layer is None:
        general = name
    else:
        general = LAYER.sub(r"\1.{i}.", name)
    number = "" if layer is None else layer[2]
    module, _, leaf = general.rpartition(".")
    for key, right in table.items():
        members = (key,) if isinstance(key, str) else key
        for wanted, ending in ((general, ""), (module, f".{leaf}")):
            if wanted in members:
                if isinstance(right, str):
                    how = Same(right)
                else:
                    how = right
                if isinstance(how, Turned) and leaf == "bias":  # a vector has nothing to turn
                    how = Same(how.theirs)
                ours = tuple(f"{one}{ending}".replace("{i}", number) for one in members)
                theirs = f"{how.theirs}{ending}".replace("{i}", number)
                return replace(how, theirs=theirs, ours=ours)
    raise ConfigError(f"this layout has no place for {name}")
