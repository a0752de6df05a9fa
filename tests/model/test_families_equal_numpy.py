"""Every family, with every choice, gives the numbers of an independent NumPy implementation."""

import numpy as np
import pytest
import torch
from tests.model import numpy_twin
from tests.model.odd_models import (
    ALL,
    DECODERS,
    ENCODERS,
    TRANSLATORS,
    TYPES,
    VOCABULARY,
    choices_in,
)
from torch import Tensor, nn

from qkv.model import Config, ModelConfig, build
from qkv.model.position.rope import NoScaling

B, T, S = 4, 11, 13
LENGTHS = torch.tensor([T, 5, 1, 0])
SOURCE_LENGTHS = torch.tensor([7, S, 0, 1])
TOLERANCE = 1e-10


def lively(config: ModelConfig) -> nn.Module:
    """The model in float64, with no norm at 1, no bias at 0 and no table too faint to matter."""
    model = build(config, seed=3).double().eval()
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for parameter in model.parameters():
            drawn = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
            parameter.add_(0.2 * drawn)
    return model


def weights_of(model: nn.Module) -> dict[str, np.ndarray]:
    return {name: tensor.numpy() for name, tensor in model.state_dict().items()}


def ids(rows: int, columns: int, below: int, seed: int = 7) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(below, (rows, columns), generator=generator)


def assert_equal(ours: Tensor, twin: np.ndarray) -> None:
    assert ours.dtype == torch.float64
    assert ours.shape == twin.shape
    np.testing.assert_allclose(ours.numpy(), twin, rtol=TOLERANCE, atol=TOLERANCE)


def source_words(config: ModelConfig) -> int:
    return (config.source or config.embedding).vocabulary


def concrete(kind: type[Config]) -> set[type[Config]]:
    """Every choice below that one that can be written down."""
    found = {kind} if "kind" in kind.model_fields and kind.__module__.startswith("qkv.") else set()
    return found.union(*(concrete(below) for below in kind.__subclasses__()))


def test_the_models_compared_here_make_every_choice():
    made = {type(choice) for config in ALL.values() for choice in choices_in(config)}
    assert NoScaling in made
    ours = {kind for kind in concrete(Config) if kind.__module__.startswith("qkv.model.")}
    assert ours <= made


@pytest.mark.parametrize("name", ENCODERS)
@torch.no_grad()
def test_an_encoder_equals_numpy(name: str):
    config = ENCODERS[name]
    model, text = lively(config), ids(B, T, VOCABULARY)
    plain = config.model_dump(), weights_of(model), text.numpy()

    assert_equal(model(text), numpy_twin.encoder_only(*plain))
    assert_equal(model(text, LENGTHS), numpy_twin.encoder_only(*plain, LENGTHS.numpy()))
    states = model.encode(text, LENGTHS)
    assert_equal(states, numpy_twin.encoded(*plain, LENGTHS.numpy()))


@torch.no_grad()
def test_an_encoder_with_token_types_equals_numpy():
    config = ENCODERS["bert"]
    model, text, types = lively(config), ids(B, T, VOCABULARY), ids(B, T, TYPES, seed=11)
    twin = numpy_twin.encoder_only(
        config.model_dump(), weights_of(model), text.numpy(), LENGTHS.numpy(), types.numpy()
    )
    assert_equal(model(text, LENGTHS, types), twin)


@pytest.mark.parametrize("name", DECODERS)
@torch.no_grad()
def test_a_decoder_equals_numpy(name: str):
    config = DECODERS[name]
    model, text = lively(config), ids(B, T, VOCABULARY)
    plain = config.model_dump(), weights_of(model), text.numpy()

    assert_equal(model(text), numpy_twin.decoder_only(*plain))
    assert_equal(model(text, LENGTHS), numpy_twin.decoder_only(*plain, LENGTHS.numpy()))


@pytest.mark.parametrize("name", TRANSLATORS)
@torch.no_grad()
def test_an_encoder_decoder_equals_numpy(name: str):
    config = TRANSLATORS[name]
    model = lively(config)
    source, target = ids(B, S, source_words(config)), ids(B, T, VOCABULARY, seed=11)
    plain = config.model_dump(), weights_of(model), source.numpy(), target.numpy()

    assert_equal(model(source, target), numpy_twin.encoder_decoder(*plain))
    twin = numpy_twin.encoder_decoder(*plain, SOURCE_LENGTHS.numpy(), LENGTHS.numpy())
    assert_equal(model(source, target, SOURCE_LENGTHS, LENGTHS), twin)


@pytest.mark.parametrize("name", ["classifier", "mean vector"])
def test_the_kernel_that_gives_gradients_equals_numpy(name: str):
    config = ENCODERS[name]  # learned buckets take another kernel while training
    model, text = lively(config), ids(B, T, VOCABULARY)
    twin = numpy_twin.encoder_only(
        config.model_dump(), weights_of(model), text.numpy(), LENGTHS.numpy()
    )
    assert_equal(model(text, LENGTHS).detach(), twin)


STEPS = [3, 1, 1, 2, 1, 3]  # what is fed at a time; together T


def token_scores(models: dict[str, ModelConfig]) -> list[str]:
    return [name for name, config in models.items() if config.output.kind == "next_token"]


@pytest.mark.parametrize("name", token_scores(DECODERS))
@torch.no_grad()
def test_a_decoder_fed_step_by_step_equals_numpy(name: str):
    config = DECODERS[name]
    model, text = lively(config), ids(B, T, VOCABULARY)
    twin = numpy_twin.decoder_only(config.model_dump(), weights_of(model), text.numpy())
    cache = model.empty_cache(B, capacity=T)

    for piece in text.split(STEPS, dim=1):
        start = cache.length
        scores = model(piece, cache=cache)
        assert_equal(scores, twin[:, start : cache.length])
    assert cache.length == T


@pytest.mark.parametrize("name", TRANSLATORS)
@torch.no_grad()
def test_an_encoder_decoder_fed_step_by_step_equals_numpy(name: str):
    config = TRANSLATORS[name]
    model = lively(config)
    source, target = ids(B, S, source_words(config)), ids(B, T, VOCABULARY, seed=11)
    plain = config.model_dump(), weights_of(model), source.numpy(), target.numpy()
    twin = numpy_twin.encoder_decoder(*plain, SOURCE_LENGTHS.numpy())
    memory, cache = model.encode(source, SOURCE_LENGTHS), model.empty_cache(B, capacity=T)

    for piece in target.split(STEPS, dim=1):
        start = cache.length
        scores = model.decode(piece, memory, SOURCE_LENGTHS, cache=cache)
        assert_equal(scores, twin[:, start : cache.length])
        memory = torch.full_like(memory, torch.nan)  # its keys and values are kept from now on
    assert cache.length == T
