"""What README and docs show is what the program does: outputs, commands, code, links."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tools"))

import docs  # noqa: E402

PAGES = pytest.mark.parametrize(
    "page", docs.PAGES, ids=lambda page: page.relative_to(ROOT).as_posix()
)


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", page.read_text("utf-8"), re.S | re.M)


@PAGES
def test_the_generated_parts_are_current(page: Path) -> None:
    written = page.read_text("utf-8")
    assert docs.fill(written) == written, "run: make docs"


@PAGES
def test_every_command_runs(page: Path, tmp_path: Path) -> None:
    """Each `sh` block in an empty folder, from the first line to the last."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    for block in blocks(page, "sh"):
        ran = subprocess.run(
            ["bash", "-eu", "-c", block],
            cwd=tmp_path, capture_output=True, text=True,
            # One core each: the tests run side by side, and would wait for each other.
            env={**os.environ, "PATH": path, "OMP_NUM_THREADS": "1"},
        )  # fmt: skip
        assert ran.returncode == 0, f"{block}\n{ran.stderr}"


@PAGES
def test_every_piece_of_python_runs(page: Path) -> None:
    """The blocks of a page in order, except the source code that is included by reference."""
    own = re.sub(r"<!-- source: .*?<!-- end -->", "", page.read_text("utf-8"), flags=re.S)
    names: dict[str, object] = {}
    for block in re.findall(r"^```python\n(.*?)^```$", own, re.S | re.M):
        exec(compile(block, str(page), "exec"), names)


@PAGES
def test_every_link_leads_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#\s]+)", page.read_text("utf-8")):
        if not target.startswith("http"):
            assert (page.parent / target).exists(), target


@PAGES
def test_every_page_of_the_docs_can_be_reached(page: Path) -> None:
    pages = [other.read_text("utf-8") for other in docs.PAGES if other != page]
    if page.name != "README.md":
        assert any(page.name in text for text in pages)


def test_the_picture_is_the_one_the_program_draws(tmp_path: Path) -> None:
    import matplotlib

    from qkv.explain.lemma import measure
    from qkv.explain.lemma_picture import draw_lemma

    kept = docs.LEMMA.read_text("utf-8")
    if f"Matplotlib v{matplotlib.__version__}" not in kept:
        pytest.skip("the committed picture was drawn by another version of matplotlib")
    draw_lemma(measure(), tmp_path / "lemma.svg")
    number = re.compile(r"-?\d+\.\d+")
    new = (tmp_path / "lemma.svg").read_text("utf-8")
    assert number.sub("#", new) == number.sub("#", kept)
    places = [[float(n) for n in number.findall(text)] for text in (new, kept)]
    assert places[0] == pytest.approx(places[1], abs=1e-3)


def test_a_mistake_shown_in_the_guide_is_the_one_that_is_made(tmp_path: Path) -> None:
    """The refused worksheet of the guide, made and refused here."""
    guide = (ROOT / "docs/guide/worksheet.md").read_text("utf-8")
    shown = re.search(r"^qkv: mine.toml: (.*)$", guide, re.M)
    assert shown
    sheet = (ROOT / "docs/guide/poem.toml").read_text("utf-8")
    wrong = sheet.replace("w_q = [[0.54, -0.17], ", "w_q = [[1, 2], [0.54, -0.17], ")
    (tmp_path / "mine.toml").write_text(wrong, "utf-8")
    qkv = Path(sys.executable).with_name("qkv")
    ran = subprocess.run(
        [qkv, "explain", "--worksheet", "mine.toml"], cwd=tmp_path, capture_output=True, text=True
    )
    assert ran.returncode == 2
    assert ran.stderr == f"{shown[0]}\n"


def test_the_guide_names_every_choice_there_is() -> None:
    import qkv.model

    page = (ROOT / "docs/guide/models.md").read_text("utf-8")
    choices = [
        name
        for name in qkv.model.__all__
        if isinstance(thing := getattr(qkv.model, name), type)
        and issubclass(thing, qkv.model.Choice)
        and thing is not qkv.model.Choice
    ]
    assert [name for name in choices if f"`{name}`" not in page and f"{name}(" not in page] == []
