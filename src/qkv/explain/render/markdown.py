"""For a page: one Markdown table a step."""

from qkv.explain.render.page import Look, Section, Table, sections
from qkv.explain.step import Sentence, Word

_SPECIAL = str.maketrans({c: f"\\{c}" for c in "\\`*_{}[]<>#|$~"})


def markdown(look: Look) -> str:
    """The walk as headings, equations and tables."""
    parts = [f"# {escape(look.walk.title)}", ""] if look.walk.title else []
    for section in sections(look):
        parts += _section(section)
    return "\n".join(parts).rstrip()


def say(sentence: Sentence) -> str:
    return "".join(
        f"*{escape(part)}*" if isinstance(part, Word) else escape(part) for part in sentence
    )


def escape(text: str) -> str:
    """A character that means something in Markdown stays a character."""
    return " ".join(text.translate(_SPECIAL).split("\n"))


def _section(section: Section) -> list[str]:
    step = section.step
    lines = [f"## {section.number}. {step.title} (`{step.name}`)", "", f"$${step.latex}$$", ""]
    lines += [*_table(section.table), "", say(step.sentence), ""]
    for note in section.footnotes:
        lines += [escape(note), ""]
    return lines


def _table(table: Table) -> list[str]:
    head = [escape(table.corner), *(escape(label) for label in table.columns)]
    lines = [f"| {' | '.join(head)} |", "|---|" + "---:|" * len(table.columns)]
    for label, row in zip(table.rows, table.cells, strict=True):
        cells = [escape(cell) for cell in row]
        lines.append(f"| {' | '.join([f'**{escape(label)}**', *cells])} |")
    return lines
