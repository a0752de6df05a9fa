"""Cached = uncached: a text token by token or in portions with a cache, and all of it at once.

Also as a beam search reads it: in a cache whose rows have changed places.
"""

from collections.abc import Iterator
from functools import partial

import torch

from qkv.check.asking import Writer, one_row
from qkv.check.causal import changed
from qkv.check.parting import parting
from qkv.check.passage import Values, joined, passed, row, span
from qkv.check.report import Check, Finding, Tally
from qkv.check.subject import Subject
from qkv.model import Encoder, NextToken

PORTIONS = (3, 1, 4, 2, 5)  # tokens, over and over


def find(subject: Subject, tolerance: float) -> Finding:
    tally = Tally(tolerance)
    for which, model in subject.models():
        assert not isinstance(model, Encoder)
        for number, text in enumerate(subject.readings[: 2 if subject.quick else None], start=1):
            writer, length = Writer(model, text), len(text.ids)
            (at_once,) = passed(model, partial(writer.read, 0, length))
            for how, sizes in (("token by token", (1,)), ("in portions", PORTIONS)):
                found = parting(at_once, _in_steps(writer, sizes, length), tolerance)
                tally.add(found.worst, found.told(which, f"text {number} {how}"))
            if length > 1:
                half = length // 2
                right, other = span(at_once, half, length), _after_exchange(writer, half)
                found = parting(right, other, tolerance)
                tally.add(found.worst, found.told(which, f"text {number} as a beam, behind {half}"))
    return tally.finding()


def _in_steps(writer: Writer, sizes: tuple[int, ...], length: int) -> Values:
    """All steps as one pass; the keys are those that the cache holds in the end."""
    cache = writer.empty_cache()
    runs = (partial(writer.read, *portion, cache) for portion in _portions(sizes, length))
    steps = passed(writer.model, *runs)
    kept = (slot.k[:, :, : slot.length] for slot in cache.slots)
    keys = {f"decoder.{i}.attention.key_turned": k for i, k in enumerate(kept)}
    return joined(steps) | keys


def _after_exchange(writer: Writer, half: int) -> Values:
    """The second half of the text, after it has changed places with another in the cache."""
    vocabulary, length = writer.model.config.embedding.vocabulary, writer.ids.shape[1]
    other = one_row(writer.model, changed(writer.ids[0].tolist(), 0, vocabulary))
    beams, cache = torch.cat((writer.ids, other)), writer.empty_cache(rows=2)
    passed(writer.model, partial(writer.say, beams[:, :half], cache))
    cache.reorder(torch.tensor([1, 0], device=beams.device))
    rest = beams.flip(0)[:, half:length]
    (values,) = passed(writer.model, partial(writer.say, rest, cache))
    return row(values, 1)


def _portions(sizes: tuple[int, ...], length: int) -> Iterator[tuple[int, int]]:
    start, turn = 0, 0
    while start < length:
        stop = min(length, start + sizes[turn % len(sizes)])
        yield start, stop
        start, turn = stop, turn + 1


def lacks(subject: Subject) -> str:
    if isinstance(subject.model, Encoder):
        return "an encoder reads a text at once and has no cache"
    if not isinstance(subject.model.config.output, NextToken):
        return "this decoder answers for the whole text and does not write"
    return ""


CACHED = Check(
    "cached = uncached",
    "a text read with a cache gives what it gives when it is read at once",
    1e-4,
    find,
    lacks,
)
