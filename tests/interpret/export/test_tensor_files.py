"""Values written to files are read back as they were, with where they come from."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.interpret.export.tiny_traces import ABOUT, HOSTILE, decoder_trace, translator_trace

from qkv.errors import UsageError
from qkv.interpret.export import provenance, write_tensor
from qkv.interpret.export.tables import (
    LabeledTable,
    csv_number,
    csv_quote,
    csv_text,
    labeled_array,
    markdown_text,
)
from qkv.interpret.matrix import unique_labels
from qkv.interpret.trace import AblateHead, Trace

MASKED = "decoder.1.attention.masked"


@pytest.fixture(scope="module")
def trace() -> Trace:
    return decoder_trace()


def rows(path: Path) -> list[list[str]]:
    lines = path.read_text("utf-8").split("\n")
    return list(csv.reader(line for line in lines if line and not line.startswith("#")))


def test_a_head_in_csv_reads_back_exactly(trace: Trace, tmp_path: Path) -> None:
    (path,) = write_tensor(trace, MASKED, tmp_path / "masked.csv", head=2)
    head, *body = rows(path)
    values = np.array([[float(cell) for cell in row[1:]] for row in body], dtype=np.float32)
    assert np.array_equal(values, trace[MASKED][0, 2].numpy())
    assert np.isneginf(values[0, 1])
    assert head[1:] == [row[0] for row in body]
    assert head[1:4] == ["'=1+1", "a|b", "50% & $x_1$"]
    assert head[5] == "\\x00\\x1b[2J"


def test_more_axes_in_csv_give_a_number_a_line(trace: Trace, tmp_path: Path) -> None:
    (path,) = write_tensor(trace, MASKED, tmp_path / "masked.csv")
    head, *body = rows(path)
    assert head == ["H", "T", "S", "value"]
    values = np.array([float(row[3]) for row in body], dtype=np.float32)
    assert np.array_equal(values.reshape(3, 9, 9), trace[MASKED][0].numpy())
    assert body[10][:3] == ["H0", "a|b", "a|b"]


@pytest.mark.parametrize("name", ["ids", "decoder.0", "decoder.0.attention.seen", "output", MASKED])
def test_npy_is_the_tensor_with_its_words_beside_it(trace: Trace, tmp_path: Path, name) -> None:
    path, beside = write_tensor(trace, name, tmp_path / "value.npy")
    values = np.load(path, allow_pickle=False)
    assert values.dtype == trace[name].numpy().dtype
    assert np.array_equal(values, trace[name].numpy())
    fields = json.loads(beside.read_text("utf-8"))
    assert beside.name == "value.npy.json"
    assert fields["sha256"] == ABOUT["sha256"]
    assert fields["value"] == trace.node(name).name
    assert all(len(names) == len(HOSTILE) for names in fields["tokens"].values())


def test_one_head_as_npy_has_two_axes(trace: Trace, tmp_path: Path) -> None:
    path, beside = write_tensor(trace, MASKED, tmp_path / "one.npy", head=1)
    assert np.array_equal(np.load(path), trace[MASKED][0, 1].numpy())
    assert json.loads(beside.read_text("utf-8"))["head"] == "1"


def test_a_markdown_table_keeps_its_shape_whatever_the_tokens(trace: Trace, tmp_path) -> None:
    (path,) = write_tensor(trace, MASKED, tmp_path / "masked.md", head=0, digits=3)
    text = path.read_text("utf-8")
    assert text.count("-->") == 1  # a token does not end the comment
    table = text.partition("-->")[2]
    lines = [line for line in table.split("\n") if line.startswith("|")]
    assert len(lines) == 2 + len(HOSTILE)
    assert {line.replace("\\|", "").count("|") for line in lines} == {len(HOSTILE) + 2}
    assert "−∞" in lines[2]


def test_a_latex_table_keeps_its_shape_whatever_the_tokens(trace: Trace, tmp_path) -> None:
    (path,) = write_tensor(trace, MASKED, tmp_path / "masked.tex", head=0)
    lines = path.read_text("utf-8").split("\n")
    body = [line for line in lines if not line.startswith("%")]
    assert sum(r"\end{tabular}" in line for line in body) == 1
    assert body[-2] == r"\end{tabular}"
    cells = [line.replace(r"\&", "").count("&") for line in body[1:-2]]
    assert cells == [len(HOSTILE)] * (1 + len(HOSTILE))
    assert r"$-\infty$" in body[2]
    assert r"50\% \& \$x\_1\$" in body[1]


def test_some_queries_are_named_by_their_tokens(tmp_path: Path) -> None:
    trace = decoder_trace(keep=["*.weights"], rows=[-1, 2])
    (path,) = write_tensor(trace, "decoder.0.attention.weights", tmp_path / "some.csv", head=0)
    assert [row[0] for row in rows(path)[1:]] == [HOSTILE[-1], HOSTILE[2]]
    assert "rows of the text: " in path.read_text("utf-8")


def test_cross_attention_names_both_texts(tmp_path: Path) -> None:
    (path,) = write_tensor(
        translator_trace(), "decoder.1.cross.weights", tmp_path / "c.csv", head=2
    )
    head, *body = rows(path)
    assert head[1:] == ["3", "5", "7", "2", "11", "13", "1"]
    assert [row[0] for row in body] == ["1", "4", "9", "16"]


def test_provenance_tells_model_input_versions_edits_and_checks() -> None:
    trace = decoder_trace(edits=[AblateHead("decoder", 0, 1)])
    fields = provenance(trace, head=3, nothing=None)
    assert fields["model"] == "tiny"  # nothing of the folders it lies in
    assert (fields["sha256"], fields["qkv"]) == (ABOUT["sha256"], "0.0.7")
    assert fields["text"] == " ".join(HOSTILE)
    assert fields["edits"] == "decoder.0.attention without head 1"
    assert fields["checks"] == "2 of 2 checks passed"
    assert "softmax rows sum to 1" in fields["checked"]
    assert fields["head"] == "3"
    assert "nothing" not in fields


@pytest.mark.parametrize("ending", [".csv", ".md", ".tex"])
def test_every_text_begins_with_its_provenance(trace: Trace, tmp_path: Path, ending: str) -> None:
    (path,) = write_tensor(trace, "decoder.0", tmp_path / f"states{ending}")
    first = path.read_text("utf-8").split("\n\n")[0]
    for told in ("tiny", ABOUT["sha256"], "0.0.7", "2 of 2 checks passed", "=1+1 a|b"):
        assert told in first
    again = path.read_bytes()
    write_tensor(trace, "decoder.0", path)
    assert path.read_bytes() == again


@pytest.mark.parametrize(
    ("name", "file", "head", "said"),
    [
        (MASKED, "x.xls", 0, "end it with one of .csv, .npy, .md, .tex"),
        (MASKED, "x.md", None, "choose one of its 3 heads"),
        (MASKED, "x.csv", 3, "has heads 0 to 2"),
        ("decoder.0", "x.csv", 0, "there is no head in it"),
        ("decoder.0.attention.weight", "x.csv", 0, "did you mean"),
        (MASKED, "nowhere/x.csv", 0, "make it first"),
    ],
)
def test_mistakes_are_said(trace: Trace, tmp_path: Path, name, file, head, said) -> None:
    with pytest.raises(UsageError, match=said):
        write_tensor(trace, name, tmp_path / file, head=head)
    assert not list(tmp_path.iterdir())


numbers = st.floats(width=32) | st.sampled_from([float("-inf"), float("nan"), -0.0, 1e-45])


@settings(max_examples=60, deadline=None)
@given(name=st.text(max_size=12), value=numbers)
def test_any_name_and_number_survive_csv(name: str, value: float) -> None:
    (label,) = unique_labels([name])
    (read,) = csv.reader([f"{csv_quote(label)},{csv_number(np.float32(value))}"])
    assert len(read) == 2
    assert read[0].removeprefix("'") == label.removeprefix("'")
    assert not read[0].startswith(("=", "+", "-", "@", "\t"))
    assert np.float32(read[1]).tobytes() == np.float32(value).tobytes() or value != value


def test_a_row_of_markdown_shows_nan() -> None:
    table = LabeledTable("x", ("T", "S"), ("a",), ("b",), np.array([[np.nan]]))
    assert "| a | nan |" in markdown_text(table, {})


def test_a_mask_is_written_as_ones_and_noughts(trace: Trace) -> None:
    text = csv_text(labeled_array(trace, "decoder.0.attention.seen"), {})
    assert text.split("\n")[1].endswith(",1,0,0,0,0,0,0,0,0")
