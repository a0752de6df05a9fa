"""Who may look at whom: a mask is a description, and kernels ask it for the part they need.

One convention everywhere: True = may attend. Masks compose with `&`:

    Mask.causal() & Mask.padding(lengths) & Mask.bias(table)

A kernel asks about one `Tile` of the score matrix at a time. The reference kernel asks for the
whole matrix; the fused kernel asks for a strip at a time, or for nothing at all, so that no
T×S matrix ever exists.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import ClassVar

import torch
from torch import Tensor

from qkv.errors import MaskError


@dataclass(frozen=True)
class Tile:
    """A rectangle of the score matrix: some queries against some keys.

    Query t stands at key position t + offset. The offset is S − T, so the last query always
    meets the last key; that is what a cache needs, where T new queries follow S − T old keys.
    """

    queries: range
    keys: range
    offset: int
    device: torch.device

    @classmethod
    def full(cls, T: int, S: int, device: torch.device) -> Tile:
        return cls(range(T), range(S), S - T, device)

    def rows(self) -> Tensor:
        """The key position each query stands at, (t, 1)."""
        start, stop = self.queries.start + self.offset, self.queries.stop + self.offset
        return torch.arange(start, stop, device=self.device)[:, None]

    def columns(self) -> Tensor:
        """The position of each key, (1, s)."""
        return torch.arange(self.keys.start, self.keys.stop, device=self.device)[None, :]

    def crop(self, matrix: Tensor) -> Tensor:
        """This rectangle of a (..., T, S) tensor; an axis of size 1 stays as it is."""
        if matrix.shape[-2] > 1:
            matrix = matrix[..., self.queries.start : self.queries.stop, :]
        if matrix.shape[-1] > 1:
            matrix = matrix[..., self.keys.start : self.keys.stop]
        return matrix


class MaskPart:
    """One reason to look or not to look; what it answers broadcasts to (B, H, t, s)."""

    relative: ClassVar[bool] = False  # it goes by the distance from query to key alone

    def allowed(self, tile: Tile) -> Tensor | None:
        """True where the query may attend; None where all of the tile may."""
        return None

    def bias(self, tile: Tile) -> Tensor | None:
        """A finite number to add to each scaled score; None for no addition."""
        return None

    def key_range(self, tile: Tile) -> range:
        """The keys these queries could see at all, as one run."""
        return tile.keys

    def per_query(self) -> bool:
        """Whether queries get answers of their own; if not, T never matters."""
        return True

    def needs_grad(self) -> bool:
        """Whether the bias takes a gradient, which torch's fused kernel cannot give."""
        return False

    def check(self, sizes: dict[str, int]) -> None:
        """Raise a MaskError if this part was made for other B, H, T or S."""


