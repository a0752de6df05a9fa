"""Every kind of file that a job takes trains it, and measures it, through the command line."""

import csv
import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.training.tiny_runs import sentences

from qkv.cli.app import main

SMALL = "--size tiny --steps 2 --context 16 --batch 128 --vocabulary 300 --device cpu --threads 1"
NARROW = ("--set", "model.width=16", "--set", "model.layers=1")

TEXTS = sentences(24)
ROWS = {
    "classify": ("text", "label", [(text, "ab"[i % 2]) for i, text in enumerate(TEXTS)]),
    "translate": ("source", "target", [(text, text[::-1]) for text in TEXTS]),
    "embed": ("text", "label", [(text, "ab"[i % 2]) for i, text in enumerate(TEXTS)]),
}


def table_of(job: str) -> dict[str, list[str]]:
    if job in ("language", "masked"):
        return {"text": TEXTS}
    one, other, rows = ROWS[job]
    return {one: [row[0] for row in rows], other: [row[1] for row in rows]}


def write_delimited(path: Path, table: dict[str, list[str]], delimiter: str) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, delimiter=delimiter)
        writer.writerow(table)
        writer.writerows(zip(*table.values(), strict=True))


def csv_file(folder: Path, job: str) -> list[str]:
    write_delimited(folder / "rows.csv", table_of(job), ",")
    return [str(folder / "rows.csv")]


def tsv_file(folder: Path, job: str) -> list[str]:
    write_delimited(folder / "rows.tsv", table_of(job), "\t")
    return [str(folder / "rows.tsv")]


def jsonl_file(folder: Path, job: str) -> list[str]:
    table = table_of(job)
    rows = [dict(zip(table, row, strict=True)) for row in zip(*table.values(), strict=True)]
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return [str(folder / "rows.jsonl")]


def parquet_file(folder: Path, job: str) -> list[str]:
    arrow = pytest.importorskip("pyarrow", reason="reading .parquet needs pyarrow")
    import pyarrow.parquet

    pyarrow.parquet.write_table(arrow.table(table_of(job)), folder / "rows.parquet")
    return [str(folder / "rows.parquet")]


def parallel_files(folder: Path, job: str) -> list[str]:
    _, _, pairs = ROWS["translate"]
    for place, name in enumerate(("a.en", "a.de")):
        (folder / name).write_text("".join(f"{pair[place]}\n" for pair in pairs))
    return ["--source", str(folder / "a.en"), "--target", str(folder / "a.de")]


def txt_file(folder: Path, job: str) -> list[str]:
    (folder / "book.txt").write_text("\n".join(TEXTS))
    return [str(folder / "book.txt")]


def folder_of_texts(folder: Path, job: str) -> list[str]:
    (folder / "shelf" / "deep").mkdir(parents=True)
    for i, text in enumerate(TEXTS):
        (folder / "shelf" / ("deep" if i % 2 else "") / f"{i}.txt").write_text(text * 3)
    return [str(folder / "shelf")]


TABLES = (csv_file, tsv_file, jsonl_file, parquet_file)
TAKEN = [
    *((job, made) for job in ("language", "masked") for made in TABLES),
    *((job, made) for job in ("classify", "translate", "embed") for made in TABLES),
    *((job, parallel_files) for job in ("translate", "embed")),
    *(
        (job, made)
        for job in ("language", "masked", "embed")
        for made in (txt_file, folder_of_texts)
    ),
]


@pytest.fixture
def qkv(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str, str]]:
    def run(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["qkv", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        said = capsys.readouterr()
        return int(ended.value.code or 0), said.out, said.err

    return run


@pytest.mark.slow
@pytest.mark.parametrize(
    ("job", "made"), TAKEN, ids=[f"{job} from {made.__name__}" for job, made in TAKEN]
)
def test_every_file_a_job_takes_trains_and_measures_it(job, made, qkv, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    data, place = made(tmp_path, job), tmp_path / "run"
    if job == "embed" and made in TABLES:
        data += ["--text", "text", "--label", "label"]
    code, out, errors = qkv("train", job, *data, "-o", str(place), *SMALL.split(), *NARROW)
    assert code == 0, errors
    assert out.startswith(f"{place}: validation ")
    assert (place / "report.html").is_file()
    code, out, errors = qkv("evaluate", str(place), *data, "--json", "--device", "cpu")
    assert code == 0, errors
    scores = json.loads(out)
    assert scores["examples"] > 0
    assert isinstance(scores["baseline"], dict)
    assert scores["baseline_is"]


REFUSED = {
    "classify from text": ("classify", txt_file, "cannot read"),
    "classify from a folder": ("classify", folder_of_texts, "is a folder; name files"),
    "translate from text": ("translate", txt_file, "is not a table"),
    "translate from a folder": ("translate", folder_of_texts, "is a folder; name files"),
    "classify from two files": ("classify", parallel_files, "--source is not for classify"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_a_job_does_not_take_is_one_clear_line(case: str, qkv, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    job, made, answer = REFUSED[case]
    code, _, errors = qkv("train", job, *made(tmp_path, job), "-o", str(tmp_path / "run"))
    assert code == 2
    assert errors.count("\n") == 1
    assert answer in errors
    assert not (tmp_path / "run").exists()
