"""`qkv.train`: the keywords, the events, a recipe again, resuming, and a task from outside."""

import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

import pytest
import torch
from tests.training.tiny_runs import NARROW, data_for, sentences, written

import qkv
from qkv.errors import QkvError
from qkv.training.recipe import read_recipe
from qkv.training.tasks import Task
from qkv.training.tasks.classify import ClassifyTask
from qkv.training.tasks.language import LanguageTask

SMALL: dict[str, Any] = {
    "size": "tiny",
    "steps": 6,
    "vocab_size": 300,
    "context_length": 16,
    "batch": 64,
    "settings": {"model": NARROW, "evaluate_every": 3},
}


def start(folder: Path, job: str = "language", **changes: Any) -> Any:
    (file,) = data_for(job, folder / "data").files
    return qkv.train(job, file, output=folder / "run", **{**SMALL, **changes})


def weights(directory: Path) -> str:
    return hashlib.sha256((directory / "model.safetensors").read_bytes()).hexdigest()


def test_iterating_a_run_gives_steps_evaluations_and_then_a_bundle(tmp_path: Path) -> None:
    events = list(start(tmp_path))
    steps = [event for event in events if isinstance(event, qkv.Step)]
    evaluations = [event for event in events if isinstance(event, qkv.Evaluation)]
    assert [step.number for step in steps] == [1, 2, 3, 4, 5, 6]
    assert [evaluation.number for evaluation in evaluations] == [3, 6]
    assert isinstance(events[-1], qkv.Finished)
    assert events[-1].directory == tmp_path / "run"
    assert "loss" in events[-1].result.scores
    assert qkv.load(tmp_path / "run").tokenizer is not None


def test_finish_takes_the_remaining_steps(tmp_path: Path) -> None:
    whole = start(tmp_path / "one")
    whole.finish()
    run = start(tmp_path / "two")
    for event in run:
        if event.number == 2:
            break
    run.finish()
    assert run.progress.step == 6
    assert weights(tmp_path / "one" / "run") == weights(tmp_path / "two" / "run")


def test_a_recipe_gives_the_same_weights_again(tmp_path: Path) -> None:
    first = start(tmp_path)
    first.finish()
    for name, config in (("value", first.recipe), ("file", tmp_path / "run" / "recipe.toml")):
        run = qkv.train(config=config, output=tmp_path / name)
        assert run.recipe == first.recipe
        run.finish()
        assert weights(tmp_path / name) == weights(tmp_path / "run")


def test_keywords_take_precedence_over_a_recipe_and_settings_over_both(tmp_path: Path) -> None:
    recipe = start(tmp_path).recipe
    run = qkv.train(
        config=recipe, output=tmp_path / "other", steps=7, seed=3, settings={"steps": 8}
    )
    assert (run.recipe.steps, run.recipe.seed) == (8, 3)


def test_a_stopped_run_is_resumed_to_the_same_weights(tmp_path: Path) -> None:
    start(tmp_path / "one").finish()
    run = start(tmp_path / "two")
    for event in run:
        if event.number == 4:
            break
    run.save()
    torch.rand(3)
    resumed = qkv.train("language", output=tmp_path / "two" / "run", resume=True)
    assert "going on after step 4 of 6" in resumed.notes
    resumed.finish()
    assert weights(tmp_path / "two" / "run") == weights(tmp_path / "one" / "run")


