"""The page inside a notebook: Jupyter, VS Code, Colab and marimo show what fits them best."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from qkv.report.markup import escaped

if TYPE_CHECKING:
    from qkv.explain.page.section import Section
    from qkv.explain.trace import Trace

ROOM = 4 << 20  # bytes of numbers: a notebook keeps every page it has shown
HEIGHT = 860  # pixels


def mimebundle(trace: Trace, *, why: Sequence[Section] = ()) -> dict[str, str]:
    """The page in a frame of its own, a plain table below it, and one line of text.

    The frame may run its script but is a stranger to the notebook: it can neither read it nor be
    changed by its style. Where frames or scripts are taken out, the table remains.
    """
    from qkv.explain.page.heading import heading
    from qkv.explain.page.plain import plain
    from qkv.explain.page.write import page

    document = page(trace, why=why, room=ROOM)
    style = f"width:100%;height:{HEIGHT}px;border:0"
    return {
        "text/html": (
            f'<iframe title="{escaped(heading(trace))}" sandbox="allow-scripts" style="{style}" '
            f'srcdoc="{_attribute(document)}"></iframe>\n'
            "<details><summary>The same as a plain table</summary>\n"
            f"{plain(trace)}\n</details>"
        ),
        "text/plain": repr(trace),
    }


def _attribute(document: str) -> str:
    """A whole document between double quotes, byte for byte: its hashes must hold."""
    return document.replace("&", "&amp;").replace('"', "&quot;")
