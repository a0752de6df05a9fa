"""Sheets as text: CSV that reads back exactly, Markdown for a page, LaTeX for a paper."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import numpy as np

from qkv.errors import UsageError
from qkv.files import one_line
from qkv.interpret.matrix import format_number, unique_labels
from qkv.interpret.render.formats import escape_latex, escape_markdown
from qkv.interpret.trace import Trace, TraceCheck
from qkv.interpret.trace.operations import Array
from qkv.interpret.trace.recompute import to_numpy

# FOLDED explain/export/provenance: Where exported numbers come from: the model and its hash,
#   the text, versions, and the checks.
# FOLDED explain/export/sheet: A value of a trace as a sheet: two axes, each place with a name.

FEW = 12  # digits of a hash that people compare

QUOTED = 72  # characters of a text in a caption


def provenance(trace: Trace, **more: object) -> dict[str, str]:
    """What `trace.metadata` says, what was changed, what was proved; and more that the export adds.

    Of the model's path only the last part is given: a picture that is passed on tells nothing of
    the folders of this machine, and the hash says which model it was.
    """
    told = {name: str(value) for name, value in trace.metadata.items()}
    told["model"] = named(told.get("model", "not named"))
    if trace.edits:
        told["edits"] = "; ".join(trace.edits)
    for sequence, rows in trace.rows.items():
        told[f"rows of the {sequence}"] = ", ".join(map(str, rows))
    told |= {name: str(value) for name, value in more.items() if value is not None}
    told["checks"] = _verdict(trace.checks)
    if trace.checks:
        told["checked"] = "; ".join(map(_checked, trace.checks))
    return told


def caption(trace: Trace) -> str:
    """The same on one line, for a picture."""
    told = provenance(trace)
    parts = [told["model"], told.get("sha256", "")[:FEW]]
    for name in ("text", "target"):
        if name in told:
            parts.append(f"“{_short(told[name])}”")
    parts += [told.get("edits", ""), f"qkv {told['qkv']}" if "qkv" in told else "", told["checks"]]
    return " · ".join(part for part in parts if part)


def comment_lines(told: dict[str, str]) -> list[str]:
    """One `name: "value"` a line, as JSON writes it: no line can end or leave a comment."""
    return [f"{name}: {in_comment(value)}" for name, value in told.items()]


def in_comment(value: str) -> str:
    """Quoted, with nothing in it that ends a comment of HTML, LaTeX or XML or moves a cursor."""
    text = json.dumps(value, ensure_ascii=False).replace("<", "\\u003c").replace(">", "\\u003e")
    return "".join(c if c.isprintable() else json.dumps(c)[1:-1] for c in text)


def named(model: str) -> str:
    """The last folder of a path, which is how people call a model."""
    return Path(model).name or Path(model).resolve().name or model


def _verdict(checks: tuple[TraceCheck, ...]) -> str:
    if not checks:
        return "nothing checked"
    passed = sum(check.ok for check in checks)
    return f"{passed} of {len(checks)} checks passed"


def _checked(check: TraceCheck) -> str:
    return f"{check.name}: {_small(check.worst)} {'≤' if check.ok else '>'} {check.tolerance:g}"


def _small(number: float) -> str:
    return format_number(number, 0) if number in (0.0, float("inf")) else f"{number:.1e}"


def _short(text: str) -> str:
    line = one_line(text) if text.strip() else ""
    return line if len(line) <= QUOTED else f"{line[:QUOTED].rstrip()}…"


_ONE = ("value",)

BY_HEAD = ("H", "K")  # axes of heads, and of key/value heads


@dataclass(frozen=True, eq=False)
class Sheet:
    """The numbers of one text, (rows, columns), and what its rows and columns are."""

    title: str
    axes: tuple[str, str]
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    values: Array


@dataclass(frozen=True, eq=False)
class Cube:
    """Numbers along any axes but that of the batch, with the names of the places on each."""

    title: str
    axes: tuple[str, ...]
    names: tuple[tuple[str, ...], ...]
    values: Array

    @property
    def flat(self) -> bool:
        """Whether it is a sheet."""
        return len(self.axes) <= 2

    def sheet(self) -> Sheet:
        """Rows and columns; a single axis goes down."""
        if not self.flat:
            raise UsageError(
                f"{self.title} has the axes {', '.join(self.axes)}, but a table has two; choose "
                f"one of its {len(self.names[0])} heads"
            )
        axes, names, values = self.axes, self.names, self.values
        while len(axes) < 2:
            axes, names, values = (*axes, "value"), (*names, _ONE), values[..., None]
        return Sheet(self.title, (axes[0], axes[1]), names[0], names[1], values)


def cube(trace: Trace, name: str, head: int | None = None) -> Cube:
    """A value without its batch, of one head if that is asked for; heads count from 0."""
    node, values = trace.node(name), to_numpy(trace[name])
    axes = node.axes[-values.ndim :]  # what is the same for every text may have no axis of them
    while values.ndim > len(axes) and values.shape[0] == 1:
        values = values[0]
    if axes[:1] == ("B",):
        axes, values = axes[1:], values[0]
    names = [_names(trace, name, axis, size) for axis, size in zip(axes, values.shape, strict=True)]
    title = node.name
    if head is not None:
        if axes[:1] not in [(axis,) for axis in BY_HEAD]:
            raise UsageError(f"{node.name} has the axes {', '.join(axes)}: there is no head in it")
        if not 0 <= head < len(values):
            raise UsageError(
                f"head {head} is asked for, but {node.name} has heads 0 to {len(values) - 1}"
            )
        title, axes, names, values = f"{title}, head {head}", axes[1:], names[1:], values[head]
    return Cube(title, axes, tuple(names), values)


def number(value: np.generic) -> str:
    """As few digits as give the same number again; −∞ and NaN as Python and NumPy read them."""
    return str(int(value)) if isinstance(value, np.bool_) else str(value)


def _names(trace: Trace, name: str, axis: str, size: int) -> tuple[str, ...]:
    """Tokens along a text, what the model's answers are called, and numbers along anything else."""
    node = trace.node(name)
    if axis in node.sequences:
        tokens = unique_labels(trace.tokens[node.sequences[axis]])
        rows = trace.query_rows(name) if axis == "T" else None
        return tokens if rows is None else tuple(tokens[row] for row in rows)
    if axis == "label":
        return unique_labels([trace.output_name(i) for i in range(size)])
    if axis == "V":
        return tuple(f"{i} {_on_one_line(trace.output_name(i))}" for i in range(size))
    return tuple(f"{axis}{i}" for i in range(size))


