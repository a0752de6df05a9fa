"""A head of a model for the terminal: its walk, the model's answer, what changed, the checks."""

from qkv.explain.answer import Answer, answer_of
from qkv.explain.render.page import Look, Table
from qkv.explain.render.text import table_lines, text
from qkv.explain.trace import Proof, Trace
from qkv.explain.trace.difference import Difference

INDENT = "   "


def model_text(look: Look, trace: Trace, changed: Difference | None, width: int) -> str:
    """The whole page, in lines of at most so many columns."""
    parts = [text(look, width), "", *_answer(answer_of(trace), width)]
    if changed is not None:
        parts += ["", *_changes(changed, width)]
    parts += ["", "Checks", *(INDENT + line for line in check_lines(trace.checks))]
    return "\n".join(line.rstrip() for line in parts)


def check_lines(proofs: tuple[Proof, ...]) -> list[str]:
    """One line a proof: whether it holds, how far off the worst number is, and where."""
    return [
        f"{'✓' if proof.ok else '✗'} {proof.name:<32} worst {proof.worst:.1e} of "
        f"{proof.tolerance:.0e} allowed" + ("" if proof.ok else f", at {proof.place}")
        for proof in proofs
    ]


def _answer(answer: Answer | None, width: int) -> list[str]:
    if answer is None:
        return []
    if answer.vector is not None:
        numbers = ", ".join(f"{number:.4f}".replace("-", "−") for number in answer.vector[:6])
        more = f", … {len(answer.vector) - 6} more" if len(answer.vector) > 6 else ""
        return [answer.title, f"{INDENT}{numbers}{more}"]
    best = answer.positions[-1].best
    rows = tuple(each.name for each in best)
    cells = [[f"{each.probability:.4f}"] for each in best]
    table = Table("", rows, ("probability",), cells)
    return [answer.title, "", *(INDENT + line for line in table_lines(table, width - len(INDENT)))]


def _changes(changed: Difference, width: int) -> list[str]:
    lines = [f"What if: {', '.join(changed.edits)}", ""]
    if changed.first is None:
        return [*lines, f"{INDENT}nothing changed"]
    lines.append(f"{INDENT}the first value that differs: {changed.first}")
    if changed.cosine is not None:
        lines.append(f"{INDENT}cosine of the vectors before and after: {changed.cosine:.4f}")
    if changed.answers:
        rows = tuple(moved.name for moved in changed.answers)
        cells = [[f"{m.before:.4f}", f"{m.after:.4f}"] for m in changed.answers]
        table = Table("", rows, ("before", "after"), cells)
        lines += ["", *(INDENT + line for line in table_lines(table, width - len(INDENT)))]
    moved = {name: [f"{share:.3f}"] for name, share in changed.layers.items()}
    if moved:
        table = Table("after", tuple(moved), ("|change| ÷ |state|",), list(moved.values()))
        lines += ["", *(INDENT + line for line in table_lines(table, width - len(INDENT)))]
    return lines
