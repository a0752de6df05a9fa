"""`qkv train` and `qkv evaluate` as a person runs them."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from qkv.cli.app import main

QKV = Path(sys.executable).with_name("qkv")
TEXT = "In the beginning was a word, and the word was short. " * 60
SMALL = ["--size", "tiny", "--context", "16", "--batch", "4", "--threads", "1", "--device", "cpu"]


def run(*arguments: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [str(QKV), *map(str, arguments)]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=120)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trained")
    (folder / "book.txt").write_text(TEXT, encoding="utf-8")
    ran = run("train", "language", "book.txt", "-o", "run", "--steps", 30, *SMALL, cwd=folder)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.startswith("run: held-out loss ")
    assert "30 steps" in ran.stderr
    assert "step 30/30" in ran.stderr
    return folder


def test_a_trained_model_is_evaluated_beside_a_baseline(trained: Path) -> None:
    ran = run("evaluate", "run", "book.txt", "--json", cwd=trained)
    assert ran.returncode == 0, ran.stderr
    score = json.loads(ran.stdout)
    assert score["loss_per_character"] < score["baseline"]
    assert score["loss_per_byte"] == pytest.approx(score["loss_per_character"])
    assert score["perplexity"] == pytest.approx(2.718281828 ** score["loss_per_token"])
    assert "baseline" in run("evaluate", "run", "book.txt", cwd=trained).stdout


def test_metrics_have_a_line_a_step(trained: Path) -> None:
    lines = [
        json.loads(line) for line in (trained / "run/metrics.jsonl").read_text().split("\n")[:-1]
    ]
    assert [line["step"] for line in lines if "loss" in line] == list(range(1, 31))
    assert sum("held_out_loss" in line for line in lines) == 10


def test_a_time_budget_becomes_a_number_of_steps(tmp_path: Path) -> None:
    (tmp_path / "book.txt").write_text(TEXT, encoding="utf-8")
    started = time.monotonic()
    ran = run("train", "language", "book.txt", "-o", "run", "--minutes", 0.05, *SMALL, cwd=tmp_path)
    assert ran.returncode == 0, ran.stderr
    assert "steps in 0.05 minutes" in ran.stderr
    assert time.monotonic() - started < 60


def test_an_interrupted_run_is_saved_and_says_how_to_go_on(tmp_path: Path) -> None:
    (tmp_path / "book.txt").write_text(TEXT, encoding="utf-8")
    command = [QKV, "train", "language", "book.txt", "-o", "run", "--steps", "100000", *SMALL]
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as running:
        metrics, patience = tmp_path / "run/metrics.jsonl", time.monotonic() + 60
        while not metrics.exists() and time.monotonic() < patience:
            time.sleep(0.05)
        running.send_signal(signal.SIGTERM)
        _, errors = running.communicate(timeout=60)
    assert running.returncode == 130
    assert "to go on, add --resume" in errors
    assert list((tmp_path / "run/checkpoints").glob("step-*"))
    refused = run("train", "language", "book.txt", "-o", "run", *SMALL, cwd=tmp_path)
    assert refused.returncode == 2
    assert "pass --resume to go on" in refused.stderr


MISTAKES = {
    ("train", "langauge", "-o", "new"): 'unknown job "langauge"; did you mean "language"?',
    ("train", "language"): "--output",
    ("train", "language", "nowhere.txt", "-o", "new"): "nowhere.txt",
    ("train", "language", "empty.txt", "-o", "new"): "empty.txt",
    ("train", "language", "book.txt", "-o", "new", "--size", "smal"): 'did you mean "small"?',
    ("train", "language", "book.txt", "-o", "new", "--tokens", "bpee"): 'did you mean "bpe"?',
    ("train", "language", "book.txt", "-o", "new", "--optimiser", "sgd"): 'optimiser "sgd"',
    ("train", "language", "-o", "new", "--steps", "5", "--minutes", "1"): "exclude each other",
    ("train", "language", "short.txt", "-o", "new", "--tokens", "characters"): "window needs 129",
    ("train", "language", "book.txt", "-o", "full"): "full is not empty",
    ("train", "language", "-o", "new", "--resume"): "there is no run in new to resume",
    ("train", "language", "-o", "run", "--resume"): "is finished; there is nothing to resume",
    ("evaluate", "nowhere", "book.txt"): "nowhere",
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
