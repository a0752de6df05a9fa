"""Padding does not matter: a text alone, and the same with columns behind it that mean nothing."""

from functools import partial

from qkv.check.asking import ask
from qkv.check.parting import parting
from qkv.check.passage import passed
from qkv.check.report import Check, Finding, Tally
from qkv.check.subject import Subject
from qkv.model import Model, Translator

MORE = 3  # columns


def find(subject: Subject, tolerance: float) -> Finding:
    tally = Tally(tolerance)
    for which, model in subject.models():
        for number, text in enumerate(subject.readings, start=1):
            room = model.config.length - max(len(text.ids), len(text.source))
            if room < 1:
                continue
            fills, more = (0, _last_token(model)), min(MORE, room)
            padded = (partial(ask, model, [text], more, fill) for fill in fills)
            alone, *others = passed(model, partial(ask, model, [text]), *padded)
            for fill, values in zip(fills, others, strict=True):
                found = parting(alone, values, tolerance)
                remark = f"the padding was token {fill}"
                tally.add(found.worst, found.told(which, f"text {number}"), remark)
    return tally.finding()


def _last_token(model: Model) -> int:
    tables = [model.config.embedding]
    if isinstance(model, Translator) and model.config.source is not None:
        tables.append(model.config.source)
    return min(table.vocabulary for table in tables) - 1


def lacks(subject: Subject) -> str:
    length = subject.model.config.length
    full = all(max(len(t.ids), len(t.source)) >= length for t in subject.readings)
    return f"the model reads {length} positions, so there is no room for padding" if full else ""


PADDING = Check(
    "padding does not matter",
    "columns that only fill up a batch change nothing, whatever stands in them",
    1e-4,
    find,
    lacks,
)