@dataclass(frozen=True)
class Mask:
    """All its parts must allow a key for a query to see it; their biases add up."""

    parts: tuple[MaskPart, ...] = ()

    @staticmethod
    def full() -> Mask:
        """Every query sees every key."""
        return Mask()

    @staticmethod
    def causal() -> Mask:
        """A query sees its own position and what comes before it."""
        return Mask((Causal(),))

    @staticmethod
    def window(before: int, after: int = 0) -> Mask:
        """A query sees its own position, `before` keys before it and `after` keys after it."""
        return Mask((Window(before, after),))

    @staticmethod
    def padding(lengths: Tensor) -> Mask:
        """In row b only the first lengths[b] keys are real; lengths (B,)."""
        return Mask((Padding(torch.as_tensor(lengths)),))

    @staticmethod
    def query_lengths(lengths: Tensor) -> Mask:
        """In row b nobody reads what comes out behind position lengths[b]; lengths (B,).

        It hides nothing; a kernel may leave those positions out.
        """
        return Mask((QueryLengths(torch.as_tensor(lengths)),))

    @staticmethod
    def documents(ids: Tensor, key_ids: Tensor | None = None) -> Mask:
        """Packed texts do not see each other; ids (B, T) number the text at each position.

        key_ids (B, S) are needed only where the keys are not the queries' own positions.
        """
        return Mask((Documents(ids, ids if key_ids is None else key_ids),))

    @staticmethod
    def packed(lengths: Sequence[int]) -> Mask:
        """Texts of these lengths stand one after the other in a single row and see themselves.

        It is `documents` for B = 1, with numbers a kernel can go by: each text on its own.
        """
        return Mask((Packed(tuple(lengths)),))

    @staticmethod
    def explicit(seen: Tensor) -> Mask:
        """Exactly this boolean grid, (T, S) or (B, H, T, S) with axes of size 1 where shared.

        The backward pass may look at it again: leave it unchanged until then.
        """
        return Mask((Explicit(seen),))

    @staticmethod
    def bias(values: Tensor) -> Mask:
        """Finite numbers added to the scaled scores, (T, S) or (B, H, T, S)."""
        return Mask((Bias(values),))

    def __and__(self, other: Mask) -> Mask:
        if not isinstance(other, Mask):
            raise MaskError(f"a Mask composes with a Mask, not with a {type(other).__name__}")
        if not (self.parts and other.parts):
            return self if self.parts else other
        return Mask(self.parts + other.parts)

    def per_query(self) -> bool:
        return any(part.per_query() for part in self.parts)

    def only_causal(self) -> bool:
        hiding = [part for part in self.parts if not isinstance(part, QueryLengths)]
        return bool(hiding) and all(isinstance(part, Causal) for part in hiding)

    def packing(self) -> tuple[Packed, Mask] | None:
        """The packed texts and what each of them sees of itself, if it may be asked alone."""
        packed = [part for part in self.parts if isinstance(part, Packed)]
        if len(packed) != 1:
            return None
        others = tuple(part for part in self.parts if not isinstance(part, Packed))
        if not all(part.relative for part in others):
            return None
        return packed[0], Mask(others)

    def needs_grad(self) -> bool:
        return torch.is_grad_enabled() and any(part.needs_grad() for part in self.parts)

    def check(self, sizes: dict[str, int]) -> None:
        for part in self.parts:
            part.check(sizes)

    def key_range(self, tile: Tile) -> range:
        """The run of keys outside which these queries see nothing; may be empty."""
        runs = [part.key_range(tile) for part in self.parts] or [tile.keys]
        start = max(run.start for run in runs)
        return range(start, max(start, min(run.stop for run in runs)))

    def allowed_in(self, tile: Tile) -> Tensor | None:
        """The boolean grid of the tile, or None where every query sees every key of it."""
        seen: Tensor | None = None
        for part in self.parts:
            grid = part.allowed(tile)
            if grid is not None:
                seen = grid if seen is None else seen & grid
        return seen

    def bias_in(self, tile: Tile) -> Tensor | None:
        """What is added to the scaled scores of the tile, or None."""
        total: Tensor | None = None
        for part in self.parts:
            bias = part.bias(tile)
            if bias is not None:
                total = bias if total is None else total + bias
        return total

    def dense(self, T: int, S: int, device: torch.device | str = "cpu") -> Tensor:
        """The whole grid, for people and tests: bool, broadcastable to (B, H, T, S)."""
        tile = Tile.full(T, S, torch.device(device))
        seen = self.allowed_in(tile)
        everything = torch.ones(T, S, dtype=torch.bool, device=tile.device)
        return everything if seen is None else everything & seen


FULL_MASK = Mask.full()


@dataclass(frozen=True)
class Causal(MaskPart):
    """No key after the query's own position."""

    relative: ClassVar[bool] = True

    def allowed(self, tile: Tile) -> Tensor | None:
        if tile.queries.start + tile.offset >= tile.keys.stop - 1:
            return None
        return tile.columns() <= tile.rows()

    def key_range(self, tile: Tile) -> range:
        return range(tile.keys.start, min(tile.keys.stop, max(0, tile.queries.stop + tile.offset)))


@dataclass(frozen=True)
class Window(MaskPart):
    """Only keys near the query."""

    relative: ClassVar[bool] = True

    before: int
    after: int

    def __post_init__(self) -> None:
        if self.before < 0 or self.after < 0:
            raise MaskError(
                f"a window reaches a number of keys before and after its query; "
                f"before={self.before}, after={self.after} must not be negative"
            )

    def allowed(self, tile: Tile) -> Tensor | None:
        distance = tile.columns() - tile.rows()
        return (distance >= -self.before) & (distance <= self.after)

    def key_range(self, tile: Tile) -> range:
        start = max(tile.keys.start, tile.queries.start + tile.offset - self.before)
        stop = min(tile.keys.stop, max(0, tile.queries.stop + tile.offset + self.after))
        return range(start, max(start, stop))


@dataclass(frozen=True, eq=False)
class Padding(MaskPart):
    """Only the first keys of each row."""

    lengths: Tensor

    def per_query(self) -> bool:
        return False

    def allowed(self, tile: Tile) -> Tensor | None:
        lengths = self.lengths.to(tile.device)[:, None, None, None]
        return tile.columns() < lengths  # (B, 1, 1, s)

    def check(self, sizes: dict[str, int]) -> None:
        fit_axes("key lengths have", self.lengths, "B", sizes)


