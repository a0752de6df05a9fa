"""Masking: no future leak, padding does not matter, packed = separate.

Each compares a text alone with the same text among tokens it must not see: later tokens, padding,
and other texts in the same row, packed as `embed` and `classify` do and as training packs documents
into windows.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import torch
from torch import Tensor

from qkv.attention import Mask
from qkv.checks.divergence import (
    first_divergence,
    record_forwards,
    relative_difference,
    slice_positions,
)
from qkv.checks.model_under_test import ModelUnderTest, ProbeInput, forward, id_row
from qkv.checks.result import Check, DeviationTracker, Finding
from qkv.data import TokenizedTexts
from qkv.engine import batched_outputs, inference
from qkv.model import Decoder, Encoder, Model, PooledOutput, Translator
from qkv.training.tasks import windows

CUTS = 6  # positions per text after which all tokens are replaced
QUICK_CUTS = 2
PADDING_COLUMNS = 3

PackedInput = tuple[list[int], Mask | None, Tensor | None]  # ids, mask, positions


def measure_future_leak(subject: ModelUnderTest, tolerance: float) -> Finding:
    tracker = DeviationTracker(tolerance)
    for variant, model in subject.models():
        vocabulary = model.config.embedding.vocabulary
        for number, text in enumerate(subject.inputs, start=1):
            cuts = _cuts(len(text.ids), QUICK_CUTS if subject.quick else CUTS)
            runs = [partial(forward, model, [text])]
            for cut in cuts:
                edited = replace(text, ids=replace_tokens_from(text.ids, cut, vocabulary))
                runs.append(partial(forward, model, [edited]))
            original, *others = record_forwards(model, *runs)
            for cut, activations in zip(cuts, others, strict=True):
                divergence = first_divergence(
                    slice_positions(original, 0, cut),
                    slice_positions(activations, 0, cut),
                    tolerance,
                )
                remark = f"position {divergence.position} moved when position {cut} changed"
                location = divergence.describe(variant, f"text {number}")
                tracker.add(divergence.worst, location, remark)
    return tracker.finding()


def replace_tokens_from(ids: Sequence[int], cut: int, vocabulary: int) -> tuple[int, ...]:
    """Another token at every position from `cut` on."""
    others = [(token + 1 + i % max(1, vocabulary - 1)) % vocabulary for i, token in enumerate(ids)]
    return (*ids[:cut], *others[cut:])


def _cuts(length: int, count: int) -> list[int]:
    """Evenly spaced positions, always with the last: a mask may be off by one there only."""
    step = max(1, length // count)
    cuts = {length - 1 - i * step for i in range(count)}
    return sorted(cut for cut in cuts if 1 <= cut < length)


def skip_future_leak(subject: ModelUnderTest) -> str:
    if isinstance(subject.model, Encoder):
        return "every position of an encoder may see the whole text"
    if all(len(text.ids) < 2 for text in subject.inputs):
        return "no text has two tokens"
    return ""


CAUSAL = Check(
    name="no future leak",
    invariant="a token's output does not change when later tokens change",
    violation="a token's output changed when later tokens changed (future leak)",
    tolerance=1e-4,
    measure=measure_future_leak,
    skip_reason=skip_future_leak,
)


def measure_padding(subject: ModelUnderTest, tolerance: float) -> Finding:
    tracker = DeviationTracker(tolerance)
    for variant, model in subject.models():
        # Two padding tokens: an output that depends on padding may by chance ignore one of them.
        pad_ids = (0, _last_token(model))
        for number, text in enumerate(subject.inputs, start=1):
            free = model.config.length - max(len(text.ids), len(text.source))
            if free < 1:
                continue
            columns = min(PADDING_COLUMNS, free)
            padded_runs = [partial(forward, model, [text], columns, pad_id) for pad_id in pad_ids]
            single, *padded = record_forwards(model, partial(forward, model, [text]), *padded_runs)
            for pad_id, activations in zip(pad_ids, padded, strict=True):
                divergence = first_divergence(single, activations, tolerance)
                location = divergence.describe(variant, f"text {number}")
                tracker.add(divergence.worst, location, f"the padding was token {pad_id}")
    return tracker.finding()


def _last_token(model: Model) -> int:
    """The last id that is in the vocabulary of both source and target."""
    tables = [model.config.embedding]
    if isinstance(model, Translator) and model.config.source is not None:
        tables.append(model.config.source)
    return min(table.vocabulary for table in tables) - 1


def skip_padding(subject: ModelUnderTest) -> str:
    length = subject.model.config.length
    if all(max(len(text.ids), len(text.source)) >= length for text in subject.inputs):
        return f"the model reads {length} positions, so there is no space for padding"
    return ""


PADDING = Check(
    name="padding does not matter",
    invariant="padding a batch changes no output, whatever token pads it",
    violation="a text's output changed when its batch was padded",
    tolerance=1e-4,
    measure=measure_padding,
    skip_reason=skip_padding,
)


def measure_packed(subject: ModelUnderTest, tolerance: float) -> Finding:
    tracker = DeviationTracker(tolerance)
    inputs = subject.inputs
    for variant, model in subject.models():
        assert not isinstance(model, Translator)
        packings = {"training's documents": pack_documents(model, inputs)}
        if isinstance(model, Encoder):
            packings["packed texts"] = pack_texts(inputs)
        single_runs = [partial(_states, model, id_row(model, text.ids)) for text in inputs]
        singles = record_forwards(model, *single_runs)
        for how, (ids, mask, positions) in packings.items():
            run = partial(_states, model, id_row(model, ids), mask, positions)
            (packed,) = record_forwards(model, run)
            start = 0
            for number, (text, single) in enumerate(zip(inputs, singles, strict=True), start=1):
                stop = start + len(text.ids)
                divergence = first_divergence(
                    single, slice_positions(packed, start, stop), tolerance
                )
                location = divergence.describe(variant, f"text {number} of {how}")
                tracker.add(divergence.worst, location)
                start = stop
        if isinstance(model, Encoder) and isinstance(model.output, PooledOutput):
            _compare_batched_outputs(model, variant, inputs, tracker)
    return tracker.finding()


def pack_texts(inputs: list[ProbeInput]) -> PackedInput:
    """All texts in one row, as `embed` and `classify` pack them."""
    lengths = [len(text.ids) for text in inputs]
    positions = torch.cat([torch.arange(length) for length in lengths])
    return [token for text in inputs for token in text.ids], Mask.packed(lengths), positions


def pack_documents(model: Encoder | Decoder, inputs: list[ProbeInput]) -> PackedInput:
    """All texts in one window, as training packs documents, with another one after them."""
    # The last document makes sure that the window ends inside the stream, as most do.
    stream = TokenizedTexts.of(
        [*(text.ids for text in inputs), (0, 0)], model.config.embedding.vocabulary
    )
    window = windows(stream, np.array([0]), len(stream.ids) - 2)
    assert window.documents is not None
    return window.ids[0].tolist(), Mask.documents(window.documents), window.positions


def _states(
    model: Encoder | Decoder, ids: Tensor, mask: Mask | None = None, positions: Tensor | None = None
) -> Tensor:
    if positions is not None:
        positions = positions.to(ids.device)
    if isinstance(model, Encoder):
        return model.encode(ids, mask=mask, positions=positions)
    return model.states(ids, mask=mask, positions=positions)


def _compare_batched_outputs(
    model: Encoder, variant: str, inputs: list[ProbeInput], tracker: DeviationTracker
) -> None:
    """The final outputs of the function that the commands use."""
    outputs = batched_outputs(model, [text.ids for text in inputs])
    for number, (text, output) in enumerate(zip(inputs, outputs, strict=True), start=1):
        with inference(model):
            single = forward(model, [text])[0].float().cpu()
        parts = ("output", variant, f"text {number} of all outputs")
        tracker.add(relative_difference(single, output), ", ".join(filter(None, parts)))


def skip_packed(subject: ModelUnderTest) -> str:
    if isinstance(subject.model, Translator):
        return "pairs of texts are never packed, but padded"
    if len(subject.inputs) < 2:
        return "there is only one text"
    return ""


PACKED = Check(
    name="packed = separate",
    invariant="a text packed into one row with others attends only to itself",
    violation="a text's output changed when it was packed into one row with others",
    tolerance=1e-4,
    measure=measure_packed,
    skip_reason=skip_packed,
)
