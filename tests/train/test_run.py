"""A run is a function of its recipe: stopped anywhere and resumed, it ends with the same bits."""

import hashlib
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from qkv.bundle import Bundle
from qkv.errors import TrainingError
from qkv.train.checkpoint import load_newest
from qkv.train.language import CHECKPOINTS, METRICS, RECIPE, Evaluated, Run
from qkv.train.plan import Wish, plan_language
from qkv.train.recipe import read_recipe

CPU = torch.device("cpu")
WORDS = [
    "the",
    "cat",
    "sat",
    "on",
    "a",
    "mat",
    "and",
    "the",
    "dog",
    "ran",
    "to",
    "the",
    "red",
    "barn",
    "while",
    "birds",
    "sang",
]
TEXT = " ".join(random.Random(0).choices(WORDS, k=1500))
WISH = Wish("tiny", steps=20, tokens="characters", context=16, batch=4, seed=5)


def start(folder: Path) -> Run:
    recipe, tokenizer = plan_language(WISH, [TEXT], [])
    # Dropout, so that the random numbers matter too.
    noisy = recipe.model.decoder.model_copy(update={"dropout": 0.1})
    model = recipe.model.model_copy(update={"decoder": noisy})
    recipe = recipe.model_copy(update={"model": model, "evaluate_every": 4})
    folder.mkdir(exist_ok=True)
    (folder / RECIPE).write_text(recipe.toml(), encoding="utf-8")
    return Run(recipe, [TEXT], tokenizer, folder, CPU)


def weights(run: Run) -> str:
    digest = hashlib.sha256()
    for name, tensor in sorted(run.model.state_dict().items()):
        digest.update(name.encode() + tensor.numpy().tobytes())
    return digest.hexdigest()


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> str:
    run = start(tmp_path_factory.mktemp("whole"))
    for _ in run.events():
        pass
    return weights(run)


@pytest.mark.parametrize("stop", [1, 4, 7, 13, 19])
def test_stopped_at_any_step_and_resumed_it_ends_with_the_same_bits(
    stop: int, tmp_path: Path, uninterrupted: str
) -> None:
    first = start(tmp_path)
    for event in first.events():
        if not isinstance(event, Evaluated) and event.number == stop:
            break
    first.save()
    torch.rand(7)  # whatever happened in between
    second = start(tmp_path)
    second.resume(lambda line: None)
    assert second.progress.done == stop
    for _ in second.events():
        pass
    assert weights(second) == uninterrupted


def test_a_line_of_metrics_that_was_cut_short_does_not_stop_a_resume(tmp_path: Path) -> None:
    run = start(tmp_path)
    for event in run.events():
        if isinstance(event, Evaluated):
            break
    with (tmp_path / METRICS).open("a") as metrics:
        metrics.write('{"step": 5, "lo')
    again = start(tmp_path)
    again.resume(print)
    assert (tmp_path / METRICS).read_text().endswith("}\n")


def test_the_recipe_file_is_the_recipe(tmp_path: Path) -> None:
    run = start(tmp_path)
    assert read_recipe((tmp_path / RECIPE).read_text()) == run.recipe


@pytest.mark.parametrize("damage", ["truncated", "flipped", "missing"])
def test_a_damaged_checkpoint_is_named_and_the_one_before_it_used(
    damage: str, tmp_path: Path, uninterrupted: str
) -> None:
    run = start(tmp_path)
    for event in run.events():
        if isinstance(event, Evaluated) and event.number == 12:
            break
    newest = max((tmp_path / CHECKPOINTS).glob("step-*")) / "state.safetensors"
    content = newest.read_bytes()
    if damage == "truncated":
        newest.write_bytes(content[:-9])
    elif damage == "flipped":
        newest.write_bytes(content[:-9] + bytes([content[-9] ^ 1]) + content[-8:])
    else:
        newest.unlink()
    again, said = start(tmp_path), list[str]()
    again.resume(said.append)
    assert again.progress.done == 8
    assert "step-00000012/state.safetensors" in said[0]
    for _ in again.events():
        pass
    assert weights(again) == uninterrupted


def test_without_a_healthy_checkpoint_there_is_one_clear_line(tmp_path: Path) -> None:
    run = start(tmp_path)
    with pytest.raises(TrainingError, match="no healthy checkpoint"):
        load_newest(tmp_path / CHECKPOINTS, run.trainer, print)


def test_other_texts_than_the_recipes_are_refused(tmp_path: Path) -> None:
    run = start(tmp_path)
    with pytest.raises(TrainingError, match="not those the recipe was made for"):
        Run(run.recipe, [TEXT + "!"], run.tokenizer, tmp_path, CPU)


def test_the_directory_becomes_a_bundle_with_all_that_led_to_it(tmp_path: Path) -> None:
    run = start(tmp_path / "run")
    events = list(run.events())
    place = run.finish()
    bundle = Bundle.load(place)
    assert bundle.tokenizer is not None
    assert bundle.tokenizer.encode("the cat") == run.tokenizer.encode("the cat")
    names = {path.name for path in place.iterdir()}
    assert {RECIPE, METRICS, CHECKPOINTS, "MANIFEST.json", "tokenizer.json"} <= names
    held_out = [event.loss for event in events if isinstance(event, Evaluated)]
    run.model = bundle.model  # type: ignore[assignment]
    assert run.held_out_loss() == pytest.approx(min(held_out), abs=1e-6)


def test_killed_without_warning_it_goes_on_and_ends_with_the_same_bits(tmp_path: Path) -> None:
    """Kill −9 at random moments of the program itself, --resume, again and again."""
    text = tmp_path / "text.txt"
    text.write_text(TEXT, encoding="utf-8")
    program = Path(sys.executable).with_name("qkv")
    options = ["--size", "tiny", "--steps", "40", "--tokens", "characters", "--context", "16"]
    options += ["--batch", "4", "--threads", "1", "--device", "cpu"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}

    def go(place: Path, *more: str) -> subprocess.Popen[bytes]:
        command = [program, "train", "language", str(text), "-o", str(place), *options, *more]
        return subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment
        )

    whole, broken = tmp_path / "whole", tmp_path / "broken"
    assert go(whole).wait(timeout=120) == 0
    draws, kills = random.Random(1), 0
    running = go(broken)
    for _ in range(12):
        resumable = broken / CHECKPOINTS
        waiting = time.monotonic() + 60
        while running.poll() is None and time.monotonic() < waiting:
            if any(resumable.glob("step-*")) and draws.random() < 0.2:
                running.send_signal(signal.SIGKILL)
                kills += 1
                break
            time.sleep(0.02)
        if running.wait(timeout=60) == 0:
            break
        running = go(broken, "--resume")
    assert running.wait(timeout=120) == 0
    assert kills > 0
    model = "model.safetensors"
    assert (broken / model).read_bytes() == (whole / model).read_bytes()
