"""A walk as JSON for programs, LaTeX for a handout or Markdown for a page.

JSON has all digits and no infinity: −∞ is the string "-Infinity". LaTeX is a fragment that needs
only amsmath and amssymb. The summary of checked answers is the same in every format.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from qkv.interpret.attention_walk import Mistake
from qkv.interpret.examples import NOTES_PERCENT
from qkv.interpret.matrix import Matrix
from qkv.interpret.render.sections import (
    BLANK,
    MISTAKE_MARK,
    ROUNDING_MARK,
    StepSection,
    TextTable,
    WalkView,
    cell_lines,
    mistake_line,
    sections,
)
from qkv.interpret.render.terminal_text import plain_text
from qkv.interpret.step import Sentence, UserWord, WalkStep
from qkv.interpret.worksheet import Worksheet

if TYPE_CHECKING:  # these need torch, and a worksheet does without
    from qkv.interpret.trace import Trace, TraceDifference


def render_json(
    view: WalkView, with_mistakes: bool = False, cell: tuple[str, str] | None = None
) -> str:
    """The steps; with_mistakes adds the result of checking the answers, cell its arithmetic."""
    page = _page(view, cell)
    if with_mistakes:
        page["ok"] = not view.mistakes
        page["slips"] = [_mistake_object(view, mistake) for mistake in view.mistakes]
    return json.dumps(page, ensure_ascii=False, allow_nan=False)


def render_model_json(
    view: WalkView,
    trace: Trace,
    difference: TraceDifference | None,
    cell: tuple[str, str] | None,
) -> str:
    """A head of a model: its steps, the model's prediction, what changed, checks and origin."""
    from qkv.interpret.glass_box import prediction_of

    prediction = prediction_of(trace)
    page = _page(view, cell)
    page["answer"] = None
    if prediction is not None:
        page["answer"] = prediction.json()
    page["checks"] = [check.json() for check in trace.checks]
    page["about"] = dict(trace.metadata)
    if difference is not None:
        page["changed"] = difference.json()
    return json.dumps(page, ensure_ascii=False)


def _page(view: WalkView, cell: tuple[str, str] | None) -> dict[str, Any]:
    steps = [_step_object(step) for step in view.walk.select(view.steps)]
    page: dict[str, Any] = {"title": view.walk.title, "steps": steps}
    if cell is not None:
        page["cells"] = cell_lines(view, *cell)
    return page


def _step_object(step: WalkStep) -> dict[str, Any]:
    return {
        "name": step.name,
        "title": step.title,
        "equation": step.equation,
        "rows": list(step.rows),
        "columns": list(step.columns),
        "value": _number_rows(step.value),
        "inputs": list(step.inputs),
        "sentence": plain_text(step.sentence),
    }


def _mistake_object(view: WalkView, mistake: Mistake) -> dict[str, Any]:
    return {
        "step": mistake.step.name,
        "row": mistake.step.rows[mistake.row],
        "column": mistake.step.columns[mistake.column],
        "written": _number(mistake.answer),
        "right": _number(mistake.expected),
        "sentence": mistake_line(view.walk, mistake, view.precision),
    }


def _number_rows(matrix: Matrix) -> list[list[float | str]]:
    return [[_number(cell) for cell in row] for row in matrix.tolist()]


def _number(value: float) -> float | str:
    if value == float("inf"):
        return "Infinity"
    if value == float("-inf"):
        return "-Infinity"
    return value


_LATEX_SPECIAL = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "$": r"\$",
    "&": r"\&",
    "#": r"\#",
    "%": r"\%",
    "_": r"\_",
    "^": r"\textasciicircum{}",
    "~": r"\textasciitilde{}",
    "|": r"\textbar{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "×": r"$\times$",
    "÷": r"$\div$",
    "√": r"$\surd$",
    "−": "$-$",
    "∞": r"$\infty$",
    "·": r"$\cdot$",
    "…": r"\ldots{}",
    "ᵀ": r"$^\top$",
    "↓": r"$\downarrow$",
    "→": r"$\rightarrow$",
    "₁": "$_1$",
    "₂": "$_2$",
    "₃": "$_3$",
    "ᵢ": "$_i$",
    "±": r"$\pm$",
    "Σ": r"$\Sigma$",
    "✗": r"$\times$",
}

_LATEX_MARKS = {ROUNDING_MARK: r"^{\sim}", MISTAKE_MARK: r"^{\times}"}


# Any engine: pdfLaTeX for Latin letters, XeLaTeX or LuaLaTeX with a font for other scripts.
_LATEX_PREAMBLE = r"""\documentclass[11pt]{article}
\usepackage{iftex}
\ifPDFTeX
  \usepackage[T1]{fontenc}
  \usepackage[utf8]{inputenc}
\else
  \usepackage{fontspec}
\fi
% For words in other scripts use XeLaTeX or LuaLaTeX and a font that has them, as in
% \setmainfont{Noto Serif CJK SC}
\usepackage{amsmath,amssymb}
\usepackage[margin=2.2cm]{geometry}
\setlength{\parindent}{0pt}
\setlength{\parskip}{.6em}
\begin{document}
"""


def standalone_latex(body: str) -> str:
    """The fragment as a document that compiles as it is."""
    return f"{_LATEX_PREAMBLE}{body}\n\\end{{document}}"


def render_latex(view: WalkView) -> str:
    """The walk as sections with one tabular each."""
    lines = []
    if view.walk.title:
        lines.append(rf"\section*{{{escape_latex(view.walk.title)}}}")
    for section in sections(view):
        lines += ["", *_latex_section(section)]
    return "\n".join(lines)


