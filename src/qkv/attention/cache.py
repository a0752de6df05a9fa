"""Keys and values already computed, kept by the caller so that no position is computed twice.

The caller makes a `KVCache`, passes it in and owns it; no module stores one. Each layer's slot
keeps its own length and advances only itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from qkv.errors import CacheError
from qkv.shapes import expect

if TYPE_CHECKING:
    from collections.abc import Callable

    Compute = Callable[[Tensor], tuple[Tensor, Tensor]]


class Slot:
    """The keys and values of one attention layer, in room set aside once."""

    def __init__(self, k: Tensor, v: Tensor, length: int = 0) -> None:
        self.k, self.v, self.length = k, v, length  # (B, K, capacity, E)

    @property
    def capacity(self) -> int:
        return self.k.shape[2]

    def append(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Everything kept so far with k, v (B, K, T, E) behind it, as views of the slot."""
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
        """How many positions are given; raises a CacheError where another size is not the slot's.

        The usual case, that all is well, comes with every token and is the quick one.
        """
        (B, K, _, E), width = self.k.shape, self.v.shape[-1]
        T = k.shape[2] if k.dim() == 4 else -1
        if k.shape == (B, K, T, E) and v.shape == (B, K, T, width):
            return T
        n = expect(k=(k, "B K T E"), v=(v, "B K T value"))
        kept = {"B": B, "K": K, "E": E, "value": width}
        made, given = (", ".join(f"{axis}={at[axis]}" for axis in kept) for at in (kept, n))
        raise CacheError(f"the cache was made for {made} but is given {given}")

    def truncate(self, length: int) -> None:
        """Forget every position from `length` on."""
        if not 0 <= length <= self.length:
            raise CacheError(f"cannot truncate to {length}: the cache holds {self.length}")
        self.length = length

    def reorder(self, rows: Tensor) -> None:
        """Row b becomes what row rows[b] was."""
        _check_order(rows, self.k)
        kept = slice(self.length)
        self.k[:, :, kept] = self.k[:, :, kept].index_select(0, rows)
        self.v[:, :, kept] = self.v[:, :, kept].index_select(0, rows)

    def fork(self, copies: int) -> Slot:
        """A slot of its own in which every row stands `copies` times."""
        k, v = (t.repeat_interleave(copies, dim=0) for t in (self.k, self.v))
        return Slot(k, v, self.length)


class CrossSlot:
    """The keys and values of one source text for one decoder layer, computed once."""

    def __init__(self, kept: tuple[Tensor, Tensor] | None = None) -> None:
        self.kept = kept

    def once(self, source: Tensor, compute: Compute) -> tuple[Tensor, Tensor]:
        """What `compute` made of the source (B, S, D) the first time, kept head by head: it will be
        read many times.
        """
        if self.kept is None:
            k, v = compute(source)
            self.kept = (k.contiguous(), v.contiguous())
        B, S = self.kept[0].shape[0], self.kept[0].shape[2]
        if source.shape[:2] != (B, S):
            raise CacheError(
                f"the cache belongs to a source of B={B}, S={S} but is given "
                f"B={source.shape[0]}, S={source.shape[1]}; make an empty cache for another source"
            )
        return self.kept

    def reorder(self, rows: Tensor) -> None:
        if self.kept is not None:
            _check_order(rows, self.kept[0])
            self.kept = (self.kept[0].index_select(0, rows), self.kept[1].index_select(0, rows))

    def fork(self, copies: int) -> CrossSlot:
        if self.kept is None:
            return CrossSlot()
        k, v = (t.repeat_interleave(copies, dim=0) for t in self.kept)
        return CrossSlot((k, v))


class NoSlot:
    """No cache: what is computed now is all there is."""

    def append(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        return k, v

    def once(self, source: Tensor, compute: Compute) -> tuple[Tensor, Tensor]:
        return compute(source)


NO_SLOT = NoSlot()


class KVCache:
    """One slot a layer for self-attention and one for cross attention."""

    def __init__(self, slots: list[Slot], cross: list[CrossSlot] | None = None) -> None:
        self.slots = slots
        self.cross = [CrossSlot() for _ in slots] if cross is None else cross

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
        """Room for `capacity` positions in every layer, set aside now."""
        if batch < 0 or capacity < 0:
            raise CacheError(f"batch={batch}, capacity={capacity} must not be negative")

        def room(width: int) -> Tensor:
            return torch.zeros(batch, kv_heads, capacity, width, device=device, dtype=dtype)

        return cls([Slot(room(head_width), room(value_width or head_width)) for _ in range(layers)])

    @property
    def length(self) -> int:
        """How many positions are kept."""
        return self.slots[0].length if self.slots else 0

    @property
    def bytes(self) -> int:
        """Memory set aside for self-attention."""
        return sum(t.nbytes for slot in self.slots for t in (slot.k, slot.v))

    def truncate(self, length: int) -> None:
        """Forget every position from `length` on; the source of cross attention stays."""
        for slot in self.slots:
            slot.truncate(length)

    def reorder(self, rows: Tensor) -> None:
        """Row b becomes what row rows[b] was: how a beam search follows its survivors."""
        rows = torch.as_tensor(rows)
        for slot in self.slots:
            slot.reorder(rows)
        for cross in self.cross:
            cross.reorder(rows)

    def fork(self, copies: int = 1) -> KVCache:
        """An independent cache in which every row stands `copies` times, neighbours together."""
        if copies < 1:
            raise CacheError(f"a cache is forked into 1 or more copies, not {copies}")
        return KVCache(
            [slot.fork(copies) for slot in self.slots], [slot.fork(copies) for slot in self.cross]
        )


def _check_order(rows: Tensor, kept: Tensor) -> None:
    if rows.shape != kept.shape[:1]:
        raise CacheError(
            f"a new order needs one row number for each of {len(kept)} rows, "
            f"but has shape {tuple(rows.shape)}"
        )
    if rows.device.type == "cpu" and any(not 0 <= row < len(kept) for row in rows.tolist()):
        raise CacheError(f"rows {rows.tolist()} must be between 0 and {len(kept) - 1}")
