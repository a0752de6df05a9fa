"""A walk as text, Markdown, LaTeX or JSON: the same steps, sentences and numbers."""

from qkv.interpret.render.formats import (
    answers_summary,
    notes_summary,
    render_json,
    render_latex,
    render_markdown,
    render_model_json,
)
from qkv.interpret.render.sections import Crop, StepSection, WalkView, cell_lines, sections
from qkv.interpret.render.terminal_text import plain_text, render_model_text, render_text

__all__ = [
    "Crop",
    "StepSection",
    "WalkView",
    "answers_summary",
    "cell_lines",
    "notes_summary",
    "plain_text",
    "render_json",
    "render_latex",
    "render_markdown",
    "render_model_json",
    "render_model_text",
    "render_text",
    "sections",
]
