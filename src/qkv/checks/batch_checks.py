"""Batch = single and cached = uncached: how a text is computed does not change its output.

Texts are batched with padding, as in training and `translate`. For a model that generates they are
also prefilled as `generate` prefills many prompts, and continued in a ragged cache. With a cache a
text is read token by token, in chunks, and as in beam search, where the rows of the cache are
reordered.
"""

from collections.abc import Iterator
from functools import partial

import torch
from torch import Tensor

from qkv.attention import RaggedCache
from qkv.checks.divergence import (
    Activations,
    align_ends,
    concat_steps,
    first_divergence,
    record_forwards,
    select_row,
    slice_positions,
)
from qkv.checks.masking import replace_tokens_from
from qkv.checks.model_under_test import (
    IncrementalDecoder,
    ModelUnderTest,
    ProbeInput,
    forward,
    id_row,
)
from qkv.checks.result import Check, DeviationTracker, Finding
from qkv.engine.generate import Prefill, PrefixCache
from qkv.model import Decoder, Encoder, NextToken

MAX_PROMPTS = 8  # few enough to be prefilled in one chunk
CHUNK_SIZES = (3, 1, 4, 2, 5)  # tokens, repeated
QUICK_CACHED_TEXTS = 2


def measure_batch(subject: ModelUnderTest, tolerance: float) -> Finding:
    tracker = DeviationTracker(tolerance)
    inputs = subject.inputs
    for variant, model in subject.models():
        single_runs = [partial(forward, model, [text]) for text in inputs]
        batch, *singles = record_forwards(model, partial(forward, model, inputs), *single_runs)
        for b, single in enumerate(singles):
            divergence = first_divergence(single, select_row(batch, b), tolerance)
            location = divergence.describe(variant, f"text {b + 1} of {len(inputs)}")
            tracker.add(divergence.worst, location)
        if isinstance(model, Decoder) and isinstance(model.config.output, NextToken):
            _compare_generation(model, variant, inputs, tracker)
    return tracker.finding()


def _compare_generation(
    model: Decoder, variant: str, inputs: list[ProbeInput], tracker: DeviationTracker
) -> None:
    """Prompts prefilled together, and a decode step for each: the last token follows the prompt."""
    texts = [text for text in inputs if len(text.ids) > 1][:MAX_PROMPTS]
    if not texts:
        return
    prompts = [torch.tensor(text.ids[:-1]).numpy() for text in texts]
    # An empty prefix cache: every token of the prompts is computed.
    prefill = Prefill(model, prompts, PrefixCache(0))
    (prefilled,) = record_forwards(model, partial(prefill.step, model.config.embedding.vocabulary))
    cache = RaggedCache(model.empty_cache(1, 0))
    cache.add(prefill.cache, dict(enumerate(prefill.lengths)))
    last_ids = [text.ids[-1] for text in texts]
    (decoded,) = record_forwards(model, partial(_decode_step, model, cache, last_ids))
    for b, text in enumerate(texts):
        steps = (("prompt", text.ids[:-1], prefilled), ("next token", text.ids, decoded))
        for step, ids, activations in steps:
            (single,) = record_forwards(model, partial(model, id_row(model, ids)))
            divergence = first_divergence(
                _hidden_states(single),
                _hidden_states(select_row(activations, b)),
                tracker.tolerance,
                align_ends,
            )
            location = divergence.location
            if divergence.position is not None:
                location = f"{location}, last position"
            parts = (location, variant, f"{step} {b + 1} of {len(texts)}")
            tracker.add(divergence.worst, ", ".join(filter(None, parts)))


def _decode_step(model: Decoder, cache: RaggedCache, tokens: list[int]) -> Tensor:
    ids = torch.tensor(tokens, device=model.embedding.weight.device)[:, None]  # (B, 1)
    positions, mask = cache.prepare()
    return model.states(ids, mask=mask, positions=positions, cache=cache.cache)


def _hidden_states(activations: Activations) -> Activations:
    """Without the logits, which are computed for the last token of a prompt only."""
    return {location: value for location, value in activations.items() if value.dim() > 2}


