"""No future leak: what a decoder says of a token does not change with what comes after it."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from qkv.check.asking import ask
from qkv.check.parting import parting
from qkv.check.passage import passed, span
from qkv.check.report import Check, Finding, Tally
from qkv.check.subject import Subject
from qkv.model import Encoder

CUTS = 6  # places of each text after which everything is changed


def find(subject: Subject, tolerance: float) -> Finding:
    tally = Tally(tolerance)
    for which, model in subject.models():
        vocabulary = model.config.embedding.vocabulary
        for number, text in enumerate(subject.readings, start=1):
            cuts = _cuts(len(text.ids), 2 if subject.quick else CUTS)
            others = (replace(text, ids=changed(text.ids, cut, vocabulary)) for cut in cuts)
            runs = (partial(ask, model, [each]) for each in (text, *others))
            right, *moved = passed(model, *runs)
            for cut, values in zip(cuts, moved, strict=True):
                found = parting(span(right, 0, cut), span(values, 0, cut), tolerance)
                remark = f"position {found.position} moved when position {cut} changed"
                tally.add(found.worst, found.told(which, f"text {number}"), remark)
    return tally.finding()


def changed(ids: Sequence[int], cut: int, vocabulary: int) -> tuple[int, ...]:
    """Another token at every position from `cut` on."""
    rest = ((token + 1 + i % max(1, vocabulary - 1)) % vocabulary for i, token in enumerate(ids))
    return (*ids[:cut], *list(rest)[cut:])


def _cuts(length: int, count: int) -> list[int]:
    """Positions of a text, the last one always among them, as a mask may be wrong by one only."""
    return sorted(
        {length - 1 - i * max(1, length // count) for i in range(count)} & {*range(1, length)}
    )


def lacks(subject: Subject) -> str:
    if isinstance(subject.model, Encoder):
        return "every position of an encoder may see the whole text"
    if all(len(text.ids) < 2 for text in subject.readings):
        return "no text has two tokens"
    return ""


CAUSAL = Check(
    "no future leak",
    "what is said of a token does not change with the tokens after it",
    1e-4,
    find,
    lacks,
)
