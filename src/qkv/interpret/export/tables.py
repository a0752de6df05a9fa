"""Values of a trace as text: CSV that reads back exactly, Markdown and LaTeX tables.

Every export starts with its provenance: the model and its hash, the text, versions, and the checks.
"""

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

SHORT_HASH = 12  # characters of a hash that people compare
MAX_QUOTE_LENGTH = 72  # characters of a text in a caption
DEFAULT_DIGITS = 4
HEAD_AXES = ("H", "K")  # query heads, key/value heads
FORMULA_STARTS = ("=", "+", "-", "@")  # a spreadsheet would compute a cell that begins so
LATEX_SPACES = {"␣": r"\textvisiblespace{}", "↵": r"$\hookleftarrow$", "⇥": r"$\mapsto$"}


def provenance(trace: Trace, **more: object) -> dict[str, str]:
    """The trace's metadata, edits and checks, and `more` that the export adds.

    Of the model's path only the last part is given: a picture that is passed on should not reveal
    the folders of this machine, and the hash identifies the model.
    """
    fields = {name: str(value) for name, value in trace.metadata.items()}
    fields["model"] = model_name(fields.get("model", "not named"))
    if trace.edits:
        fields["edits"] = "; ".join(trace.edits)
    for sequence, rows in trace.rows.items():
        fields[f"rows of the {sequence}"] = ", ".join(map(str, rows))
    for name, value in more.items():
        if value is not None:
            fields[name] = str(value)
    fields["checks"] = _summarize_checks(trace.checks)
    if trace.checks:
        fields["checked"] = "; ".join(map(_describe_check, trace.checks))
    return fields


def caption(trace: Trace) -> str:
    """The provenance on one line, for a picture."""
    fields = provenance(trace)
    parts = [fields["model"], fields.get("sha256", "")[:SHORT_HASH]]
    for name in ("text", "target"):
        if name in fields:
            parts.append(f"“{_abbreviate(fields[name])}”")
    parts.append(fields.get("edits", ""))
    if "qkv" in fields:
        parts.append(f"qkv {fields['qkv']}")
    parts.append(fields["checks"])
    return " · ".join(part for part in parts if part)


def comment_lines(fields: dict[str, str]) -> list[str]:
    """One `name: "value"` per line, in JSON's notation, so that no value can end the comment."""
    return [f"{name}: {_quote_in_comment(value)}" for name, value in fields.items()]


def _quote_in_comment(value: str) -> str:
    """Quoted, with nothing in it that ends a comment of HTML, LaTeX or XML or moves a cursor."""
    text = json.dumps(value, ensure_ascii=False).replace("<", "\\u003c").replace(">", "\\u003e")
    return "".join(c if c.isprintable() else json.dumps(c)[1:-1] for c in text)


def model_name(path: str) -> str:
    """The last folder of a path, which is what people call a model."""
    return Path(path).name or Path(path).resolve().name or path


def _summarize_checks(checks: tuple[TraceCheck, ...]) -> str:
    if not checks:
        return "nothing checked"
    passed = sum(check.ok for check in checks)
    return f"{passed} of {len(checks)} checks passed"


def _describe_check(check: TraceCheck) -> str:
    worst = f"{check.worst:.1e}"
    if check.worst in (0.0, float("inf")):
        worst = format_number(check.worst, 0)
    relation = "≤" if check.ok else ">"
    return f"{check.name}: {worst} {relation} {check.tolerance:g}"


def _abbreviate(text: str) -> str:
    if not text.strip():
        return ""
    line = one_line(text)
    if len(line) <= MAX_QUOTE_LENGTH:
        return line
    return f"{line[:MAX_QUOTE_LENGTH].rstrip()}…"


@dataclass(frozen=True, eq=False)
class LabeledTable:
    """Numbers (rows, columns) with the labels of both."""

    title: str
    axes: tuple[str, str]
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    values: Array

    @property
    def corner(self) -> str:
        return f"{self.axes[0]} ↓ {self.axes[1]} →"


@dataclass(frozen=True, eq=False)
class LabeledArray:
    """Numbers along any axes but the batch, with the labels along each axis."""

    title: str
    axes: tuple[str, ...]
    labels: tuple[tuple[str, ...], ...]
    values: Array

    @property
    def is_table(self) -> bool:
        """Whether it has at most two axes."""
        return len(self.axes) <= 2

    def table(self) -> LabeledTable:
        """Rows and columns; a single axis goes down."""
        if not self.is_table:
            raise UsageError(
                f"{self.title} has the axes {', '.join(self.axes)}, but a table has two; choose "
                f"one of its {len(self.labels[0])} heads"
            )
        axes = self.axes
        labels = self.labels
        values = self.values
        while len(axes) < 2:
            axes = (*axes, "value")
            labels = (*labels, ("value",))
            values = values[..., None]
        return LabeledTable(self.title, (axes[0], axes[1]), labels[0], labels[1], values)


