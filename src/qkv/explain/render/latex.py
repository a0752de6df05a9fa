"""For a handout: a LaTeX fragment that needs only amsmath and amssymb."""

import re

from qkv.explain.render.page import ROUNDED, WRONG, Look, Section, Table, sections
from qkv.explain.step import Sentence, Word

_SPECIAL = {
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "$": r"\$", "&": r"\&", "#": r"\#",
    "%": r"\%", "_": r"\_", "^": r"\textasciicircum{}", "~": r"\textasciitilde{}",
    "|": r"\textbar{}", "<": r"\textless{}", ">": r"\textgreater{}",
    "×": r"$\times$", "÷": r"$\div$", "√": r"$\surd$", "−": "$-$", "∞": r"$\infty$",
    "·": r"$\cdot$", "…": r"\ldots{}", "ᵀ": r"$^\top$", "↓": r"$\downarrow$",
    "→": r"$\rightarrow$", "₁": "$_1$", "₂": "$_2$", "₃": "$_3$", "✗": r"$\times$",
}  # fmt: skip


def latex(look: Look) -> str:
    """The walk as sections with one tabular each."""
    parts = [rf"\section*{{{escape(look.walk.title)}}}"] if look.walk.title else []
    for section in sections(look):
        parts += ["", *_section(section)]
    return "\n".join(parts)


def say(sentence: Sentence) -> str:
    return "".join(
        rf"\emph{{{escape(part)}}}" if isinstance(part, Word) else escape(part) for part in sentence
    )


def escape(text: str) -> str:
    """A character that means something in LaTeX stays a character."""
    plain = "".join(_SPECIAL.get(character, character) for character in text)
    return re.sub('"([^"]*)"', r"``\1''", plain)


def _section(section: Section) -> list[str]:
    step = section.step
    lines = [rf"\subsection*{{{section.number}. {escape(step.title)}: ${step.latex}$}}", ""]
    lines += [*_table(section.table), "", say(step.sentence)]
    for note in section.footnotes:
        lines += ["", escape(note)]
    return lines


def _table(table: Table) -> list[str]:
    head = " & ".join(escape(label) for label in (table.corner, *table.columns))
    lines = [rf"\begin{{tabular}}{{l{'r' * len(table.columns)}}}", rf"{head} \\ \hline"]
    for label, row in zip(table.rows, table.cells, strict=True):
        cells = " & ".join(_cell(cell) for cell in row)
        lines.append(rf"\textbf{{{escape(label)}}} & {cells} \\")
    return [*lines, r"\end{tabular}"]


def _cell(cell: str) -> str:
    marks = {ROUNDED: r"^{\sim}", WRONG: r"^{\times}"}
    number = "".join(c for c in cell if c not in marks)
    raised = "".join(marks[c] for c in cell if c in marks)
    number = number.replace("−", "-").replace("∞", r"\infty ")
    return f"${number}{raised}$"
