"""Attention masks: a description of which query may attend to which key, and biases on scores.

One convention everywhere: True = may attend. Masks compose with `&`:

    Mask.causal() & Mask.padding(lengths) & Mask.bias(table)

A mask is made dense only for one `Tile` of the score matrix at a time. The reference kernel uses a
single tile for all scores; the fused kernel uses a few rows at a time, or no tile at all, so that
no T×S matrix ever exists.
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

    Query t has key position t + offset. The offset is S − T, so the last query is aligned with the
    last key, as a KV cache requires: T new queries follow S − T cached keys.
    """

    queries: range
    keys: range
    offset: int
    device: torch.device

    @classmethod
    def full(cls, T: int, S: int, device: torch.device) -> Tile:
        """The tile of all T queries and all S keys."""
        return cls(range(T), range(S), S - T, device)

    def rows(self) -> Tensor:
        """The key position of each query, (t, 1)."""
        start = self.queries.start + self.offset
        stop = self.queries.stop + self.offset
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
    """One condition or one bias; what its methods return broadcasts to (B, H, t, s)."""

    # Whether the part depends only on the distance from query to key. Such a part applies
    # unchanged to each of several packed texts, wherever in the row it begins.
    relative: ClassVar[bool] = False

    def allowed(self, tile: Tile) -> Tensor | None:
        """True where the query may attend; None where all of the tile may."""
        return None

    def bias(self, tile: Tile) -> Tensor | None:
        """Finite numbers to add to the scaled scores of the tile, or None for no bias."""
        return None

    def key_range(self, tile: Tile) -> range:
        """A contiguous range with every key that a query of the tile may attend to."""
        return tile.keys

    def per_query(self) -> bool:
        """Whether queries may have different masks; if not, one row serves all of them."""
        return True

    def needs_grad(self) -> bool:
        """Whether the bias needs a gradient, which torch's fused kernel does not compute."""
        return False

    def check(self, sizes: dict[str, int]) -> None:
        """Raise a MaskError if this part does not fit these sizes B, H, T and S."""


@dataclass(frozen=True)
class Mask:
    """A query attends to a key if all parts allow it; the biases of the parts add up."""

    parts: tuple[MaskPart, ...] = ()

    @staticmethod
    def full() -> Mask:
        """Every query attends to every key."""
        return Mask()

    @staticmethod
    def causal() -> Mask:
        """A query attends to its own position and to those before it."""
        return Mask((Causal(),))

    @staticmethod
    def window(before: int, after: int = 0) -> Mask:
        """A query attends to its own position, `before` keys before it and `after` after it.

        Sliding-window attention (Beltagy et al. 2020, "Longformer").
        """
        return Mask((Window(before, after),))

    @staticmethod
    def padding(lengths: Tensor) -> Mask:
        """In row b only the first lengths[b] keys are tokens, the rest is padding; lengths (B,)."""
        return Mask((Padding(torch.as_tensor(lengths)),))

    @staticmethod
    def query_lengths(lengths: Tensor) -> Mask:
        """In row b the outputs from position lengths[b] on are unused; lengths (B,).

        It masks nothing, but a kernel may skip those queries.
        """
        return Mask((QueryLengths(torch.as_tensor(lengths)),))

    @staticmethod
    def documents(ids: Tensor, key_ids: Tensor | None = None) -> Mask:
        """A query attends to keys of its own document; ids (B, T) number the documents of a row.

        key_ids (B, S) are needed only where the keys are not the queries' own positions.
        """
        if key_ids is None:
            key_ids = ids
        return Mask((Documents(ids, key_ids),))

    @staticmethod
    def packed(lengths: Sequence[int]) -> Mask:
        """Texts of these lengths are concatenated in a single row and attend to themselves.

        The same as `documents` with B = 1, but the lengths let a kernel compute text by text.
        """
        return Mask((Packed(tuple(lengths)),))

    @staticmethod
    def explicit(allowed: Tensor) -> Mask:
        """Exactly this boolean tensor, (T, S) or (B, H, T, S); axes of size 1 broadcast.

        The backward pass may read it again, so do not modify it in place before that.
        """
        return Mask((Explicit(allowed),))

    @staticmethod
    def bias(values: Tensor) -> Mask:
        """Finite numbers added to the scaled scores, (T, S) or (B, H, T, S)."""
        return Mask((Bias(values),))

    def __and__(self, other: Mask) -> Mask:
        if not isinstance(other, Mask):
            raise MaskError(f"a Mask composes with a Mask, not with a {type(other).__name__}")
        # The full mask has no parts, so the result is the other operand.
        if not other.parts:
            return self
        if not self.parts:
            return other
        return Mask(self.parts + other.parts)

    def per_query(self) -> bool:
        """Whether queries may have different masks."""
        return any(part.per_query() for part in self.parts)

    def only_causal(self) -> bool:
        """Whether this is the causal mask, for which torch's kernel needs no tensor."""
        conditions = [part for part in self.parts if not isinstance(part, QueryLengths)]
        return bool(conditions) and all(isinstance(part, Causal) for part in conditions)

    def packing(self) -> tuple[Packed, Mask] | None:
        """The packed texts and the mask within each; None if texts cannot be computed alone."""
        packed = [part for part in self.parts if isinstance(part, Packed)]
        if len(packed) != 1:
            return None
        others = tuple(part for part in self.parts if not isinstance(part, Packed))
        if not all(part.relative for part in others):
            return None
        return packed[0], Mask(others)

    def needs_grad(self) -> bool:
        """Whether a bias needs a gradient in the current grad mode."""
        return torch.is_grad_enabled() and any(part.needs_grad() for part in self.parts)

    def check(self, sizes: dict[str, int]) -> None:
        """Raise a MaskError if a part does not fit these sizes B, H, T and S."""
        for part in self.parts:
            part.check(sizes)

    def key_range(self, tile: Tile) -> range:
        """The range of keys outside which every score of the tile is masked; may be empty."""
        start = tile.keys.start
        stop = tile.keys.stop
        for part in self.parts:
            keys = part.key_range(tile)
            start = max(start, keys.start)
            stop = min(stop, keys.stop)
        return range(start, max(start, stop))

    def allowed_in(self, tile: Tile) -> Tensor | None:
        """True where a query of the tile may attend; None where nothing is masked."""
        result: Tensor | None = None
        for part in self.parts:
            allowed = part.allowed(tile)
            if allowed is None:
                continue
            if result is None:
                result = allowed
            else:
                result = result & allowed
        return result

    def bias_in(self, tile: Tile) -> Tensor | None:
        """The sum of all biases on the scaled scores of the tile, or None."""
        total: Tensor | None = None
        for part in self.parts:
            bias = part.bias(tile)
            if bias is None:
                continue
            if total is None:
                total = bias
            else:
                total = total + bias
        return total

    def dense(self, T: int, S: int, device: torch.device | str = "cpu") -> Tensor:
        """The mask as a boolean tensor, (T, S) or (B, H, T, S); for display and tests."""
        tile = Tile.full(T, S, torch.device(device))
        full = torch.ones(T, S, dtype=torch.bool, device=tile.device)
        allowed = self.allowed_in(tile)
        if allowed is None:
            return full
        return full & allowed


