"""The whole page as one file, under a policy that allows nothing but what is in it.

The policy names the page's own script and style by their hashes and forbids everything else, so
no markup that slipped in could act, and nothing can reach a network.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path, PurePath
from string import Template
from typing import TYPE_CHECKING, Any

from qkv.files import atomic_write
from qkv.interpret.matrix import format_number
from qkv.interpret.page import size_budget as choice
from qkv.interpret.page.attentions import Attention, Parts, attentions, float32
from qkv.interpret.page.page_sections import Section, answer, section_markup
from qkv.interpret.page.payload import first_head, payload
from qkv.interpret.trace import Trace
from qkv.report.html import escaped, paragraph, table

if TYPE_CHECKING:
    from qkv.interpret.page.page_sections import Section
    from qkv.interpret.trace import Trace

# FOLDED explain/page/heading: What stands at the top of the page: the text, the model, and
#   where the numbers come from.
# FOLDED explain/page/modules: The page's script: ES modules put into one, in the order they
#   need each other.
#
#   Each asset is a module that a browser could load by itself. In a single file there is
#   nothing to
#   import from, so every module becomes a function that gives back what it exports; names
#   within one
#   stay out of the others' way.
# FOLDED explain/page/plain: The most telling numbers as plain HTML tables, for readers without
#   scripts.
# FOLDED explain/page/notebook: The page inside a notebook: Jupyter, VS Code, Colab and marimo
#   show what fits them best.

SHOWN = 300  # characters of a long text

CALLED = {
    "model": "model",
    "sha256": "fingerprint of its parameters (SHA-256)",
    "target": "target",
    "qkv": "qkv",
    "torch": "torch",
    "python": "Python",
}


def heading(trace: Trace) -> str:
    """The page's title: the text that was read."""
    text = trace.metadata.get("text") or " ".join(next(iter(trace.tokens.values()), ()))
    return f"Inside the model: {_short(text, 80)}"


def heading_markup(trace: Trace, title: str | None) -> str:
    """The header as HTML."""
    text = trace.metadata.get("text") or " ".join(next(iter(trace.tokens.values()), ()))
    target = trace.metadata.get("target")
    arrow = (
        f' <span class="arrow">→</span> <bdi>{escaped(_short(target, SHOWN))}</bdi>'
        if target
        else ""
    )
    said = escaped(title) if title else f"<bdi>{escaped(_short(text, SHOWN))}</bdi>{arrow}"
    long = ' class="long"' if len(text) > 90 else ""
    edits = "".join(f'<p class="edit">What if: {escaped(edit)}</p>' for edit in trace.edits)
    return (
        '<p class="job">qkv · inside the model</p>\n'
        f"<h1{long}>{said}</h1>\n{edits}"
        f'<p class="facts"><span>{escaped(_facts(trace))}</span> '
        '<a id="checks-badge" class="chip" href="#checks">… checking</a></p>\n'
        f"<details><summary>Where these numbers come from</summary>\n{_provenance(trace)}</details>"
    )


def _facts(trace: Trace) -> str:
    lengths = [
        f"{len(tokens)} tokens" + (f" of {name}" if len(trace.tokens) > 1 else "")
        for name, tokens in trace.tokens.items()
    ]
    found = attentions(trace)
    shape = (
        [f"{len(found)} layers × {found[0].heads} heads"]
        if found and len({(each.stack, each.part, each.heads) for each in found}) == 1
        else []
    )
    name = PurePath(trace.metadata.get("model", "")).name
    return " · ".join([*([name] if name else []), *shape, *lengths, f"{len(trace):,} named values"])


def _provenance(trace: Trace) -> str:
    known = [(CALLED[key], trace.metadata[key]) for key in CALLED if trace.metadata.get(key)]
    rows = "".join(f"<dt>{escaped(key)}</dt><dd>{escaped(value)}</dd>" for key, value in known)
    return (
        f"<dl>{rows}</dl>\n<p>Every number is one of the trace, in float32 as it was computed; "
        "steps of attention are computed beside the fused kernel from the same queries, keys and "
        "values, and held against what it answered.</p>\n"
    )


