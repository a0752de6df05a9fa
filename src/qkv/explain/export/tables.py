"""Sheets as text: CSV that reads back exactly, Markdown for a page, LaTeX for a paper."""

from collections.abc import Iterator
from itertools import product

from qkv.explain.export.provenance import comment_lines
from qkv.explain.export.sheet import Cube, Sheet, number
from qkv.explain.matrix import figure
from qkv.explain.render import latex, markdown

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
    lines = ["<!--", *comment_lines(told), "-->", "", f"**{markdown.escape(sheet.title)}**", ""]
    lines += [_piped(head), "|---|" + "---:|" * len(sheet.columns)]
    for name, row in zip(sheet.rows, sheet.values.tolist(), strict=True):
        lines.append(_piped([name, *(figure(cell, digits) for cell in row)]))
    return "\n".join(lines) + "\n"


def latex_text(sheet: Sheet, told: dict[str, str], digits: int = DIGITS) -> str:
    """A tabular with the provenance in comments; letters that are not Latin need XeLaTeX."""
    head = [_corner(sheet), *sheet.columns]
    lines = [f"% {line}" for line in comment_lines(told)]
    lines += [f"% {sheet.title}", rf"\begin{{tabular}}{{l{'r' * (len(head) - 1)}}}"]
    lines.append(rf"{' & '.join(map(_typeset, head))} \\ \hline")
    for name, row in zip(sheet.rows, sheet.values.tolist(), strict=True):
        cells = " & ".join(_in_dollars(figure(cell, digits)) for cell in row)
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
    return f"| {' | '.join(map(markdown.escape, cells))} |"


def _typeset(name: str) -> str:
    return "".join(_SPACES.get(character, character) for character in latex.escape(name))


def _in_dollars(cell: str) -> str:
    if cell == "nan":
        return r"\textrm{nan}"
    return f"${cell.replace('−', '-').replace('∞', chr(92) + 'infty')}$"
