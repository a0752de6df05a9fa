"""`qkv worksheet` and `qkv explain -o`: exercises made, filled in and marked; files written."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from qkv.cli.app import main
from qkv.cli.explain import MODEL_OPTIONS


class Result(NamedTuple):
    code: int
    out: str
    err: str


@pytest.fixture
def qkv(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., Result]:
    """Runs the program in an empty folder."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> Result:
        monkeypatch.setattr("sys.argv", ["qkv", *arguments])
        with pytest.raises(SystemExit) as stopped:
            main()
        code = stopped.value.code
        assert isinstance(code, int)
        return Result(code, *capsys.readouterr())

    return run


def test_a_worksheet_is_made_filled_in_and_marked(qkv: Callable, tmp_path: Path) -> None:
    assert qkv("worksheet", "-o", "poem.toml").err == "wrote poem.toml\n"
    sheet = tmp_path / "poem.toml"
    marked = qkv("worksheet", "--check", "poem.toml")
    assert marked.code == 0
    assert "0 of 0 written cells are right, 51 are blank" in marked.out
    text = sheet.read_text("utf-8")
    before, start, rest = text.partition("q = [\n")
    filled = rest.replace('["?", "?"],  # write', "[0.76, -0.05],  # write", 1)
    filled = filled.replace('["?", "?"],  # poem', "[0.11, -2.1537],  # poem", 1)
    sheet.write_text(before + start + filled, "utf-8")
    marked = qkv("worksheet", "--check", "poem.toml")
    assert marked.code == 1
    assert "   write  0.76 ✓    −0.05 ✓\n   a        ____       ____\n" in marked.out
    assert "   poem   0.11 ✗  −2.1537 ✓\n" in marked.out
    hint = "✗ q(poem, q1) is not 0.11; work out 4.41 × 0.54 + (−2.16) × 0.59\n"
    assert hint in marked.out
    assert "1.1070" not in marked.out
    assert "3 of 4 written cells are right, 47 are blank" in marked.out


