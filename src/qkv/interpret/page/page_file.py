"""The page as one HTML file: heading, data, and plain tables for readers without scripts."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path, PurePath

from qkv.files import atomic_write
from qkv.interpret.matrix import format_number
from qkv.interpret.page.attentions import AttentionView, attention_views
from qkv.interpret.page.document import fill_template
from qkv.interpret.page.page_sections import Section, output_payload, section_markup
from qkv.interpret.page.payload import build_payload, most_decided_head
from qkv.interpret.page.size_budget import page_budget
from qkv.interpret.page.tensor_chunks import TensorChunks, as_float32
from qkv.interpret.trace import Trace
from qkv.report import escape, paragraph, table

MAX_HEADING_LENGTH = 300  # characters of the text in the heading
MAX_TITLE_LENGTH = 80  # … and in the title of the window
MAX_PLAIN_SIZE = 24  # rows and columns of a table without scripts
NOTEBOOK_MAX_BYTES = 4 << 20  # of numbers: a notebook stores every page it has shown
NOTEBOOK_HEIGHT = 860  # pixels

METADATA_NAMES = {
    "model": "model",
    "sha256": "fingerprint of its parameters (SHA-256)",
    "target": "target",
    "qkv": "qkv",
    "torch": "torch",
    "python": "Python",
}


def render_page(
    trace: Trace,
    *,
    title: str | None = None,
    why: Sequence[Section] = (),
    max_bytes: int | None = None,
) -> str:
    """The page as HTML. why: sections that explain the prediction.

    max_bytes: of numbers, by default few for a short text; what does not fit is pooled, recomputed
    in the page, or marked as missing.
    """
    if max_bytes is None:
        max_bytes = page_budget(trace)
    attentions = attention_views(trace)
    payload, chunks = build_payload(trace, attentions, max_bytes)
    return fill_template(
        "page.html",
        script="main",
        data=payload,
        title=escape(title or _window_title(trace)),
        heading=_heading_markup(trace, attentions, title),
        why="\n".join(section_markup(section) for section in why),
        plain=_plain_tables(trace, attentions),
        parts=_chunk_elements(chunks),
    )


def write_page(
    trace: Trace,
    path: str | os.PathLike[str],
    *,
    title: str | None = None,
    why: Sequence[Section] = (),
    max_bytes: int | None = None,
) -> None:
    """Write the page to a file, atomically."""
    document = render_page(trace, title=title, why=why, max_bytes=max_bytes)
    atomic_write(Path(path), document.encode("utf-8", "replace"))


def mimebundle(trace: Trace, *, why: Sequence[Section] = ()) -> dict[str, str]:
    """The page for Jupyter, VS Code, Colab and marimo: in an iframe, as plain tables, as a line.

    The iframe is sandboxed: it may run its script but cannot read the notebook, nor be changed by
    its styles. Where iframes or scripts are stripped, the tables remain.
    """
    max_bytes = min(NOTEBOOK_MAX_BYTES, page_budget(trace))
    document = render_page(trace, why=why, max_bytes=max_bytes)
    # An attribute value, byte for byte, since the hashes of the policy must still hold.
    srcdoc = document.replace("&", "&amp;").replace('"', "&quot;")
    style = f"width:100%;height:{NOTEBOOK_HEIGHT}px;border:0"
    title = escape(_window_title(trace))
    return {
        "text/html": (
            f'<iframe title="{title}" sandbox="allow-scripts" style="{style}" '
            f'srcdoc="{srcdoc}"></iframe>\n'
            "<details><summary>The same as a plain table</summary>\n"
            f"{_plain_tables(trace, attention_views(trace))}\n</details>"
        ),
        "text/plain": repr(trace),
    }


def _window_title(trace: Trace) -> str:
    return f"Inside the model: {_truncate(_text_of(trace), MAX_TITLE_LENGTH)}"


def _text_of(trace: Trace) -> str:
    """The text that was read."""
    return trace.metadata.get("text") or " ".join(next(iter(trace.tokens.values()), ()))


def _heading_markup(trace: Trace, attentions: list[AttentionView], title: str | None) -> str:
    """The header: the text, the model, and where the numbers come from."""
    text = _text_of(trace)
    target = trace.metadata.get("target")
    if title:
        heading = escape(title)
    else:
        heading = f"<bdi>{escape(_truncate(text, MAX_HEADING_LENGTH))}</bdi>"
        if target:
            target = escape(_truncate(target, MAX_HEADING_LENGTH))
            heading += f' <span class="arrow">→</span> <bdi>{target}</bdi>'
    size = ""
    if len(text) > 90:  # smaller letters
        size = ' class="long"'
    edits = "".join(f'<p class="edit">What if: {escape(edit)}</p>' for edit in trace.edits)
    facts = escape(_facts(trace, attentions))
    return (
        '<p class="job">qkv · inside the model</p>\n'
        f"<h1{size}>{heading}</h1>\n{edits}"
        f'<p class="facts"><span>{facts}</span> '
        '<a id="checks-badge" class="chip" href="#checks">… checking</a></p>\n'
        "<details><summary>Where these numbers come from</summary>\n"
        f"{_provenance_markup(trace)}</details>"
    )


def _facts(trace: Trace, attentions: list[AttentionView]) -> str:
    """The model's name and shape, the length of the text, how many values were captured."""
    facts = []
    name = PurePath(trace.metadata.get("model", "")).name
    if name:
        facts.append(name)
    shapes = {(each.stack, each.part, each.heads) for each in attentions}
    if len(shapes) == 1:
        facts.append(f"{len(attentions)} layers × {attentions[0].heads} heads")
    for sequence, tokens in trace.tokens.items():
        length = f"{len(tokens)} tokens"
        if len(trace.tokens) > 1:
            length += f" of {sequence}"
        facts.append(length)
    facts.append(f"{len(trace):,} named values")
    return " · ".join(facts)


