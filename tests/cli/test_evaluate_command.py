"""`qkv evaluate -o`: every example with its prediction, the worst first, in every format."""

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.training.tiny_runs import args_for, data_for, start

from qkv.engine import Engine
from qkv.metrics import sentence_chrf, wilson_interval

Qkv = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, Path]]:
    """For each job the directory of a model and a file of examples."""
    folder = tmp_path_factory.mktemp("evaluate")
    made = {}
    for job in ("classify", "translate", "embed", "language"):
        data = data_for(job, folder / f"{job}-data")
        run = start(folder / job, args_for(job, data, 2))
        run.finish()
        made[job] = (folder / job, Path(data.files[0]))
    return made


def read(path: Path) -> list[dict[str, Any]]:
    match path.suffix:
        case ".jsonl":
            return [json.loads(line) for line in path.read_text("utf-8").split("\n")[:-1]]
        case ".parquet":
            parquet = pytest.importorskip("pyarrow.parquet", reason="Parquet needs pyarrow")
            return parquet.read_table(path).to_pylist()
    with path.open(encoding="utf-8", newline="") as file:
        delimiter = "\t" if path.suffix == ".tsv" else ","
        return list(csv.DictReader(file, delimiter=delimiter))


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".jsonl", ".parquet"])
def test_confident_mistakes_come_first_in_every_format(
    suffix: str, qkv: Qkv, models: dict[str, tuple[Path, Path]], tmp_path: Path
) -> None:
    model, data = models["classify"]
    path = tmp_path / f"mistakes{suffix}"
    code, _, errors = qkv("evaluate", model, data, "-o", path)
    assert (code, errors) == (0, f"wrote {path}: 47 examples, the worst first\n")
    rows = read(path)
    wrong = [row for row in rows if row["label"] != row["prediction"]]
    right = [row for row in rows if row["label"] == row["prediction"]]
    assert rows == wrong + right
    assert wrong
    confidence = [float(row["probability"]) for row in wrong]
    assert confidence == sorted(confidence, reverse=True)
    answers = Engine.load(model).classify([row["text"] for row in rows])
    for row, answer in zip(rows, answers, strict=True):
        assert row["prediction"] == answer.label
        assert float(row["probability"]) == pytest.approx(answer.probabilities[answer.label], 1e-4)


def test_the_worst_are_printed_and_are_in_the_json(
    qkv: Qkv, models: dict[str, tuple[Path, Path]], tmp_path: Path
) -> None:
    model, data = models["classify"]
    path = tmp_path / "mistakes.jsonl"
    _, printed, _ = qkv("evaluate", model, data, "-o", path)
    rows = read(path)
    mistakes = [row for row in rows if not row["correct"]]
    assert "most confident mistakes:" in printed
    assert rows[0]["text"] in printed
    assert printed.index("accuracy") < printed.index("macro f1")
    assert "95% interval" in printed
    _, answer, _ = qkv("evaluate", model, data, "--json")
    fields = json.loads(answer)
    assert fields["worst"] == mistakes[:10]
    right = len(rows) - len(mistakes)
    assert fields["accuracy_interval"] == list(wilson_interval(right, len(rows)))


def test_translations_are_ordered_by_their_chrf(
    qkv: Qkv, models: dict[str, tuple[Path, Path]], tmp_path: Path
) -> None:
    model, data = models["translate"]
    code, printed, _ = qkv("evaluate", model, data, "-o", tmp_path / "worst.jsonl")
    assert code == 0
    rows = read(tmp_path / "worst.jsonl")
    assert list(rows[0]) == ["source", "reference", "translation", "chrf"]
    scores = [row["chrf"] for row in rows]
    assert scores == sorted(scores)
    assert scores == sentence_chrf(
        [row["translation"] for row in rows], [row["reference"] for row in rows]
    )
    assert "translations with the lowest chrf:" in printed


def test_embeddings_show_the_nearest_text_with_another_label(
    qkv: Qkv, models: dict[str, tuple[Path, Path]], tmp_path: Path
) -> None:
    model, data = models["embed"]
    path = tmp_path / "mistakes.jsonl"
    columns = ("--text", "text", "--label", "label")
    assert qkv("evaluate", model, data, *columns, "-o", path)[0] == 0
    rows = read(path)
    assert len(rows) == 47
    for row in rows:
        assert row["correct"] == (row["label"] == row["nearest_label"])
    assert [row["correct"] for row in rows] == sorted(row["correct"] for row in rows)


REFUSED = {
    "mistakes.txt": "must end in .csv, .tsv",
    "missing/mistakes.csv": "make it first",
    ".": "must end in",
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_file_that_cannot_be_written_is_refused_before_anything_is_read(
    name: str, qkv: Qkv, tmp_path: Path
) -> None:
    code, _, errors = qkv("evaluate", tmp_path / "no-model", "no.csv", "-o", tmp_path / name)
    assert code == 2
    assert REFUSED[name] in errors
    assert len(errors.splitlines()) == 1


def test_a_language_model_has_no_examples_to_write(
    qkv: Qkv, models: dict[str, tuple[Path, Path]], tmp_path: Path
) -> None:
    model, data = models["language"]
    code, _, errors = qkv("evaluate", model, data, "-o", tmp_path / "mistakes.csv")
    assert code == 2
    assert "a language model is measured on running text" in errors
    assert not (tmp_path / "mistakes.csv").exists()


def test_training_ends_with_an_interval_and_with_what_to_do_next(qkv: Qkv, tmp_path: Path) -> None:
    (file,) = data_for("classify", tmp_path).files
    model = tmp_path / "my model"
    small = "--size tiny --steps 4 --context 16 --batch 128 --vocabulary 300 --set model.width=16"
    options = (*small.split(), "--set", "evaluate_every=2", "--device", "cpu", "--threads", "1")
    code, printed, errors = qkv("train", "classify", file, "-o", model, *options)
    assert code == 0
    assert "validation accuracy" in printed
    assert printed.index("95% interval") < printed.index("macro_f1")
    assert "evaluated the validation split 2 times" in errors
    report = (model / "report.html").read_text("utf-8")
    for command in ("qkv classify", "qkv explain", "qkv evaluate"):
        assert command in errors
        assert command in report
    assert f"qkv classify '{model}' \"your text\"\n" in errors
