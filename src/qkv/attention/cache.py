"""The KV cache: keys and values of earlier positions, so that none is computed twice.

The caller makes a `KVCache`, passes it in and owns it; no module stores one. The cache of each
layer has its own length and advances only itself.

`RaggedCache` is the cache of continuous batching: rows of different lengths come and go. All rows
end at the same column and begin wherever they must, so the newest key of every row stands in the
last column. A mask that counts distances between columns (a window, T5's buckets, ALiBi) is
therefore right for every row, and new keys are written for all rows at once. What stands before a
row's first key is masked and always finite: a NaN would pass through the mask. A row that stays by
itself is moved to the first column of a plain cache: then nothing is masked, and every fast path
for a single sequence applies.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from qkv.attention.mask import Mask
from qkv.errors import CacheError
from qkv.shapes import expect

if TYPE_CHECKING:
    from collections.abc import Callable

    Compute = Callable[[Tensor], tuple[Tensor, Tensor]]


class LayerCache:
    """The keys and values of one attention layer, in tensors allocated once."""

    def __init__(self, k: Tensor, v: Tensor, length: int = 0) -> None:
        self.k = k  # (B, K, capacity, E)
        self.v = v
        self.length = length

    @property
    def capacity(self) -> int:
        return self.k.shape[2]

    def append(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """All keys and values so far, with k, v (B, K, T, E) appended; views of the cache."""
        T = self._expect(k, v)
        if torch.is_grad_enabled() and (k.requires_grad or v.requires_grad):
            raise CacheError("a cache is for generating, not for training; use torch.no_grad()")
        stop = self.length + T
        if stop > self.capacity:
            raise CacheError(
                f"the cache holds {self.length} of at most {self.capacity} positions; "
                f"{T} more do not fit"
            )
        self.k[:, :, self.length : stop] = k
        self.v[:, :, self.length : stop] = v
        self.length = stop
        return self.k[:, :, :stop], self.v[:, :, :stop]

    def _expect(self, k: Tensor, v: Tensor) -> int:
        """T, the number of new positions; raises a CacheError where another size does not fit.

        This runs for every token, so the case that everything fits comes first and is cheap.
        """
        (B, K, _, E), width = self.k.shape, self.v.shape[-1]
        T = k.shape[2] if k.dim() == 4 else -1
        if k.shape == (B, K, T, E) and v.shape == (B, K, T, width):
            return T
        n = expect(k=(k, "B K T E"), v=(v, "B K T value"))
        sizes = {"B": B, "K": K, "E": E, "value": width}
        expected = ", ".join(f"{axis}={size}" for axis, size in sizes.items())
        actual = ", ".join(f"{axis}={n[axis]}" for axis in sizes)
        raise CacheError(f"the cache was made for {expected} but is given {actual}")

    def truncate(self, length: int) -> None:
        """Forget every position from `length` on."""
        if not 0 <= length <= self.length:
            raise CacheError(f"cannot truncate to {length}: the cache holds {self.length}")
        self.length = length

    def reorder(self, rows: Tensor) -> None:
        """Row b becomes what row rows[b] was."""
        _check_order(rows, self.k)
        filled = slice(self.length)
        self.k[:, :, filled] = self.k[:, :, filled].index_select(0, rows)
        self.v[:, :, filled] = self.v[:, :, filled].index_select(0, rows)

    def fork(self, copies: int) -> LayerCache:
        """An independent copy in which every row stands `copies` times."""
        k, v = (t.repeat_interleave(copies, dim=0) for t in (self.k, self.v))
        return LayerCache(k, v, self.length)


class CrossLayerCache:
    """The keys and values of one source text for one decoder layer, computed once."""

    def __init__(self, entry: tuple[Tensor, Tensor] | None = None) -> None:
        self.entry = entry

    def get_or_compute(self, source: Tensor, compute: Compute) -> tuple[Tensor, Tensor]:
        """The keys and values of the source (B, S, D), computed on the first call only.

        They are stored head by head, because every later token reads them again.
        """
        if self.entry is None:
            k, v = compute(source)
            self.entry = (k.contiguous(), v.contiguous())
        B, S = self.entry[0].shape[0], self.entry[0].shape[2]
        if source.shape[:2] != (B, S):
            raise CacheError(
                f"the cache belongs to a source of B={B}, S={S} but is given "
                f"B={source.shape[0]}, S={source.shape[1]}; make an empty cache for another source"
            )
        return self.entry

    def reorder(self, rows: Tensor) -> None:
        if self.entry is not None:
            _check_order(rows, self.entry[0])
            self.entry = (self.entry[0].index_select(0, rows), self.entry[1].index_select(0, rows))

    def fork(self, copies: int) -> CrossLayerCache:
        if self.entry is None:
            return CrossLayerCache()
        k, v = (t.repeat_interleave(copies, dim=0) for t in self.entry)
        return CrossLayerCache((k, v))


class NoLayerCache:
    """No cache: attention sees only the current keys and values."""

    def append(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        return k, v

    def get_or_compute(self, source: Tensor, compute: Compute) -> tuple[Tensor, Tensor]:
        return compute(source)


NO_CACHE = NoLayerCache()


class KVCache:
    """A cache per layer for self-attention and one for cross attention."""

    def __init__(self, slots: list[LayerCache], cross: list[CrossLayerCache] | None = None) -> None:
        self.layers = slots
        self.cross = [CrossLayerCache() for _ in slots] if cross is None else cross

    @classmethod
    def empty(
        cls,
        *,
        layers: int,
        batch: int,
        kv_heads: int,
        capacity: int,
        head_width: int,
        value_width: int | None = None,
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float32,
    ) -> KVCache:
        """A cache with memory for `capacity` positions in every layer."""
        if batch < 0 or capacity < 0:
            raise CacheError(f"batch={batch}, capacity={capacity} must not be negative")

        def buffer(width: int) -> Tensor:
            return torch.zeros(batch, kv_heads, capacity, width, device=device, dtype=dtype)

        return cls(
            [
                LayerCache(buffer(head_width), buffer(value_width or head_width))
                for _ in range(layers)
            ]
        )

    @property
    def length(self) -> int:
        """How many positions are in the cache."""
        return self.layers[0].length if self.layers else 0

    @property
    def bytes(self) -> int:
        """Memory allocated for self-attention."""
        return sum(t.nbytes for slot in self.layers for t in (slot.k, slot.v))

    def truncate(self, length: int) -> None:
        """Forget every position from `length` on; the source of cross attention stays."""
        for slot in self.layers:
            slot.truncate(length)

    def reorder(self, rows: Tensor) -> None:
        """Row b becomes what row rows[b] was: how a beam search follows its survivors."""
        rows = torch.as_tensor(rows)
        for slot in self.layers:
            slot.reorder(rows)
        for cross in self.cross:
            cross.reorder(rows)

    def fork(self, copies: int = 1) -> KVCache:
        """An independent cache in which every row stands `copies` times, neighbours together."""
        if copies < 1:
            raise CacheError(f"a cache is forked into 1 or more copies, not {copies}")
        return KVCache(
            [slot.fork(copies) for slot in self.layers], [slot.fork(copies) for slot in self.cross]
        )


def _check_order(rows: Tensor, tensor: Tensor) -> None:
    if rows.shape != tensor.shape[:1]:
        raise CacheError(
            f"a new order needs one row number for each of {len(tensor)} rows, "
            f"but has shape {tuple(rows.shape)}"
        )
    if rows.device.type == "cpu" and any(not 0 <= row < len(tensor) for row in rows.tolist()):
        raise CacheError(f"rows {rows.tolist()} must be between 0 and {len(tensor) - 1}")


PATIENCE = 4  # passes of a single row before moving it is worth the copy

BUCKET = 16  # visible keys are a multiple of this, so that kernels see few different shapes


class RaggedLayerCache(LayerCache):
    """One layer's keys and values, of which attention sees some rows and columns."""

    def __init__(self, k: Tensor, v: Tensor, length: int = 0) -> None:
        super().__init__(k, v, length)
        self.rows = 0
        self.first = 0

    def append(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """The visible keys and values, with k, v (B, K, T, E) as the last T of every row."""
        stop = self.length + k.shape[2]
        if len(k) != self.rows or stop > self.capacity:
            raise CacheError(
                f"the cache has {self.rows} rows and columns up to {self.capacity}, "
                f"but {len(k)} rows are to end at column {stop}; call prepare() before each pass"
            )
        self.k[: self.rows, :, self.length : stop] = k
        self.v[: self.rows, :, self.length : stop] = v
        self.length = stop
        visible = slice(self.first, stop)
        return self.k[: self.rows, :, visible], self.v[: self.rows, :, visible]


class RaggedCache:
    """A cache whose rows are added, grow together, and are removed; its memory follows them."""

    def __init__(self, like: KVCache) -> None:
        """No row yet, of the same layers, heads and widths as that cache."""
        self.cache = KVCache(
            [RaggedLayerCache(_buffer(s.k, 0, 0), _buffer(s.v, 0, 0)) for s in like.layers]
        )
        self.lengths: list[int] = []
        self.alone = 0  # passes of a single row, since there were others

    def __len__(self) -> int:
        return len(self.lengths)

    @property
    def end(self) -> int:
        """The column behind every row's last key."""
        return self.cache.length

    def add(self, cache: KVCache, lengths: dict[int, int]) -> None:
        """Copy some rows of a cache, in which row b has its keys in the last lengths[b] columns."""
        deep = max(lengths.values())
        if deep > cache.length:
            raise CacheError(f"a row of {deep} keys cannot come from a cache of {cache.length}")
        first, last = len(self), len(self) + len(lengths)
        self._reserve(last, max(deep, *self.lengths, 0), new=0)
        start, rows = self.end - deep, list(lengths)
        source = slice(cache.length - deep, cache.length)
        for slot, other in zip(self.cache.layers, cache.layers, strict=True):
            for mine, theirs in ((slot.k, other.k), (slot.v, other.v)):
                mine[first:last, :, :start] = 0
                mine[first:last, :, start : self.end] = theirs[rows, :, source]
        self.lengths += lengths.values()

    def remove(self, row: int) -> None:
        """Forget a row; the last one takes its number."""
        last = len(self) - 1
        if row != last:
            for slot in self.cache.layers:
                for t in (slot.k, slot.v):
                    t[row, :, : self.end] = t[last, :, : self.end]
        self.lengths[row] = self.lengths[last]
        self.lengths.pop()
        rows, columns = len(self.cache.layers[0].k), self.cache.layers[0].capacity
        if 4 * len(self) <= rows or 4 * _columns(max(self.lengths, default=0), 1) <= columns:
            self._move(_power(len(self)), max(self.lengths, default=0), 1)

    def prepare(self, new: int = 1) -> tuple[Tensor | None, Mask | None]:
        """Prepare one forward pass with `cache` that appends `new` keys to every row.

        -> the positions of the new tokens (B, new), and the mask that hides what is no key of
        the row; one that stays by itself needs neither.
        """
        self.alone = self.alone + 1 if len(self) == 1 else 0
        if self.alone > PATIENCE:
            self._set_apart(new)
            return None, None
        self._reserve(len(self), max(self.lengths), new)
        longest = max(self.lengths) + new
        visible = -(-longest // BUCKET) * BUCKET  # rounded up
        for slot in self.cache.layers:
            assert isinstance(slot, RaggedLayerCache)
            slot.rows, slot.first = len(self), self.end + new - visible
        device = self.cache.layers[0].k.device
        before = torch.tensor(self.lengths, device=device)[:, None]  # (B, 1)
        columns = torch.arange(visible, device=device)
        allowed = columns >= visible - new - before  # (B, visible)
        self.lengths = [length + new for length in self.lengths]
        return before + torch.arange(new, device=device), Mask.explicit(allowed[:, None, None])

    def _set_apart(self, new: int) -> None:
        """Make ready for one pass of the only row."""
        slot, (length,) = self.cache.layers[0], self.lengths
        if isinstance(slot, RaggedLayerCache) or self.end + new > slot.capacity:
            self._move(1, length, new, margin=0, kind=LayerCache)
        self.lengths = [length + new]

    def _reserve(self, rows: int, longest: int, new: int) -> None:
        slot = self.cache.layers[0]
        short = self.end + new > slot.capacity or self.end < longest + BUCKET
        if rows > len(slot.k) or short:
            self._move(max(_power(rows), len(slot.k)), longest, new)

    def _move(
        self,
        rows: int,
        longest: int,
        new: int,
        margin: int = BUCKET,
        kind: type[LayerCache] = RaggedLayerCache,
    ) -> None:
        """Copy all rows to new tensors of that many rows and columns, behind a margin of zeros."""
        kept, was = max(self.lengths, default=0), self.end
        end, columns = longest + margin, _columns(longest, new)

        def moved(t: Tensor) -> Tensor:
            return _moved(t[: len(self), :, was - kept : was], _buffer(t, rows, columns), end)

        for i, slot in enumerate(self.cache.layers):  # each gives up its old room at once
            self.cache.layers[i] = kind(moved(slot.k), moved(slot.v), end)


def _moved(rows: Tensor, fresh: Tensor, end: int) -> Tensor:
    """The fresh buffer with these rows first, so that they end at that column."""
    fresh[: len(rows), :, end - rows.shape[2] : end] = rows
    return fresh


def _buffer(like: Tensor, rows: int, columns: int) -> Tensor:
    return like.new_zeros(rows, like.shape[1], columns, like.shape[3])


def _columns(longest: int, new: int) -> int:
    """Columns for half as many keys again before everything has to be copied."""
    return _power((longest + new + BUCKET) * 3 // 2)


def _power(least: int) -> int:
    """The first power of two that is no less."""
    return 1 << max(0, least - 1).bit_length() if least else 0