@dataclass(frozen=True, eq=False)
class QueryLengths(MaskPart):
    """Nothing is hidden, but what comes out behind these lengths is not read."""

    lengths: Tensor

    def per_query(self) -> bool:
        return False

    def check(self, sizes: dict[str, int]) -> None:
        fit_axes("the lengths that are read have", self.lengths, "B", sizes)


@dataclass(frozen=True, eq=False)
class Documents(MaskPart):
    """Only keys of the query's own text."""

    query_ids: Tensor
    key_ids: Tensor

    def allowed(self, tile: Tile) -> Tensor | None:
        rows = self.query_ids[:, tile.queries.start : tile.queries.stop].to(tile.device)
        columns = self.key_ids[:, tile.keys.start : tile.keys.stop].to(tile.device)
        return (rows[:, :, None] == columns[:, None, :])[:, None]  # (B, 1, t, s)

    def check(self, sizes: dict[str, int]) -> None:
        fit_axes("document ids of the queries have", self.query_ids, "BT", sizes)
        fit_axes("document ids of the keys have", self.key_ids, "BS", sizes)


@dataclass(frozen=True)
class Packed(MaskPart):
    """Only keys of the query's own text, where texts stand one after the other in one row."""

    lengths: tuple[int, ...]

    def runs(self) -> Iterator[tuple[int, int]]:
        """How many neighbours have the same length, and that length; empty texts left out."""
        for length, equal in groupby(length for length in self.lengths if length):
            yield len(list(equal)), length

    def allowed(self, tile: Tile) -> Tensor | None:
        places = torch.arange(len(self.lengths), device=tile.device)
        text = places.repeat_interleave(torch.tensor(self.lengths, device=tile.device))  # (T,)
        rows, columns = text[tile.rows()], text[tile.columns()]
        return rows == columns  # (t, s)

    def check(self, sizes: dict[str, int]) -> None:
        total = sum(self.lengths)
        if (sizes["B"], sizes["T"], sizes["S"]) != (1, total, total):
            raise MaskError(
                f"packed texts of {total} positions in all need one row of as many queries and "
                f"keys, but there are B={sizes['B']}, T={sizes['T']}, S={sizes['S']}"
            )


@dataclass(frozen=True, eq=False)
class Explicit(MaskPart):
    """A grid of booleans, as given."""

    grid: Tensor

    def __post_init__(self) -> None:
        if self.grid.dtype != torch.bool:
            raise MaskError(
                f"an explicit mask holds booleans, True = may attend, but this one holds "
                f"{self.grid.dtype}; compare first, or use Mask.bias for numbers to add"
            )

    def per_query(self) -> bool:
        return self.grid.shape[-2] > 1

    def allowed(self, tile: Tile) -> Tensor | None:
        return tile.crop(self.grid.to(tile.device))

    def check(self, sizes: dict[str, int]) -> None:
        axes = "TS" if self.grid.dim() == 2 else "BHTS"
        fit_axes("the explicit mask has", self.grid, axes, sizes, shared=True)


@dataclass(frozen=True, eq=False)
class Bias(MaskPart):
    """Numbers to add, as given."""

    values: Tensor

    def __post_init__(self) -> None:
        if not self.values.is_meta and not bool(torch.isfinite(self.values).all()):
            raise MaskError(
                "a bias adds finite numbers but this one holds NaN or infinity; "
                "to hide a key use Mask.explicit, where False hides it"
            )

    def per_query(self) -> bool:
        return self.values.shape[-2] > 1

    def bias(self, tile: Tile) -> Tensor | None:
        return tile.crop(self.values.to(tile.device))

    def needs_grad(self) -> bool:
        return self.values.requires_grad

    def check(self, sizes: dict[str, int]) -> None:
        axes = "TS" if self.values.dim() == 2 else "BHTS"
        fit_axes("the bias has", self.values, axes, sizes, shared=True)


def fit_axes(
    what: str, given: Tensor, axes: str, sizes: dict[str, int], shared: bool = False
) -> None:
    """Each axis has its size; where axes may be shared, 1 fits any."""
    wanted = tuple(sizes[axis] for axis in axes)
    free = (1,) if shared else ()
    if given.dim() != len(wanted) or any(
        size not in (want, *free) for size, want in zip(given.shape, wanted, strict=True)
    ):
        raise MaskError(
            f"{what} shape {tuple(given.shape)} but this attention needs "
            f"({', '.join(axes)}) = {wanted}" + (", 1 for an axis that is shared" * shared)
        )
