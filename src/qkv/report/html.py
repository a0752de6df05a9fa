"""How text and tables become HTML in which nothing that a text holds can act."""

import html
from collections.abc import Iterable, Sequence
from importlib.resources import files

# FOLDED report/document: The frame of every page: one file, no network, no script, light or
#   dark.

# Generated text may hold control characters, which HTML forbids; their pictures stand in.
PICTURES = {code: 0x2400 + code for code in range(32) if chr(code) not in "\t\n\r"} | {127: 0x2421}


def escaped(text: str) -> str:
    """The text as it may stand between tags and in quoted attributes."""
    return html.escape(text.translate(PICTURES))


def breakable(text: str) -> str:
    """The same, with leave to break the line after an underscore: labels are often long names."""
    return escaped(text).replace("_", "_<wbr>")


def section(heading: str, *parts: str) -> str:
    """The parts under a heading of the second level; nothing if all are empty."""
    inside = "\n".join(part for part in parts if part)
    if inside:
        return f"<section>\n<h2>{escaped(heading)}</h2>\n{inside}\n</section>"
    return ""


def paragraph(text: str) -> str:
    """One paragraph."""
    return f"<p>{escaped(text)}</p>"


def folded(summary: str, inside: str) -> str:
    """Something that opens on a click."""
    return f"<details>\n<summary>{escaped(summary)}</summary>\n{inside}\n</details>"


def code(text: str) -> str:
    """Lines to copy, as they are."""
    return f'<pre tabindex="0"><code>{escaped(text)}</code></pre>'


def table(
    caption: str, columns: Sequence[str], rows: Iterable[Sequence[str]], *, texts: int = 1
) -> str:
    """A table that scrolls sideways by itself where the page is too narrow for it.

    The first `texts` columns hold text, the others numbers, which stand flush right. Where there
    are numbers, the first cell names its row.
    """
    named = texts < len(columns)
    head = "".join(
        f'<th scope="col"{_kind(at, texts)}>{escaped(column)}</th>'
        for at, column in enumerate(columns)
    )
    body = "\n".join(f"<tr>{_cells(row, named, texts)}</tr>" for row in rows)
    return scrolling(
        caption,
        f"<table>\n<caption>{escaped(caption)}</caption>\n"
        f"<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody>\n</table>",
    )


def scrolling(name: str, inside: str) -> str:
    """A frame that the keyboard can reach and scroll."""
    opening = f'<div class="scroll" role="region" tabindex="0" aria-label="{escaped(name)}">'
    return f"{opening}\n{inside}\n</div>"


def _cells(row: Sequence[str], named: bool, texts: int) -> str:
    return "".join(
        f'<th scope="row" dir="auto">{breakable(cell)}</th>'
        if named and at == 0
        else f'<td dir="auto"{_kind(at, texts)}>{breakable(cell)}</td>'
        for at, cell in enumerate(row)
    )


def _kind(at: int, texts: int) -> str:
    if at < texts:
        return ""
    return ' class="number"'


POLICY = "default-src 'none'; style-src 'unsafe-inline'"


def document(job: str, title: str, verdict: str, sections: Iterable[str]) -> str:
    """The whole page; a section of nothing is left out."""
    style = (files("qkv.report") / "page.css").read_text("utf-8")
    body = "\n".join(each for each in sections if each)
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta http-equiv="Content-Security-Policy" content="{POLICY}">
<title>{escaped(title)}</title>
<style>
{style}</style>
</head>
<body>
<main>
<header>
<p class="job">{escaped(job)}</p>
<h1>{escaped(title)}</h1>
<p class="verdict">{escaped(verdict)}</p>
</header>
{body}
</main>
</body>
</html>
"""
