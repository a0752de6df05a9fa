"""A walk or the lemma as a file, in the format of its suffix: page, picture or document."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from qkv.errors import UsageError
from qkv.files import atomic_write, check_output_path, write_error_message
from qkv.interpret.render import (
    WalkView,
    render_json,
    render_latex,
    render_markdown,
    standalone_latex,
)

if TYPE_CHECKING:
    from qkv.interpret.lemma import Lemma

PICTURE_EXTENSIONS = (".png", ".svg", ".pdf")
HANDOUT_EXTENSIONS = (".html", *PICTURE_EXTENSIONS, ".tex", ".md")  # to be read by people
WALK_EXTENSIONS = (*HANDOUT_EXTENSIONS, ".json")


def check_walk_path(
    path: Path, standalone: bool = False, extensions: tuple[str, ...] = WALK_EXTENSIONS
) -> None:
    """Raise a UsageError unless a walk can be written to the path.

    standalone: a whole LaTeX document is asked for, which only .tex can be.
    """
    check_output_path(path, extensions)
    if standalone and path.suffix.lower() != ".tex":
        raise UsageError(f"standalone=True is for LaTeX; end {path.name} with .tex")


def write_walk(
    view: WalkView, path: Path, *, standalone: bool = False, with_mistakes: bool = False
) -> None:
    """Write the walk: .html, .png, .svg, .pdf, .tex, .md or .json.

    standalone: a LaTeX document that compiles as it is, instead of a fragment.
    with_mistakes: the JSON also has the result of checking the answers.
    """
    check_walk_path(path, standalone)
    suffix = path.suffix.lower()
    if suffix in PICTURE_EXTENSIONS:
        from qkv.interpret.export.walk_picture import draw_walk

        draw_walk(view, path)
        return
    if suffix == ".html":
        from qkv.interpret.page import render_walk_page

        text = render_walk_page(view)
    elif suffix == ".tex":
        text = _latex(render_latex(view), standalone)
    elif suffix == ".md":
        text = render_markdown(view)
    else:
        text = render_json(view, with_mistakes=with_mistakes)
    _write(path, text)


def write_lemma(lemma: Lemma, path: Path, *, standalone: bool = False) -> None:
    """Write the measurements in the same formats; a picture is a plot of them."""
    from qkv.interpret.lemma import (
        DERIVATION,
        DERIVATION_LATEX,
        lemma_walk,
        plot_lemma,
        svg_of_lemma,
    )

    check_walk_path(path, standalone)
    suffix = path.suffix.lower()
    if suffix in PICTURE_EXTENSIONS:
        plot_lemma(lemma, path)
        return
    view = WalkView(lemma_walk(lemma), precision=3)
    if suffix == ".html":
        from qkv.interpret.page import render_walk_page

        text = render_walk_page(view, svg=svg_of_lemma(lemma), derivation=DERIVATION)
    elif suffix == ".tex":
        text = _latex(f"{render_latex(view)}\n\n{DERIVATION_LATEX}", standalone)
    elif suffix == ".md":
        text = f"{render_markdown(view)}\n\n## Why\n\n```text\n{DERIVATION}\n```"
    else:
        text = json.dumps(lemma.json())
    _write(path, text)


def _latex(body: str, standalone: bool) -> str:
    if standalone:
        return standalone_latex(body)
    return body


def _write(path: Path, text: str) -> None:
    try:
        atomic_write(path, f"{text}\n".encode("utf-8", "replace"))
    except OSError as error:
        raise UsageError(write_error_message(path, error)) from error