def escape_latex(text: str) -> str:
    """The text with every special character of LaTeX escaped and typographic quotes."""
    plain = "".join(_LATEX_SPECIAL.get(character, character) for character in text)
    return re.sub('"([^"]*)"', r"``\1''", plain)


def _latex_section(section: StepSection) -> list[str]:
    step = section.step
    title = escape_latex(step.title)
    lines = [rf"\subsection*{{{section.number}. {title}: ${step.latex}$}}", ""]
    lines += [*_latex_table(section.table), "", _latex_sentence(section.sentence)]
    for note in section.footnotes:
        lines += ["", escape_latex(note)]
    return lines


def _latex_table(table: TextTable) -> list[str]:
    head = " & ".join(escape_latex(label) for label in (table.corner, *table.columns))
    lines = [rf"\begin{{tabular}}{{l{'r' * len(table.columns)}}}", rf"{head} \\ \hline"]
    for label, row in zip(table.rows, table.cells, strict=True):
        cells = " & ".join(_latex_cell(cell) for cell in row)
        lines.append(rf"\textbf{{{escape_latex(label)}}} & {cells} \\")
    return [*lines, r"\end{tabular}"]


def _latex_cell(cell: str) -> str:
    """A number in math mode, its marks raised; a line to write on for a blank cell."""
    if cell == BLANK:
        return r"\underline{\hspace{3em}}"
    number = "".join(c for c in cell if c not in _LATEX_MARKS)
    marks = "".join(_LATEX_MARKS[c] for c in cell if c in _LATEX_MARKS)
    number = number.replace("−", "-").replace("∞", r"\infty ")
    return f"${number}{marks}$"


def _latex_sentence(sentence: Sentence) -> str:
    parts = []
    for part in sentence:
        text = escape_latex(part)
        if isinstance(part, UserWord):
            text = rf"\emph{{{text}}}"
        parts.append(text)
    return "".join(parts)


_MARKDOWN_SPECIAL = str.maketrans({c: f"\\{c}" for c in "\\`*_{}[]<>#|$~"})


def render_markdown(view: WalkView) -> str:
    """The walk as headings, equations and tables."""
    lines = []
    if view.walk.title:
        lines += [f"# {escape_markdown(view.walk.title)}", ""]
    for section in sections(view):
        lines += _markdown_section(section)
    return "\n".join(lines).rstrip()


def escape_markdown(text: str) -> str:
    """The text on one line with every special character of Markdown escaped."""
    return " ".join(text.translate(_MARKDOWN_SPECIAL).split("\n"))


def _markdown_section(section: StepSection) -> list[str]:
    step = section.step
    lines = [f"## {section.number}. {step.title} (`{step.name}`)", "", f"$${step.latex}$$", ""]
    lines += [*_markdown_table(section.table), ""]
    if section.sentence:
        lines += [_markdown_sentence(section.sentence), ""]
    for note in section.footnotes:
        lines += [escape_markdown(note), ""]
    return lines


def _markdown_table(table: TextTable) -> list[str]:
    head = [escape_markdown(label) for label in (table.corner, *table.columns)]
    lines = [f"| {' | '.join(head)} |", "|---|" + "---:|" * len(table.columns)]
    for label, row in zip(table.rows, table.cells, strict=True):
        cells = [f"**{escape_markdown(label)}**", *(escape_markdown(cell) for cell in row)]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def _markdown_sentence(sentence: Sentence) -> str:
    parts = []
    for part in sentence:
        text = escape_markdown(part)
        if isinstance(part, UserWord):
            text = f"*{text}*"
        parts.append(text)
    return "".join(parts)


def answers_summary(view: WalkView, sheet: Worksheet) -> str:
    """How many answers are right, and a line for each mistake in a step that is not shown."""
    # NaN is not equal to itself.
    blank = sum(int((answer.value != answer.value).sum()) for answer in sheet.answers.values())
    counts = _count_right(view, sheet)
    if blank:
        counts += f", {blank} {'is' if blank == 1 else 'are'} blank"
    lines = [f"{counts} ({', '.join(sheet.answers)})."]
    steps = view.walk.select(view.steps)
    lines += [_mistake_line(view, each) for each in view.mistakes if each.step not in steps]
    return "\n".join(lines)


def _count_right(view: WalkView, sheet: Worksheet) -> str:
    total = sum(int((answer.value == answer.value).sum()) for answer in sheet.answers.values())
    return f"{total - len(view.mistakes)} of {total} written cells are right"


def notes_summary(view: WalkView, sheet: Worksheet) -> str:
    """The same for the study notes, with a check of the conclusion that the notes draw."""
    percent = 100 * float(view.walk["weights"].value[0, 0])
    verdict = "holds" if round(percent) == NOTES_PERCENT else "does not hold"
    claim = f'"write is {NOTES_PERCENT} % similar to itself" {verdict}'
    lines = [f"{_count_right(view, sheet)} ({', '.join(sheet.answers)})."]
    lines += [_mistake_line(view, mistake) for mistake in view.mistakes]
    lines.append(f"{claim}: weights(write, write) = {percent:.2f} %.")
    return "\n".join(lines)


def _mistake_line(view: WalkView, mistake: Mistake) -> str:
    return f"  {MISTAKE_MARK} {mistake_line(view.walk, mistake, view.precision)}"
