"""`qkv train` and `qkv evaluate` as a person runs them."""

import json
import math
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from qkv.cli.app import main
from qkv.training.recipe import read_recipe

QKV = Path(sys.executable).with_name("qkv")
TEXT = "In the beginning was a word, and the word was short. " * 60
SMALL = ["--size", "tiny", "--context", "16", "--batch", "64", "--threads", "1", "--device", "cpu"]
NARROW = ["--set", "model.width=16", "--set", "model.layers=1", "--vocabulary", "300"]
Ran = tuple[int, str, str]  # exit code, standard output, standard error


def run(*arguments: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [str(QKV), *map(str, arguments)]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=120)


@pytest.fixture
def book(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to be in, with something to read."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "book.txt").write_text(TEXT, encoding="utf-8")
    return tmp_path / "book.txt"


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trained")
    (folder / "book.txt").write_text(TEXT, encoding="utf-8")
    ran = run("train", "language", "book.txt", "-o", "run", "--steps", 30, *SMALL, cwd=folder)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.startswith("run: validation loss ")
    assert "30 steps" in ran.stderr
    assert "step 30/30" in ran.stderr
    return folder


def test_a_trained_model_is_evaluated_beside_a_baseline(trained: Path) -> None:
    ran = run("evaluate", "run", "book.txt", "--json", cwd=trained)
    assert ran.returncode == 0, ran.stderr
    score = json.loads(ran.stdout)
    assert score["loss_per_character"] < score["baseline"]["loss_per_character"]
    assert score["loss_per_byte"] == pytest.approx(score["loss_per_character"])
    assert score["perplexity"] == pytest.approx(math.exp(score["loss_per_token"]))
    assert score["examples"] == 1
    assert score["baseline_is"] in run("evaluate", "run", "book.txt", cwd=trained).stdout


def test_metrics_have_a_line_a_step(trained: Path) -> None:
    lines = [
        json.loads(line) for line in (trained / "run/metrics.jsonl").read_text().split("\n")[:-1]
    ]
    assert [line["step"] for line in lines if "loss" in line] == list(range(1, 31))
    assert sum("validation" in line for line in lines) == 10
    assert next(line["step"] for line in lines if line.get("best")) == 3
    assert lines[-1]["summary"]["steps"] == 30


@pytest.mark.slow
def test_a_time_budget_becomes_a_number_of_steps_and_is_a_limit(tmp_path: Path) -> None:
    """Half a minute from the first line of the program to its last, and at most a tenth more."""
    (tmp_path / "book.txt").write_text(TEXT, encoding="utf-8")
    started = time.monotonic()
    ran = run("train", "language", "book.txt", "-o", "run", "--minutes", 0.5, *SMALL, cwd=tmp_path)
    assert time.monotonic() - started < 33
    assert ran.returncode == 0, ran.stderr
    assert "steps in 0.5 minutes" in ran.stderr
    steps = read_recipe((tmp_path / "run/recipe.toml").read_text()).steps
    assert f"step {steps:,}/{steps:,}" in ran.stderr
    assert (tmp_path / "run/report.html").exists()


@pytest.fixture(scope="module")
def interrupted(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A folder with the run `my run`, ended by a signal, and what the command printed."""
    folder = tmp_path_factory.mktemp("interrupted")
    (folder / "book.txt").write_text(TEXT, encoding="utf-8")
    command = [QKV, "train", "language", "book.txt", "-o", "my run", "--steps", "100000", *SMALL]
    with subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE, text=True) as running:
        metrics, patience = folder / "my run/metrics.jsonl", time.monotonic() + 60
        while not metrics.exists() and time.monotonic() < patience:
            time.sleep(0.05)
        running.send_signal(signal.SIGTERM)
        _, errors = running.communicate(timeout=60)
    assert running.returncode == 130
    return folder, errors


def test_an_interrupted_run_is_saved_and_says_what_works_now(
    interrupted: tuple[Path, str], qkv: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, errors = interrupted
    assert "stopped; saved after step" in errors
    assert "the model has not been evaluated yet" in errors
    assert "qkv generate 'my run' \"Once upon a time\"" in errors
    assert "qkv train language -o 'my run' --resume" in errors
    assert "qkv train language -o 'my run' --finish" in errors
    monkeypatch.chdir(folder)
    refused = qkv("train", "language", "book.txt", "-o", "my run", *SMALL)
    assert refused[0] == 2
    assert "pass --resume to go on" in refused[2]
    code, out, _ = qkv("generate", "my run", "In the", "--max-tokens", 3, "--json")
    assert code == 0
    assert json.loads(out)["tokens"]


def test_inspect_says_how_far_an_interrupted_run_is(
    interrupted: tuple[Path, str], qkv: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, _ = interrupted
    monkeypatch.chdir(folder)
    facts = json.loads(qkv("inspect", "my run", "--json")[1])
    assert facts["training"] == "not finished, not evaluated yet"
    assert facts["steps"] == 100_000
    steps = facts["steps_taken"]
    assert 0 < steps < 100_000
    code, out, errors = qkv("train", "-o", "my run", "--resume", "--steps", steps + 2)
    assert code == 0, errors
    assert out.startswith("my run: validation loss ")
    assert f"going on after step {steps:,} of {steps + 2:,}" in errors
    facts = json.loads(qkv("inspect", "my run", "--json")[1])
    assert facts["steps"] == steps + 2
    assert "training" not in facts


@pytest.mark.usefixtures("book")
def test_what_is_there_is_evaluated_without_training_on(qkv: Callable[..., Ran]) -> None:
    place = unfinished(qkv)
    Path(place, "metrics.jsonl").write_text("")
    code, out, errors = qkv("train", "-o", "run", "--finish", "--device", "cpu")
    assert code == 0, errors
    assert out.startswith("run: validation loss ")
    assert "step 5" not in errors
    assert (place / "report.html").exists()
    code, out, _ = qkv("train", "language", "-o", "run", "--finish", "--device", "cpu")
    assert code == 0
    assert out.startswith("run: validation loss ")


MISTAKES = {
    ("train", "langauge", "-o", "new"): 'unknown job "langauge"; did you mean "language"?',
    ("train", "language"): "--output",
    ("train", "language", "nowhere.txt", "-o", "new"): "nowhere.txt",
    ("train", "language", "empty.txt", "-o", "new"): "empty.txt",
    ("train", "language", "book.txt", "-o", "new", "--size", "smal"): 'did you mean "small"?',
    ("train", "language", "book.txt", "-o", "new", "--tokenizer", "bpee"): 'did you mean "bpe"?',
    ("train", "language", "book.txt", "-o", "new", "--optimizer", "sgd"): 'optimizer "sgd"',
    ("train", "language", "-o", "new", "--steps", "5", "--minutes", "1"): "exclude each other",
    ("train", "language", "short.txt", "-o", "new", "--tokenizer", "characters"): "needs 129",
    ("train", "language", "-o", "new", "--tokens", "5", "--epochs", "1"): "exclude each other",
    ("train", "language", "book.txt", "-o", "new", "--tokens", "characters"): "--tokens",
    ("train", "language", "book.txt", "-o", "new", "--set", "stepz=1"): 'mean "steps"?',
    ("train", "language", "book.txt", "-o", "new", "--set", "steps"): "sets nothing",
    ("train", "language", "book.txt", "-o", "new", "--config", "no.toml"): "cannot read no.toml",
    ("train", "language", "book.txt", "-o", "new", "--config", "book.txt"): "not valid TOML",
    ("train", "language", "book.txt", "-o", "new", "--label", "x"): "--label is not for language",
    ("train", "language", "book.txt", "-o", "new", "--from", "full"): "is not a model",
    ("train", "language", "book.txt", "-o", "new", "--freeze"): "--freeze is for classify",
    ("train", "language", "book.txt", "-o", "book.txt"): "book.txt",
    ("train", "language", "book.txt", "-o", "book.txt/run"): "book.txt/run",
    ("train", "language", "book.txt", "-o", "full"): "full is not empty",
    ("train", "language", "-o", "new", "--resume"): "there is no run in new to resume",
    ("train", "language", "-o", "run", "--resume"): "is finished; there is nothing to resume",
    ("train", "-o", "new", "--finish"): "there is no run in new to finish",
    ("train", "-o", "run", "--finish", "--resume"): "--resume and --finish exclude each other",
    ("train", "-o", "run", "--finish", "--steps", "3"): "leave --steps out",
    ("train", "-o", "new"): "name a job: language",
    ("train", "language", "book.txt", "-o", "run"): "run is not empty; choose another",
    ("evaluate", "nowhere", "book.txt"): "nowhere",
    ("evaluate", "run"): "name the files to measure with, as in: qkv evaluate run other.txt",
    ("evaluate", "run", "nowhere.txt"): "nowhere.txt",
    ("evaluate", "run", "empty.txt"): "empty.txt is empty",
    ("evaluate", "run", "book.txt", "--label", "x"): "--label is not for language",
}


@pytest.mark.parametrize("arguments", MISTAKES)
def test_a_mistake_is_one_line_and_exit_code_2(
    arguments: tuple[str, ...],
    trained: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (trained / "empty.txt").write_text("")
    (trained / "short.txt").write_text("too short")
    (trained / "full").mkdir(exist_ok=True)
    (trained / "full" / "thesis.txt").write_text("years of work")
    monkeypatch.chdir(trained)
    monkeypatch.setattr(sys, "argv", ["qkv", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    errors = capsys.readouterr().err
    assert ended.value.code == 2
    assert errors.count("\n") == 1
    assert MISTAKES[arguments] in errors
    assert not (trained / "new").exists()


def unfinished(qkv: Callable[..., Ran]) -> Path:
    """A run that was stopped after its last step."""
    place = Path("run").absolute()
    arguments = ["book.txt", "-o", place, "--steps", 4, *SMALL, *NARROW]
    assert qkv("train", "language", *arguments)[0] == 0
    for path in place.iterdir():
        if path.name not in ("recipe.toml", "tokenizer.json", "metrics.jsonl", "checkpoints"):
            path.unlink()
    return place


BESIDE = {
    "the files": ["book.txt"],
    "--batch": ["--batch", "9"],
    "--context": ["--context", "32"],
    "--from": ["--from", "elsewhere"],
    "--set": ["--set", "seed=3"],
    "--seed": ["--seed", "3"],
    "--compile": ["--compile"],
    "--size": ["--size", "tiny"],
    "--text": ["--text", "x"],
}


@pytest.mark.parametrize("option", BESIDE)
@pytest.mark.usefixtures("book")
def test_what_is_asked_beside_resume_is_refused(option: str, qkv: Callable[..., Ran]) -> None:
    code, _, errors = qkv("train", "language", *BESIDE[option], "-o", "run", "--resume")
    assert code == 2
    assert f"takes everything from the recipe; leave {option} out" in errors
    assert errors.count("\n") == 1


@pytest.mark.usefixtures("book")
def test_a_run_is_not_resumed_for_another_job(qkv: Callable[..., Ran]) -> None:
    unfinished(qkv)
    code, _, errors = qkv("train", "masked", "-o", "run", "--resume")
    assert code == 2
    assert "the run in run is for language, not for masked" in errors


@pytest.mark.usefixtures("book")
def test_a_run_that_was_killed_while_it_became_a_bundle_is_found_again(
    qkv: Callable[..., Ran],
) -> None:
    place = unfinished(qkv)
    place.rename(place.with_name(".run.old"))
    refused = qkv("train", "language", "book.txt", "-o", place, *SMALL)
    assert refused[0] == 2
    assert "pass --resume to go on" in refused[2]
    code, out, errors = qkv("train", "language", "-o", place, "--resume", "--device", "cpu")
    assert code == 0, errors
    assert "validation loss" in out


@pytest.mark.usefixtures("book")
def test_changed_text_is_refused_on_resume(qkv: Callable[..., Ran], book: Path) -> None:
    unfinished(qkv)
    book.write_text(TEXT + "!", encoding="utf-8")
    code, _, errors = qkv("train", "language", "-o", "run", "--resume")
    assert code == 2
    assert "the data is not what the recipe was made for" in errors


@pytest.mark.usefixtures("book")
def test_a_recipe_repeats_its_run_and_options_are_laid_over_it(qkv: Callable[..., Ran]) -> None:
    first = ["book.txt", "-o", "first", "--steps", 3, "--seed", 5, *SMALL, *NARROW]
    assert qkv("train", "language", *first)[0] == 0
    again = ["train", "language", "--config", "first/recipe.toml", "--device", "cpu"]
    assert qkv(*again, "-o", "second")[0] == 0
    weights = [Path(name, "model.safetensors").read_bytes() for name in ("first", "second")]
    assert weights[0] == weights[1]

    Path("other.txt").write_text(TEXT[7:])
    options = ["--steps", 2, "--seed", 6, "--batch", 32, "--context", 8, "--optimizer", "adamw"]
    assert qkv(*again, "other.txt", "-o", "third", *options, "--set", "steps=1")[0] == 0
    recipe = read_recipe(Path("third/recipe.toml").read_text())
    assert (recipe.steps, recipe.seed, recipe.batch, recipe.model.length) == (1, 6, 32, 8)
    assert recipe.optimizer.kind == "adamw"
    assert [Path(name).name for name in recipe.data.files] == ["other.txt"]
    assert recipe.model.decoder.width == 16  # type: ignore[union-attr]


@pytest.mark.usefixtures("book")
def test_a_recipe_for_another_job_is_refused(qkv: Callable[..., Ran]) -> None:
    unfinished(qkv)
    code, _, errors = qkv("train", "masked", "--config", "run/recipe.toml", "-o", "new")
    assert code == 2
    assert "the settings are for language, but the job is masked" in errors


@pytest.mark.slow
@pytest.mark.usefixtures("book")
def test_a_disk_that_takes_no_more_is_one_clear_line_and_the_run_can_go_on(
    qkv: Callable[..., Ran],
) -> None:
    """The system refuses files over a limit, as a full disk does: here, checkpoints."""
    arguments = ["train", "language", "book.txt", "-o", "run", "--steps", "4", *SMALL, *NARROW]

    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (40_000, resource.RLIM_INFINITY))

    ran = subprocess.run(
        [QKV, *arguments], capture_output=True, text=True, timeout=120, preexec_fn=limited
    )
    assert ran.returncode == 2, ran.stderr
    last = ran.stderr.splitlines()[-1]
    assert last.startswith("qkv: cannot write ")
    assert "run/checkpoints/" in last
    assert "Traceback" not in ran.stderr
    assert not list(Path("run/checkpoints").glob("step-*/*.safetensors"))
    code, _, errors = qkv("train", "language", "-o", "run", "--resume", "--device", "cpu")
    assert code == 0, errors


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
@pytest.mark.usefixtures("book")
def test_metrics_that_cannot_be_written_are_one_clear_line(
    qkv: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The link is there before the first step, as the directory is made just before that."""
    from qkv.text import Tokenizer

    save = Tokenizer.save

    def save_and_fill(tokenizer: Tokenizer, path: str | os.PathLike[str]) -> None:
        save(tokenizer, path)
        link = Path(path).with_name("metrics.jsonl")
        if not link.is_symlink() and link.parent.name == "run":
            link.symlink_to("/dev/full")

    monkeypatch.setattr(Tokenizer, "save", save_and_fill)
    code, _, errors = qkv("train", "language", "book.txt", "-o", "run", *SMALL, *NARROW)
    assert code == 2
    assert "metrics.jsonl: No space left on device" in errors.splitlines()[-1]
