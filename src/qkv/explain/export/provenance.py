"""Where exported numbers come from: the model and its hash, the text, versions, and the checks."""

import json
from pathlib import Path

from qkv.explain.matrix import figure
from qkv.explain.trace import Proof, Trace
from qkv.files import one_line

FEW = 12  # digits of a hash that people compare
QUOTED = 72  # characters of a text in a caption


def provenance(trace: Trace, **more: object) -> dict[str, str]:
    """What `trace.about` says, what was changed, what was proved; and more that the export adds.

    Of the model's path only the last part is given: a picture that is passed on tells nothing of
    the folders of this machine, and the hash says which model it was.
    """
    told = {name: str(value) for name, value in trace.about.items()}
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


def _verdict(checks: tuple[Proof, ...]) -> str:
    if not checks:
        return "nothing checked"
    passed = sum(check.ok for check in checks)
    return f"{passed} of {len(checks)} checks passed"


def _checked(check: Proof) -> str:
    return f"{check.name}: {_small(check.worst)} {'≤' if check.ok else '>'} {check.tolerance:g}"


def _small(number: float) -> str:
    return figure(number, 0) if number in (0.0, float("inf")) else f"{number:.1e}"


def _short(text: str) -> str:
    line = one_line(text) if text.strip() else ""
    return line if len(line) <= QUOTED else f"{line[:QUOTED].rstrip()}…"
