"""Batch = single: a text among others, and the same text alone.

Texts are laid side by side as training and `translate` lay them. For a model that writes they are
also read as `generate` reads many prompts: rows that end together, in a cache that rows join.
"""

from collections.abc import Iterator
from functools import partial

import torch
from torch import Tensor

from qkv.attention import RaggedCache
from qkv.checks.divergence import (
    Values,
    align_ends,
    concat_steps,
    first_divergence,
    record_forwards,
    select_row,
    slice_positions,
)
from qkv.checks.masking import changed
from qkv.checks.model_under_test import ModelUnderTest, ProbeInput, Writer, forward, one_row
from qkv.checks.result import Check, DeviationTracker, Finding
from qkv.engine.generate.prefill import Prefill, PrefixCache
from qkv.model import Decoder, Encoder, NextToken

# FOLDED check/cached: Cached = uncached: a text token by token or in portions with a cache, and
#   all of it at once.
#
#   Also as a beam search reads it: in a cache whose rows have changed places.

PROMPTS = 8  # so few that they are read in one portion


def find_batch(subject: ModelUnderTest, tolerance: float) -> Finding:
    tally = DeviationTracker(tolerance)
    for which, model in subject.models():
        texts = subject.inputs
        runs = (partial(forward, model, [text]) for text in texts)
        together, *each = record_forwards(model, partial(forward, model, texts), *runs)
        for b, alone in enumerate(each):
            found = first_divergence(alone, select_row(together, b), tolerance)
            tally.add(found.worst, found.told(which, f"text {b + 1} of {len(texts)}"))
        if isinstance(model, Decoder) and isinstance(model.config.output, NextToken):
            _written(model, which, texts, tally)
    return tally.finding()


def _written(model: Decoder, which: str, texts: list[ProbeInput], tally: DeviationTracker) -> None:
    """Prompts that are read together, and a token more for each: all but the last one is prompt."""
    texts = [text for text in texts if len(text.ids) > 1][:PROMPTS]
    prompts = [torch.tensor(text.ids[:-1]).numpy() for text in texts]
    if not texts:
        return
    prefill = Prefill(model, prompts, PrefixCache(0))
    vocabulary = model.config.embedding.vocabulary
    (read,) = record_forwards(model, partial(prefill.step, vocabulary))
    rows = RaggedCache(model.empty_cache(1, 0))
    rows.add(prefill.cache, dict(enumerate(prefill.lengths)))
    (written,) = record_forwards(
        model, partial(_next, model, rows, [text.ids[-1] for text in texts])
    )
    for b, text in enumerate(texts):
        for said, ids, values in (
            ("prompt", text.ids[:-1], read),
            ("next token", text.ids, written),
        ):
            (alone,) = record_forwards(model, partial(model, one_row(model, ids)))
            found = first_divergence(
                _of_last(alone), _of_last(select_row(values, b)), tally.tolerance, align_ends
            )
            place = found.place if found.position is None else f"{found.place}, last position"
            where = filter(None, (place, which, f"{said} {b + 1} of {len(texts)}"))
            tally.add(found.worst, ", ".join(where))


def _next(model: Decoder, rows: RaggedCache, tokens: list[int]) -> Tensor:
    ids = torch.tensor(tokens, device=model.embedding.weight.device)[:, None]  # (B, 1)
    positions, mask = rows.prepare()
    return model.states(ids, mask=mask, positions=positions, cache=rows.cache)


def _of_last(values: Values) -> Values:
    """Without the answer: prompts are answered for their last token only."""
    return {place: value for place, value in values.items() if value.dim() > 2}


def lacks_batch(subject: ModelUnderTest) -> str:
    return "there is only one text" if len(subject.inputs) < 2 else ""


BATCH = Check(
    "batch = single",
    "a text among others gives what it gives alone",
    1e-4,
    find_batch,
    lacks_batch,
)

PORTIONS = (3, 1, 4, 2, 5)  # tokens, over and over


def find_cached(subject: ModelUnderTest, tolerance: float) -> Finding:
    tally = DeviationTracker(tolerance)
    for which, model in subject.models():
        assert not isinstance(model, Encoder)
        for number, text in enumerate(subject.inputs[: 2 if subject.quick else None], start=1):
            writer, length = Writer(model, text), len(text.ids)
            (at_once,) = record_forwards(model, partial(writer.read, 0, length))
            for how, sizes in (("token by token", (1,)), ("in portions", PORTIONS)):
                found = first_divergence(at_once, _in_steps(writer, sizes, length), tolerance)
                tally.add(found.worst, found.told(which, f"text {number} {how}"))
            if length > 1:
                half = length // 2
                right, other = slice_positions(at_once, half, length), _after_exchange(writer, half)
                found = first_divergence(right, other, tolerance)
                tally.add(found.worst, found.told(which, f"text {number} as a beam, behind {half}"))
    return tally.finding()


def _in_steps(writer: Writer, sizes: tuple[int, ...], length: int) -> Values:
    """All steps as one pass; the keys are those that the cache holds in the end."""
    cache = writer.empty_cache()
    runs = (partial(writer.read, *portion, cache) for portion in _portions(sizes, length))
    steps = record_forwards(writer.model, *runs)
    kept = (slot.k[:, :, : slot.length] for slot in cache.layers)
    keys = {f"decoder.{i}.attention.key_rotated": k for i, k in enumerate(kept)}
    return concat_steps(steps) | keys


def _after_exchange(writer: Writer, half: int) -> Values:
    """The second half of the text, after it has changed places with another in the cache."""
    vocabulary, length = writer.model.config.embedding.vocabulary, writer.ids.shape[1]
    other = one_row(writer.model, changed(writer.ids[0].tolist(), 0, vocabulary))
    beams, cache = torch.cat((writer.ids, other)), writer.empty_cache(rows=2)
    record_forwards(writer.model, partial(writer.say, beams[:, :half], cache))
    cache.reorder(torch.tensor([1, 0], device=beams.device))
    rest = beams.flip(0)[:, half:length]
    (values,) = record_forwards(writer.model, partial(writer.say, rest, cache))
    return select_row(values, 1)


def _portions(sizes: tuple[int, ...], length: int) -> Iterator[tuple[int, int]]:
    start, turn = 0, 0
    while start < length:
        stop = min(length, start + sizes[turn % len(sizes)])
        yield start, stop
        start, turn = stop, turn + 1


def lacks(subject: ModelUnderTest) -> str:
    if isinstance(subject.model, Encoder):
        return "an encoder reads a text at once and has no cache"
    if not isinstance(subject.model.config.output, NextToken):
        return "this decoder answers for the whole text and does not write"
    return ""


CACHED = Check(
    "cached = uncached",
    "a text read with a cache gives what it gives when it is read at once",
    1e-4,
    find_cached,
    lacks,
)
