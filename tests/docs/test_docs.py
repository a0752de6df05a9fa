"""What README and docs show is what the program does: outputs, commands, code, links."""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.docs import warm_qkv

import docs

ROOT = Path(__file__).parents[2]
PAGES = pytest.mark.parametrize(
    "page", docs.PAGES, ids=lambda page: page.relative_to(ROOT).as_posix()
)


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", page.read_text("utf-8"), re.S | re.M)


@PAGES
def test_the_generated_parts_are_current(page: Path) -> None:
    written = page.read_text("utf-8")
    assert docs.fill(written) == written, "run: make docs"


@pytest.fixture(scope="session")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A path on which `qkv` is found, and this Python."""
    with warm_qkv.warm(tmp_path_factory.mktemp("bin")) as folder:
        places = [str(folder), str(Path(sys.executable).parent), os.environ["PATH"]]
        yield os.pathsep.join(places)


@pytest.mark.slow
@PAGES
def test_every_command_runs(page: Path, tmp_path: Path, programs: str) -> None:
    """Each `sh` block in an empty folder, from the first line to the last."""
    for block in blocks(page, "sh"):
        ran = subprocess.run(
            ["bash", "-eu", "-c", block],
            cwd=tmp_path, capture_output=True, text=True, timeout=900,
            # One core each: the tests run side by side, and would wait for each other.
            env={**os.environ, "PATH": programs, "OMP_NUM_THREADS": "1"},
        )  # fmt: skip
        assert ran.returncode == 0, f"{block}\n{ran.stderr}"


@PAGES
def test_every_piece_of_python_runs(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The blocks of a page in order, except the source code that is included by reference."""
    monkeypatch.chdir(tmp_path)
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


@PAGES
def test_every_command_that_is_not_run_could_be(page: Path) -> None:
    """Blocks without a language show commands whose files are not here; they can be understood."""
    from typer.main import get_command

    from qkv.cli.app import app

    program: Any = get_command(app)
    fences = re.findall(r"^```(\w*)\n(.*?)^```$", page.read_text("utf-8"), re.S | re.M)
    for block in (inside for language, inside in fences if not language):
        for line in block.splitlines():
            if line.startswith("qkv "):
                name, *rest = shlex.split(line, comments=True)[1:]
                program.commands[name].make_context(name, rest)


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
        and issubclass(thing, qkv.model.Config)
        and thing is not qkv.model.Config
    ]
    assert [name for name in choices if f"`{name}`" not in page and f"{name}(" not in page] == []


def test_the_tour_names_every_command() -> None:
    from qkv.cli.app import app

    page = (ROOT / "docs/tour.md").read_text("utf-8")
    named = [(command.name, command.callback) for command in app.registered_commands]
    for name in [name or made.__name__ for name, made in named if made is not None]:
        assert re.search(rf"qkv {name}\b", page), name


def test_the_reference_names_every_public_name_there_is() -> None:
    import qkv

    page = (ROOT / "docs/reference/python.md").read_text("utf-8")
    for name in qkv.__all__:
        assert name.startswith("__") or f"- `{name}" in page


def test_every_field_of_a_shape_is_explained_or_explains_itself() -> None:
    """Each field of the first level of a JSON shape stands in the table below it."""
    page = (ROOT / "docs/reference/json.md").read_text("utf-8")
    metrics = (ROOT / "docs/guide/train.md").read_text("utf-8")
    for section in page.split("\n## ")[1:]:
        told = section + (metrics if section.startswith("evaluate") else "")
        for shape in re.findall(r"<!-- json: .*?<!-- end -->", section, re.S):
            fields = re.findall(r'^  "(\w+)":', shape, re.M)
            prose = re.sub(r"<!-- json: .*?<!-- end -->", "", told, flags=re.S)
            missing = [f for f in fields if f"`{f}`" not in prose and f not in PLAIN]
            assert missing == [], section.splitlines()[0]


PLAIN = {
    "accuracy", "adjusted_rand", "answer", "architecture", "baseline", "bleu", "chrf", "confidence",
    "encoder_attention", "encoder_feed_forward", "encoder_norm", "encoder_position",
    "encoder_norm_placement", "encoder_shape", "family", "hidden", "label", "layout", "length",
    "loss", "loss_per_byte", "loss_per_character", "loss_per_token", "macro_f1", "marks", "output",
    "parameters", "perplexity", "probabilities", "probability", "remarks", "samples", "seed",
    "source", "text", "title", "tokenizer", "tokens", "v_measure", "vocabulary",
}  # fmt: skip


def test_the_reading_order_names_files_and_what_is_in_them() -> None:
    """Every stop is a file that defines the names behind it; no walk has more than twelve."""
    page = (ROOT / "docs/reading-order.md").read_text("utf-8")
    for path in re.findall(r"`((?:src|examples)/[\w/]+\.py)`", page):
        assert (ROOT / path).is_file(), path
    walks = re.findall(r"^## (\w+): .*?\n\n((?:\d+\. .*\n)+)", page, re.M)
    assert [name for name, _ in walks] == ["Generate", "Train", "Explain", "Embed", "Serve"]
    for name, stops in walks:
        lines = stops.splitlines()
        assert len(lines) <= 12, name
        for line in lines:
            quoted = re.findall(r"`([^`]+)`", line)
            paths = [each for each in quoted if each.endswith(".py")]
            names = [each for each in quoted if each not in paths]
            defined = "".join((ROOT / path).read_text("utf-8") for path in paths)
            for each in names:
                if re.fullmatch(r"[A-Za-z_]+", each):
                    assert re.search(rf"\b{each}\b", defined), f"{each} is not in {paths}"
