"""For programs: all digits, one JSON object. JSON has no infinity; −∞ is the string "-Infinity"."""

import json as encoder
import re
from typing import Any

from qkv.interpret.examples import PRINTED_SHARE
from qkv.interpret.glass_box import prediction_of
from qkv.interpret.matrix import Matrix
from qkv.interpret.render.sections import (
    MISTAKE_MARK,
    ROUNDING_MARK,
    Section,
    TextTable,
    WalkView,
    cell_lines,
    mistake_line,
    sections,
)
from qkv.interpret.render.terminal_text import plain_text
from qkv.interpret.step import Sentence, UserWord, Walk
from qkv.interpret.trace import Trace, TraceDifference
from qkv.interpret.walk import Mistake
from qkv.interpret.worksheet import Worksheet

# FOLDED explain/render/latex: For a handout: a LaTeX fragment that needs only amsmath and
#   amssymb.
# FOLDED explain/render/markdown: For a page: one Markdown table a step.
# FOLDED explain/render/verdict: The last word on a worksheet with answers: how many cells are
#   right, and what is wrong.


def render_json(look: WalkView, judged: bool = False, cell: tuple[str, str] | None = None) -> str:
    """The steps; with answers judged also what is wrong; with a cell also its arithmetic."""
    walk, precision, slips = look.walk, look.precision, look.mistakes
    page: dict[str, Any] = {
        "title": walk.title,
        "steps": [
            {
                "name": step.name,
                "title": step.title,
                "equation": step.equation,
                "rows": list(step.rows),
                "columns": list(step.columns),
                "value": numbers(step.value),
                "inputs": list(step.inputs),
                "sentence": plain_text(step.sentence),
            }
            for step in walk.select(look.steps)
        ],
    }
    if cell is not None:
        page["cells"] = cell_lines(look, *cell)
    if judged:
        page["ok"] = not slips
        page["slips"] = [slip_object(walk, slip, precision) for slip in slips]
    return encoder.dumps(page, ensure_ascii=False, allow_nan=False)


def render_model_json(
    look: WalkView, trace: Trace, changed: TraceDifference | None, cell: tuple[str, str] | None
) -> str:
    """A head of a model: its steps, the model's answer, what changed, checks and origin."""
    page: dict[str, Any] = encoder.loads(render_json(look, cell=cell))
    answer = prediction_of(trace)
    page |= {
        "answer": None if answer is None else answer.json(),
        "checks": [proof.json() for proof in trace.checks],
        "about": dict(trace.metadata),
    }
    if changed is not None:
        page["changed"] = changed.json()
    return encoder.dumps(page, ensure_ascii=False)


def slip_object(walk: Walk, slip: Mistake, precision: int) -> dict[str, Any]:
    return {
        "step": slip.step.name,
        "row": slip.step.rows[slip.row],
        "column": slip.step.columns[slip.column],
        "written": _number(slip.answer),
        "right": _number(slip.expected),
        "sentence": mistake_line(walk, slip, precision),
    }


def numbers(matrix: Matrix) -> list[list[float | str]]:
    return [[_number(cell) for cell in row] for row in matrix.tolist()]


def _number(value: float) -> float | str:
    if value == float("inf"):
        return "Infinity"
    return "-Infinity" if value == float("-inf") else value


_LATEX_SPECIAL = {
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "$": r"\$", "&": r"\&", "#": r"\#",
    "%": r"\%", "_": r"\_", "^": r"\textasciicircum{}", "~": r"\textasciitilde{}",
    "|": r"\textbar{}", "<": r"\textless{}", ">": r"\textgreater{}",
    "×": r"$\times$", "÷": r"$\div$", "√": r"$\surd$", "−": "$-$", "∞": r"$\infty$",
    "·": r"$\cdot$", "…": r"\ldots{}", "ᵀ": r"$^\top$", "↓": r"$\downarrow$",
    "→": r"$\rightarrow$", "₁": "$_1$", "₂": "$_2$", "₃": "$_3$", "✗": r"$\times$",
}  # fmt: skip


def render_latex(look: WalkView) -> str:
    """The walk as sections with one tabular each."""
    parts = [rf"\section*{{{escape_latex(look.walk.title)}}}"] if look.walk.title else []
    for section in sections(look):
        parts += ["", *_latex_section(section)]
    return "\n".join(parts)


def latex_prose(sentence: Sentence) -> str:
    return "".join(
        rf"\emph{{{escape_latex(part)}}}" if isinstance(part, UserWord) else escape_latex(part)
        for part in sentence
    )