def _on_one_line(token: str) -> str:
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in token)


FORMULA = ("=", "+", "-", "@")  # with one of these in front, a spreadsheet computes a cell

DIGITS = 4

_SPACES = {"␣": r"\textvisiblespace{}", "↵": r"$\hookleftarrow$", "⇥": r"$\mapsto$"}


def csv_text(cube: Cube, told: dict[str, str]) -> str:
    """Two axes: a row a line. More: a number a line, with its place before it. Names are quoted.

    The provenance comes first, each line after a #; no other line begins with one.
    """
    lines = [f"# {line}" for line in comment_lines(told)]
    lines += _by_rows(cube.sheet()) if cube.flat else _by_numbers(cube)
    return "\n".join(lines) + "\n"


def markdown_text(sheet: Sheet, told: dict[str, str], digits: int = DIGITS) -> str:
    """A heading and a table; the provenance stands in a comment before it."""
    head = [_corner(sheet), *sheet.columns]
    lines = ["<!--", *comment_lines(told), "-->", "", f"**{escape_markdown(sheet.title)}**", ""]
    lines += [_piped(head), "|---|" + "---:|" * len(sheet.columns)]
    for name, row in zip(sheet.rows, sheet.values.tolist(), strict=True):
        lines.append(_piped([name, *(format_number(cell, digits) for cell in row)]))
    return "\n".join(lines) + "\n"


def latex_text(sheet: Sheet, told: dict[str, str], digits: int = DIGITS) -> str:
    """A tabular with the provenance in comments; letters that are not Latin need XeLaTeX."""
    head = [_corner(sheet), *sheet.columns]
    lines = [f"% {line}" for line in comment_lines(told)]
    lines += [f"% {sheet.title}", rf"\begin{{tabular}}{{l{'r' * (len(head) - 1)}}}"]
    lines.append(rf"{' & '.join(map(_typeset, head))} \\ \hline")
    for name, row in zip(sheet.rows, sheet.values.tolist(), strict=True):
        cells = " & ".join(_in_dollars(format_number(cell, digits)) for cell in row)
        lines.append(rf"\textbf{{{_typeset(name)}}} & {cells} \\")
    return "\n".join([*lines, r"\end{tabular}"]) + "\n"


def quoted(name: str) -> str:
    """A cell of CSV that is text, whatever it holds."""
    guarded = f"'{name}" if name.startswith(FORMULA) else name
    return '"' + guarded.replace('"', '""') + '"'


def _by_rows(sheet: Sheet) -> Iterator[str]:
    yield ",".join(map(quoted, (_corner(sheet), *sheet.columns)))
    for name, row in zip(sheet.rows, sheet.values, strict=True):
        yield ",".join([quoted(name), *map(number, row)])


def _by_numbers(cube: Cube) -> Iterator[str]:
    yield ",".join(map(quoted, (*cube.axes, "value")))
    places = product(*([quoted(name) for name in names] for names in cube.names))
    for place, value in zip(places, cube.values.flat, strict=True):
        yield ",".join([*place, number(value)])


def _corner(sheet: Sheet) -> str:
    return f"{sheet.axes[0]} ↓ {sheet.axes[1]} →"


def _piped(cells: list[str]) -> str:
    return f"| {' | '.join(map(escape_markdown, cells))} |"


def _typeset(name: str) -> str:
    return "".join(_SPACES.get(character, character) for character in escape_latex(name))


def _in_dollars(cell: str) -> str:
    if cell == "nan":
        return r"\textrm{nan}"
    return f"${cell.replace('−', '-').replace('∞', chr(92) + 'infty')}$"
