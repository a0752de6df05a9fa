"""The worked example, worksheets and the lemma as files: every suffix, and nothing else."""

import json
import re
import struct
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from qkv.errors import UsageError
from qkv.interpret import check_answers, example, measure_lemma, notes_worksheet, walk
from qkv.interpret.examples import EXAMPLES
from qkv.interpret.export import WALK_EXTENSIONS, write_lemma, write_walk
from qkv.interpret.export.walk_picture import PAGE_WIDTH, arrange_panels, cell_colours
from qkv.interpret.page import render_walk_page
from qkv.interpret.render import WalkView, sections

MASKED = WalkView(walk(replace(EXAMPLES["poem"], causal=True)))
STARTS = {
    ".html": b"<!DOCTYPE html>",
    ".png": b"\x89PNG",
    ".svg": b"<?xml",
    ".pdf": b"%PDF",
    ".tex": b"\\section*{",
    ".md": b"# Self-attention",
    ".json": b'{"title"',
}


@pytest.mark.parametrize("suffix", WALK_EXTENSIONS)
def test_the_suffix_decides_the_format(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"poem{suffix}"
    write_walk(MASKED, path)
    assert path.read_bytes().startswith(STARTS[suffix])


@pytest.mark.parametrize("name", ["poem.docx", "poem", "poem.toml"])
def test_an_unknown_suffix_is_one_line_with_the_known_ones(name: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        write_walk(MASKED, tmp_path / name)
    assert str(caught.value) == (
        f'cannot write "{name}"; end it with one of .html, .png, .svg, .pdf, .tex, .md, .json'
    )
    assert list(tmp_path.iterdir()) == []


def test_standalone_is_for_latex_alone(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"standalone=True is for LaTeX; end poem.md with .tex"):
        write_walk(MASKED, tmp_path / "poem.md", standalone=True)


@pytest.mark.parametrize("suffix", [".svg", ".pdf", ".png"])
def test_the_same_walk_is_drawn_with_the_same_bytes(suffix: str, tmp_path: Path) -> None:
    for name in ("one", "two"):
        write_walk(MASKED, tmp_path / f"{name}{suffix}")
    one, two = sorted(tmp_path.iterdir())
    assert one.read_bytes() == two.read_bytes()


def test_no_panel_of_a_picture_covers_another_and_none_leaves_the_page() -> None:
    for sheet in EXAMPLES.values():
        panels = arrange_panels(sections(WalkView(walk(replace(sheet, causal=True)))))
        for a in panels:
            assert a.left + a.width <= PAGE_WIDTH + 0.5
            for b in panels:
                beside = a.left + a.width <= b.left or b.left + b.width <= a.left
                below = a.top + a.height <= b.top or b.top + b.height <= a.top
                assert a is b or beside or below


def test_words_in_other_scripts_and_signs_are_drawn_as_text(tmp_path: Path) -> None:
    words = ("$x$", "詩", "a_very_long_token_that_is_cut")
    path = tmp_path / "words.png"
    write_walk(WalkView(walk(replace(example("poem"), tokens=words))), path)
    width, height = struct.unpack(">II", path.read_bytes()[16:24])
    assert 1000 < width < 3000
    assert 500 < height < 3000


def test_a_blank_cell_has_no_colour_that_gives_its_sign_away() -> None:
    value = np.array([[-3.0, 2.0], [-np.inf, 0.5]])
    blank = np.array([[True, False], [False, False]])
    colours = cell_colours(value, blank, are_weights=False)
    assert colours[0, 0].tolist() == [1, 1, 1, 1]
    assert colours[0, 1, 3] > colours[1, 1, 3] > 0
    assert colours[1, 0].tolist() == [0.95, 0.95, 0.95, 1]


ENVIRONMENT = re.compile(r"\\(begin|end)\{(\w+\*?)\}")
# What pdfLaTeX sets without further packages: Latin letters with accents, dashes and quotes.
PRINTABLE = re.compile(r"[\x20-\x7e\n -ſ–—‘’“”]*")


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_standalone_document_is_complete_and_well_formed(name: str, tmp_path: Path) -> None:
    path = tmp_path / "sheet.tex"
    write_walk(WalkView(walk(replace(EXAMPLES[name], causal=True))), path, standalone=True)
    check_document(path.read_text("utf-8"))


def check_document(text: str) -> None:
    """The structure of LaTeX, since a TeX installation is rarely at hand."""
    assert text.startswith(r"\documentclass")
    assert text.endswith("\\end{document}\n")
    assert PRINTABLE.fullmatch(text), PRINTABLE.sub("", text)
    opened: list[str] = []
    for kind, environment in ENVIRONMENT.findall(text):
        if kind == "begin":
            opened.append(environment)
        else:
            assert opened.pop() == environment
    assert opened == []
    body = text[text.index(r"\begin{document}") :]
    escaped = re.sub(r"\\[\\{}$&#%_]", "", body)
    assert escaped.count("{") == escaped.count("}")
    for line in escaped.splitlines():
        # Mathematics ends on its line, and underscores stand in it only.
        if not line.lstrip().startswith(("\\mathbb", "\\operatorname", "&")):
            assert line.count("$") % 2 == 0, line
            assert "_" not in re.sub(r"\$[^$]*\$", "", line), line
            assert "^" not in re.sub(r"\$[^$]*\$", "", line), line
    for columns, table in re.findall(
        r"\\begin\{tabular\}\{l(r*)\}(.*?)\\end\{tabular\}", text, re.S
    ):
        rows = [row for row in table.split(r"\\") if "&" in row]
        assert {row.replace(r"\&", "").count("&") for row in rows} == {len(columns)}


def test_json_holds_the_mistakes_of_a_worksheet(tmp_path: Path) -> None:
    sheet = notes_worksheet()
    steps = walk(sheet)
    view = WalkView(steps, mistakes=tuple(check_answers(steps, sheet.answers)))
    write_walk(view, tmp_path / "notes.json", with_mistakes=True)
    page = json.loads((tmp_path / "notes.json").read_text("utf-8"))
    assert (page["ok"], len(page["slips"])) == (False, 3)


def test_a_page_with_too_many_cells_is_refused() -> None:
    rows = np.zeros((150, 1))
    words = tuple(f"w{i}" for i in range(150))
    large = replace(example("same"), tokens=words, matrices={"q": rows, "k": rows, "v": rows})
    with pytest.raises(UsageError, match="choose fewer steps"):
        render_walk_page(WalkView(walk(large)))


@pytest.mark.parametrize("suffix", WALK_EXTENSIONS)
def test_the_lemma_is_written_in_the_same_formats(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"lemma{suffix}"
    lemma = measure_lemma(samples=1000)
    write_lemma(lemma, path)
    content = path.read_bytes()
    if suffix == ".json":
        assert json.loads(content) == json.loads(json.dumps(lemma.json()))
    elif suffix in (".html", ".md", ".tex"):
        assert f"{lemma.rows[-1].variance:.3f}".encode() in content
    else:
        assert content.startswith(STARTS[suffix])


def test_the_lemma_as_a_standalone_document(tmp_path: Path) -> None:
    path = tmp_path / "lemma.tex"
    write_lemma(measure_lemma(samples=1000), path, standalone=True)
    check_document(path.read_text("utf-8"))