def escape_latex(text: str) -> str:
    """A character that means something in LaTeX stays a character."""
    plain = "".join(_LATEX_SPECIAL.get(character, character) for character in text)
    return re.sub('"([^"]*)"', r"``\1''", plain)


def _latex_section(section: Section) -> list[str]:
    step = section.step
    lines = [rf"\subsection*{{{section.number}. {escape_latex(step.title)}: ${step.latex}$}}", ""]
    lines += [*_latex_table(section.table), "", latex_prose(step.sentence)]
    for note in section.footnotes:
        lines += ["", escape_latex(note)]
    return lines


def _latex_table(table: TextTable) -> list[str]:
    head = " & ".join(escape_latex(label) for label in (table.corner, *table.columns))
    lines = [rf"\begin{{tabular}}{{l{'r' * len(table.columns)}}}", rf"{head} \\ \hline"]
    for label, row in zip(table.rows, table.cells, strict=True):
        cells = " & ".join(_cell(cell) for cell in row)
        lines.append(rf"\textbf{{{escape_latex(label)}}} & {cells} \\")
    return [*lines, r"\end{tabular}"]


def _cell(cell: str) -> str:
    marks = {ROUNDING_MARK: r"^{\sim}", MISTAKE_MARK: r"^{\times}"}
    number = "".join(c for c in cell if c not in marks)
    raised = "".join(marks[c] for c in cell if c in marks)
    number = number.replace("−", "-").replace("∞", r"\infty ")
    return f"${number}{raised}$"


_MARKDOWN_SPECIAL = str.maketrans({c: f"\\{c}" for c in "\\`*_{}[]<>#|$~"})


def render_markdown(look: WalkView) -> str:
    """The walk as headings, equations and tables."""
    parts = [f"# {escape_markdown(look.walk.title)}", ""] if look.walk.title else []
    for section in sections(look):
        parts += _markdown_section(section)
    return "\n".join(parts).rstrip()


def markdown_prose(sentence: Sentence) -> str:
    return "".join(
        f"*{escape_markdown(part)}*" if isinstance(part, UserWord) else escape_markdown(part)
        for part in sentence
    )


def escape_markdown(text: str) -> str:
    """A character that means something in Markdown stays a character."""
    return " ".join(text.translate(_MARKDOWN_SPECIAL).split("\n"))


def _markdown_section(section: Section) -> list[str]:
    step = section.step
    lines = [f"## {section.number}. {step.title} (`{step.name}`)", "", f"$${step.latex}$$", ""]
    lines += [*_markdown_table(section.table), "", markdown_prose(step.sentence), ""]
    for note in section.footnotes:
        lines += [escape_markdown(note), ""]
    return lines


def _markdown_table(table: TextTable) -> list[str]:
    head = [escape_markdown(table.corner), *(escape_markdown(label) for label in table.columns)]
    lines = [f"| {' | '.join(head)} |", "|---|" + "---:|" * len(table.columns)]
    for label, row in zip(table.rows, table.cells, strict=True):
        cells = [escape_markdown(cell) for cell in row]
        lines.append(f"| {' | '.join([f'**{escape_markdown(label)}**', *cells])} |")
    return lines


def answers_summary(look: WalkView, sheet: Worksheet) -> str:
    """How many of the written cells are right, and a line for each slip the page has not told."""
    judged = sum(int((answer.value == answer.value).sum()) for answer in sheet.answers.values())
    right, names = judged - len(look.mistakes), ", ".join(sheet.answers)
    told = look.walk.select(look.steps)
    lines = [f"{right} of {judged} written cells are right ({names})."]
    return "\n".join(
        [*lines, *(_line(look, slip) for slip in look.mistakes if slip.step not in told)]
    )


def notes_summary(look: WalkView, sheet: Worksheet) -> str:
    """The same for the study notes, with their own conclusion held against the weights."""
    share = 100 * float(look.walk["weights"].value[0, 0])
    holds = "holds" if round(share) == PRINTED_SHARE else "does not hold"
    claim = f'"write is {PRINTED_SHARE} % similar to itself" {holds}'
    lines = [answers_summary(look, sheet), *(_line(look, slip) for slip in look.mistakes)]
    return "\n".join([*lines, f"{claim}: weights(write, write) = {share:.2f} %."])


def _line(look: WalkView, slip: Mistake) -> str:
    return f"  ✗ {mistake_line(look.walk, slip, look.precision)}"
