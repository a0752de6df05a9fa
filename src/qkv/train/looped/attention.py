"""Attention within texts of one row: norms, turns, scores and means in one pass a head."""

import torch
from torch import Tensor, nn

from qkv.attention import Mask, Rotation
from qkv.attention.reference import scale_factor
from qkv.model.attention import Attention, CrossAttention
from qkv.model.projection import ToHeads
from qkv.model.view import View
from qkv.native.learning import LANES, Heads
from qkv.train.looped.functions import mixed, multiplied
from qkv.train.looped.texts import Row


class LoopedAttention(Attention):
    """Queries, keys and values come from one product."""

    def forward(self, x: Tensor, view: View) -> Tensor:
        row = texts_of(view.mask)
        if row is None:
            return super().forward(x, view)
        together = _projected(x, [self.query, self.key, self.value])
        turn = view.rotation if isinstance(view.rotation, Rotation) else None
        out: Tensor = self.output(mixed(_heads(self, row, row, turn), together[0], None)[None])
        return out


class LoopedCrossAttention(CrossAttention):
    """Keys and values come from one product."""

    def forward(self, x: Tensor, view: View) -> Tensor:
        row, memory = texts_of(view.mask), texts_of(view.memory_mask)
        if row is None or memory is None or view.memory is None:
            return super().forward(x, view)
        q, both = _projected(x, [self.query]), _projected(view.memory, [self.key, self.value])
        out: Tensor = self.output(mixed(_heads(self, row, memory, None), q[0], both[0])[None])
        return out


LOOPED: dict[type[nn.Module], type[Attention]] = {
    Attention: LoopedAttention,
    CrossAttention: LoopedCrossAttention,
}


def knows(plain: nn.Module, turned: int) -> bool:
    """Whether the passes have all that this attention does, so many features of a head turned."""
    if not isinstance(plain, Attention) or type(plain) not in LOOPED or plain.mix.cap is not None:
        return False
    parts = [plain.query, plain.key, plain.value]
    widths = {part.out_features // part.heads for part in parts if isinstance(part, ToHeads)}
    if len(widths) != 1 or not all(isinstance(part, ToHeads) for part in parts):
        return False
    width, norms = widths.pop(), [plain.query_norm, plain.key_norm]
    if not (
        all(type(norm) is nn.Identity for norm in norms)
        or all(type(norm) is nn.LayerNorm and norm.bias is None for norm in norms)
    ):
        return False
    if isinstance(plain, CrossAttention) or not turned:
        return width % LANES == 0
    return turned == width and width % (2 * LANES) == 0


def texts_of(mask: Mask) -> Row | None:
    """The texts of a row, if the stack has put them in the place of its mask."""
    return next((part for part in mask.parts if isinstance(part, Row)), None)


def _projected(x: Tensor, parts: list[nn.Module]) -> Tensor:
    return multiplied(x, [p.weight for p in parts], [p.bias for p in parts])  # type: ignore[misc]


def _heads(plain: Attention, queries: Row, keys: Row, turn: Rotation | None) -> Heads:
    query, key = plain.query, plain.key
    assert isinstance(query, ToHeads)
    assert isinstance(key, ToHeads)
    width = query.out_features // query.heads
    q_norm, k_norm = plain.query_norm, plain.key_norm
    gains: dict[str, object] = {}
    if isinstance(q_norm, nn.LayerNorm) and isinstance(k_norm, nn.LayerNorm):
        gains = {"q_gain": q_norm.weight, "k_gain": k_norm.weight}
        gains |= {"q_eps": q_norm.eps, "k_eps": k_norm.eps}
    if turn is not None:
        gains |= {"cos": _table(turn.cos), "sin": _table(turn.sin)}
    return Heads(
        query.heads, key.heads, width, queries.starts, queries.counts, keys.starts, keys.counts,
        queries.turns, scale_factor(width, plain.mix.scale), queries.causal and keys is queries,
        **gains,  # type: ignore[arg-type]
    )  # fmt: skip


def _table(angles: Tensor) -> Tensor:
    """(…, T, E) -> (positions, E)"""
    return angles.reshape(-1, angles.shape[-1]).to(torch.float32)
