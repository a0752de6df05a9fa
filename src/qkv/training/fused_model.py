"""A twin of a model that learns the same sooner: its layers go through compiled passes.

It has the same weights, tensor for tensor and under the same names, so whatever is learnt by one
is learnt by both. Parts that the passes do not know are the model's own kind.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor, nn

from qkv.attention import NO_CACHE, KVCache, Mask, RopeRotation
from qkv.attention.mask import Causal, Documents, MaskPart, Padding, QueryLengths
from qkv.attention.reference import scale_factor
from qkv.engine.optimized.fused import same_weights
from qkv.engine.optimized.kernel_modules import activation_number
from qkv.kernels.training import LANES, NEVER, Chance, Heads, training_kernels
from qkv.model import Layers, Model
from qkv.model.attention import Attention, CrossAttention, HeadProjection
from qkv.model.feed_forward import FeedForward
from qkv.model.norm import Dropout, ResidualAdd
from qkv.model.output import TiedLogits, UntiedLogits
from qkv.model.stack import NoCrossAttention
from qkv.model.view import View
from qkv.training.fused_ops import (
    FusedTiedLogits,
    FusedUntiedLogits,
    bent,
    dropped,
    joined,
    mixed,
    multiplied,
    normed,
)
from qkv.training.optimizer import QUINTIC, Muon

# FOLDED train/fuse/texts: Texts one after the other in a single row, without what pads them.
# FOLDED train/fuse/attention: Attention within texts of one row: norms, turns, scores and
#   means in one pass a head.
# FOLDED train/fuse/layers: Stacks of layers whose texts stand one after the other, so that
#   padding is not computed.
# FOLDED train/fuse/rows: Norms, sums and the feed-forward part of a layer, through compiled
#   passes.
# FOLDED train/fuse/muon: Muon's steps through compiled products, of which half are symmetric
#   and half computed.


@dataclass(frozen=True, eq=False)
class Row(MaskPart):
    """Which tokens of a row are one text: text b has counts[b] of them, from starts[b] on.

    As a part of a mask it says that texts see only themselves; `causal`, only what came before.
    """

    starts: Tensor  # (texts,)
    counts: Tensor  # (texts,)
    turns: Tensor  # (texts,): the row of a rotation where each begins
    causal: bool
    real: Tensor | None  # (N,): which of the B·T positions they are, if not all
    shape: tuple[int, int]  # B, T

    @classmethod
    def of(cls, mask: Mask, x: Tensor, positions: Tensor | None) -> Row | None:
        """The texts of x (B, T, D), if this mask only tells texts apart."""
        B, T = x.shape[:2]
        kinds = {type(part) for part in mask.parts}
        if not kinds <= {Causal, Padding, QueryLengths, Documents} or not B * T:
            return None
        causal = Causal in kinds
        ends = [part for part in mask.parts if isinstance(part, Padding | QueryLengths)]
        documents = [part for part in mask.parts if isinstance(part, Documents)]
        if QueryLengths in kinds and not causal:
            return None
        if documents:
            whole = positions is not None and positions.dim() == 2  # so each token has its own turn
            if ends or len(documents) > 1 or not whole:
                return None
            return _documents(cls, documents[0], causal, T)
        if positions is not None:
            return None
        lengths = ends[0].lengths if ends else torch.full((B,), T)
        for part in ends[1:]:
            lengths = torch.minimum(lengths, part.lengths)
        return cls.padded(lengths.to(torch.int64), T, causal)

    @classmethod
    def padded(cls, lengths: Tensor, T: int, causal: bool) -> Row:
        """Of the first lengths[b] of T positions in each row."""
        B = len(lengths)
        starts = lengths.cumsum(0) - lengths
        whole = bool((lengths == T).all())
        real = None
        if not whole:
            real = (torch.arange(T) < lengths[:, None]).flatten().nonzero()[:, 0]
        return cls(starts, lengths.contiguous(), torch.zeros_like(lengths), causal, real, (B, T))

    def packed(self, x: Tensor) -> Tensor:
        """(B, T, D) -> (1, N, D)"""
        flat = x.reshape(-1, x.shape[-1])
        return (flat if self.real is None else flat.index_select(0, self.real))[None]

    def unpacked(self, x: Tensor) -> Tensor:
        """(1, N, D) -> (B, T, D), with zeros where nothing real stood."""
        B, T = self.shape
        if self.real is None:
            return x.view(B, T, -1)
        return x.new_zeros(B * T, x.shape[-1]).index_copy(0, self.real, x[0]).view(B, T, -1)


def _documents(kind: type[Row], part: Documents, causal: bool, T: int) -> Row | None:
    """Each run of one document is a text."""
    ids = part.query_ids
    if part.key_ids is not ids or bool((ids[:, 1:] < ids[:, :-1]).any()):
        return None
    fresh = torch.ones_like(ids, dtype=torch.bool)
    fresh[:, 1:] = ids[:, 1:] != ids[:, :-1]
    starts = fresh.flatten().nonzero()[:, 0]
    counts = torch.diff(starts, append=starts.new_tensor([ids.numel()]))
    return kind(starts, counts, starts, causal, None, (len(ids), T))


class VarlenAttention(Attention):
    """Queries, keys and values come from one product."""

    def forward(self, x: Tensor, view: View) -> Tensor:
        row = texts_of(view.mask)
        if row is None:
            return super().forward(x, view)
        together = _projected(x, [self.query, self.key, self.value])
        turn = view.rope if isinstance(view.rope, RopeRotation) else None
        out: Tensor = self.output(mixed(_heads(self, row, row, turn), together[0], None)[None])
        return out


class VarlenCrossAttention(CrossAttention):
    """Keys and values come from one product."""

    def forward(self, x: Tensor, view: View) -> Tensor:
        row, memory = texts_of(view.mask), texts_of(view.memory_mask)
        if row is None or memory is None or view.memory is None:
            return super().forward(x, view)
        q, both = _projected(x, [self.query]), _projected(view.memory, [self.key, self.value])
        out: Tensor = self.output(mixed(_heads(self, row, memory, None), q[0], both[0])[None])
        return out


FUSED_POSITIONS: dict[type[nn.Module], type[Attention]] = {
    Attention: VarlenAttention,
    CrossAttention: VarlenCrossAttention,
}


def knows(plain: nn.Module, turned: int) -> bool:
    """Whether the passes have all that this attention does, so many features of a head turned."""
    if (
        not isinstance(plain, Attention)
        or type(plain) not in FUSED_POSITIONS
        or plain.core.cap is not None
    ):
        return False
    parts = [plain.query, plain.key, plain.value]
    widths = {part.out_features // part.heads for part in parts if isinstance(part, HeadProjection)}
    if len(widths) != 1 or not all(isinstance(part, HeadProjection) for part in parts):
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


def _heads(plain: Attention, queries: Row, keys: Row, turn: RopeRotation | None) -> Heads:
    query, key = plain.query, plain.key
    assert isinstance(query, HeadProjection)
    assert isinstance(key, HeadProjection)
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
        queries.turns, scale_factor(width, plain.core.scale), queries.causal and keys is queries,
        **gains,  # type: ignore[arg-type]
    )  # fmt: skip


def _table(angles: Tensor) -> Tensor:
    """(…, T, E) -> (positions, E)"""
    return angles.reshape(-1, angles.shape[-1]).to(torch.float32)


class VarlenLayers(Layers):
    """Between its first norm and its last there are real tokens alone.

    Where a mask says more than which tokens are one text, it is as slow as `Layers`.
    """

    @staticmethod
    def fits(plain: Layers) -> bool:
        """Whether its positions and all its attention are such as the passes know."""
        turn = plain.position.rope(torch.zeros(1, dtype=torch.int64), torch.float32)
        turned = turn.cos.shape[-1] if isinstance(turn, RopeRotation) else 0
        if len(plain.patterns) > 1 or plain.position.mask(torch.float32).parts:
            return False
        if isinstance(turn, RopeRotation) and turn.interleaved:
            return False
        parts = [part for block in plain.blocks() for part in (block.attention, block.cross)]
        return all(isinstance(part, NoCrossAttention) or knows(part, turned) for part in parts)

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
            rope=self.position.rope(positions, x.dtype),
            cache=NO_CACHE,
            cross_cache=NO_CACHE,
            memory=None if memory is None or read is None else read.packed(memory),
            memory_mask=Mask() if read is None else Mask((read,)),
        )
        for block in self.blocks():
            x = block(x, view)
        return row.unpacked(self.norm_out(x))


class FusedLinear(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        return multiplied(x, [self.weight], [self.bias])


class FusedLayerNorm(nn.LayerNorm):
    def forward(self, x: Tensor) -> Tensor:
        return normed(x, self.weight, self.bias, self.eps)


class FusedDropout(Dropout):
    def forward(self, x: Tensor) -> Tensor:
        chance = self.draw()
        return dropped(x, chance) if chance.dropped else x

    def draw(self) -> Chance:
        """Whom it drops this time: nobody but in training."""
        return Chance.draw(self.threshold) if self.training else NEVER


class FusedDropoutAdd(ResidualAdd):
    dropout: FusedDropout

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return joined(x, y, self.dropout.draw())


class FusedFeedForward(FeedForward):
    """The activation and its dropout are one pass."""

    dropout: FusedDropout

    @staticmethod
    def fits(plain: FeedForward) -> bool:
        return type(plain) is FeedForward and activation_number(plain.activation) is not None

    def forward(self, x: Tensor) -> Tensor:
        kind = activation_number(self.activation)
        assert kind is not None
        narrow: Tensor = self.down(bent(self.up(x), kind, self.dropout.draw()))
        return narrow


ATTENTIONS = FUSED_POSITIONS

Kind = TypeVar("Kind", bound=Model)

FUSED_CLASSES: dict[type[nn.Module], type[nn.Module]] = {
    ResidualAdd: FusedDropoutAdd,
    Dropout: FusedDropout,
    UntiedLogits: FusedUntiedLogits,
    TiedLogits: FusedTiedLogits,
    nn.LayerNorm: FusedLayerNorm,
    nn.Linear: FusedLinear,
}


def fuse(model: Kind) -> Kind:
    """The twin; the passes are compiled now if they never were."""
    training_kernels()
    twin = _copy(model, {})
    assert isinstance(twin, type(model))
    return twin


def _copy(part: nn.Module, made: dict[nn.Module, nn.Module], known: bool = True) -> nn.Module:
    """The part with the twins of its own parts; tensors are shared. A part that stands at two
    places has one twin.
    """
    if part not in made:
        kind = _kind(part, known)
        known = known and not (isinstance(part, Layers) and kind is type(part))
        made[part] = same_weights(part, kind, lambda child: _copy(child, made, known))
    return made[part]


def _kind(part: nn.Module, known: bool) -> type[nn.Module]:
    """The class of the part's twin. Attention needs a stack around it that is fuse too."""
    if isinstance(part, Layers):
        return VarlenLayers if VarlenLayers.fits(part) else type(part)
    if isinstance(part, Attention):
        return ATTENTIONS.get(type(part), type(part)) if known else type(part)
    if isinstance(part, FeedForward):
        return FusedFeedForward if FusedFeedForward.fits(part) else type(part)
    return FUSED_CLASSES.get(type(part), type(part))


def fuse_muon(optimisers: Iterable[torch.optim.Optimizer]) -> None:
    """Let those of them that are Muon go through the passes."""
    for optimiser in optimisers:
        if isinstance(optimiser, Muon) and training_kernels().quick_turns:
            optimiser.turn = orthogonal


def orthogonal(matrices: Tensor, steps: int) -> Tensor:
    """`qkv.training.optimizer.orthogonal`, sooner."""
    return training_kernels().orthogonal(matrices.contiguous(), QUINTIC, steps)
