"""An optimized copy of a model, which gives the same answers faster.

Most parts are the model's own. Some are replaced: three projections become one product, a gate and
its up projection become one, matrices are packed into the order they are read in or quantized to
int8. Tensors are shared with the model, except for the matrices that are stacked, packed or
quantized.
"""

from typing import ClassVar, TypeVar

import torch
from torch import nn

from qkv.engine.optimized.decode_step import (
    DecodeStepLayers,
    KernelDecodeStepLayers,
    supports_decode_step,
    supports_kernel_decode_step,
)
from qkv.engine.optimized.fused import (
    FastRMSNorm,
    FusedActivationFeedForward,
    FusedGatedFeedForward,
    OptimizedHeadProjection,
    OptimizedLogits,
    block_class,
    copy_as,
    fuse_attention,
)
from qkv.engine.optimized.kernel_modules import (
    KernelFeedForward,
    KernelLinear,
    KernelLogits,
    KernelQuantizedEmbedding,
    KernelQuantizedFeedForward,
    KernelQuantizedLinear,
    activation_code,
    has_layer_norms,
    kernel_class,
    link_prefetches,
)
from qkv.engine.optimized.linear import DenseLinear, LinearWeights, PackedLinear
from qkv.engine.optimized.quantized import (
    PackedQuantizedLinear,
    QuantizedEmbedding,
    QuantizedLinear,
    TiledFeedForward,
)
from qkv.model import (
    Attention,
    Block,
    Encoder,
    FeedForward,
    GatedFeedForward,
    HeadProjection,
    Layers,
    Model,
    PooledOutput,
    TiedLogits,
    TokenEmbedding,
    UntiedLogits,
)

ModelKind = TypeVar("ModelKind", bound=Model)
LinearClass = type[DenseLinear | QuantizedLinear | PackedQuantizedLinear]


@torch.no_grad()
def optimize(model: ModelKind, int8: bool = False, compile: bool = False) -> ModelKind:
    """The optimized model; the model itself if it is not on a CPU or not in float32.

    int8: with weights quantized to int8. compile: with the kernels of `qkv.kernels`.
    """
    if not can_optimize(model):
        return model
    builder = KernelOptimizedBuilder if compile else OptimizedBuilder
    few_rows = not isinstance(model, Encoder)
    optimized = builder(model.embedding, int8, few_rows).convert(model)
    assert isinstance(optimized, type(model))
    if compile:
        link_prefetches(optimized)
    return optimized


def can_optimize(model: Model) -> bool:
    """Whether it is on a CPU, all in float32."""
    if model.embedding.weight.device.type != "cpu":
        return False
    dtypes = {model.embedding.dtype, *(p.dtype for p in model.parameters())}
    return dtypes == {torch.float32}


class OptimizedBuilder:
    """Converts the modules of a model, each once."""

    tied_linear: ClassVar[type[QuantizedLinear]] = QuantizedLinear  # for tied logits in int8
    embedding_class: ClassVar[type[QuantizedEmbedding]] = QuantizedEmbedding

    def __init__(self, embedding: TokenEmbedding, int8: bool, few_rows: bool) -> None:
        """few_rows: most products will be with a few rows, as when tokens are generated."""
        self.embedding = embedding
        self.int8 = int8
        self.linear_class = self._linear_class(few_rows)
        self.cache: dict[nn.Module, nn.Module] = {}

    def _linear_class(self, few_rows: bool) -> LinearClass:
        if self.int8:
            return QuantizedLinear if few_rows else PackedQuantizedLinear
        return PackedLinear if PackedLinear.is_available() else DenseLinear

    def convert(self, module: nn.Module) -> nn.Module:
        """The optimized module; the same one for a module that occurs twice."""
        if module not in self.cache:
            self.cache[module] = self._copy(self._replacement(module))
        return self.cache[module]

    def _replacement(self, module: nn.Module) -> nn.Module:
        """What replaces the module itself; its children are converted later."""
        build = self.linear_class
        match module:
            case PooledOutput():  # small, and the answer depends on it
                return module
            case HeadProjection():
                return OptimizedHeadProjection(build(module), module.heads)
            case GatedFeedForward():
                return FusedGatedFeedForward(module, build)
            case FeedForward() if issubclass(build, PackedLinear) and (
                FusedActivationFeedForward.supports(module)
            ):
                return FusedActivationFeedForward(module, build)
            case FeedForward() if build is PackedQuantizedLinear and (
                TiledFeedForward.supports(module)
            ):
                return TiledFeedForward(module)
            case TiedLogits():
                return OptimizedLogits(module, self._logits_linear(module))
            case nn.RMSNorm():
                return FastRMSNorm(module)
            case TokenEmbedding() if self.int8:
                return self.embedding_class(module)
        if type(module) is Attention:  # not a subclass: cross-attention has two inputs
            return fuse_attention(module, build)
        if type(module) is nn.Linear:
            return build(module)
        return module

    def _logits_linear(self, plain: TiedLogits) -> nn.Module:
        if isinstance(plain, UntiedLogits):
            return self.linear_class(plain)
        tied = LinearWeights(self.embedding.weight, plain.bias)
        if not self.int8:
            return self.linear_class(tied)
        # Tied: the logits share the embedding's int8 table instead of a second copy.
        embedding = self.convert(self.embedding)
        assert isinstance(embedding, QuantizedEmbedding)
        return self.tied_linear(tied, quantized=embedding.table)

    def _copy(self, module: nn.Module) -> nn.Module:
        """The module with converted children; tensors are shared."""
        if isinstance(module, PooledOutput):
            return module
        copy = copy_as(module, self._class(module), self.convert)
        # Only now: whether there is a short path depends on the converted children.
        if isinstance(copy, Layers) and supports_decode_step(copy):
            copy.__class__ = self._decode_step_class(copy)
        return copy

    def _class(self, module: nn.Module) -> type[nn.Module]:
        if isinstance(module, Block):
            return block_class(module)
        return type(module)

    def _decode_step_class(self, layers: Layers) -> type[Layers]:
        return DecodeStepLayers


class KernelOptimizedBuilder(OptimizedBuilder):
    """The same with the compiled kernels."""

    tied_linear = KernelQuantizedLinear
    embedding_class = KernelQuantizedEmbedding

    def _linear_class(self, few_rows: bool) -> LinearClass:
        return KernelQuantizedLinear if self.int8 else KernelLinear

    def _replacement(self, module: nn.Module) -> nn.Module:
        if type(module) is FeedForward and activation_code(module.activation) is not None:
            if self.int8:
                return KernelQuantizedFeedForward(module)
            return KernelFeedForward(module)
        if isinstance(module, TiedLogits) and module.cap is None:
            return KernelLogits(module, self._logits_linear(module))
        return super()._replacement(module)

    def _class(self, module: nn.Module) -> type[nn.Module]:
        kind = super()._class(module)
        if isinstance(module, Block) and not has_layer_norms(module):
            return kind
        return kernel_class(kind)

    def _decode_step_class(self, layers: Layers) -> type[Layers]:
        if supports_kernel_decode_step(layers):
            return KernelDecodeStepLayers
        return DecodeStepLayers
