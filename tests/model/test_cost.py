"""The closed-form cost equals what torch counts."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from qkv.model import (
    GELU,
    BlockDiagonalAttention,
    Classify,
    DecoderOnly,
    Embedding,
    EncoderDecoder,
    EncoderOnly,
    LayerNorm,
    MaskedToken,
    ModelConfig,
    MultiHead,
    NoPosition,
    ParallelNorm,
    PostNorm,
    ReLU,
    ReLU2,
    RMSNorm,
    Rope,
    SandwichNorm,
    SingleResidualNorm,
    Sinusoidal,
    Stack,
    SwiGLU,
    build,
    cost,
)

B, T, S, V = 3, 13, 17, 101

GPT = Stack(
    layers=3, width=36, attention=MultiHead(heads=6), feed_forward=GELU(width=77),
    position=Sinusoidal(),
)  # fmt: skip
LLAMA = Stack(
    layers=2, width=30, position=Rope(), norm=RMSNorm(), feed_forward=SwiGLU(width=71),
    attention=MultiHead(
        heads=6, kv_heads=3, head_width=10, bias=False, output_bias=False, qk_norm=RMSNorm()
    ),
)  # fmt: skip
PAPER = Stack(
    layers=2, width=28, attention=MultiHead(heads=4), feed_forward=ReLU(width=53),
    position=Sinusoidal(), norm_placement=PostNorm(),
    input_norm=LayerNorm(),
)  # fmt: skip
NOTES = Stack(
    layers=2, width=30, attention=BlockDiagonalAttention(heads=5), feed_forward=ReLU2(width=47),
    position=NoPosition(), norm_placement=SingleResidualNorm(),
)  # fmt: skip
FACTORED = Stack(
    layers=2, width=28, attention=MultiHead(heads=4, value_width=9, value_rank=3),
    feed_forward=ReLU(width=53), position=NoPosition(),
)  # fmt: skip

ALBERT = Stack(
    layers=4, unique_layers=2, width=36, embedding_width=11, attention=MultiHead(heads=6),
    feed_forward=GELU(width=77), position=Sinusoidal(), norm_placement=PostNorm(),
    input_norm=LayerNorm(),
)  # fmt: skip
NEOX = Stack(
    layers=3, width=36, attention=MultiHead(heads=6), feed_forward=GELU(width=77),
    position=Rope(), norm_placement=ParallelNorm(),
)  # fmt: skip
GEMMA = Stack(
    layers=2, width=30, position=Rope(), norm=RMSNorm(unit_offset=True),
    feed_forward=SwiGLU(width=71), norm_placement=SandwichNorm(),
    attention=MultiHead(heads=6, kv_heads=3, head_width=10, bias=False, output_bias=False),
)  # fmt: skip

TABLE = Embedding(vocabulary=V)
CONFIGS: dict[str, ModelConfig] = {
    "gpt": DecoderOnly(length=32, embedding=TABLE, decoder=GPT),
    "llama": DecoderOnly(length=32, embedding=TABLE, decoder=LLAMA),
    "masked": EncoderOnly(length=32, embedding=TABLE, encoder=PAPER, output=MaskedToken()),
    "classify": EncoderOnly(
        length=32, embedding=TABLE, encoder=NOTES, output=Classify(labels=("a", "b"))
    ),
    "albert": EncoderOnly(
        length=32, embedding=TABLE, encoder=ALBERT, output=MaskedToken(dense_width=11)
    ),
    "neox": DecoderOnly(length=32, embedding=TABLE, decoder=NEOX),
    "gemma": DecoderOnly(length=32, embedding=TABLE, decoder=GEMMA),
    "factored": DecoderOnly(length=32, embedding=TABLE, decoder=FACTORED),
    "translate": EncoderDecoder(length=32, embedding=TABLE, encoder=PAPER, decoder=PAPER),
}


def run(config: ModelConfig, model: nn.Module) -> Callable[[], Tensor]:
    target, source = torch.randint(V, (B, T)), torch.randint(V, (B, S))
    if isinstance(config, EncoderDecoder):
        return lambda: model(source, target)
    return lambda: model(target)


@pytest.mark.parametrize("name", CONFIGS)
def test_flops_are_those_torch_counts_forward_and_in_training(name: str) -> None:
    config = CONFIGS[name]
    model = build(config)
    for module in model.modules():  # torch counts matrix products, not the fused kernel's inside
        if hasattr(module, "hook_point"):
            module.hook_point.register_forward_hook(lambda tap, given, steps: None)
    forward = run(config, model)
    with FlopCounterMode(display=False) as once:
        out = forward()
    with FlopCounterMode(display=False) as both:
        forward().sum().backward()
    expected = cost(config, T, S)
    per_text = 2 * 30 * 2 if name == "classify" else 0  # the label is computed once a text
    counted = once.get_total_flops() - B * per_text
    assert counted == pytest.approx(B * T * expected.forward_flops)
    assert both.get_total_flops() - 3 * B * per_text == pytest.approx(
        B * T * expected.training_flops
    )
    assert out.requires_grad


@pytest.mark.parametrize("name", CONFIGS)
def test_activation_bytes_are_those_autograd_keeps(name: str) -> None:
    config = CONFIGS[name]
    model = build(config)
    weights = {p.untyped_storage().data_ptr() for p in model.parameters()}
    kept: dict[int, Tensor] = {}

    def pack(tensor: Tensor) -> Tensor:
        place = tensor.untyped_storage().data_ptr()
        if place not in weights:
            kept[place] = tensor  # held, so that no other tensor gets the same place
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        run(config, model)()
    counted = sum(t.untyped_storage().nbytes() for t in kept.values()) / (B * T)
    assert cost(config, T, S).activation_bytes == pytest.approx(counted, rel=0.03)


@pytest.mark.parametrize("name", ["gpt", "llama", "factored", "translate"])
def test_cache_bytes_are_those_the_cache_sets_aside(name: str) -> None:
    config = CONFIGS[name]
    model = build(config)
    assert not isinstance(config, EncoderOnly)
    cache = model.empty_cache(B, capacity=T)  # type: ignore[operator]
    assert cache.bytes == B * T * cost(config, T).cache_bytes


def test_an_encoder_caches_nothing() -> None:
    assert cost(CONFIGS["masked"], T).cache_bytes == 0


def test_weights_take_four_bytes_each() -> None:
    config = CONFIGS["gpt"]
    stored = sum(p.nbytes for p in build(config).parameters())
    assert cost(config, T).weight_bytes == stored
