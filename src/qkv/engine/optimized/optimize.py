"""A twin of a model that gives the same answers sooner.

Its parts are the model's own, but for those a quicker one can stand for: three projections become
one product, a gate and its values become one, matrices lie in the order they are read in, or are
kept in 8 bits. Everything else is shared with the model. A twin in float32 has copies of the
matrices it joins, and of those it packs.
"""

from typing import ClassVar, TypeVar

import torch
from torch import nn

from qkv.engine.optimized.decode_step import DecodeStepLayers, KernelDecodeStepLayers, fits, steps
from qkv.engine.optimized.fused import (
    FastRMSNorm,
    FusedActivationFeedForward,
    FusedGatedFeedForward,
    LinearToHeads,
    Scores,
    joined,
    plain_kind,
    same_weights,
)
from qkv.engine.optimized.kernel_modules import (
    KernelFeedForward,
    KernelLinear,
    KernelLogits,
    KernelQuantizedEmbedding,
    KernelQuantizedFeedForward,
    KernelQuantizedLinear,
    activation_number,
    in_turn,
    kernel_class,
    layer_norms,
)
from qkv.engine.optimized.linear import Matrix, Packed, Plain
from qkv.engine.optimized.quantized import (
    Int8,
    PackedQuantizedLinear,
    QuantizedEmbedding,
    TiledFeedForward,
)
from qkv.model import Encoder, Model
from qkv.model.attention import Attention, HeadProjection
from qkv.model.embedding import TokenEmbedding
from qkv.model.feed_forward import FeedForward, GatedFeedForward
from qkv.model.output import PooledOutput, TiedLogits, UntiedLogits
from qkv.model.stack import Block, Layers

Kind = TypeVar("Kind", bound=Model)


@torch.no_grad()
def optimize(model: Kind, int8: bool = False, compile: bool = False) -> Kind:
    """The twin; on another device than a CPU, or in another precision, the model itself.

    compile: its inner loops are those of `qkv.kernels`.
    """
    if not can_optimize(model):
        return model
    kind = KernelOptimizedBuilder if compile else OptimizedBuilder
    twin = kind(model.embedding, int8, few_rows=not isinstance(model, Encoder)).of(model)
    assert isinstance(twin, type(model))
    if compile:
        in_turn(twin)
    return twin


def can_optimize(model: Model) -> bool:
    """Whether it lies on a CPU, all in float32."""
    return model.embedding.weight.device.type == "cpu" and all(
        dtype == torch.float32
        for dtype in (model.embedding.dtype, *(p.dtype for p in model.parameters()))
    )


class OptimizedBuilder:
    """Makes the twin of each part of a model once."""

    tied: ClassVar[type[Int8]] = Int8  # for scores whose matrix is the embedding's
    table_kind: ClassVar[type[QuantizedEmbedding]] = QuantizedEmbedding

    def __init__(self, table: TokenEmbedding, int8: bool, few_rows: bool) -> None:
        """few_rows: products will mostly be with a few rows, as where tokens are written."""
        self.table, self.int8 = table, int8
        self.build = self._product(few_rows)
        self.made: dict[nn.Module, nn.Module] = {}

    def _product(self, few_rows: bool) -> type[Int8 | PackedQuantizedLinear | Plain]:
        if self.int8:
            return Int8 if few_rows else PackedQuantizedLinear
        return Packed if Packed.works() else Plain

    def of(self, part: nn.Module) -> nn.Module:
        if part not in self.made:
            self.made[part] = self._copy(self._quicker(part))
        return self.made[part]

    def _quicker(self, part: nn.Module) -> nn.Module:
        """What can stand for the part itself; its own parts are looked at later."""
        match part:
            case PooledOutput():  # small, and it decides
                return part
            case HeadProjection():
                return LinearToHeads(self.build(part), part.heads)
            case GatedFeedForward():
                return FusedGatedFeedForward(part, self.build)
            case FeedForward() if issubclass(
                self.build, Packed
            ) and FusedActivationFeedForward.fits(part):
                return FusedActivationFeedForward(part, self.build)
            case FeedForward() if self.build is PackedQuantizedLinear and TiledFeedForward.fits(
                part
            ):
                return TiledFeedForward(part)
            case TiedLogits():
                return Scores(part, self._scoring(part))
            case nn.RMSNorm():
                return FastRMSNorm(part)
            case TokenEmbedding() if self.int8:
                return self.table_kind(part)
        if type(part) is Attention:  # cross attention has two inputs
            return joined(part, self.build)
        if type(part) is nn.Linear:
            return self.build(part)
        return part

    def _scoring(self, plain: TiedLogits) -> nn.Module:
        if isinstance(plain, UntiedLogits):
            return self.build(plain)
        tied = Matrix(self.table.weight, plain.bias)
        if not self.int8:
            return self.build(tied)
        table = self.of(self.table)
        assert isinstance(table, QuantizedEmbedding)
        return self.tied(tied, rounded=table.table)

    def _copy(self, part: nn.Module) -> nn.Module:
        """The part with the twins of its own parts; tensors are shared."""
        if isinstance(part, PooledOutput):
            return part
        copy = same_weights(part, self._kind(part), self.of)
        if isinstance(copy, Layers) and fits(copy):
            copy.__class__ = self._single(copy)
        return copy

    def _kind(self, part: nn.Module) -> type[nn.Module]:
        """The class of the part's twin."""
        return plain_kind(part) if isinstance(part, Block) else type(part)

    def _single(self, layers: Layers) -> type[Layers]:
        """The class of layers that have a short way for a single token."""
        return DecodeStepLayers


class KernelOptimizedBuilder(OptimizedBuilder):
    """The same with compiled loops."""

    tied, table_kind = KernelQuantizedLinear, KernelQuantizedEmbedding

    def _product(self, few_rows: bool) -> type[Int8 | PackedQuantizedLinear | Plain]:
        return KernelQuantizedLinear if self.int8 else KernelLinear

    def _quicker(self, part: nn.Module) -> nn.Module:
        if type(part) is FeedForward and activation_number(part.activation) is not None:
            return KernelQuantizedFeedForward(part) if self.int8 else KernelFeedForward(part)
        if isinstance(part, TiedLogits) and part.cap is None:
            return KernelLogits(part, self._scoring(part))
        return super()._quicker(part)

    def _kind(self, part: nn.Module) -> type[nn.Module]:
        kind = super()._kind(part)
        return kind if isinstance(part, Block) and not layer_norms(part) else kernel_class(kind)

    def _single(self, layers: Layers) -> type[Layers]:
        return KernelDecodeStepLayers if steps(layers) else DecodeStepLayers
