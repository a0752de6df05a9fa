"""What a model begins with: fresh weights, or all that another one has learnt and that fits."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tests.training.tiny_runs import (
    CPU,
    args_for,
    data_for,
    labelled,
    pairs,
    start,
    trained,
    whole,
    written,
)
from torch import Tensor

from qkv.bundle import Bundle
from qkv.errors import QkvError
from qkv.model import build
from qkv.training.prepare import TrainArgs, prepare
from qkv.training.tasks import DataConfig


@pytest.fixture(scope="module")
def origins(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A trained model for each job, to go on from."""
    folder = tmp_path_factory.mktemp("origins")
    return {
        job: trained(folder / job, args_for(job, data_for(job, folder / "data"), 2))
        for job in ("language", "masked", "classify", "translate", "embed")
    }


def onward(
    job: str, origin: Path, data: DataConfig, steps: int = 2, **changes: object
) -> TrainArgs:
    """Further training of what stands there: its shape and its tokenizer stay."""
    args = args_for(job, data, steps, vocab_size=None, context_length=None, from_=origin, **changes)
    return replace(args, settings={n: v for n, v in args.settings.items() if n != "model"})


def weights(place: Path) -> dict[str, Tensor]:
    return Bundle.load(place).model.state_dict()


def begun(args: TrainArgs) -> dict[str, Tensor]:
    return prepare(args).model(CPU).state_dict()


JOBS_TO_THEMSELVES = ("language", "masked", "classify", "translate", "embed")


@pytest.mark.parametrize("job", JOBS_TO_THEMSELVES)
def test_the_same_job_goes_on_with_every_weight(
    job: str, origins: dict[str, Path], tmp_path: Path
) -> None:
    before = weights(origins[job])
    args = onward(job, origins[job], data_for(job, tmp_path))
    found = begun(args)
    assert found.keys() == before.keys()
    assert all(torch.equal(found[name], t) for name, t in before.items())
    place = trained(tmp_path / "run", args)
    assert any(not torch.equal(t, before[name]) for name, t in weights(place).items())
    old, new = Bundle.load(origins[job]).tokenizer, Bundle.load(place).tokenizer
    assert old is not None
    assert new is not None
    assert new.encode("the red barn") == old.encode("the red barn")


@pytest.mark.parametrize("job", ["classify", "embed"])
def test_an_encoder_of_hidden_words_learns_something_else(
    job: str, origins: dict[str, Path], tmp_path: Path
) -> None:
    before = weights(origins["masked"])
    args = onward(job, origins["masked"], data_for(job, tmp_path))
    found = begun(args)
    shared = [name for name in before if not name.startswith("output.")]
    assert len(shared) > 5
    assert all(torch.equal(found[name], before[name]) for name in shared)
    fresh = build(prepare(args).recipe.model, 5).state_dict()
    for name in found.keys() - set(shared):
        assert torch.equal(found[name], fresh[name])
    assert Bundle.load(trained(tmp_path / "run", args)).tokenizer is not None


@pytest.mark.parametrize("labels", ["xyz", "yx"])
def test_other_labels_get_an_output_of_their_own(
    labels: str, origins: dict[str, Path], tmp_path: Path
) -> None:
    """Also if there are as many: what was learnt for a says nothing of x."""
    data = written(tmp_path / "texts.csv", labelled(47, labels))
    before, found = (
        weights(origins["classify"]),
        begun(onward("classify", origins["classify"], data)),
    )
    for name, tensor in found.items():
        if name.startswith("output."):
            if name.startswith("output.output."):
                assert tensor.shape[0] == len(labels)
            same = before[name].shape == tensor.shape and torch.equal(tensor, before[name])
            assert not same or not tensor.any()  # a fresh bias is zero
        else:
            assert torch.equal(tensor, before[name])
    trained(tmp_path / "run", onward("classify", origins["classify"], data))


@pytest.mark.parametrize("origin", ["masked", "classify", "embed"])
def test_frozen_only_the_output_changes(
    origin: str, origins: dict[str, Path], tmp_path: Path
) -> None:
    args = onward("classify", origins[origin], data_for("classify", tmp_path), 4, freeze=True)
    before = begun(args)
    place = trained(tmp_path / "run", args)
    for name, tensor in weights(place).items():
        assert torch.equal(tensor, before[name]) is not name.startswith("output."), name
    assert prepare(args).recipe.task.frozen  # type: ignore[union-attr]


