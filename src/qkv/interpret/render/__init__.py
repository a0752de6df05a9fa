"""A walk as text, Markdown, LaTeX or JSON: the same steps, sentences and numbers."""

from qkv.interpret.render.formats import (
    answers_summary,
    notes_summary,
    render_json,
    render_latex,
    render_markdown,
    render_model_json,
    standalone_latex,
)
from qkv.interpret.render.marked_answers import render_marks
from qkv.interpret.render.sections import (
    BLANK,
    Crop,
    StepSection,
    WalkView,
    cell_arithmetic,
    cell_lines,
    sections,
)
from qkv.interpret.render.terminal_text import plain_text, render_model_text, render_text

__all__ = [
    "BLANK",
    "Crop",
    "StepSection",
    "WalkView",
    "answers_summary",
    "cell_arithmetic",
    "cell_lines",
    "notes_summary",
    "plain_text",
    "render_json",
    "render_latex",
    "render_markdown",
    "render_marks",
    "render_model_json",
    "render_model_text",
    "render_text",
    "sections",
    "standalone_latex",
]
