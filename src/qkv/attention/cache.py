"""The KV cache: keys and values of earlier positions, so that none is computed twice.

The caller makes a `KVCache`, passes it in and owns it; no module stores one. The cache of each
layer has its own length and advances only itself.

`RaggedCache` is the cache of continuous batching: rows of different lengths come and go. All rows
end at the same column and start at different ones, so the newest key of every row is in the last
column. A mask that counts distances between columns (a window, T5's buckets, ALiBi) is
therefore right for every row, and new keys are written for all rows at once. The columns before a
row's first key are masked and always finite, because 0 × NaN is NaN: a weight of 0 would not hide
one. A single row that stays without others is moved to the first column of a plain cache: then
nothing is masked, and every fast path for a single sequence applies.
"""

from __future__ import annotations

import math
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
            # Writing in place would change tensors that the backward pass still needs.
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
        B, K, _, E = self.k.shape
        width = self.v.shape[-1]
        if k.dim() == 4:
            T = k.shape[2]
            if k.shape == (B, K, T, E) and v.shape == (B, K, T, width):
                return T
        n = expect(k=(k, "B K T E"), v=(v, "B K T value"))
        sizes = {"B": B, "K": K, "E": E, "value": width}
        expected = ", ".join(f"{axis}={size}" for axis, size in sizes.items())
        actual = ", ".join(f"{axis}={n[axis]}" for axis in sizes)
        raise CacheError(f"the cache was made for {expected} but k and v have {actual}")

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
        """An independent copy in which every row is repeated `copies` times."""
        k = self.k.repeat_interleave(copies, dim=0)
        v = self.v.repeat_interleave(copies, dim=0)
        return LayerCache(k, v, self.length)


class CrossLayerCache:
    """The keys and values of one source for the cross attention of one layer, computed once."""

    def __init__(self, entry: tuple[Tensor, Tensor] | None = None) -> None:
        self.entry = entry

    def get_or_compute(self, source: Tensor, compute: Compute) -> tuple[Tensor, Tensor]:
        """The keys and values of the source (B, S, D), computed on the first call only.

        They are stored contiguously per head, because every later token reads them again.
        """
        if self.entry is None:
            k, v = compute(source)
            self.entry = (k.contiguous(), v.contiguous())
        B, _, S, _ = self.entry[0].shape
        if source.shape[:2] != (B, S):
            raise CacheError(
                f"the cache belongs to a source of B={B}, S={S} but this one has "
                f"B={source.shape[0]}, S={source.shape[1]}; make an empty cache for another source"
            )
        return self.entry

    def reorder(self, rows: Tensor) -> None:
        """Row b becomes what row rows[b] was."""
        if self.entry is not None:
            k, v = self.entry
            _check_order(rows, k)
            self.entry = (k.index_select(0, rows), v.index_select(0, rows))

    def fork(self, copies: int) -> CrossLayerCache:
        """An independent copy in which every row is repeated `copies` times."""
        if self.entry is None:
            return CrossLayerCache()
        k, v = self.entry
        return CrossLayerCache(
            (k.repeat_interleave(copies, dim=0), v.repeat_interleave(copies, dim=0))
        )


