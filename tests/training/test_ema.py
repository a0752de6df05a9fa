"""The running mean of the weights: what a plain loop says, and never in the model's way."""

import pytest
import torch
from torch import nn

from qkv.training.trainer import EMA


def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 3), nn.LayerNorm(3))


def step(network: nn.Module) -> None:
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(torch.randn_like(parameter))


@pytest.mark.parametrize("decay", [0.5, 0.9, 0.999])
def test_it_is_what_a_plain_loop_says(decay: float) -> None:
    network = model()
    ema = EMA(network, decay)
    expected = {name: t.detach().double().clone() for name, t in network.named_parameters()}
    for number in range(1, 14):
        step(network)
        ema.update(network, number)
        share = min(decay, (1 + number) / (10 + number))
        for name, t in network.named_parameters():
            expected[name] = share * expected[name] + (1 - share) * t.detach().double()
    for name, mean in expected.items():
        torch.testing.assert_close(ema.weights[name].double(), mean, rtol=1e-5, atol=1e-5)


def test_inside_the_model_has_the_mean_and_afterwards_its_own_weights() -> None:
    network = model()
    ema = EMA(network, 0.9)
    step(network)
    ema.update(network, 1)
    own = {name: t.detach().clone() for name, t in network.named_parameters()}
    with ema.applied_to(network):
        for name, t in network.named_parameters():
            assert torch.equal(t, ema.weights[name])
            assert not torch.equal(t, own[name])
    assert all(torch.equal(t, own[name]) for name, t in network.named_parameters())


def test_an_error_inside_brings_the_weights_back_too() -> None:
    network = model()
    ema = EMA(network, 0.9)
    step(network)
    own = {name: t.detach().clone() for name, t in network.named_parameters()}
    with pytest.raises(KeyboardInterrupt), ema.applied_to(network):
        raise KeyboardInterrupt
    assert all(torch.equal(t, own[name]) for name, t in network.named_parameters())


def test_the_mean_does_not_follow_a_model_that_is_not_taken_in() -> None:
    network = model()
    ema = EMA(network, 0.9)
    before = {name: t.clone() for name, t in ema.weights.items()}
    step(network)
    assert all(torch.equal(t, before[name]) for name, t in ema.weights.items())
