"""A copy of a model that trains faster: its layers compute through compiled kernels.

It shares the model's parameters, under the same names, so whatever one learns both have learned.
Sequences are packed one after the other, so that padding costs nothing. Parts that the kernels do
not support keep the model's own class.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor, nn

from qkv.attention import (
    NO_CACHE,
    Causal,
    Documents,
    KVCache,
    Mask,
    MaskPart,
    Padding,
    QueryLengths,
    RopeRotation,
    scale_factor,
)
from qkv.engine.optimized import (
    activation_code,
    can_optimize,
    copy_as,
    require_activation_code,
)
from qkv.kernels import (
    LANES,
    NO_DROPOUT,
    AttentionSpec,
    DropoutMask,
    training_kernels,
)
from qkv.model import (
    Attention,
    CrossAttention,
    Dropout,
    FeedForward,
    HeadProjection,
    Layers,
    Model,
    NoCrossAttention,
    ResidualAdd,
    TiedLogits,
    UntiedLogits,
    View,
)
from qkv.training.fused_ops import (
    FusedTiedLogits,
    FusedUntiedLogits,
    activation_dropout,
    dropout,
    dropout_add,
    layer_norm,
    linear,
    varlen_attention,
)
from qkv.training.optimizer import QUINTIC, Muon


@dataclass(frozen=True, eq=False)
class PackedSequences(MaskPart):
    """Which tokens of a packed row are one sequence: sequence b has counts[b], from starts[b] on.

    As a part of a mask it lets tokens attend within their own sequence; `causal`, only backwards.
    """

    starts: Tensor  # (sequences,)
    counts: Tensor  # (sequences,)
    rope_starts: Tensor  # (sequences,): the row of the RoPE table where each begins
    causal: bool
    real: Tensor | None  # (N,): which of the B·T positions are no padding, if not all
    shape: tuple[int, int]  # B, T

    @classmethod
    def of(cls, mask: Mask, x: Tensor, positions: Tensor | None) -> PackedSequences | None:
        """The sequences of x (B, T, D); None if the mask does more than tell them apart."""
        B, T = x.shape[:2]
        kinds = {type(part) for part in mask.parts}
        if not kinds <= {Causal, Padding, QueryLengths, Documents} or not B * T:
            return None
        causal = Causal in kinds
        ends = [part for part in mask.parts if isinstance(part, Padding | QueryLengths)]
        documents = [part for part in mask.parts if isinstance(part, Documents)]
        # Without a causal mask, real queries would still see the keys behind the lengths.
        if QueryLengths in kinds and not causal:
            return None
        if documents:
            # A document starts anywhere in its row, so each token needs a position of its own.
            has_positions = positions is not None and positions.dim() == 2
            if ends or len(documents) > 1 or not has_positions:
                return None
            return cls.of_documents(documents[0], T, causal)
        if positions is not None:
            return None
        lengths = ends[0].lengths if ends else torch.full((B,), T)
        for part in ends[1:]:
            lengths = torch.minimum(lengths, part.lengths)
        return cls.of_lengths(lengths.to(torch.int64), T, causal)

    @classmethod
    def of_lengths(cls, lengths: Tensor, T: int, causal: bool) -> PackedSequences:
        """The first lengths[b] of T positions in each row."""
        starts = lengths.cumsum(0) - lengths
        real = None
        if not bool((lengths == T).all()):
            real = (torch.arange(T) < lengths[:, None]).flatten().nonzero()[:, 0]
        return cls(
            starts=starts,
            counts=lengths.contiguous(),
            rope_starts=torch.zeros_like(lengths),
            causal=causal,
            real=real,
            shape=(len(lengths), T),
        )

    @classmethod
    def of_documents(cls, part: Documents, T: int, causal: bool) -> PackedSequences | None:
        """One sequence for each run of a document id; None if a document comes in two runs."""
        ids = part.query_ids
        if part.key_ids is not ids or bool((ids[:, 1:] < ids[:, :-1]).any()):
            return None
        is_start = torch.ones_like(ids, dtype=torch.bool)
        is_start[:, 1:] = ids[:, 1:] != ids[:, :-1]
        # Rows begin a sequence too, so the flattened batch is one row of sequences.
        starts = is_start.flatten().nonzero()[:, 0]
        counts = torch.diff(starts, append=starts.new_tensor([ids.numel()]))
        return cls(
            starts=starts,
            counts=counts,
            rope_starts=starts,
            causal=causal,
            real=None,
            shape=(len(ids), T),
        )

    @staticmethod
    def find(mask: Mask) -> PackedSequences | None:
        """The sequences that `VarlenLayers` put in place of a mask, if it did."""
        return next((part for part in mask.parts if isinstance(part, PackedSequences)), None)

    def pack(self, x: Tensor) -> Tensor:
        """(B, T, D) -> (1, N, D)"""
        rows = x.reshape(-1, x.shape[-1])
        if self.real is not None:
            rows = rows.index_select(0, self.real)
        return rows[None]

    def unpack(self, x: Tensor) -> Tensor:
        """(1, N, D) -> (B, T, D), with zeros at padding."""
        B, T = self.shape
        if self.real is None:
            return x.view(B, T, -1)
        return x.new_zeros(B * T, x.shape[-1]).index_copy(0, self.real, x[0]).view(B, T, -1)


class VarlenAttention(Attention):
    """Self-attention within packed sequences; queries, keys and values come from one product."""

    def forward(self, x: Tensor, view: View) -> Tensor:
        sequences = PackedSequences.find(view.mask)
        if sequences is None:
            return super().forward(x, view)
        qkv = _project(x, [self.query, self.key, self.value])
        rotation = view.rope if isinstance(view.rope, RopeRotation) else None
        spec = _attention_spec(self, sequences, sequences, rotation)
        out: Tensor = self.output(varlen_attention(spec, qkv[0], None)[None])
        return out


class VarlenCrossAttention(CrossAttention):
    """Cross-attention of packed sequences; keys and values come from one product."""

    def forward(self, x: Tensor, view: View) -> Tensor:
        sequences = PackedSequences.find(view.mask)
        sources = PackedSequences.find(view.memory_mask)
        if sequences is None or sources is None or view.memory is None:
            return super().forward(x, view)
        q = _project(x, [self.query])
        kv = _project(view.memory, [self.key, self.value])
        spec = _attention_spec(self, sequences, sources, None)
        out: Tensor = self.output(varlen_attention(spec, q[0], kv[0])[None])
        return out


VARLEN_CLASSES: dict[type[nn.Module], type[Attention]] = {
    Attention: VarlenAttention,
    CrossAttention: VarlenCrossAttention,
}


def supports_attention(plain: nn.Module, rope_width: int) -> bool:
    """Whether the kernel has all that this attention does, with so many rotated features."""
    if not isinstance(plain, Attention) or type(plain) not in VARLEN_CLASSES:
        return False
    if plain.core.cap is not None:
        return False
    parts = [plain.query, plain.key, plain.value]
    projections = [part for part in parts if isinstance(part, HeadProjection)]
    head_widths = {projection.out_features // projection.heads for projection in projections}
    if len(projections) < len(parts) or len(head_widths) != 1:
        return False
    norms = [plain.query_norm, plain.key_norm]
    has_no_norms = all(type(norm) is nn.Identity for norm in norms)
    has_layer_norms = all(type(norm) is nn.LayerNorm and norm.bias is None for norm in norms)
    if not (has_no_norms or has_layer_norms):
        return False
    head_width = head_widths.pop()
    if isinstance(plain, CrossAttention) or not rope_width:
        return head_width % LANES == 0
    return rope_width == head_width and head_width % (2 * LANES) == 0


def _project(x: Tensor, parts: list[nn.Module]) -> Tensor:
    return linear(x, [p.weight for p in parts], [p.bias for p in parts])  # type: ignore[misc]


def _attention_spec(
    plain: Attention,
    queries: PackedSequences,
    keys: PackedSequences,
    rotation: RopeRotation | None,
) -> AttentionSpec:
    assert isinstance(plain.query, HeadProjection)
    assert isinstance(plain.key, HeadProjection)
    head_width = plain.query.out_features // plain.query.heads
    q_norm = plain.query_norm
    k_norm = plain.key_norm
    optional: dict[str, object] = {}
    if isinstance(q_norm, nn.LayerNorm) and isinstance(k_norm, nn.LayerNorm):
        optional |= {"q_gain": q_norm.weight, "q_eps": q_norm.eps}
        optional |= {"k_gain": k_norm.weight, "k_eps": k_norm.eps}
    if rotation is not None:
        optional |= {"cos": _rope_table(rotation.cos), "sin": _rope_table(rotation.sin)}
    return AttentionSpec(
        heads=plain.query.heads,
        kv_heads=plain.key.heads,
        head_width=head_width,
        q_starts=queries.starts,
        q_counts=queries.counts,
        k_starts=keys.starts,
        k_counts=keys.counts,
        rope_starts=queries.rope_starts,
        scale=scale_factor(head_width, plain.core.scale),
        causal=queries.causal and keys is queries,
        **optional,  # type: ignore[arg-type]
    )


def _rope_table(angles: Tensor) -> Tensor:
    """(…, T, E) -> (positions, E)"""
    return angles.reshape(-1, angles.shape[-1]).to(torch.float32)


class VarlenLayers(Layers):
    """Layers that compute real tokens only, between their first norm and their last.

    With a mask that does more than tell sequences apart, they compute as `Layers` do.
    """

    @staticmethod
    def supports(plain: Layers) -> bool:
        """Whether the kernels have its positions and all its attention."""
        rotation = plain.position.rope(torch.zeros(1, dtype=torch.int64), torch.float32)
        rope_width = 0
        if isinstance(rotation, RopeRotation):
            if rotation.interleaved:
                return False
            rope_width = rotation.cos.shape[-1]
        if len(plain.patterns) > 1 or plain.position.mask(torch.float32).parts:
            return False
        parts = [part for block in plain.blocks() for part in (block.attention, block.cross)]
        return all(
            isinstance(part, NoCrossAttention) or supports_attention(part, rope_width)
            for part in parts
        )

    def forward(
        self,
        x: Tensor,
        mask: Mask,
        positions: Tensor | None = None,
        cache: KVCache | None = None,
        memory: Tensor | None = None,
        memory_mask: Mask | None = None,
    ) -> Tensor:
        sequences = PackedSequences.of(mask, x, positions)
        sources = None
        if memory is not None:
            source_mask = Mask() if memory_mask is None else memory_mask
            sources = PackedSequences.of(source_mask, memory, None)
        if sequences is None or cache is not None or (memory is not None and sources is None):
            return super().forward(x, mask, positions, cache, memory, memory_mask)
        positions = self._positions(x, positions, 0)
        x = sequences.pack(self.position.embed(x, positions))
        x = self.widen(self.dropout(self.norm_in(x)))
        view = View(
            mask=Mask((sequences,)),
            rope=self.position.rope(positions, x.dtype),
            cache=NO_CACHE,
            cross_cache=NO_CACHE,
            memory=None if memory is None or sources is None else sources.pack(memory),
            memory_mask=Mask() if sources is None else Mask((sources,)),
        )
        for block in self.blocks():
            x = block(x, view)
        return sequences.unpack(self.norm_out(x))


class FusedLinear(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        return linear(x, [self.weight], [self.bias])


class FusedLayerNorm(nn.LayerNorm):
    def forward(self, x: Tensor) -> Tensor:
        return layer_norm(x, self.weight, self.bias, self.eps)


class FusedDropout(Dropout):
    def forward(self, x: Tensor) -> Tensor:
        mask = self.sample_mask()
        if mask.threshold:
            return dropout(x, mask)
        return x

    def sample_mask(self) -> DropoutMask:
        """A new mask; outside of training one that drops nothing."""
        if self.training:
            return DropoutMask.sample(self.threshold)
        return NO_DROPOUT


class FusedDropoutAdd(ResidualAdd):
    dropout: FusedDropout

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return dropout_add(x, y, self.dropout.sample_mask())


class FusedFeedForward(FeedForward):
    """The activation and its dropout are one pass."""

    dropout: FusedDropout

    @staticmethod
    def supports(plain: FeedForward) -> bool:
        return type(plain) is FeedForward and activation_code(plain.activation) is not None

    def forward(self, x: Tensor) -> Tensor:
        code = require_activation_code(self.activation)
        hidden = activation_dropout(self.up(x), code, self.dropout.sample_mask())
        out: Tensor = self.down(hidden)
        return out


ModelKind = TypeVar("ModelKind", bound=Model)

FUSED_CLASSES: dict[type[nn.Module], type[nn.Module]] = {
    ResidualAdd: FusedDropoutAdd,
    Dropout: FusedDropout,
    UntiedLogits: FusedUntiedLogits,
    TiedLogits: FusedTiedLogits,
    nn.LayerNorm: FusedLayerNorm,
    nn.Linear: FusedLinear,
}


def fuse(model: ModelKind) -> ModelKind:
    """The fused copy; compiles the kernels now if they are not cached."""
    training_kernels()
    fused = _copy(model, {})
    assert isinstance(fused, type(model))
    return fused


def _copy(
    module: nn.Module, copies: dict[nn.Module, nn.Module], in_varlen: bool = True
) -> nn.Module:
    """The module with fused children, sharing its tensors. A module used twice is copied once.

    in_varlen: whether the layers around it pack their sequences.
    """
    if module not in copies:
        kind = _fused_class(module, in_varlen)
        if isinstance(module, Layers) and kind is type(module):
            in_varlen = False
        copies[module] = copy_as(module, kind, lambda child: _copy(child, copies, in_varlen))
    return copies[module]


def _fused_class(module: nn.Module, in_varlen: bool) -> type[nn.Module]:
    """The class of the fused module; varlen attention needs varlen layers around it."""
    if isinstance(module, Layers):
        return VarlenLayers if VarlenLayers.supports(module) else type(module)
    if isinstance(module, Attention):
        return VARLEN_CLASSES.get(type(module), type(module)) if in_varlen else type(module)
    if isinstance(module, FeedForward):
        return FusedFeedForward if FusedFeedForward.supports(module) else type(module)
    return FUSED_CLASSES.get(type(module), type(module))


def fuse_muon(optimizers: Iterable[torch.optim.Optimizer]) -> None:
    """Lets every Muon among them orthogonalize through the kernel, where that is faster."""
    for optimizer in optimizers:
        if isinstance(optimizer, Muon) and training_kernels().newton_schulz_is_faster:
            optimizer.orthogonalize = newton_schulz


def newton_schulz(matrices: Tensor, steps: int) -> Tensor:
    """Muon's orthogonalization; half of its products are symmetric, of which half is computed."""
    return training_kernels().newton_schulz(matrices.contiguous(), QUINTIC, steps)


def compile_for_training(model: Model, optimizers: list[torch.optim.Optimizer]) -> Model:
    """The same weights in a model of fused kernels; Muon gets its kernel too.

    Off the CPU, or in another precision than float32, the model's layers are compiled by torch.
    """
    if can_optimize(model):
        fuse_muon(optimizers)
        return fuse(model)
    for module in model.modules():
        if isinstance(module, Layers):
            module.compile()
    return model
