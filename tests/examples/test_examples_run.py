"""Every script and notebook in examples/ runs as it stands, is short, and says what it promises."""

import json
import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "examples"
MAX_LINES = 40  # of a script
LONGEST = {"your_own_attention": 73}  # it defines a module and its config first

# What a reader is promised: words that stand in the answer.
PROMISES = {
    "attention_by_hand": ("query ↓ key →", "largest difference from the fused kernel: "),
    "embed_and_cluster": ("nearest to “", "v_measure: "),
    "generate": ("343 344 345", "stopped by length"),
    "load_a_public_model": ("6,050,880 parameters", "tokenizer: bytes, 261 tokens"),
    "train_classifier": ("accuracy: 0.9", "negative", "The music was not wonderful."),
    "train_language": ("loss_per_character: ", "--- seed 2, log-probability "),
    "train_masked": ("token frequencies", "guessed: "),
    "train_translator": (
        "bleu: ",
        "He called 5 minutes ago. → Er hat vor ",
        "angerufen",
        "looked at ",
    ),
    "your_own_attention": (
        "loss after 60 steps: 0.",
        "sat on the ",
        "computed by GatedAttention, not opened",
        "all checks hold: True",
        "kind='gated' heads=4",
    ),
}


@pytest.fixture(autouse=True)
def as_scripts_are_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """In an empty folder, with the folder of the script on the path and temporary files here."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(FOLDER))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)


def test_every_script_is_promised_something() -> None:
    assert {path.stem for path in FOLDER.glob("*.py")} == {*PROMISES, "learn"}


@pytest.mark.slow
@pytest.mark.parametrize("name", PROMISES)
def test_a_script_does_what_it_promises(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", [f"{name}.py"])
    runpy.run_path(str(FOLDER / f"{name}.py"), run_name="__main__")
    said = capsys.readouterr().out
    for words in PROMISES[name]:
        assert words in said


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.py")), ids=lambda path: path.stem)
def test_a_script_is_short_and_opens_with_how_to_run_it(path: Path) -> None:
    lines = path.read_text("utf-8").split("\n")
    assert len(lines) <= LONGEST.get(path.stem, MAX_LINES) + 1
    assert lines[0].startswith('"""')
    if path.stem != "learn":
        assert any(line.strip().startswith(f"python examples/{path.name}") for line in lines[:8])


@pytest.mark.slow
@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.ipynb")), ids=lambda path: path.stem)
def test_a_notebook_runs_from_the_first_cell_to_the_last(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import nbclient
    import nbformat

    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("IPYTHONDIR", os.environ["TMPDIR"])
    book = nbformat.read(path, as_version=4)
    nbclient.NotebookClient(
        book, timeout=120, kernel_name="python3", resources={"metadata": {"path": str(FOLDER)}}
    ).execute()
    assert all(cell.get("outputs") for cell in book.cells[-1:])


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.ipynb")), ids=lambda path: path.stem)
def test_a_notebook_is_kept_without_answers(path: Path) -> None:
    """They would be of one machine, and of an older program."""
    cells = json.loads(path.read_text("utf-8"))["cells"]
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    assert all(not cell["outputs"] and cell["execution_count"] is None for cell in code)


def test_a_script_runs_by_itself_too(tmp_path: Path) -> None:
    script = FOLDER / "attention_by_hand.py"
    ran = subprocess.run([sys.executable, script], cwd=tmp_path, capture_output=True, text=True)
    assert (ran.returncode, ran.stderr) == (0, "")
