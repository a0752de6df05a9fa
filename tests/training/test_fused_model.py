"""A fused model learns the same: the same loss, the same gradients, the same bits."""

from pathlib import Path

import pytest
import torch
from tests.kernels.native import needs_compiler
from tests.training.tiny_runs import CPU, JOBS, args_for, data_for, fingerprint, start
from torch import Tensor

from qkv.errors import UsageError
from qkv.kernels.training import NO_DROPOUT, DropoutMask, training_kernels
from qkv.machine import resources as compiler
from qkv.model import Model
from qkv.text import Tokenizer
from qkv.training.fused_model import VarlenLayers
from qkv.training.prepare import TrainArgs, prepare_again
from qkv.training.recipe import read_recipe
from qkv.training.run import RECIPE, Evaluation, Run

pytestmark = needs_compiler

WIDE = {"width": 64, "layers": 2, "dropout": 0.0}  # heads of 32 numbers


def args(job: str, folder: Path, **model: object) -> TrainArgs:
    settings = {"model": {**WIDE, **model}, "ema": 0.9, "evaluate_every": 4}
    return args_for(
        job, data_for(job, folder / "data"), 9, settings=settings, compile=True, batch=400
    )


def grads(run: Run, model: Model, parts: list[object]) -> tuple[float, dict[str, Tensor]]:
    run.model.zero_grad()
    model.train()
    loss = sum(run.recipe.task.loss(model, part) for part in parts)
    assert isinstance(loss, Tensor)
    loss.backward()
    named = run.model.named_parameters()
    return loss.item(), {n: p.grad.clone() for n, p in named if p.grad is not None}


def same(ours: dict[str, Tensor], theirs: dict[str, Tensor], within: float = 1e-5) -> None:
    assert ours.keys() == theirs.keys()
    largest = max(float(t.abs().max()) for t in theirs.values())
    for name, grad in theirs.items():
        off = float((ours[name] - grad).abs().max())
        assert off <= within * max(float(grad.abs().max()), 1e-3 * largest), name


CHOICES: dict[str, dict[str, object]] = {
    "as they are": {},
    "biases": {"attention": {"bias": True, "output_bias": True}, "norm": {"bias": True}},
    "shared keys": {"attention": {"kv_heads": 1}},
    "narrow heads": {"attention": {"heads": 8}},
    "gelu": {"feed_forward": {"kind": "gelu", "width": 100}},
    "swiglu": {"feed_forward": {"kind": "swiglu", "width": 100}},
    "rms": {"norm": {"kind": "rms_norm"}},
    "post": {"norm_placement": {"kind": "post_norm"}},
    "parallel": {"norm_placement": {"kind": "parallel_norm"}},
    "sandwich": {"norm_placement": {"kind": "sandwich_norm"}},
    "learned": {"position": {"kind": "learned"}},
    "alibi": {"position": {"kind": "alibi"}},
    "neighbours": {"position": {"kind": "rope", "interleaved": True}},
}


@pytest.mark.parametrize("job", JOBS)
def test_loss_and_gradients_are_those_of_the_plain_model(job: str, tmp_path: Path) -> None:
    run = start(tmp_path / "run", args(job, tmp_path))
    batches = run._batches(0)
    assert any(isinstance(part, VarlenLayers) for part in run.trainer.model.modules())
    for parts in (next(batches), next(batches)):
        loss, plain = grads(run, run.model, parts)
        quick, ours = grads(run, run.trainer.model, parts)
        assert quick == pytest.approx(loss, rel=1e-5)
        same(ours, plain)


@pytest.mark.parametrize("choice", CHOICES)
def test_every_choice_of_parts_learns_the_same(choice: str, tmp_path: Path) -> None:
    if choice == "parallel":  # which has no place for cross attention
        run = start(tmp_path / "run", args("language", tmp_path, **CHOICES[choice]))
    else:
        run = start(tmp_path / "run", args("translate", tmp_path, **CHOICES[choice]))
    parts = next(run._batches(0))
    loss, plain = grads(run, run.model, parts)
    quick, ours = grads(run, run.trainer.model, parts)
    assert quick == pytest.approx(loss, rel=1e-5)
    same(ours, plain)


