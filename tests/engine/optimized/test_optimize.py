"""The optimized that answers sooner gives the model's own answers; in 8 bits, nearly so."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from tests.kernels.native import INT8_WAYS, needs_compiler, needs_int8
from tests.model.odd_models import ALL, DECODERS, ENCODERS, GROUPED, LENGTH, TRANSLATORS, VOCABULARY
from torch import Tensor, nn

from qkv.attention import KVCache, Mask
from qkv.engine.optimized import optimize
from qkv.engine.optimized.decode_step import DecodeStepLayers, KernelDecodeStepLayers
from qkv.engine.optimized.kernel_modules import KernelLinear, KernelQuantizedLinear
from qkv.engine.optimized.linear import DenseLinear, LinearWeights, PackedLinear
from qkv.engine.optimized.quantized import PackedQuantizedLinear, QuantizedLinear
from qkv.errors import CacheError
from qkv.model import (
    GEGLU,
    ModelConfig,
    MultiHead,
    PreNorm,
    RMSNorm,
    Rope,
    SwiGLU,
    build,
)
from qkv.model.feed_forward import FeedForward
from qkv.model.output import NextToken

B, T, S = 3, 11, 13
LENGTHS = torch.tensor([T, 5, 1])
KERNELS = [
    pytest.param(KernelLinear, marks=needs_compiler),
    pytest.param(KernelQuantizedLinear, marks=needs_compiler),
]
PACKED_INT8 = pytest.param(PackedQuantizedLinear, marks=needs_int8)
PRODUCTS = pytest.mark.parametrize(
    "product",
    [
        PackedLinear,
        QuantizedLinear,
        PACKED_INT8,
        *KERNELS,
    ],
)
COMPILED = pytest.mark.parametrize(
    "compiled", [False, pytest.param(True, marks=needs_compiler)], ids=["torch", "kernels"]
)
COMPILED_INT8 = pytest.mark.parametrize("compiled", INT8_WAYS)


def lively(config: ModelConfig) -> nn.Module:
    """A model with no norm at 1 and no bias at 0."""
    model = build(config, seed=3).eval()
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator))
    return model


def ids(rows: int, columns: int, below: int, seed: int = 7) -> Tensor:
    return torch.randint(below, (rows, columns), generator=torch.Generator().manual_seed(seed))


def answer(model: nn.Module, config: ModelConfig, rows: int = B) -> Tensor:
    """What the model says of some texts, whichever family it is of."""
    text = ids(B, T, VOCABULARY)[:rows]
    if config.kind != "encoder_decoder":
        return model(text, LENGTHS[:rows])
    source = ids(B, S, (config.source or config.embedding).vocabulary, seed=11)[:rows]
    return model(source, text, torch.tensor([7, S, 1])[:rows], LENGTHS[:rows])


def with_llama_parts(config: ModelConfig) -> ModelConfig:
    """The same with plain heads, root mean squares before and a gated feed-forward."""
    parts = {
        "attention": GROUPED,
        "norm": RMSNorm(eps=1e-5),
        "norm_placement": PreNorm(),
        "feed_forward": SwiGLU(width=37),
        "input_norm": None,
        "local": None,
    }
    return config.model_copy(update={"decoder": config.decoder.model_copy(update=parts)})


def assert_near(got: Tensor, want: Tensor, tolerance: float = 2e-5) -> None:
    assert got.shape == want.shape
    scale = float(want.abs().max())
    torch.testing.assert_close(got / scale, want / scale, rtol=tolerance, atol=tolerance)


@COMPILED
@pytest.mark.parametrize("name", ALL)
@torch.inference_mode()
def test_the_optimized_model_gives_the_same_answers(name: str, compiled: bool) -> None:
    model = lively(ALL[name])
    before = {key: tensor.clone() for key, tensor in model.state_dict().items()}
    optimized = optimize(model, compile=compiled)
    for _ in range(3):  # a matrix is packed when it is needed often
        assert_near(answer(optimized, ALL[name]), answer(model, ALL[name]))
    for key, tensor in model.state_dict().items():
        assert tensor.equal(before[key])


@COMPILED
@pytest.mark.parametrize("lengths", [(3, 1, 4), (11, 2, 9, 1)], ids=["few tokens", "many"])
@pytest.mark.parametrize("name", ENCODERS)
@torch.inference_mode()
def test_an_encoder_s_optimized_model_gives_the_same_states_of_texts_in_one_row(
    name: str, lengths: tuple[int, ...], compiled: bool
) -> None:
    model, text = lively(ENCODERS[name]), ids(1, sum(lengths), VOCABULARY)
    places = torch.cat([torch.arange(n) for n in lengths])
    optimized = optimize(model, compile=compiled)
    for mask in (Mask.packed(lengths), Mask.full()):
        for _ in range(3):
            got = optimized.encode(text, mask=mask, positions=places)
        assert_near(got, model.encode(text, mask=mask, positions=places))


@pytest.mark.slow
@COMPILED
@pytest.mark.parametrize("rows", [1, B])
@pytest.mark.parametrize(
    "name", [name for name, config in DECODERS.items() if isinstance(config.output, NextToken)]
)
@torch.inference_mode()
def test_a_decoder_s_optimized_model_fed_token_by_token_gives_the_same_scores(
    name: str, rows: int, compiled: bool
) -> None:
    model, text = lively(DECODERS[name]), ids(rows, LENGTH, VOCABULARY)
    optimized = optimize(model, compile=compiled)
    cache = optimized.empty_cache(rows, LENGTH)
    steps = [optimized(token, cache=cache) for token in text.split(1, dim=1)]
    assert_near(torch.cat(steps, dim=1), model(text))


@COMPILED
@pytest.mark.parametrize("name", ["llama", "llama 3", "yarn", "rotary, in part"])
@pytest.mark.parametrize("int8", [False, True])
@torch.inference_mode()
def test_the_short_way_of_a_single_token_gives_what_the_general_way_gives(
    name: str, int8: bool, compiled: bool
) -> None:
    config = with_llama_parts(DECODERS[name])
    optimized = optimize(lively(config), int8, compiled)
    assert type(optimized.decoder) is (KernelDecodeStepLayers if compiled else DecodeStepLayers)
    text = ids(1, LENGTH, VOCABULARY)
    one_by_one, at_once = optimized.empty_cache(1, LENGTH), optimized.empty_cache(1, LENGTH)
    optimized(text[:, :17], cache=one_by_one)
    optimized(text[:, :17], cache=at_once)
    short = [optimized(token, cache=one_by_one) for token in text[:, 17:].split(1, dim=1)]
    general = optimized(text[:, 17:], cache=at_once)
    assert_near(torch.cat(short, dim=1), general, tolerance=0.02 if int8 else 2e-5)
    for mine, theirs in zip(one_by_one.layers, at_once.layers, strict=True):
        assert mine.length == theirs.length
        assert_near(mine.k, theirs.k, tolerance=0.02 if int8 else 2e-5)


@needs_compiler
@pytest.mark.parametrize(
    "parts",
    [
        {"attention": MultiHead(heads=2, kv_heads=1, head_width=4)},  # narrower than the model
        {"attention": MultiHead(heads=4, head_width=26, bias=False, scale=0.3)},  # wider
        {"feed_forward": GEGLU(width=29, bias=True)},
        {"feed_forward": GEGLU(width=29, tanh=True)},
        {"position": Rope(interleaved=True)},
    ],
    ids=["narrow heads", "wide heads", "gelu", "tanh", "neighbours turn"],
)
@torch.inference_mode()
def test_one_call_a_token_knows_all_that_such_a_decoder_is_made_of(parts: dict[str, Any]) -> None:
    config = with_llama_parts(DECODERS["llama"])
    config = config.model_copy(update={"decoder": config.decoder.model_copy(update=parts)})
    model, text = lively(config), ids(1, LENGTH, VOCABULARY)
    optimized = optimize(model, compile=True)
    assert type(optimized.decoder) is KernelDecodeStepLayers
    cache = optimized.empty_cache(1, LENGTH)
    steps = [optimized(token, cache=cache) for token in text.split(1, dim=1)]
    assert_near(torch.cat(steps, dim=1), model(text))
    with pytest.raises(CacheError, match="1 more do not fit"):
        optimized(text[:, :1], cache=cache)


@needs_compiler
@torch.inference_mode()
def test_a_cache_that_does_not_fit_is_refused_before_anything_is_written() -> None:
    optimized = optimize(lively(with_llama_parts(DECODERS["llama"])), compile=True)
    token, slots = ids(1, 1, VOCABULARY), optimized.empty_cache(1, LENGTH).layers
    _, K, _, E = slots[0].k.shape
    for made in (
        {"batch": 3},
        {"kv_heads": K - 1},
        {"head_width": E - 1},
        {"layers": len(slots) + 1},
    ):
        sizes = {"layers": len(slots), "batch": 1, "kv_heads": K, "head_width": E} | made
        with pytest.raises((CacheError, ValueError)):
            optimized(token, cache=KVCache.empty(capacity=LENGTH, **sizes))


@needs_compiler
def test_two_threads_may_write_at_once() -> None:
    optimized = optimize(lively(with_llama_parts(DECODERS["llama"])), compile=True)

    def write(seed: int) -> Tensor:
        text = ids(1, LENGTH, VOCABULARY, seed)
        with torch.inference_mode():
            cache = optimized.empty_cache(1, LENGTH)
            return torch.cat([optimized(token, cache=cache) for token in text.split(1, dim=1)])

    expected = [write(seed) for seed in range(8)]
    with ThreadPoolExecutor(4) as pool:
        for got, want in zip(pool.map(write, range(8)), expected, strict=True):
            assert got.equal(want)


@COMPILED
@pytest.mark.parametrize("wide", [nn.ReLU(), nn.GELU(), nn.SiLU()])
@torch.inference_mode()
def test_what_is_no_number_in_a_weight_shows_in_the_answer(wide: nn.Module, compiled: bool) -> None:
    model = lively(ENCODERS["mean vector"])
    for block in model.encoder.blocks():
        block.feed_forward = FeedForward(nn.Linear(30, 32), wide, nn.Linear(32, 30), 0.0)
    block.feed_forward.up.weight[3, 2] = torch.nan
    optimized = optimize(model, compile=compiled)
    for _ in range(3):
        assert optimized(ids(2, T, VOCABULARY)).isnan().all()


@COMPILED
def test_a_optimized_model_with_gradients_has_the_model_s(compiled: bool) -> None:
    model = lively(ENCODERS["bert"])
    optimized = optimize(model, compile=compiled)
    grads = []
    for each in (model, optimized):
        states = each.embedding(ids(2, 5, VOCABULARY)).detach().requires_grad_()
        for _ in range(3):
            out = each.encoder(states, Mask.full())
        grads += torch.autograd.grad(out.square().sum(), states)
    assert_near(grads[1], grads[0])


@COMPILED
def test_a_watched_layer_takes_the_general_way(compiled: bool) -> None:
    optimized = optimize(lively(with_llama_parts(DECODERS["llama"])), compile=compiled)
    cache, seen = optimized.empty_cache(1, LENGTH), []
    block = next(iter(optimized.decoder.blocks()))
    with torch.inference_mode():
        optimized(ids(1, 18, VOCABULARY), cache=cache)
        block.attention.core.hook_point.register_forward_hook(
            lambda tap, given, steps: seen.append(steps.weights.shape)
        )
        optimized(ids(1, 1, VOCABULARY), cache=cache)
    assert seen == [(1, 6, 1, 19)]


@COMPILED
@pytest.mark.parametrize("name", TRANSLATORS)
@torch.inference_mode()
def test_a_translator_s_optimized_model_fed_token_by_token_gives_the_same_scores(
    name: str, compiled: bool
) -> None:
    config = TRANSLATORS[name]
    model, text = lively(config), ids(B, T, VOCABULARY)
    source = ids(B, S, (config.source or config.embedding).vocabulary, seed=11)
    optimized = optimize(model, compile=compiled)
    memory, cache = optimized.encode(source), optimized.empty_cache(B, T)
    steps = [optimized.decode(token, memory, cache=cache) for token in text.split(1, dim=1)]
    assert_near(torch.cat(steps, dim=1), model(source, text))


@COMPILED_INT8
@pytest.mark.parametrize("name", ALL)
@torch.inference_mode()
def test_in_8_bits_the_answers_are_near_and_no_row_depends_on_another(
    name: str, compiled: bool
) -> None:
    model = lively(ALL[name])
    optimized = optimize(model, True, compiled)
    together, expected = answer(optimized, ALL[name]), answer(model, ALL[name])
    distance = (together - expected).norm() / expected.norm()
    assert distance < 0.12, distance
    assert_near(answer(optimized, ALL[name], rows=1), together[:1])


@COMPILED
@pytest.mark.parametrize("config", [ENCODERS["bert"], DECODERS["llama"]], ids=["bert", "llama"])
def test_in_8_bits_only_small_tables_are_kept_in_more(config: ModelConfig, compiled: bool) -> None:
    optimized = optimize(lively(config), True, compiled)
    matrices = {name: t for name, t in optimized.state_dict().items() if t.dim() == 2}
    kept = {name for name, t in matrices.items() if t.dtype == torch.float32}
    assert kept <= {"embedding.types", "encoder.position.weight"}


@PRODUCTS
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("rows", [1, 2, 7, 67, 131])
def test_products_are_near_and_of_zeros_nothing_but_the_bias(
    product: type[nn.Module], bias: bool, rows: int
) -> None:
    K, N = 37, 53
    generator = torch.Generator().manual_seed(1)
    weight = torch.randn(N, K, generator=generator) * torch.rand(N, 1, generator=generator)
    shift = torch.randn(N, generator=generator) if bias else None
    x = torch.randn(1, rows, K, generator=generator) * torch.rand(rows, 1, generator=generator)
    x[:, 0] = 0.0
    ours = product(LinearWeights(weight, shift))
    with torch.inference_mode():
        for _ in range(3):  # a matrix is packed when it is needed often
            got = ours(x)
        want = nn.functional.linear(x, weight, shift)
    assert got.shape == want.shape
    assert got[0, 0].equal(torch.zeros(N) if shift is None else shift)
    allowed = 1e-5 if issubclass(product, DenseLinear) else 0.02
    assert (got - want).abs().max() <= allowed * want.abs().max()


@pytest.mark.parametrize(
    "product",
    [QuantizedLinear, PACKED_INT8, pytest.param(KernelQuantizedLinear, marks=needs_compiler)],
)
def test_a_number_that_is_none_shows_in_its_row_and_in_no_other(product: type[nn.Module]) -> None:
    weight, x = torch.randn(5, 7), torch.randn(3, 7)
    x[1, 2] = torch.nan
    with torch.inference_mode():
        got = product(LinearWeights(weight, None))(x)
    assert got[1].isnan().all()
    assert got[[0, 2]].isfinite().all()


def test_a_model_in_another_precision_is_its_own_twin() -> None:
    model = lively(ENCODERS["bert"]).double()
    assert optimize(model) is model
    assert optimize(model, compile=True) is model
