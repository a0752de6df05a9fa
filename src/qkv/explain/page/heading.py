"""What stands at the top of the page: the text, the model, and where the numbers come from."""

from pathlib import PurePath

from qkv.explain.page.attentions import attentions
from qkv.explain.trace import Trace
from qkv.report.markup import escaped

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
    text = trace.about.get("text") or " ".join(next(iter(trace.tokens.values()), ()))
    return f"Inside the model: {_short(text, 80)}"


def heading_markup(trace: Trace, title: str | None) -> str:
    """The header as HTML."""
    text = trace.about.get("text") or " ".join(next(iter(trace.tokens.values()), ()))
    target = trace.about.get("target")
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
    name = PurePath(trace.about.get("model", "")).name
    return " · ".join([*([name] if name else []), *shape, *lengths, f"{len(trace):,} named values"])


def _provenance(trace: Trace) -> str:
    known = [(CALLED[key], trace.about[key]) for key in CALLED if trace.about.get(key)]
    rows = "".join(f"<dt>{escaped(key)}</dt><dd>{escaped(value)}</dd>" for key, value in known)
    return (
        f"<dl>{rows}</dl>\n<p>Every number is one of the trace, in float32 as it was computed; "
        "steps of attention are computed beside the fused kernel from the same queries, keys and "
        "values, and held against what it answered.</p>\n"
    )


def _short(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"
