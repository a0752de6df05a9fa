"""For the terminal: aligned columns, folded where they would be wider than the screen."""

from rich.cells import cell_len

from qkv.explain.render.page import Look, Section, Table, sections
from qkv.explain.step import Sentence, Word

INDENT = "   "


def text(look: Look, width: int) -> str:
    """The walk as lines of at most `width` columns; a single wider cell stays whole."""
    title = _wrap(look.walk.title, width)
    parts = [*title, "=" * max(map(len, title))]
    for section in sections(look):
        parts += ["", *_section(section, width)]
    return "\n".join(line.rstrip() for line in parts)


def say(sentence: Sentence) -> str:
    """Words of the reader's text between stars."""
    return "".join(f"*{part}*" if isinstance(part, Word) else part for part in sentence)


def _section(section: Section, width: int) -> list[str]:
    step = section.step
    heading = f"{section.number}. {step.title}   {step.equation}   [{step.name}]"
    lines = [*_wrap(heading, width), ""]
    lines += [INDENT + line for line in table_lines(section.table, width - len(INDENT))]
    lines += ["", *(INDENT + line for line in _wrap(say(step.sentence), width - len(INDENT)))]
    for note in section.footnotes:
        lines += [INDENT + line for line in _wrap(note, width - len(INDENT))]
    return lines


def table_lines(table: Table, width: int) -> list[str]:
    """The table in as many blocks of columns as the width needs."""
    first = max(cell_len(label) for label in (*table.rows, table.corner))
    widths = [
        max(cell_len(label), *(cell_len(row[j]) for row in table.cells)) + 2
        for j, label in enumerate(table.columns)
    ]
    lines: list[str] = []
    for block in _blocks(widths, width - first):
        if lines:
            lines.append("")
        head = "".join(_right(table.columns[j], widths[j]) for j in block)
        lines.append(_left(table.corner, first) + head)
        for label, row in zip(table.rows, table.cells, strict=True):
            lines.append(_left(label, first) + "".join(_right(row[j], widths[j]) for j in block))
    return lines


def _left(text: str, width: int) -> str:
    """Padded to so many columns of the terminal, where 詩 takes two."""
    return text + " " * (width - cell_len(text))


def _right(text: str, width: int) -> str:
    return " " * (width - cell_len(text)) + text


def _blocks(widths: list[int], room: int) -> list[list[int]]:
    blocks: list[list[int]] = [[]]
    used = 0
    for j, width in enumerate(widths):
        if blocks[-1] and used + width > room:
            blocks.append([])
            used = 0
        blocks[-1].append(j)
        used += width
    return blocks


def _wrap(line: str, width: int) -> list[str]:
    lines, current = [], ""
    for word in line.split(" "):
        if current and len(current) + 1 + len(word) > width:
            lines.append(current)
            current = word
        else:
            current = f"{current} {word}" if current else word
    return [*lines, current]