def labeled_array(trace: Trace, name: str, head: int | None = None) -> LabeledArray:
    """A value without its batch axis, or one head of it; heads are counted from 0."""
    node = trace.node(name)
    values = to_numpy(trace[name])
    # What is the same for every text (a mask, an angle) may have no batch axis, or one of size 1.
    axes = node.axes[-values.ndim :]
    while values.ndim > len(axes) and values.shape[0] == 1:
        values = values[0]
    if axes[:1] == ("B",):
        axes = axes[1:]
        values = values[0]
    labels = [
        _axis_labels(trace, name, axis, size) for axis, size in zip(axes, values.shape, strict=True)
    ]
    if head is None:
        return LabeledArray(node.name, axes, tuple(labels), values)
    if not axes or axes[0] not in HEAD_AXES:
        raise UsageError(f"{node.name} has the axes {', '.join(axes)}: there is no head in it")
    if not 0 <= head < len(values):
        raise UsageError(
            f"head {head} is out of range: {node.name} has heads 0 to {len(values) - 1}"
        )
    title = f"{node.name}, head {head}"
    return LabeledArray(title, axes[1:], tuple(labels[1:]), values[head])


def _axis_labels(trace: Trace, name: str, axis: str, size: int) -> tuple[str, ...]:
    """Tokens along a sequence, names of the outputs along logits, numbers along other axes."""
    sequences = trace.node(name).sequences
    if axis in sequences:
        labels = unique_labels(trace.tokens[sequences[axis]])
        rows = trace.query_rows(name)
        if axis == "T" and rows is not None:
            return tuple(labels[row] for row in rows)
        return labels
    if axis == "label":
        return unique_labels([trace.output_name(i) for i in range(size)])
    if axis == "V":
        return tuple(f"{i} {_escape_unprintable(trace.output_name(i))}" for i in range(size))
    return tuple(f"{axis}{i}" for i in range(size))


def _escape_unprintable(token: str) -> str:
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in token)


def csv_text(array: LabeledArray, fields: dict[str, str]) -> str:
    """Two axes: one row per line. More: one number per line, after its labels.

    The provenance comes first, each line after a #; no other line begins with one.
    """
    lines = [f"# {line}" for line in comment_lines(fields)]
    if array.is_table:
        lines += _csv_rows(array.table())
    else:
        lines += _csv_numbers(array)
    return "\n".join(lines) + "\n"


def _csv_rows(table: LabeledTable) -> Iterator[str]:
    yield ",".join(map(csv_quote, (table.corner, *table.columns)))
    for label, row in zip(table.rows, table.values, strict=True):
        yield ",".join([csv_quote(label), *map(csv_number, row)])


def _csv_numbers(array: LabeledArray) -> Iterator[str]:
    yield ",".join(map(csv_quote, (*array.axes, "value")))
    cells = product(*(map(csv_quote, labels) for labels in array.labels))
    for cell, value in zip(cells, array.values.flat, strict=True):
        yield ",".join([*cell, csv_number(value)])


def csv_quote(label: str) -> str:
    """A CSV cell that every program takes for text."""
    # The leading apostrophe is what spreadsheets use for "this is text".
    if label.startswith(FORMULA_STARTS):
        label = f"'{label}"
    return '"' + label.replace('"', '""') + '"'


def csv_number(value: np.generic) -> str:
    """The fewest digits that read back as the same number; inf and nan as Python reads them."""
    if isinstance(value, np.bool_):
        return str(int(value))
    return str(value)


def markdown_text(table: LabeledTable, fields: dict[str, str], digits: int = DEFAULT_DIGITS) -> str:
    """A heading and a table, after a comment with the provenance."""
    lines = ["<!--", *comment_lines(fields), "-->", "", f"**{escape_markdown(table.title)}**", ""]
    lines.append(_markdown_row([table.corner, *table.columns]))
    lines.append("|---|" + "---:|" * len(table.columns))
    for label, row in zip(table.rows, table.values.tolist(), strict=True):
        lines.append(_markdown_row([label, *(format_number(cell, digits) for cell in row)]))
    return "\n".join(lines) + "\n"


def _markdown_row(cells: list[str]) -> str:
    return f"| {' | '.join(map(escape_markdown, cells))} |"


def latex_text(table: LabeledTable, fields: dict[str, str], digits: int = DEFAULT_DIGITS) -> str:
    """A tabular, after comments with the provenance; non-Latin letters need XeLaTeX."""
    lines = [f"% {line}" for line in comment_lines(fields)]
    lines.append(f"% {table.title}")
    lines.append(rf"\begin{{tabular}}{{l{'r' * len(table.columns)}}}")
    header = " & ".join(map(_latex_label, [table.corner, *table.columns]))
    lines.append(rf"{header} \\ \hline")
    for label, row in zip(table.rows, table.values.tolist(), strict=True):
        cells = " & ".join(_latex_number(format_number(cell, digits)) for cell in row)
        lines.append(rf"\textbf{{{_latex_label(label)}}} & {cells} \\")
    lines.append(r"\end{tabular}")
    return "\n".join(lines) + "\n"


def _latex_label(label: str) -> str:
    return "".join(LATEX_SPACES.get(character, character) for character in escape_latex(label))


def _latex_number(text: str) -> str:
    if text == "nan":
        return r"\textrm{nan}"
    return f"${text.replace('−', '-').replace('∞', chr(92) + 'infty')}$"
