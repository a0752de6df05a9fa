"""Optimisers, schedules and the loop: exact under accumulation, safe against what is not finite."""

import numpy as np
import pytest
import torch

from qkv.data import TokenizedTexts
from qkv.errors import TrainingError
from qkv.model import build, preset
from qkv.training.optimizer import (
    AdamW,
    Constant,
    Cosine,
    InverseSqrt,
    Linear,
    Muon,
    MuonAdamW,
    newton_schulz,
)
from qkv.training.tasks.language import LanguageTask
from qkv.training.tasks.text_stream import Windows, window_starts, windows
from qkv.training.trainer import Trainer

TEXT = TokenizedTexts.of([np.random.default_rng(0).integers(5, 60, 900).tolist()], 60)


def trainer(steps: int = 6, optimizer: AdamW | MuonAdamW | None = None, seed: int = 1) -> Trainer:
    model = build(preset("language-tiny"), seed=seed)
    built = (optimizer or MuonAdamW()).build(model)
    return Trainer(model, LanguageTask().loss, built, Linear(warmup=2), steps)


def batch() -> list[Windows]:
    """A step in one part."""
    return [windows(TEXT, window_starts(TEXT, 16, 0, 0)[:8], 16)]


@pytest.mark.parametrize("optimizer", [AdamW(lr=5e-3), MuonAdamW()])
def test_it_learns(optimizer: AdamW | MuonAdamW) -> None:
    run = trainer(40, optimizer)
    same = batch()
    losses = [step.loss for step in run.steps(same for _ in range(40))]
    assert losses[-1] < 0.5 * losses[0]


def test_three_parts_equal_one_batch() -> None:
    """Accumulated gradients are those of the whole batch, though the parts have other sizes."""
    odd, starts = TokenizedTexts.of([[7] * 9, [8] * 30, [9] * 60], 60), np.arange(8) * 11
    results = []
    for parts in (1, 3):
        run = trainer(1)
        (step,) = run.steps([[windows(odd, p, 10) for p in np.array_split(starts, parts)]])
        results.append((step.loss, step.grad_norm, run.model.state_dict()))
    (loss, length, weights), (other_loss, other_length, other_weights) = results
    assert loss == pytest.approx(other_loss, rel=1e-6)
    assert length == pytest.approx(other_length, rel=1e-5)
    for name, weight in weights.items():
        torch.testing.assert_close(weight, other_weights[name], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("poison", [float("nan"), float("inf")])
def test_what_is_not_finite_never_reaches_the_weights(poison: float) -> None:
    run = trainer(9)
    good = batch()
    before = {name: t.clone() for name, t in run.model.state_dict().items()}
    true = run.loss
    run.loss = lambda model, batch: true(model, batch) * poison
    seen = []
    with pytest.raises(TrainingError, match="not finite for 3 steps in a row, up to step 3"):
        seen.extend(run.steps(good for _ in range(9)))
    assert all(torch.equal(t, before[name]) for name, t in run.model.state_dict().items())


def test_one_lost_step_is_told_and_training_goes_on() -> None:
    run = trainer(4)
    true, calls = run.loss, iter([1.0, float("nan"), 1.0, 1.0])
    run.loss = lambda model, batch: true(model, batch) * next(calls)
    good = batch()
    assert [step.finite for step in run.steps(good for _ in range(4))] == [True, False, True, True]


def test_a_run_ends_at_its_total() -> None:
    run = trainer(3)
    good = batch()
    assert [step.number for step in run.steps(good for _ in range(10))] == [1, 2, 3]


@pytest.mark.parametrize("shape", [(1, 5, 7), (2, 7, 5), (3, 11, 4)])
def test_orthogonal_matrices_have_singular_values_near_one(shape: tuple[int, ...]) -> None:
    turned = newton_schulz(torch.randn(*shape, generator=torch.Generator().manual_seed(0)), 5)
    values = torch.linalg.svdvals(turned)
    assert values.min() > 0.6
    assert values.max() < 1.3


def test_orthogonal_follows_the_quintic_as_it_is_written() -> None:
    matrix = torch.randn(3, 7, 5, generator=torch.Generator().manual_seed(0))
    x = matrix / matrix.norm(dim=(-2, -1), keepdim=True)
    for _ in range(5):
        a = x @ x.mT
        x = 3.4445 * x + (-4.7750 * a + 2.0315 * a @ a) @ x
    torch.testing.assert_close(newton_schulz(matrix, 5), x, rtol=1e-4, atol=1e-5)


def test_muon_in_a_batch_equals_muon_one_by_one() -> None:
    draws = torch.Generator().manual_seed(0)
    start = [torch.randn(6, 4, generator=draws) for _ in range(3)]
    slopes = [torch.randn(6, 4, generator=draws) for _ in range(3)]
    together = [torch.nn.Parameter(t.clone()) for t in start]
    apart = [torch.nn.Parameter(t.clone()) for t in start]
    for group in (together, *([p] for p in apart)):
        optimizer = Muon(group, lr=0.1, weight_decay=0.1)
        for _ in range(3):
            for parameter in group:
                which = together if len(group) > 1 else apart
                index = next(i for i, p in enumerate(which) if p is parameter)
                parameter.grad = slopes[index].clone()
            optimizer.step()
    for a, b in zip(together, apart, strict=True):
        torch.testing.assert_close(a, b)


def test_every_parameter_has_exactly_one_optimiser_and_norms_do_not_decay() -> None:
    model = build(preset("translate-tiny"))
    for choice in (AdamW(), MuonAdamW()):
        groups = [group for o in choice.build(model) for group in o.param_groups]
        owned = [id(p) for group in groups for p in group["params"]]
        assert sorted(owned) == sorted(id(p) for p in model.parameters())
        for group in groups:
            if any(p.dim() < 2 for p in group["params"]):
                assert group["weight_decay"] == 0.0


def test_schedules_as_literals() -> None:
    assert [round(Linear(warmup=0, hold=0.5).scale(i, 4), 3) for i in range(4)] == [1, 1, 1, 0.5]
    assert Cosine(warmup=0, floor=0.1).scale(0, 10) == pytest.approx(1.0)
    assert Cosine(warmup=0, floor=0.1).scale(5, 10) == pytest.approx(0.55)
    assert Constant(warmup=0).scale(99, 100) == 1.0
    inverse = InverseSqrt(warmup=100)
    assert inverse.scale(399, 1000) == pytest.approx(0.5)
    warming = [Linear(warmup=3).scale(i, 100) for i in range(4)]
    assert warming == pytest.approx([0.25, 0.5, 0.75, 1.0])
    assert warming == sorted(warming)