def test_old_names_of_settings_are_read_with_a_note(tmp_path: Path) -> None:
    settings = {**SMALL["settings"], "optimiser": {"rate": 0.004}, "average": 0.5}
    run = start(tmp_path, settings=settings)
    assert (run.recipe.optimizer.lr, run.recipe.ema) == (0.004, 0.5)
    assert "the setting average is now called ema" in run.notes
    assert "the setting optimizer.rate is now called optimizer.lr" in run.notes


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"epochs": 1.0}, "steps and epochs exclude each other"),
        ({"size": "tny"}, 'unknown size "tny"; did you mean "tiny"?'),
        ({"freeze": True}, "freeze=True is for classify, not for language"),
        ({"label": "kind"}, "label='kind' is not for language; it reads text"),
        ({"settings": {"stepz": 3}}, 'unknown setting "stepz"; did you mean "steps"?'),
        ({"context_length": 10_000}, "as in context_length="),
    ],
)
def test_errors_name_python_arguments(
    changes: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(QkvError) as caught:
        start(tmp_path, **changes)
    assert message in str(caught.value)
    assert "--" not in str(caught.value)


def test_a_directory_that_is_not_empty_is_refused(tmp_path: Path) -> None:
    run = start(tmp_path)
    with pytest.raises(QkvError, match="pass resume=True to go on"):
        qkv.train("language", output=tmp_path / "run")
    run.finish()
    with pytest.raises(QkvError, match="is not empty; choose another"):
        qkv.train("language", output=tmp_path / "run")
    with pytest.raises(QkvError, match="is finished; there is nothing to resume"):
        qkv.train("language", output=tmp_path / "run", resume=True)


def test_an_unknown_job_and_none_at_all_are_errors(tmp_path: Path) -> None:
    with pytest.raises(QkvError, match='unknown job "classfy"; did you mean "classify"'):
        qkv.train("classfy", output=tmp_path / "run")
    with pytest.raises(QkvError, match="name a job"):
        qkv.train(output=tmp_path / "run")


def test_a_task_defined_outside_the_package_trains_by_its_kind(tmp_path: Path) -> None:
    class BackwardsTask(LanguageTask):
        """The next token of reversed text, with a z-loss on top."""

        kind: Literal["backwards"] = "backwards"  # type: ignore[assignment]
        z_loss: float = 0.01

        title = "A language model that reads backwards"
        summary = "the previous token"

        def loss(self, model: Any, batch: Any) -> torch.Tensor:
            logits = model(batch.ids, positions=batch.positions)
            return super().loss(model, batch) + self.z_loss * logits.logsumexp(-1).square().sum()

        @classmethod
        def texts(cls, split: Any) -> Iterable[str]:
            return (text[::-1] for text in super().texts(split))

        @classmethod
        def matches(cls, model: Any) -> bool:
            return False  # its models are language models

    try:
        data = written(tmp_path / "book.txt", " ".join(sentences(150)))
        settings = {**SMALL["settings"], "task": {"z_loss": 0.02}}
        run = qkv.train(
            "backwards", data.files, output=tmp_path / "run", **{**SMALL, "settings": settings}
        )
        assert isinstance(run.recipe.task, BackwardsTask)
        run.finish()
        recipe = read_recipe((tmp_path / "run" / "recipe.toml").read_text("utf-8"))
        assert recipe == run.recipe
        assert recipe.task.model_dump()["z_loss"] == 0.02
        assert qkv.load(tmp_path / "run").generate("the", max_tokens=3).finish().tokens
        with pytest.raises(QkvError, match="zloss"):
            qkv.train("backwards", output=tmp_path / "no", settings={"task": {"zloss": 1.0}})
    finally:
        del Task._variants["backwards"]
        Task._adapter = None


def test_every_task_describes_itself() -> None:
    assert list(Task.variants()) == ["language", "masked", "classify", "translate", "embed"]
    assert Task.variants()["classify"] is ClassifyTask
    for kind, task in Task.variants().items():
        assert task.name() == kind
        assert task.title
        assert task.summary
        assert task.measures
        assert task.usage[0].startswith("qkv evaluate {0} ")
        assert task.columns
        for size in ("tiny", "small", "medium"):
            assert qkv.preset(f"{task.presets}-{size}").kind == task.architecture


@pytest.mark.parametrize("command", ["train", "evaluate"])
def test_help_describes_every_task_as_the_task_does(command: str, qkv: Any) -> None:
    _, out, _ = qkv(command, "--help")
    words = " ".join(out.split())
    for kind, task in Task.variants().items():
        line = task.summary if command == "train" else task.measures
        assert f"{kind} {line}" in words
