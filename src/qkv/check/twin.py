"""Twin = model: the arrangement that answers gives what the model itself gives."""

from functools import partial

from qkv.check.asking import ask
from qkv.check.parting import parting
from qkv.check.passage import passed, row
from qkv.check.report import Check, Finding, Tally
from qkv.check.subject import Subject


def find(subject: Subject, tolerance: float) -> Finding:
    twin, texts, tally = subject.twin, subject.readings, Tally(tolerance)
    assert twin is not None
    (right,) = passed(subject.model, partial(ask, subject.model, texts))
    (other,) = passed(twin, partial(ask, twin, texts))
    for b in range(len(texts)):
        found = parting(row(right, b), row(other, b), tolerance)
        tally.add(found.worst, found.told(f"text {b + 1}"))
    return tally.finding()


def lacks(subject: Subject) -> str:
    if subject.too_large:
        return subject.too_large
    return "" if subject.twin is not None else "the model answers itself"


TWIN = Check(
    "twin = model",
    "the twin that answers sooner gives what the model gives",
    1e-4,
    find,
    lacks,
)