class NoLayerCache:
    """No cache: attention sees only the current keys and values."""

    def append(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        return k, v

    def get_or_compute(self, source: Tensor, compute: Compute) -> tuple[Tensor, Tensor]:
        return compute(source)


NO_CACHE = NoLayerCache()


class KVCache:
    """For every layer, a cache of self-attention and one of cross attention."""

    def __init__(
        self, layers: list[LayerCache], cross: list[CrossLayerCache] | None = None
    ) -> None:
        if cross is None:
            cross = [CrossLayerCache() for _ in layers]
        self.layers = layers
        self.cross = cross

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

        caches = []
        for _ in range(layers):
            caches.append(LayerCache(buffer(head_width), buffer(value_width or head_width)))
        return cls(caches)

    @property
    def length(self) -> int:
        """How many positions are in the cache."""
        if not self.layers:
            return 0
        return self.layers[0].length

    @property
    def bytes(self) -> int:
        """Memory allocated for self-attention."""
        return sum(layer.k.nbytes + layer.v.nbytes for layer in self.layers)

    def truncate(self, length: int) -> None:
        """Forget every position from `length` on; the source of cross attention stays."""
        for layer in self.layers:
            layer.truncate(length)

    def reorder(self, rows: Tensor) -> None:
        """Row b becomes what row rows[b] was, as beam search needs for its hypotheses."""
        rows = torch.as_tensor(rows)
        for layer in self.layers:
            layer.reorder(rows)
        for cross in self.cross:
            cross.reorder(rows)

    def fork(self, copies: int = 1) -> KVCache:
        """An independent cache in which every row is repeated `copies` times, next to itself."""
        if copies < 1:
            raise CacheError(f"a cache is forked into 1 or more copies, not {copies}")
        layers = [layer.fork(copies) for layer in self.layers]
        cross = [layer.fork(copies) for layer in self.cross]
        return KVCache(layers, cross)


def _check_order(rows: Tensor, tensor: Tensor) -> None:
    """Raise a CacheError unless there is a valid row number for each row of the tensor."""
    if rows.shape != tensor.shape[:1]:
        raise CacheError(
            f"a new order needs one row number for each of {len(tensor)} rows, "
            f"but has shape {tuple(rows.shape)}"
        )
    # Reading the numbers from a GPU would wait for everything queued there.
    if rows.device.type == "cpu" and any(not 0 <= row < len(tensor) for row in rows.tolist()):
        raise CacheError(f"rows {rows.tolist()} must be between 0 and {len(tensor) - 1}")


# Forward passes of a single row before moving it to a plain cache is worth the copy: another
# sequence may join at any pass.
PASSES_BEFORE_MOVE = 4

BUCKET = 16  # visible keys are a multiple of this, so that kernels meet few different shapes


class RaggedLayerCache(LayerCache):
    """The keys and values of one layer, with a window of visible rows and columns."""

    def __init__(self, k: Tensor, v: Tensor, length: int = 0) -> None:
        super().__init__(k, v, length)
        self.rows = 0  # how many are visible
        self.first = 0  # the first visible column

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
    """A cache whose rows are added, grow together and are removed; its memory grows and shrinks."""

    def __init__(self, like: KVCache) -> None:
        """No row yet; layers, heads and widths as in that cache."""
        layers: list[LayerCache] = []
        for layer in like.layers:
            layers.append(RaggedLayerCache(_buffer(layer.k, 0, 0), _buffer(layer.v, 0, 0)))
        self.cache = KVCache(layers)
        self.lengths: list[int] = []  # keys of each row
        self.single_row_passes = 0  # since there was more than one row
        self._before: tuple[list[int], int] = ([], 0)  # lengths and end before the latest pass

    def __len__(self) -> int:
        return len(self.lengths)

    @property
    def end(self) -> int:
        """The column after the last key, the same for every row."""
        return self.cache.length

    def add(self, cache: KVCache, lengths: dict[int, int]) -> None:
        """Copy some rows of a cache, in which row b has its keys in the last lengths[b] columns."""
        longest = max(lengths.values())
        if longest > cache.length:
            raise CacheError(f"a row of {longest} keys cannot come from a cache of {cache.length}")
        added = slice(len(self), len(self) + len(lengths))
        self._reserve(added.stop, max(longest, *self.lengths, 0), new=0)
        start = self.end - longest
        rows = list(lengths)
        columns = slice(cache.length - longest, cache.length)
        for layer, source in zip(self.cache.layers, cache.layers, strict=True):
            for target, values in ((layer.k, source.k), (layer.v, source.v)):
                target[added, :, :start] = 0  # finite: an earlier row may have left NaN there
                target[added, :, start : self.end] = values[rows, :, columns]
        self.lengths += lengths.values()

    def remove(self, row: int) -> None:
        """Forget a row; the last row takes its number, so that only one row is copied."""
        last = len(self) - 1
        if row != last:
            for layer in self.cache.layers:
                for t in (layer.k, layer.v):
                    t[row, :, : self.end] = t[last, :, : self.end]
        self.lengths[row] = self.lengths[last]
        self.lengths.pop()
        # Memory is given back only when three quarters are free. Otherwise rows that come and go
        # around a power of two would be copied every time.
        rows = len(self.cache.layers[0].k)
        columns = self.cache.layers[0].capacity
        longest = max(self.lengths, default=0)
        if 4 * len(self) <= rows or 4 * _columns(longest, 1) <= columns:
            self._move(_power_of_two(len(self)), longest, 1)

    def prepare(self, new: int = 1) -> tuple[Tensor | None, Mask | None]:
        """Prepare one forward pass with `cache` that appends `new` keys to every row.

        -> the positions of the new tokens (B, new), and the mask of the columns before each row's
        first key; (None, None) for a single row in a plain cache, which needs neither.
        """
        if len(self) == 1:
            self.single_row_passes += 1
        else:
            self.single_row_passes = 0
        if self.single_row_passes > PASSES_BEFORE_MOVE:
            self._prepare_single_row(new)
            self._before = ([self.lengths[0] - new], self.end)
            return None, None
        self._reserve(len(self), max(self.lengths), new)
        longest = max(self.lengths) + new
        visible = math.ceil(longest / BUCKET) * BUCKET
        for layer in self.cache.layers:
            assert isinstance(layer, RaggedLayerCache)
            layer.rows = len(self)
            layer.first = self.end + new - visible
        device = self.cache.layers[0].k.device
        before = torch.tensor(self.lengths, device=device)[:, None]  # (B, 1)
        columns = torch.arange(visible, device=device)
        allowed = columns >= visible - new - before  # (B, visible)
        self._before = (self.lengths, self.end)
        self.lengths = [length + new for length in self.lengths]
        return before + torch.arange(new, device=device), Mask.explicit(allowed[:, None, None])

    def rollback(self) -> None:
        """Undo a forward pass that failed: some layers may have its keys, others not."""
        self.lengths, end = self._before
        for layer in self.cache.layers:
            layer.length = end

    def _prepare_single_row(self, new: int) -> None:
        """Prepare one forward pass of the only row, in a plain cache from column 0 on."""
        (length,) = self.lengths
        layer = self.cache.layers[0]
        if isinstance(layer, RaggedLayerCache) or self.end + new > layer.capacity:
            self._move(1, length, new, margin=0, kind=LayerCache)
        self.lengths = [length + new]

    def _reserve(self, rows: int, longest: int, new: int) -> None:
        """Make sure that many rows fit, with `new` columns after `end` and a margin before."""
        layer = self.cache.layers[0]
        too_few_columns = self.end + new > layer.capacity or self.end < longest + BUCKET
        if rows > len(layer.k) or too_few_columns:
            self._move(max(_power_of_two(rows), len(layer.k)), longest, new)

    def _move(
        self,
        rows: int,
        longest: int,
        new: int,
        margin: int = BUCKET,
        kind: type[LayerCache] = RaggedLayerCache,
    ) -> None:
        """Copy all rows to new tensors for that many rows, so that they end at longest + margin.

        The columns before the keys, at least `margin` of them, are zeros.
        """
        length = max(self.lengths, default=0)
        old_end = self.end
        new_end = longest + margin
        columns = _columns(longest, new)

        def copy(t: Tensor) -> Tensor:
            buffer = _buffer(t, rows, columns)
            keys = t[: len(self), :, old_end - length : old_end]
            buffer[: len(self), :, new_end - length : new_end] = keys
            return buffer

        # Layer by layer: the old tensors of a layer are freed before the next one is copied.
        for i, layer in enumerate(self.cache.layers):
            self.cache.layers[i] = kind(copy(layer.k), copy(layer.v), new_end)


def _buffer(like: Tensor, rows: int, columns: int) -> Tensor:
    """Zeros for that many rows and columns, with the heads, width and dtype of another tensor."""
    return like.new_zeros(rows, like.shape[1], columns, like.shape[3])


def _columns(longest: int, new: int) -> int:
    """The columns to allocate: keys may grow by half before they have to be copied again."""
    return _power_of_two((longest + new + BUCKET) * 3 // 2)


def _power_of_two(minimum: int) -> int:
    """The smallest power of two that is at least the minimum; 0 for 0."""
    if minimum == 0:
        return 0
    return 1 << (minimum - 1).bit_length()
