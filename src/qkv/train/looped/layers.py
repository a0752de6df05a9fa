"""Stacks of layers whose texts stand one after the other, so that padding is not computed."""

import torch
from torch import Tensor

from qkv.attention import NO_SLOT, KVCache, Mask, Rotation
from qkv.model.block import Absent
from qkv.model.stack import Layers
from qkv.model.view import View
from qkv.train.looped.attention import knows
from qkv.train.looped.texts import Row


class LoopedLayers(Layers):
    """Between its first norm and its last there are real tokens alone.

    Where a mask says more than which tokens are one text, it is as slow as `Layers`.
    """

    @staticmethod
    def fits(plain: Layers) -> bool:
        """Whether its positions and all its attention are such as the passes know."""
        turn = plain.position.rotation(torch.zeros(1, dtype=torch.int64), torch.float32)
        turned = turn.cos.shape[-1] if isinstance(turn, Rotation) else 0
        if len(plain.ways) > 1 or plain.position.mask(torch.float32).parts:
            return False
        if isinstance(turn, Rotation) and turn.adjacent:
            return False
        parts = [part for block in plain.blocks() for part in (block.attention, block.cross)]
        return all(isinstance(part, Absent) or knows(part, turned) for part in parts)

    def forward(
        self,
        x: Tensor,
        mask: Mask,
        positions: Tensor | None = None,
        cache: KVCache | None = None,
        memory: Tensor | None = None,
        memory_mask: Mask | None = None,
    ) -> Tensor:
        row = Row.of(mask, x, positions)
        reads = Mask() if memory_mask is None else memory_mask
        read = None if memory is None else Row.of(reads, memory, None)
        if row is None or cache is not None or (memory is not None and read is None):
            return super().forward(x, mask, positions, cache, memory, memory_mask)
        positions = self._positions(x, positions, 0)
        x = row.packed(self.position.embed(x, positions))
        x = self.widen(self.dropout(self.norm_in(x)))
        view = View(
            mask=Mask((row,)),
            rotation=self.position.rotation(positions, x.dtype),
            slot=NO_SLOT,
            cross_slot=NO_SLOT,
            memory=None if memory is None or read is None else read.packed(memory),
            memory_mask=Mask() if read is None else Mask((read,)),
        )
        for block in self.blocks():
            x = block(x, view)
        return row.unpacked(self.norm_out(x))