@pytest.mark.parametrize("job", JOBS)
def test_with_dropout_gradients_are_those_of_the_masks_that_were_drawn(
    job: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The torch counterpart of every kernel, with the same masks, gives the same gradients."""
    run = start(tmp_path / "run", args(job, tmp_path, dropout=0.3))
    parts = next(run._batches(0))
    torch.manual_seed(3)
    loss, ours = grads(run, run.trainer.model, parts)

    from qkv.training import fused_model, fused_ops

    def dropout(x: Tensor, mask: DropoutMask) -> Tensor:
        if not mask.threshold:
            return x
        return x * training_kernels().dropout_add(None, torch.ones_like(x), mask)

    def activation_dropout(x: Tensor, kind: int, mask: DropoutMask) -> Tensor:
        return dropout(fused_ops.activation_dropout(x, kind, NO_DROPOUT), mask)

    monkeypatch.setattr(fused_model, "dropout", dropout)
    monkeypatch.setattr(fused_model, "activation_dropout", activation_dropout)
    monkeypatch.setattr(fused_model, "dropout_add", lambda x, y, mask: x + dropout(y, mask))
    torch.manual_seed(3)
    same_loss, theirs = grads(run, run.trainer.model, parts)
    assert loss == pytest.approx(same_loss, rel=1e-6)
    same(ours, theirs)
    torch.manual_seed(4)
    assert grads(run, run.trainer.model, parts)[0] != loss


@pytest.mark.parametrize("job", JOBS)
def test_stopped_and_resumed_it_ends_with_the_same_bits(job: str, tmp_path: Path) -> None:
    asked = args(job, tmp_path, dropout=0.2)
    ends = []
    for name, stop in (("whole", None), ("stopped", 5)):
        run = start(tmp_path / name, asked)
        for event in run.events():
            if not isinstance(event, Evaluation) and event.number == stop:
                run.save()
                torch.rand(7)
                break
        if stop is not None:
            place = tmp_path / name
            recipe = read_recipe((place / RECIPE).read_text("utf-8"))
            assert recipe.compile
            run = Run(prepare_again(recipe, Tokenizer.load(place / "tokenizer.json")), place, CPU)
            run.resume(print)
            assert run.progress.step == stop
            for _ in run.events():
                pass
        ends.append(fingerprint(run))
    assert ends[0] == ends[1]


def test_what_the_optimized_model_learns_the_model_has_learnt(tmp_path: Path) -> None:
    run = start(tmp_path / "run", args("translate", tmp_path))
    own, fused = run.model.state_dict(), run.trainer.model.state_dict()
    assert list(own) == list(fused)
    assert all(own[name].data_ptr() == fused[name].data_ptr() for name in own)
    before = {name: t.clone() for name, t in own.items()}
    for event in run.events():
        if event.number == 2:
            break
    assert all(not torch.equal(t, before[n]) for n, t in run.model.state_dict().items())


def test_layers_that_are_computed_again_learn_the_same(tmp_path: Path) -> None:
    ends = []
    for again in (False, True):
        asked = args("translate", tmp_path, dropout=0.2)
        run = start(tmp_path / f"{again}", asked)
        if again:
            run.recipe = run.recipe.model_copy(update={"activation_checkpointing": True})
            run.trainer = run._make_trainer(run.model, run.recipe.steps)
        torch.manual_seed(1)
        ends.append(grads(run, run.trainer.model, next(run._batches(0))))
    assert ends[0][0] == ends[1][0]
    same(ends[0][1], ends[1][1], within=1e-6)


def test_without_a_compiler_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    training_kernels.cache_clear()
    monkeypatch.setattr(compiler, "COMPILERS", ("no-such-compiler",))
    monkeypatch.delenv("CXX", raising=False)
    with pytest.raises(UsageError, match=r"needs a C\+\+ compiler.*leave compile out"):
        start(tmp_path / "run", args("translate", tmp_path))
