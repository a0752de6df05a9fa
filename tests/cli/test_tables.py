"""A table in, a table out, with every verb; and a file's name is not a text."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from pyarrow import parquet
from tests.cli.test_mistakes import save

from qkv.data import open_table
from qkv.engine import Engine
from qkv.model import Classify, DecoderOnly, EncoderDecoder, EncoderOnly, TextVector

Qkv = Callable[..., tuple[int, str, str]]

TABLE = 'id,text,label\n1,"a, b",x\n2,,y\n3,"two\nlines",z\n'
TEXTS = ["a, b", "", "two\nlines"]
VERBS = {  # the model, further arguments, and the columns that are added
    "classify": ("labels", (), ["label_2", "probability"]),
    "translate": ("translator", ("--beams", "1"), ["translation", "score"]),
    "generate": ("writer", ("--max-tokens", "3", "--seed", "1"), ["completion"]),
    "embed": ("vectors", (), ["vector"]),
}


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("models")
    save(path / "labels", EncoderOnly, output=Classify(labels=("bad", "good")))
    save(path / "vectors", EncoderOnly, output=TextVector())
    save(path / "writer", DecoderOnly)
    save(path / "translator", EncoderDecoder)
    return path


@pytest.fixture(autouse=True)
def in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("new.csv").write_text(TABLE, "utf-8")


def run(qkv: Qkv, models: Path, verb: str, *arguments: object) -> tuple[int, str, str]:
    model, further, _ = VERBS[verb]
    return qkv(verb, models / model, *further, *arguments)


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("suffix", ["csv", "tsv", "jsonl", "parquet", "xlsx"])
def test_a_table_keeps_its_columns_and_gets_answers(
    qkv: Qkv, models: Path, verb: str, suffix: str
) -> None:
    if suffix == "xlsx":
        pytest.importorskip("openpyxl", reason="needs the extra excel")
    code, out, err = run(qkv, models, verb, "--file", "new.csv", "-o", f"out.{suffix}")
    assert (code, out) == (0, "")
    assert "wrote 3 " in err
    table = open_table(Path(f"out.{suffix}"))
    names = [column.name for column in table.columns]
    assert names[: 3 + len(VERBS[verb][2])] == ["id", "text", "label", *VERBS[verb][2]]
    rows = list(table)
    assert [row["id"] for row in rows] == ["1", "2", "3"]
    assert [row["text"] or "" for row in rows] == TEXTS
    assert [row["label"] for row in rows] == ["x", "y", "z"]
    for name in VERBS[verb][2]:
        assert rows[0][name] not in (None, "")
        if verb != "embed":
            assert rows[1][name] in (None, "")


@pytest.mark.parametrize("verb", VERBS)
def test_only_the_column_of_the_texts_is_answered(qkv: Qkv, models: Path, verb: str) -> None:
    code, out, _ = run(qkv, models, verb, "--file", "new.csv", "--json")
    assert code == 0
    rows = [json.loads(line) for line in out.splitlines()]
    texts = [row.get("source", row.get("prompt", row["text"])) for row in rows]
    assert texts == TEXTS
    code, out, _ = run(qkv, models, verb, "--file", "new.csv", "--text", "id", "--json")
    rows = [json.loads(line) for line in out.splitlines()]
    texts = [row.get("source", row.get("prompt", row["text"])) for row in rows]
    assert texts == ["1", "2", "3"]


def test_labels_of_a_table_are_those_of_its_texts(qkv: Qkv, models: Path) -> None:
    code, _, err = run(qkv, models, "classify", "--file", "new.csv", "-o", "out.jsonl")
    assert code == 0
    assert err.splitlines() == [
        'note: there is a column "label" already; the new one is "label_2"',
        "note: 1 row has no text; label and probability left empty",
        "wrote 3 rows to out.jsonl",
    ]
    first, second, third = map(json.loads, Path("out.jsonl").read_text("utf-8").splitlines())
    results = Engine.load(models / "labels").classify([TEXTS[0], TEXTS[2]])
    for row, result in zip((first, third), results, strict=True):
        assert row["label_2"] == result.label
        assert row["probability"] == pytest.approx(result.probabilities[result.label])
        assert row["probabilities"].keys() == result.probabilities.keys()
    assert second["label_2"] is None


def test_vectors_of_a_table_are_those_of_its_texts(qkv: Qkv, models: Path) -> None:
    expected = Engine.load(models / "vectors").embed(TEXTS)
    code, _, err = run(qkv, models, "embed", "--file", "new.csv", "-o", "a.npy")
    assert (code, err) == (0, "wrote 3 vectors of 12 numbers to a.npy\n")
    assert np.allclose(np.load("a.npy"), expected, atol=1e-6)
    assert run(qkv, models, "embed", "--file", "new.csv", "-o", "a.parquet")[0] == 0
    table = parquet.read_table("a.parquet")
    assert table.column_names == ["id", "text", "label", "vector"]
    assert np.allclose(np.stack(table.column("vector").to_pylist()), expected, atol=1e-6)
    assert run(qkv, models, "embed", "--file", "a.parquet", "-o", "b.parquet")[0] == 0
    assert parquet.read_table("b.parquet").column_names[-2:] == ["vector", "vector_2"]


def test_vectors_of_a_table_are_resumed_with_their_columns(
    qkv: Qkv, models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("qkv.engine.embed.embedder.BATCH_TEXTS", 2)
    lines = ["id,text", "1,one", "2,two", "3,three", f"4,{'too long ' * 9}", "5,five"]
    Path("many.csv").write_text("\n".join(lines) + "\n", "utf-8")
    command = ("embed", "--file", "many.csv", "-o", "a.parquet")
    code, _, err = run(qkv, models, *command)
    assert code == 2
    assert "a.parquet: 2 rows are saved; continue with --resume" in err
    assert run(qkv, models, *command, "--resume", "--long", "truncate")[0] == 0
    table = parquet.read_table("a.parquet")
    assert table.column("id").to_pylist() == ["1", "2", "3", "4", "5"]
    assert table.column("text").to_pylist()[4] == "five"


def test_lines_of_a_text_file_become_a_table(qkv: Qkv, models: Path) -> None:
    Path("lines.txt").write_text("a, b\n\nc\n", "utf-8")
    assert run(qkv, models, "classify", "--file", "lines.txt", "-o", "out.csv")[0] == 0
    rows = list(open_table(Path("out.csv")))
    assert [row["text"] for row in rows] == ["a, b", "", "c"]
    assert [bool(row["label"]) for row in rows] == [True, False, True]


def test_the_column_to_translate_may_be_called_by_its_language(qkv: Qkv, models: Path) -> None:
    Path("pairs.tsv").write_text("de\ten\nein Hund\ta dog\n", "utf-8")
    code, out, _ = run(qkv, models, "translate", "--file", "pairs.tsv", "--json")
    assert code == 0
    assert json.loads(out)["source"] == "ein Hund"
    Path("odd.tsv").write_text("one\ttwo\na\tb\n", "utf-8")
    code, _, err = run(qkv, models, "translate", "--file", "odd.tsv")
    assert code == 2
    assert "pass --text NAME or NUMBER" in err


def test_several_completions_are_several_columns(qkv: Qkv, models: Path) -> None:
    assert run(qkv, models, "generate", "--file", "new.csv", "-o", "out.csv", "--n", "2")[0] == 0
    rows = list(open_table(Path("out.csv")))
    assert list(rows[0]) == ["id", "text", "label", "completion_1", "completion_2"]
    assert rows[0]["completion_1"] != rows[0]["completion_2"]


@pytest.mark.parametrize("draft", [(), ("--draft", "ngram")])
def test_a_prompt_that_fails_leaves_its_row_empty(
    qkv: Qkv, models: Path, draft: tuple[str, ...]
) -> None:
    Path("prompts.csv").write_text(f'prompt\na\n""\n{"long" * 9}\nb\n', "utf-8")
    code, _, err = run(qkv, models, "generate", "--file", "prompts.csv", "-o", "out.csv", *draft)
    assert code == 2
    assert "qkv: row 3: prompt has 36 tokens but the model reads at most 31" in err
    rows = list(open_table(Path("out.csv"), text="prompt"))
    assert [bool(row["completion"]) for row in rows] == [True, False, False, True]


@pytest.mark.parametrize("verb", VERBS)
def test_the_name_of_a_file_is_not_a_text(qkv: Qkv, models: Path, verb: str) -> None:
    code, out, err = run(qkv, models, verb, "new.csv")
    assert (code, out) == (2, "")
    assert err == (
        "qkv: new.csv is a file, not a text; to read it, pass --file new.csv; if its name is the "
        "text, add --as-text\n"
    )
    assert run(qkv, models, verb, "new.csv", "--as-text")[0] == 0


def test_the_name_of_a_file_is_not_compared_or_explained(qkv: Qkv, models: Path) -> None:
    refused = "qkv: new.csv is a file, not a text; pass --as-text if its name is the text\n"
    assert qkv("similar", models / "vectors", "a text", "new.csv") == (2, "", refused)
    assert qkv("similar", models / "vectors", "a text", "new.csv", "--as-text")[0] == 0
    assert qkv("explain", "new.csv", "--model", models / "writer") == (2, "", refused)
    code, _, err = qkv("inspect", models / "writer", "--heads", "new.csv")
    assert code == 2
    assert "pass --file new.csv" in err


MISTAKES = {
    ("--file", "new.csv", "-o", "new.csv"): "new.csv exists; pass --force to overwrite it",
    ("--file", "new.csv", "-o", "a.csv", "--json"): "-o and --json exclude each other",
    ("--file", "new.csv", "-o", "a.docx"): "a.docx must end in .csv, .tsv",
    ("--file", "new.csv", "--text", "txt"): 'unknown column "txt"; did you mean "text"?',
    ("--file", "two.csv"): "which column holds the text? pass --text NAME or NUMBER (columns: one",
    (
        "--file",
        "ragged.csv",
    ): "ragged.csv line 3: 1 field where line 1 has 2, line 4: 3 fields",
    ("--file", "rows.json"): "cannot read rows.json; write one object per line and name it .jsonl",
    ("a", "--text", "id"): "--text id is a column of a table; name the table with --file",
    ("a", "--force"): "--force is for a file; name it with -o",
}


@pytest.mark.parametrize("arguments", MISTAKES, ids=" ".join)
def test_a_mistake_is_one_line(qkv: Qkv, models: Path, arguments: tuple[str, ...]) -> None:
    Path("two.csv").write_text("one,two\na,b\n", "utf-8")
    Path("ragged.csv").write_text("id,text\n1,a\n2\n3,c,c\n", "utf-8")
    Path("rows.json").write_text("[]", "utf-8")
    code, out, err = run(qkv, models, "classify", *arguments)
    assert (code, out) == (2, "")
    assert MISTAKES[arguments] in err
    assert err.count("\n") == 1
    assert Path("new.csv").read_text("utf-8") == TABLE


def test_a_table_may_replace_itself(qkv: Qkv, models: Path) -> None:
    command = ("classify", "--file", "new.csv", "-o", "new.csv", "--force")
    assert run(qkv, models, *command)[0] == 0
    assert open_table(Path("new.csv")).count == 3


MESSY = "message;category\n" + "a fine card;good\nno card;bad\n" * 20
MESSY += "no label;\na fine card;godo\nhalf;a;row\nwhat;odd\n"


def test_bad_rows_are_skipped_on_request_and_odd_labels_pointed_out(qkv: Qkv, models: Path) -> None:
    Path("messy.csv").write_text(MESSY, "utf-8")
    command = ("train", "classify", "messy.csv", "-o", "run", "--size", "tiny", "--steps", "1")
    code, out, err = qkv(*command)
    assert (code, out) == (2, "")
    assert "2 bad rows: " in err
    assert "line 42: label is empty, line 44: 3 fields where line 1 has 2" in err
    assert err.endswith("or pass --skip-bad to leave such rows out\n")
    code, _, err = qkv(*command, "--skip-bad")
    assert code == 0
    assert "note: 2 bad rows skipped: " in err
    assert 'note: the label "godo" (1) looks like "good" (20); if it is a typo, correct it' in err
    assert 'note: the label "odd" occurs once' in err
    assert "skip_bad = true" in Path("run/recipe.toml").read_text("utf-8")
    Path("test.csv").write_text("text,label\na fine card,good\n,bad\nno card,bad\n", "utf-8")
    assert "line 3: text is empty" in qkv("evaluate", "run", "test.csv")[2]
    code, out, err = qkv("evaluate", "run", "test.csv", "--skip-bad", "--json")
    assert (code, json.loads(out)["examples"]) == (0, 2)
    assert err == "note: 1 bad row was skipped: test.csv line 3: text is empty\n"
