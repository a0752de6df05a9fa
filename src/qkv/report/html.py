"""HTML for reports: text and tables, escaped so that nothing in a text can act, in one frame.

Every page is one file without network access or script, in light and dark colours.
"""

import html
from collections.abc import Iterable, Sequence
from importlib.resources import files

# Generated text may hold control characters, which HTML forbids: Unicode's control pictures
# replace them.
CONTROL_PICTURES = {code: 0x2400 + code for code in range(32) if chr(code) not in "\t\n\r"} | {
    127: 0x2421
}


MAX_WORD = 20  # characters of a word that is not broken in a text

MAX_LABEL = 32  # … and of a part of a label

LABEL_CLASS = ' class="label"'  # stays on one line


def escape(text: str) -> str:
    """The text, safe between tags and in quoted attributes."""
    return html.escape(text.translate(CONTROL_PICTURES))


def breakable(text: str) -> str:
    """The same, with line breaks allowed after an underscore: labels are often long names."""
    return escape(text).replace("_", "_<wbr>")


def section(heading: str, *parts: str) -> str:
    """The parts under a heading of the second level; nothing if all are empty."""
    content = "\n".join(part for part in parts if part)
    if not content:
        return ""
    return f"<section>\n<h2>{escape(heading)}</h2>\n{content}\n</section>"


def paragraph(text: str) -> str:
    """One paragraph."""
    return f"<p>{escape(text)}</p>"


def details(summary: str, content: str) -> str:
    """Content that opens on a click."""
    return f"<details>\n<summary>{escape(summary)}</summary>\n{content}\n</details>"


def code(text: str) -> str:
    """Lines to copy, as they are."""
    return f'<pre tabindex="0"><code>{escape(text)}</code></pre>'


def table(
    caption: str, columns: Sequence[str], rows: Iterable[Sequence[str]], *, texts: int = 1
) -> str:
    """A table that scrolls sideways by itself where the page is too narrow for it.

    The first `texts` columns hold text, the others numbers, which are right-aligned. Where there
    are numbers, the first cell is the header of its row.
    """
    has_row_headers = texts < len(columns)
    head = "".join(
        f'<th scope="col"{_css_class(i, texts)}>{escape(column)}</th>'
        for i, column in enumerate(columns)
    )
    body = "\n".join(f"<tr>{_cells(row, has_row_headers, texts)}</tr>" for row in rows)
    return scrolling(
        caption,
        f"<table>\n<caption>{escape(caption)}</caption>\n"
        f"<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody>\n</table>",
    )


def scrolling(name: str, content: str) -> str:
    """A frame that the keyboard can reach and scroll."""
    opening = f'<div class="scroll" role="region" tabindex="0" aria-label="{escape(name)}">'
    return f"{opening}\n{content}\n</div>"


def _cells(row: Sequence[str], has_row_headers: bool, texts: int) -> str:
    cells = ""
    for i, cell in enumerate(row):
        if has_row_headers and i == 0:
            cells += f'<th scope="row" dir="auto">{breakable(cell)}</th>'
        else:
            css_class = _css_class(i, texts, cell)
            content = escape(cell) if css_class == LABEL_CLASS else breakable(cell)
            cells += f'<td dir="auto"{css_class}>{content}</td>'
    return cells


def _css_class(column: int, texts: int, cell: str = "") -> str:
    if column >= texts:
        return ' class="number"'
    is_label = len(cell.split()) == 1
    if is_label and len(cell) <= MAX_WORD:
        return LABEL_CLASS
    # Labels are never broken inside a word; an address in a text, or what is too wide, has to be.
    longest = max(map(len, cell.replace("_", " ").split()), default=0)
    if longest > (MAX_LABEL if is_label else MAX_WORD):
        return ' class="breakable"'
    return ""


CONTENT_SECURITY_POLICY = "default-src 'none'; style-src 'unsafe-inline'"


def document(job: str, title: str, verdict: str, sections: Iterable[str]) -> str:
    """The whole page; empty sections are left out."""
    style = (files("qkv.report") / "page.css").read_text("utf-8")
    body = "\n".join(filter(None, sections))
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta http-equiv="Content-Security-Policy" content="{CONTENT_SECURITY_POLICY}">
<title>{escape(title)}</title>
<style>
{style}</style>
</head>
<body>
<main>
<header>
<p class="job">{escape(job)}</p>
<h1>{escape(title)}</h1>
<p class="verdict">{escape(verdict)}</p>
</header>
{body}
</main>
</body>
</html>
"""
