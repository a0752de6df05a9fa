"""Layers computed again in the backward pass: less is kept, and every number stays the same."""

import copy

import pytest
import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks

from qkv.model import Model, build, preset
from qkv.training.trainer import checkpoint_activations

B, T, S = 3, 11, 7


def model(name: str) -> Model:
    return build(preset(name), seed=1).train()


def loss_of(network: Model, name: str) -> Tensor:
    draws = torch.Generator().manual_seed(0)
    ids, source = (torch.randint(5, 97, (B, n), generator=draws) for n in (T, S))
    torch.manual_seed(7)  # the same dropout
    if name.startswith("translate"):
        return network(source, ids).square().mean()
    return network(ids).square().mean()


def gradients(network: Model) -> dict[str, Tensor]:
    return {n: p.grad for n, p in network.named_parameters() if p.grad is not None}


@pytest.mark.parametrize("name", ["classify-tiny", "translate-tiny", "language-tiny"])
def test_loss_and_gradients_stay_the_same_also_with_dropout(name: str) -> None:
    plain, forgetful = model(name), model(name)
    checkpoint_activations(forgetful)
    losses = [loss_of(network, name) for network in (plain, forgetful)]
    for loss in losses:
        loss.backward()
    assert losses[0].item() == losses[1].item()
    expected, found = gradients(plain), gradients(forgetful)
    assert expected.keys() == found.keys()
    for key, gradient in expected.items():
        torch.testing.assert_close(found[key], gradient, rtol=1e-5, atol=1e-7)


def test_less_is_kept_for_the_backward_pass() -> None:
    kept = []
    for again in (False, True):
        network, total = model("classify-tiny"), 0
        if again:
            checkpoint_activations(network)

        def count(tensor: Tensor) -> Tensor:
            nonlocal total
            total += tensor.numel() * (not isinstance(tensor, torch.nn.Parameter))
            return tensor

        with saved_tensors_hooks(count, lambda tensor: tensor):
            loss_of(network, "classify-tiny")
        kept.append(total)
    assert kept[1] < 0.5 * kept[0]


def test_a_copy_computes_with_its_own_weights() -> None:
    network = model("classify-tiny")
    checkpoint_activations(network)
    twin = copy.deepcopy(network)
    loss_of(twin, "classify-tiny").backward()
    assert gradients(network) == {}
    assert gradients(twin).keys() == dict(twin.named_parameters()).keys()
