"""For the terminal: aligned columns, folded where they would be wider than the screen."""

from rich.cells import cell_len

from qkv.interpret.glass_box import Prediction, prediction_of
from qkv.interpret.render.sections import Section, TextTable, WalkView, sections
from qkv.interpret.step import Sentence, UserWord
from qkv.interpret.trace import Trace, TraceCheck, TraceDifference

# FOLDED explain/render/model_text: A head of a model for the terminal: its walk, the model's
#   answer, what changed, the checks.

INDENT = "   "


def render_text(look: WalkView, width: int) -> str:
    """The walk as lines of at most `width` columns; a single wider cell stays whole."""
    title = _wrap(look.walk.title, width)
    parts = [*title, "=" * max(map(len, title))]
    for section in sections(look):
        parts += ["", *_section(section, width)]
    return "\n".join(line.rstrip() for line in parts)


def plain_text(sentence: Sentence) -> str:
    """Words of the reader's text between stars."""
    return "".join(f"*{part}*" if isinstance(part, UserWord) else part for part in sentence)


def _section(section: Section, width: int) -> list[str]:
    step = section.step
    heading = f"{section.number}. {step.title}   {step.equation}   [{step.name}]"
    lines = [*_wrap(heading, width), ""]
    lines += [INDENT + line for line in table_lines(section.table, width - len(INDENT))]
    lines += [
        "",
        *(INDENT + line for line in _wrap(plain_text(step.sentence), width - len(INDENT))),
    ]
    for note in section.footnotes:
        lines += [INDENT + line for line in _wrap(note, width - len(INDENT))]
    return lines


def table_lines(table: TextTable, width: int) -> list[str]:
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


MODEL_INDENT = "   "


def render_model_text(
    look: WalkView, trace: Trace, changed: TraceDifference | None, width: int
) -> str:
    """The whole page, in lines of at most so many columns."""
    parts = [render_text(look, width), "", *_answer(prediction_of(trace), width)]
    if changed is not None:
        parts += ["", *_changes(changed, width)]
    parts += ["", "Checks", *(MODEL_INDENT + line for line in check_lines(trace.checks))]
    return "\n".join(line.rstrip() for line in parts)


def check_lines(proofs: tuple[TraceCheck, ...]) -> list[str]:
    """One line a proof: whether it holds, how far off the worst number is, and where."""
    return [
        f"{'✓' if proof.ok else '✗'} {proof.name:<32} worst {proof.worst:.1e} of "
        f"{proof.tolerance:.0e} allowed" + ("" if proof.ok else f", at {proof.location}")
        for proof in proofs
    ]


def _answer(answer: Prediction | None, width: int) -> list[str]:
    if answer is None:
        return []
    if answer.vector is not None:
        numbers = ", ".join(f"{number:.4f}".replace("-", "−") for number in answer.vector[:6])
        more = f", … {len(answer.vector) - 6} more" if len(answer.vector) > 6 else ""
        return [answer.title, f"{MODEL_INDENT}{numbers}{more}"]
    best = answer.positions[-1].best
    rows = tuple(each.name for each in best)
    cells = [[f"{each.probability:.4f}"] for each in best]
    table = TextTable("", rows, ("probability",), cells)
    return [
        answer.title,
        "",
        *(MODEL_INDENT + line for line in table_lines(table, width - len(MODEL_INDENT))),
    ]


def _changes(changed: TraceDifference, width: int) -> list[str]:
    lines = [f"What if: {', '.join(changed.edits)}", ""]
    if changed.first is None:
        return [*lines, f"{MODEL_INDENT}nothing changed"]
    lines.append(f"{MODEL_INDENT}the first value that differs: {changed.first}")
    if changed.cosine is not None:
        lines.append(f"{MODEL_INDENT}cosine of the vectors before and after: {changed.cosine:.4f}")
    if changed.answers:
        rows = tuple(moved.name for moved in changed.answers)
        cells = [[f"{m.before:.4f}", f"{m.after:.4f}"] for m in changed.answers]
        table = TextTable("", rows, ("before", "after"), cells)
        lines += [
            "",
            *(MODEL_INDENT + line for line in table_lines(table, width - len(MODEL_INDENT))),
        ]
    moved = {name: [f"{share:.3f}"] for name, share in changed.layers.items()}
    if moved:
        table = TextTable("after", tuple(moved), ("|change| ÷ |state|",), list(moved.values()))
        lines += [
            "",
            *(MODEL_INDENT + line for line in table_lines(table, width - len(MODEL_INDENT))),
        ]
    return lines