FULL_MASK = Mask.full()


@dataclass(frozen=True)
class Causal(MaskPart):
    """No key after the query's own position."""

    relative: ClassVar[bool] = True

    def allowed(self, tile: Tile) -> Tensor | None:
        # The first query already reaches the last key: a decoding step needs no mask.
        if tile.queries.start + tile.offset >= tile.keys.stop - 1:
            return None
        return tile.columns() <= tile.rows()

    def key_range(self, tile: Tile) -> range:
        # With fewer keys than queries the offset is negative, and the first queries reach no key.
        stop = max(0, tile.queries.stop + tile.offset)
        return range(tile.keys.start, min(tile.keys.stop, stop))


@dataclass(frozen=True)
class Window(MaskPart):
    """Only keys within a distance of the query."""

    relative: ClassVar[bool] = True

    before: int
    after: int

    def __post_init__(self) -> None:
        if self.before < 0 or self.after < 0:
            raise MaskError(
                f"before={self.before}, after={self.after} must not be negative: "
                f"a window counts keys before and after its query"
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
    """Nothing is masked; outputs beyond these lengths are unused."""

    lengths: Tensor

    def per_query(self) -> bool:
        return False

    def check(self, sizes: dict[str, int]) -> None:
        fit_axes("query lengths have", self.lengths, "B", sizes)


@dataclass(frozen=True, eq=False)
class Documents(MaskPart):
    """Only keys of the query's own document."""

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
    """Only keys of the query's own text, where texts are concatenated in one row."""

    lengths: tuple[int, ...]

    def runs(self) -> Iterator[tuple[int, int]]:
        """(count, length) of each run of neighbouring texts of equal length; no empty texts."""
        for length, run in groupby(filter(None, self.lengths)):
            yield len(list(run)), length

    def allowed(self, tile: Tile) -> Tensor | None:
        numbers = torch.arange(len(self.lengths), device=tile.device)
        lengths = torch.tensor(self.lengths, device=tile.device)
        text_ids = numbers.repeat_interleave(lengths)  # (T,)
        return text_ids[tile.rows()] == text_ids[tile.columns()]  # (t, s)

    def check(self, sizes: dict[str, int]) -> None:
        total = sum(self.lengths)
        if (sizes["B"], sizes["T"], sizes["S"]) != (1, total, total):
            raise MaskError(
                f"packed texts of {total} positions in all need B=1, T={total}, S={total}, "
                f"but there are B={sizes['B']}, T={sizes['T']}, S={sizes['S']}"
            )


@dataclass(frozen=True, eq=False)
class Explicit(MaskPart):
    """A boolean tensor made by the caller."""

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
        fit_axes("the explicit mask has", self.grid, _score_axes(self.grid), sizes, broadcast=True)


@dataclass(frozen=True, eq=False)
class Bias(MaskPart):
    """Numbers to add to the scaled scores, made by the caller."""

    values: Tensor

    def __post_init__(self) -> None:
        # −∞ would mask keys that `allowed` reports as visible.
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
        fit_axes("the bias has", self.values, _score_axes(self.values), sizes, broadcast=True)


def _score_axes(tensor: Tensor) -> str:
    """The axes of a tensor that broadcasts against scores."""
    if tensor.dim() == 2:
        return "TS"
    return "BHTS"


def fit_axes(
    subject: str, tensor: Tensor, axes: str, sizes: dict[str, int], broadcast: bool = False
) -> None:
    """Raise a MaskError unless each axis has its size, or 1 where the tensor may broadcast."""
    expected = tuple(sizes[axis] for axis in axes)
    fits = tensor.dim() == len(expected)
    if fits:
        for actual, size in zip(tensor.shape, expected, strict=True):
            if actual != size and not (broadcast and actual == 1):
                fits = False
    if not fits:
        hint = ""
        if broadcast:
            hint = ", or 1 for an axis to broadcast"
        raise MaskError(
            f"{subject} shape {tuple(tensor.shape)} but this attention needs "
            f"({', '.join(axes)}) = {expected}{hint}"
        )