def _provenance_markup(trace: Trace) -> str:
    rows = ""
    for key, name in METADATA_NAMES.items():
        if trace.metadata.get(key):
            rows += f"<dt>{escape(name)}</dt><dd>{escape(trace.metadata[key])}</dd>"
    return (
        f"<dl>{rows}</dl>\n<p>Every number is one of the trace, in float32 as it was computed; "
        "steps of attention are computed beside the fused kernel from the same queries, keys and "
        "values, and held against what it answered.</p>\n"
    )


def _truncate(text: str, max_length: int) -> str:
    if len(text) <= max_length:
        return text
    return f"{text[: max_length - 1]}…"


def _plain_tables(trace: Trace, attentions: list[AttentionView]) -> str:
    """The prediction, and the weights of the most decided head, as HTML tables."""
    prediction = _prediction_table(trace)
    if not attentions or attentions[0].name("weights") not in trace:
        return prediction or paragraph("There is nothing to show without scripts.")
    index, head = most_decided_head(trace, attentions)
    return f"{prediction}\n{_weights_table(trace, attentions[index], head)}"


def _prediction_table(trace: Trace) -> str:
    output = output_payload(trace)
    if output is None or "positions" not in output:
        return ""
    best = output["positions"][-1]["best"]
    rows = [[each["name"], format_number(float(each["probability"]), 4)] for each in best]
    return table(f"{output['title']}: the likeliest answers", ["answer", "probability"], rows)


def _weights_table(trace: Trace, attention: AttentionView, head: int) -> str:
    name = attention.name("weights")
    weights = as_float32(trace[name])[0, head]
    sequences = trace.node(name).sequences
    queries = trace.query_tokens(name)
    query_rows = trace.query_rows(name)
    if query_rows is not None:
        queries = tuple(queries[row] for row in query_rows)
    keys = trace.tokens[sequences["S"]]
    n = MAX_PLAIN_SIZE
    caption = f"{attention.kind}, layer {attention.layer}, head {head}: weights"
    if max(weights.shape) > n:
        caption += f" (the first {n} of {weights.shape[0]} queries and {weights.shape[1]} keys)"
    rows = []
    for query, row in zip(queries[:n], weights[:n], strict=True):
        rows.append([query, *(format_number(float(weight), 4) for weight in row[:n])])
    return table(caption, ["query ↓ key →", *keys[:n]], rows)


def _chunk_elements(chunks: TensorChunks) -> str:
    kind = 'type="application/octet-stream;base64"'
    return "\n".join(
        f"<script {kind} id={name}>{text}</script>" for name, text in chunks.texts.items()
    )