def test_a_frozen_encoder_reads_every_text_once_and_learns_as_from_the_texts(
    origins: dict[str, Path], tmp_path: Path
) -> None:
    """The first step costs what it costs without freezing, as nothing has changed yet."""
    data, calm = data_for("classify", tmp_path), {"model": {"dropout": 0.0}}
    losses = []
    for frozen in (True, False):
        args = args_for("classify", data, 1, vocab_size=None, context_length=None, freeze=frozen)
        args = replace(args, size=None, from_=origins["masked"], settings=calm)
        run = start(tmp_path / str(frozen), args)
        losses.append(next(iter(run.events())).loss)  # type: ignore[union-attr]
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)


def test_it_goes_on_carefully_unless_it_is_told_otherwise(
    origins: dict[str, Path], tmp_path: Path
) -> None:
    data = data_for("language", tmp_path)
    recipe = prepare(onward("language", origins["language"], data)).recipe
    assert recipe.optimizer.kind == "adamw"
    assert recipe.ema == 0.0
    told = prepare(onward("language", origins["language"], data, optimizer="muon")).recipe
    assert told.optimizer.kind == "muon"


MISTAKES = {
    "of another family": ("language", "classify", {}, "language needs a decoder"),
    "a translator for labels": ("classify", "translate", {}, "classify needs an encoder"),
    "another tokenizer": ("language", "language", {"tokenizer": "bpe"}, "that of the bundle"),
    "another vocabulary": ("language", "language", {"vocab_size": 300}, "that of the bundle"),
    "a set tokenizer": (
        "language",
        "language",
        {"settings": {"tokens": {"kind": "bpe"}}},
        "that of the bundle",
    ),
    "another width": ("language", "language", {"settings": {"model": {"width": 8}}}, "fit"),
    "another preset": ("language", "language", {"preset": "gpt2"}, "leave preset='gpt2' out"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_what_does_not_go_together_is_one_clear_line(
    mistake: str, origins: dict[str, Path], tmp_path: Path
) -> None:
    job, origin, changes, answer = MISTAKES[mistake]
    args = replace(onward(job, origins[origin], data_for(job, tmp_path)), **changes)
    with pytest.raises(QkvError) as caught:
        prepare(args).model(CPU)
    assert answer in str(caught.value)
    assert "\n" not in str(caught.value)


def test_freezing_needs_something_to_freeze(tmp_path: Path) -> None:
    with pytest.raises(QkvError, match="freeze=True needs from_"):
        prepare(args_for("classify", data_for("classify", tmp_path), freeze=True))


def test_an_origin_that_is_no_bundle_is_named(tmp_path: Path) -> None:
    args = args_for("language", data_for("language", tmp_path), from_=tmp_path / "nowhere")
    with pytest.raises(QkvError, match=r"nowhere is not a directory"):
        prepare(args)


def test_an_origin_that_has_changed_since_is_refused(tmp_path: Path) -> None:
    data = data_for("language", tmp_path)
    origin = trained(tmp_path / "origin", args_for("language", data, 1))
    recipe = prepare(onward("language", origin, data)).recipe
    Bundle(build(recipe.model, seed=9), Bundle.load(origin).tokenizer).save(tmp_path / "other")
    origin.rename(tmp_path / "moved")
    (tmp_path / "other").rename(origin)
    settings = recipe.model_dump(exclude_none=True)
    with pytest.raises(QkvError, match="has changed since the recipe was made"):
        prepare(TrainArgs("language", settings=settings))


def test_pairs_of_another_corpus_go_on_with_the_old_tokens(
    origins: dict[str, Path], tmp_path: Path
) -> None:
    data = written(tmp_path / "pairs.csv", pairs(31, seed=9))
    run = whole(tmp_path / "run", onward("translate", origins["translate"], data))
    assert run.recipe.tokens is None
    assert run.recipe.origin is not None