def _short(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


ASSETS = files("qkv.interpret.page") / "assets"

IMPORT = re.compile(r'^import (\{[^}]*\}) from "\./([a-z_]+)\.js";\n', re.MULTILINE)

EXPORT = re.compile(r"^export ((?:async )?function|class|const) (\w+)", re.MULTILINE)


@cache
def script(first: str = "main") -> str:
    """The module of this name, with everything it imports before it."""
    told: dict[str, str] = {}
    _tell(first, told)
    return "\n".join(told.values())


def asset(name: str) -> str:
    """A file of the page as it is."""
    return (ASSETS / name).read_text("utf-8")


def _tell(name: str, told: dict[str, str]) -> None:
    source = asset(f"{name}.js")
    for _, needed in IMPORT.findall(source):
        if needed not in told:
            _tell(needed, told)
    given = ", ".join(found[1] for found in EXPORT.findall(source))
    inside = EXPORT.sub(r"\1 \2", IMPORT.sub(r"const \1 = from_\2;\n", source))
    told[name] = f"const from_{name} = (() => {{\n{inside}\nreturn {{ {given} }};\n}})();\n"


MOST = 24  # rows and columns


def plain(trace: Trace) -> str:
    """The likeliest answers, and the weights of the head that looks most decidedly."""
    found = attentions(trace)
    said = _answers(trace)
    if not found or found[0].name("weights") not in trace:
        return said or paragraph("There is nothing to show without scripts.")
    at, head = first_head(trace, found)
    return f"{said}\n{_weights(trace, found[at], head)}"


def _answers(trace: Trace) -> str:
    told = answer(trace)
    if told is None or "positions" not in told:
        return ""
    best = told["positions"][-1]["best"]
    rows = [[each["name"], format_number(float(each["probability"]), 4)] for each in best]
    return table(f"{told['title']}: the likeliest answers", ["answer", "probability"], rows)


def _weights(trace: Trace, attention: Attention, head: int) -> str:
    values = float32(trace[attention.name("weights")])[0, head]
    along = trace.node(attention.name("weights")).sequences
    rows = trace.tokens[along["T"]]
    few = trace.query_rows(attention.name("weights"))
    rows = rows if few is None else tuple(rows[at] for at in few)
    caption = f"{attention.kind}, layer {attention.layer}, head {head}: weights"
    if max(values.shape) > MOST:
        caption += f" (the first {MOST} of {values.shape[0]} queries and {values.shape[1]} keys)"
    cells = [
        [row, *(format_number(float(cell), 4) for cell in numbers[:MOST])]
        for row, numbers in zip(rows[:MOST], values[:MOST], strict=True)
    ]
    return table(caption, ["query ↓ key →", *trace.tokens[along["S"]][:MOST]], cells)


def page(
    trace: Trace,
    *,
    title: str | None = None,
    why: Sequence[Section] = (),
    room: int = choice.ROOM,
) -> str:
    """The page as HTML. why: sections that explain the answer.

    room: bytes of numbers at most; what does not fit is pooled, worked out in the page, or said to
    be left out.
    """
    told, parts = payload(trace, room)
    style, code = asset("page.css"), script()
    return Template(asset("page.html")).substitute(
        policy=_policy(style, code),
        title=escaped(title or heading(trace)),
        heading=heading_markup(trace, title),
        why="\n".join(section_markup(each) for each in why),
        plain=plain(trace),
        style=style,
        data=_json(told),
        parts=_scripts(parts),
        script=code,
    )


def write_page(
    trace: Trace,
    path: str | os.PathLike[str],
    *,
    title: str | None = None,
    why: Sequence[Section] = (),
    room: int = choice.ROOM,
) -> None:
    """The page in a file, which is replaced as a whole."""
    document = page(trace, title=title, why=why, room=room)
    atomic_write(Path(path), document.encode("utf-8", "replace"))


def _policy(style: str, code: str) -> str:
    return (
        f"default-src 'none'; script-src {_hash(code)}; style-src {_hash(style)}; "
        "base-uri 'none'; form-action 'none'"
    )


def _hash(text: str) -> str:
    digest = hashlib.sha256(f"\n{text}".encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


def _scripts(parts: Parts) -> str:
    kind = 'type="application/octet-stream;base64"'
    return "\n".join(
        f"<script {kind} id={name}>{text}</script>" for name, text in parts.texts.items()
    )


def _json(told: dict[str, Any]) -> str:
    """JSON in ASCII in which nothing looks like markup."""
    text = json.dumps(told, allow_nan=False, separators=(",", ":"))
    return text.replace("<", r"\u003c").replace(">", r"\u003e").replace("&", r"\u0026")


ROOM = 4 << 20  # bytes of numbers: a notebook keeps every page it has shown

HEIGHT = 860  # pixels


def mimebundle(trace: Trace, *, why: Sequence[Section] = ()) -> dict[str, str]:
    """The page in a frame of its own, a plain table below it, and one line of text.

    The frame may run its script but is a stranger to the notebook: it can neither read it nor be
    changed by its style. Where frames or scripts are taken out, the table remains.
    """

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
