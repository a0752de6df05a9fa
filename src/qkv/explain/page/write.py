"""The whole page as one file, under a policy that allows nothing but what is in it.

The policy names the page's own script and style by their hashes and forbids everything else, so
no markup that slipped in could act, and nothing can reach a network.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
from collections.abc import Sequence
from pathlib import Path
from string import Template
from typing import Any

from qkv.explain.page import choice
from qkv.explain.page.heading import heading, heading_markup
from qkv.explain.page.modules import asset, script
from qkv.explain.page.parts import Parts
from qkv.explain.page.payload import payload
from qkv.explain.page.plain import plain
from qkv.explain.page.section import Section, section_markup
from qkv.explain.trace import Trace
from qkv.files import replace_file
from qkv.report.markup import escaped


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
    replace_file(Path(path), document.encode("utf-8", "replace"))


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
