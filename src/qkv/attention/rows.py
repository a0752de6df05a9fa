"""A cache in which each row has a length of its own, for texts that come and go.

Rows end at the same column and begin wherever they must, so the newest key of every row stands in
the last column that is shown. A mask that counts distances between columns (a window, T5's
buckets, ALiBi) is therefore right for every row, and a new key is written for all rows at once.
What stands before a row's first key is hidden and always finite: a NaN would shine through.

A row that stays by itself is moved to the first column of a plain cache: then nothing is hidden,
and whatever is quick for one text is quick for it.
"""

from __future__ import annotations

import torch
from torch import Tensor

from qkv.attention.cache import KVCache, Slot
from qkv.attention.mask import Mask
from qkv.errors import CacheError

PATIENCE = 4  # passes of a row by itself before it is worth the copy to move it
BUCKET = 16  # keys are shown in multiples of this, so that kernels meet few different shapes


class RowSlot(Slot):
    """One layer's keys and values, of which some rows and columns are shown."""

    def __init__(self, k: Tensor, v: Tensor, length: int = 0) -> None:
        super().__init__(k, v, length)
        self.rows, self.first = 0, 0

    def append(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """What is shown, with k, v (B, K, T, E) as the last T keys of every row."""
        stop = self.length + k.shape[2]
        if len(k) != self.rows or stop > self.capacity:
            raise CacheError(
                f"the cache shows {self.rows} rows and has room up to column {self.capacity}, "
                f"but {len(k)} rows are to end at column {stop}; call show() before each pass"
            )
        self.k[: self.rows, :, self.length : stop] = k
        self.v[: self.rows, :, self.length : stop] = v
        self.length = stop
        shown = slice(self.first, stop)
        return self.k[: self.rows, :, shown], self.v[: self.rows, :, shown]


class Rows:
    """Rows that join, grow together by a key at a time, and leave; room follows their number."""

    def __init__(self, like: KVCache) -> None:
        """No row yet, of the same layers, heads and widths as that cache."""
        self.cache = KVCache([RowSlot(_room(s.k, 0, 0), _room(s.v, 0, 0)) for s in like.slots])
        self.lengths: list[int] = []
        self.alone = 0  # passes of a single row, since there were others

    def __len__(self) -> int:
        return len(self.lengths)

    @property
    def end(self) -> int:
        """The column behind every row's last key."""
        return self.cache.length

    def join(self, cache: KVCache, lengths: dict[int, int]) -> None:
        """Copy some rows of a cache, in which row b has its keys in the last lengths[b] columns."""
        deep = max(lengths.values())
        if deep > cache.length:
            raise CacheError(f"a row of {deep} keys cannot come from a cache of {cache.length}")
        first, last = len(self), len(self) + len(lengths)
        self._make_room(last, max(deep, *self.lengths, 0), new=0)
        start, rows = self.end - deep, list(lengths)
        taken = slice(cache.length - deep, cache.length)
        for slot, given in zip(self.cache.slots, cache.slots, strict=True):
            for mine, theirs in ((slot.k, given.k), (slot.v, given.v)):
                mine[first:last, :, :start] = 0
                mine[first:last, :, start : self.end] = theirs[rows, :, taken]
        self.lengths += lengths.values()

    def leave(self, row: int) -> None:
        """Forget a row; the last one takes its number."""
        last = len(self) - 1
        if row != last:
            for slot in self.cache.slots:
                for t in (slot.k, slot.v):
                    t[row, :, : self.end] = t[last, :, : self.end]
        self.lengths[row] = self.lengths[last]
        self.lengths.pop()
        rows, columns = len(self.cache.slots[0].k), self.cache.slots[0].capacity
        if 4 * len(self) <= rows or 4 * _columns(max(self.lengths, default=0), 1) <= columns:
            self._move(_power(len(self)), max(self.lengths, default=0), 1)

    def show(self, new: int = 1) -> tuple[Tensor | None, Mask | None]:
        """Make ready for one pass of `cache` that appends `new` keys to every row.

        -> the positions of the new tokens (B, new), and the mask that hides what is no key of
        the row; one that stays by itself needs neither.
        """
        self.alone = self.alone + 1 if len(self) == 1 else 0
        if self.alone > PATIENCE:
            self._set_apart(new)
            return None, None
        self._make_room(len(self), max(self.lengths), new)
        longest = max(self.lengths) + new
        shown = -(-longest // BUCKET) * BUCKET
        for slot in self.cache.slots:
            assert isinstance(slot, RowSlot)
            slot.rows, slot.first = len(self), self.end + new - shown
        device = self.cache.slots[0].k.device
        before = torch.tensor(self.lengths, device=device)[:, None]  # (B, 1)
        columns = torch.arange(shown, device=device)
        seen = columns >= shown - new - before  # (B, shown)
        self.lengths = [length + new for length in self.lengths]
        return before + torch.arange(new, device=device), Mask.explicit(seen[:, None, None])

    def _set_apart(self, new: int) -> None:
        """Make ready for one pass of the only row."""
        slot, (length,) = self.cache.slots[0], self.lengths
        if isinstance(slot, RowSlot) or self.end + new > slot.capacity:
            self._move(1, length, new, margin=0, kind=Slot)
        self.lengths = [length + new]

    def _make_room(self, rows: int, longest: int, new: int) -> None:
        slot = self.cache.slots[0]
        short = self.end + new > slot.capacity or self.end < longest + BUCKET
        if rows > len(slot.k) or short:
            self._move(max(_power(rows), len(slot.k)), longest, new)

    def _move(
        self,
        rows: int,
        longest: int,
        new: int,
        margin: int = BUCKET,
        kind: type[Slot] = RowSlot,
    ) -> None:
        """All rows into fresh room of that many rows and columns, behind a margin of zeros."""
        kept, was = max(self.lengths, default=0), self.end
        end, columns = longest + margin, _columns(longest, new)

        def moved(t: Tensor) -> Tensor:
            return _moved(t[: len(self), :, was - kept : was], _room(t, rows, columns), end)

        for i, slot in enumerate(self.cache.slots):  # each gives up its old room at once
            self.cache.slots[i] = kind(moved(slot.k), moved(slot.v), end)


def _moved(kept: Tensor, fresh: Tensor, end: int) -> Tensor:
    """The fresh room with what is kept in its first rows, up to that column."""
    fresh[: len(kept), :, end - kept.shape[2] : end] = kept
    return fresh


def _room(like: Tensor, rows: int, columns: int) -> Tensor:
    return like.new_zeros(rows, like.shape[1], columns, like.shape[3])


def _columns(longest: int, new: int) -> int:
    """Room for half as much again before everything has to move."""
    return _power((longest + new + BUCKET) * 3 // 2)


def _power(least: int) -> int:
    """The first power of two that is no less."""
    return 1 << max(0, least - 1).bit_length() if least else 0
