"""The program as a person runs it: answers on standard output, mistakes in one line, exit codes."""

import json
import sys
from pathlib import Path

import pytest

from qkv.cli.app import main

SHEET = """\
tokens = ["one", "two", "three", "four"]
x = [[1.0, 0.5, -0.5], [0.0, 1.0, 2.0], [-1.0, 0.25, 0.75], [0.5, 0.5, 0.5]]
w_q = [[0.2, -0.4], [0.6, 0.1], [-0.3, 0.5]]
w_k = [[0.7, 0.3], [-0.2, 0.8], [0.4, -0.6]]
w_v = [[1, 0, 0.5, -1, 0.2], [0, 1, 0.5, 0.3, -0.7], [0.1, 0.2, 0.3, 0.4, 0.5]]
"""


class Result:
    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err


@pytest.fixture
def qkv(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    def run(*arguments: str) -> Result:
        monkeypatch.setattr(sys, "argv", ["qkv", *arguments])
        with pytest.raises(SystemExit) as exit_info:
            main()
        captured = capsys.readouterr()
        return Result(int(exit_info.value.code or 0), captured.out, captured.err)

    return run


def test_version_and_help(qkv) -> None:
    assert qkv("--version").out.startswith("qkv 0.")
    for arguments in (["--help"], ["explain", "-h"], ["lemma", "--help"], ["tour", "--help"]):
        result = qkv(*arguments)
        assert result.code == 0
        assert "Usage: qkv" in result.out
    assert "qkv explain --mask causal" in qkv("explain", "--help").out


MISTAKES = {
    ("nonsense",): "No such command",
    ("explain", "--wrong"): "No such option",
    ("explain", "--example", "pome"): 'did you mean "poem"?',
    ("explain", "--json", "--format", "text"): "--json and --format exclude each other",
    ("explain", "--precision", "99"): "--precision",
    ("explain", "--format", "pdf"): "--format",
    ("explain", "--heads", "0"): "--heads 0 must be 1 or more",
    ("explain", "--heads", "3"): "heads = 3 must divide d_k = 2",
    ("explain", "--cell", "poem"): "as in poem,write",
    ("explain", "--cell", "poem,dog"): "no step has a cell poem,dog",
    ("explain", "--steps", "weight"): 'did you mean "weights"?',
    ("explain", "--notes", "--example", "same"): "exclude each other",
    ("explain", "--notes", "--heads", "2"): "--notes and --heads exclude each other",
    ("explain", "--notes", "--mask", "causal"): "--notes and --mask exclude each other",
    ("explain", "--worksheet-template", "--notes"): "--worksheet-template and --notes exclude",
    ("explain", "--worksheet", "nowhere.toml"): "cannot read nowhere.toml",
    ("tour", "--device", "gpu"): 'unknown device "gpu"; use auto, cpu, cuda or mps',
    ("lemma", "--samples", "5"): "--samples 5 is too few",
    ("lemma", "--seed", "-1"): "--seed",
    ("lemma", "-o", "picture.gif"): ".png, .svg, .pdf",
}


@pytest.mark.parametrize("arguments", MISTAKES)
def test_a_mistake_is_one_line_and_exit_code_2(qkv, arguments: tuple[str, ...]) -> None:
    result = qkv(*arguments)
    assert result.code == 2
    assert result.out == ""
    assert result.err.startswith("qkv: ")
    assert result.err.count("\n") == 1
    assert MISTAKES[arguments] in result.err


def test_without_a_command_there_is_help(qkv) -> None:
    assert qkv().out == qkv("--help").out
    assert qkv().code == 0


def test_explain_json_is_one_object_with_every_step(qkv) -> None:
    result = qkv("explain", "--json", "--mask", "causal")
    assert result.code == 0
    steps = {step["name"]: step["value"] for step in json.loads(result.out)["steps"]}
    assert steps["weights"][1][2] == 0
    assert steps["weights"][0] == [1, 0, 0]
    assert qkv("explain", "--format", "json", "--mask", "causal").out == result.out


def test_explain_a_cell_shows_its_terms_and_their_sum(qkv) -> None:
    out = qkv("explain", "--cell", "poem,write").out
    assert "scores(poem, write) = 1.1070 × (−0.1418) + (−2.1537) × (−0.2978)" in out
    assert "= 0.4844" in out


def test_explain_notes_names_exactly_the_three_slips(qkv) -> None:
    result = qkv("explain", "--notes")
    assert result.code == 0
    slips = [line for line in result.out.split("\n") if "✗" in line]
    assert [line.split(" is written")[0].strip() for line in slips] == [
        "✗ q(poem, q1)",
        "✗ k(write, k2)",
        "✗ k(a, k1)",
    ]
    assert '"write is 36 % similar to itself" holds' in result.out
    assert len(json.loads(qkv("explain", "--notes", "--json").out)["slips"]) == 3


@pytest.mark.parametrize(
    "options", [[], ["--format", "markdown"], ["--format", "latex"], ["--json"]]
)
def test_a_worksheet_with_a_wrong_answer_exits_1_and_names_the_cell(
    qkv, tmp_path: Path, options: list[str]
) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(SHEET, encoding="utf-8")
    right = {
        s["name"]: s["value"]
        for s in json.loads(qkv("explain", "--worksheet", str(path), "--json").out)["steps"]
    }
    assert len(right["output"]) == 4
    assert len(right["output"][0]) == 5
    answers = [[round(cell, 2) for cell in row] for row in right["scores"]]
    path.write_text(f"{SHEET}[answers]\nscores = {answers}\n", encoding="utf-8")
    assert qkv("explain", "--worksheet", str(path)).code == 0
    answers[2][1] += 0.03
    path.write_text(f"{SHEET}[answers]\nscores = {answers}\n", encoding="utf-8")
    result = qkv("explain", "--worksheet", str(path), *options)
    assert result.code == 1
    assert "(three, two) is written" in result.out
    elsewhere = qkv("explain", "--worksheet", str(path), *options, "--steps", "weights")
    assert elsewhere.code == 1
    assert "(three, two) is written" in elsewhere.out + elsewhere.err


def test_every_example_is_named_in_the_help(qkv) -> None:
    from qkv.interpret.examples import EXAMPLES

    page = qkv("explain", "--help").out
    assert all(name in page for name in EXAMPLES)


def test_the_worksheet_template_is_a_worksheet(qkv, tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(qkv("explain", "--worksheet-template").out, encoding="utf-8")
    result = qkv("explain", "--worksheet", str(path))
    assert result.code == 0
    assert "6 of 6 written cells are right, 6 are blank (q, k)." in result.out


def test_lemma_json_has_the_fields_of_the_contract(qkv) -> None:
    table = json.loads(qkv("lemma", "--json", "--samples", "2000", "--seed", "3").out)
    for row in table["rows"]:
        assert {"d_k", "mean", "variance", "low", "high", "scaled_variance"} <= row.keys()
        assert row["low"] <= row["variance"] / row["d_k"] <= row["high"]


def test_lemma_draws_and_says_so_on_standard_error(qkv, tmp_path: Path) -> None:
    path = tmp_path / "lemma.svg"
    result = qkv("lemma", "--samples", "1000", "-o", str(path))
    assert result.code == 0
    assert path.is_file()
    assert f"wrote {path}" in result.err
    assert "wrote" not in result.out