def test_a_file_that_may_hold_answers_is_not_overwritten(qkv: Callable, tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text("answers", "utf-8")
    refused = qkv("worksheet", "-o", "mine.toml")
    assert refused.code == 2
    assert refused.err == (
        "qkv: mine.toml exists and may hold answers; remove it or name another file\n"
    )
    assert (tmp_path / "mine.toml").read_text("utf-8") == "answers"


def test_a_quiz_is_the_same_for_the_same_seed(qkv: Callable) -> None:
    quiz = qkv("worksheet", "--quiz", "heads", "--blank", "4", "--seed", "7")
    assert quiz.out == qkv("worksheet", "--quiz", "heads", "--blank", "4", "--seed", "7").out
    assert quiz.out.count("____") == 4
    assert "4 cells are blank." in quiz.out
    assert quiz.out != qkv("worksheet", "--quiz", "heads", "--blank", "4", "--seed", "8").out


def test_the_printed_quiz_and_its_file_ask_for_the_same_cells(
    qkv: Callable, tmp_path: Path
) -> None:
    qkv("worksheet", "--quiz", "--mask", "causal", "-o", "quiz.toml")
    text = (tmp_path / "quiz.toml").read_text("utf-8")
    assert text.count('"?"') == qkv("worksheet", "--quiz", "--mask", "causal").out.count("____") + 1
    marked = qkv("worksheet", "--check", "quiz.toml")
    assert (marked.code, "6 are blank" in marked.out) == (0, True)


@pytest.mark.parametrize("suffix", [".html", ".png", ".svg", ".pdf", ".tex", ".md"])
def test_a_quiz_is_written_as_a_handout(suffix: str, qkv: Callable, tmp_path: Path) -> None:
    result = qkv("worksheet", "--words", "the cat sat", "--quiz", "-o", f"quiz{suffix}")
    assert (result.code, result.err) == (0, f"wrote quiz{suffix}\n")
    assert (tmp_path / f"quiz{suffix}").stat().st_size > 1000


def test_an_own_worksheet_becomes_a_quiz_without_its_answers(qkv: Callable, tmp_path: Path) -> None:
    template = qkv("explain", "--worksheet-template").out
    (tmp_path / "mine.toml").write_text(template, "utf-8")
    quiz = qkv("worksheet", "--quiz", "mine.toml", "--steps", "q", "--blank", "6")
    assert quiz.out.count("____") == 6


WRONG = {
    "an unknown suffix": (
        ["worksheet", "--quiz", "-o", "quiz.json"],
        'cannot write "quiz.json"; end it with one of .toml, .html, .png, .svg, .pdf, .tex, .md',
    ),
    "blank cells of a whole worksheet": (
        ["worksheet", "--blank", "3"],
        "--blank is for --quiz; add --quiz, or leave all cells blank",
    ),
    "too many blanks": (
        ["worksheet", "--quiz", "--blank", "52"],
        "--blank 52 must be between 1 and 51, the cells of these steps",
    ),
    "a width without words": (
        ["worksheet", "--width", "3"],
        '--width is for --words; add the words, as in --words "the cat sat"',
    ),
    "making and marking at once": (
        ["worksheet", "--quiz", "--check", "poem.toml"],
        "--check and --quiz exclude each other; give one of them",
    ),
    "an unknown example": (
        ["worksheet", "pome"],
        'unknown example "pome"; did you mean "poem"?',
    ),
    "an unknown suffix of explain": (
        ["explain", "-o", "poem.docx"],
        'cannot write "poem.docx"; end it with one of .html, .png, .svg, .pdf, .tex, .md, .json',
    ),
    "a format next to a file": (
        ["explain", "-o", "poem.tex", "--format", "latex"],
        "the file's suffix decides its format; leave --format out",
    ),
    "a cell in a file": (
        ["explain", "-o", "poem.md", "--cell", "poem,write"],
        "--output and --cell exclude each other; give one of them",
    ),
    "standalone text": (
        ["explain", "--standalone"],
        "--standalone is for LaTeX; add --format latex or -o FILE.tex",
    ),
    "standalone Markdown": (
        ["lemma", "-o", "lemma.md", "--standalone"],
        "--standalone is for LaTeX; end lemma.md with .tex",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_cannot_be_done_is_one_line_and_writes_nothing(
    case: str, qkv: Callable, tmp_path: Path
) -> None:
    arguments, message = WRONG[case]
    result = qkv(*arguments)
    assert (result.code, result.out, result.err) == (2, "", f"qkv: {message}\n")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("suffix", [".html", ".png", ".svg", ".pdf", ".tex", ".md", ".json"])
def test_explain_writes_the_file_and_prints_nothing_else(
    suffix: str, qkv: Callable, tmp_path: Path
) -> None:
    result = qkv("explain", "--steps", "q,weights", "-o", f"poem{suffix}")
    assert result == (0, "", f"wrote poem{suffix}\n")
    assert (tmp_path / f"poem{suffix}").stat().st_size > 500


def test_wrong_answers_are_reported_next_to_the_file(qkv: Callable, tmp_path: Path) -> None:
    template = qkv("explain", "--worksheet-template").out
    (tmp_path / "mine.toml").write_text(template.replace("0.76", "0.67"), "utf-8")
    result = qkv("explain", "--worksheet", "mine.toml", "-o", "mine.md")
    assert result.code == 1
    assert result.err.startswith("5 of 6 written cells are right, 6 are blank (q, k).\n")
    assert "0.7621✗" in (tmp_path / "mine.md").read_text("utf-8")


VALUES = {
    "layer": "0",
    "head": "0",
    "side": "encoder",
    "target": "a",
    "top": "8",
    "label": "a",
    "token": "a",
    "against": "a",
    "head_off": "0.1",
    "replace": "1=a",
    "patch": "decoder.0",
    "patch_from": "a",
    "ablate": "decoder.0",
    "steer": "decoder.0=v.npy",
    "patch_sweep": "residual",
    "tensor": "x",
}


@pytest.mark.parametrize("name", MODEL_OPTIONS)
def test_an_option_that_needs_a_model_is_refused_without_one(name: str, qkv: Callable) -> None:
    flag = f"--{name.replace('_', '-')}"
    value = [VALUES[name]] if name in VALUES else []
    result = qkv("explain", flag, *value)
    assert result == (2, "", f"qkv: {flag} is for a model; name one, as in --model runs/book\n")