def skip_batch(subject: ModelUnderTest) -> str:
    if len(subject.inputs) < 2:
        return "there is only one text"
    return ""


BATCH = Check(
    name="batch = single",
    invariant="a text has the same output in a batch as alone",
    violation="a text has another output in a batch than alone",
    tolerance=1e-4,
    measure=measure_batch,
    skip_reason=skip_batch,
)


def measure_cached(subject: ModelUnderTest, tolerance: float) -> Finding:
    tracker = DeviationTracker(tolerance)
    inputs = subject.inputs
    if subject.quick:
        inputs = inputs[:QUICK_CACHED_TEXTS]
    for variant, model in subject.models():
        assert not isinstance(model, Encoder)
        for number, text in enumerate(inputs, start=1):
            decoder = IncrementalDecoder(model, text)
            length = len(text.ids)
            (uncached,) = record_forwards(model, partial(decoder.decode_span, 0, length))
            for how, sizes in (("token by token", (1,)), ("in chunks", CHUNK_SIZES)):
                cached = _decode_in_chunks(decoder, sizes, length)
                divergence = first_divergence(uncached, cached, tolerance)
                location = divergence.describe(variant, f"text {number} {how}")
                tracker.add(divergence.worst, location)
            if length > 1:
                half = length // 2
                expected = slice_positions(uncached, half, length)
                divergence = first_divergence(expected, _decode_reordered(decoder, half), tolerance)
                location = divergence.describe(variant, f"text {number} as a beam, after {half}")
                tracker.add(divergence.worst, location)
    return tracker.finding()


def _decode_in_chunks(
    decoder: IncrementalDecoder, sizes: tuple[int, ...], length: int
) -> Activations:
    """All steps as one forward pass, with the keys that are in the cache at the end."""
    cache = decoder.empty_cache()
    runs = [
        partial(decoder.decode_span, start, stop, cache) for start, stop in _chunks(sizes, length)
    ]
    activations = concat_steps(record_forwards(decoder.model, *runs))
    # A later step may overwrite a key of an earlier one, so what the cache holds at the end counts.
    for i, layer in enumerate(cache.layers):
        activations[f"decoder.{i}.attention.key_rotated"] = layer.k[:, :, : layer.length]
    return activations


def _decode_reordered(decoder: IncrementalDecoder, half: int) -> Activations:
    """The second half of the text, after its cache row was swapped with that of another."""
    vocabulary = decoder.model.config.embedding.vocabulary
    length = decoder.ids.shape[1]
    other = id_row(decoder.model, replace_tokens_from(decoder.ids[0].tolist(), 0, vocabulary))
    beams = torch.cat((decoder.ids, other))
    cache = decoder.empty_cache(rows=2)
    record_forwards(decoder.model, partial(decoder.decode, beams[:, :half], cache))
    # Beam search keeps the best beams by reordering rows; here the two rows change places.
    cache.reorder(torch.tensor([1, 0], device=beams.device))
    rest = beams.flip(0)[:, half:length]
    (activations,) = record_forwards(decoder.model, partial(decoder.decode, rest, cache))
    return select_row(activations, 1)


def _chunks(sizes: tuple[int, ...], length: int) -> Iterator[tuple[int, int]]:
    """Start and stop of each chunk."""
    start = 0
    number = 0
    while start < length:
        stop = min(length, start + sizes[number % len(sizes)])
        yield start, stop
        start = stop
        number += 1


def skip_cached(subject: ModelUnderTest) -> str:
    if isinstance(subject.model, Encoder):
        return "an encoder reads a text at once and has no cache"
    if not isinstance(subject.model.config.output, NextToken):
        return "this decoder has one output for the whole text and does not generate"
    return ""


CACHED = Check(
    name="cached = uncached",
    invariant="a text has the same output with a KV cache as without one",
    violation="a text has another output with a KV cache than without one",
    tolerance=1e-4,
    measure=measure_cached,
    skip_reason=skip_cached,
)
