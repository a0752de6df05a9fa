"""No future leak: what a decoder says of a token does not change with what comes after it."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import torch
from torch import Tensor

from qkv.attention import Mask
from qkv.checks.divergence import distance, first_divergence, record_forwards, slice_positions
from qkv.checks.model_under_test import ModelUnderTest, ProbeInput, forward, one_row
from qkv.checks.result import Check, DeviationTracker, Finding
from qkv.data.encoded import Encoded
from qkv.engine.batching import batched_outputs, inference
from qkv.model import Decoder, Encoder, Model, Translator
from qkv.model.output import PooledOutput
from qkv.tasks.token_tasks import windows

# FOLDED check/padding: Padding does not matter: a text alone, and the same with columns behind
#   it that mean nothing.
# FOLDED check/packed: Packed = separate: texts one after the other in a single row, and each of
#   them alone.
#
#   They are packed as `embed` and `classify` pack them, and as training packs documents into
#   windows.

CUTS = 6  # places of each text after which everything is changed


def find_future_leak(subject: ModelUnderTest, tolerance: float) -> Finding:
    tally = DeviationTracker(tolerance)
    for which, model in subject.models():
        vocabulary = model.config.embedding.vocabulary
        for number, text in enumerate(subject.inputs, start=1):
            cuts = _cuts(len(text.ids), 2 if subject.quick else CUTS)
            others = (replace(text, ids=changed(text.ids, cut, vocabulary)) for cut in cuts)
            runs = (partial(forward, model, [each]) for each in (text, *others))
            right, *moved = record_forwards(model, *runs)
            for cut, values in zip(cuts, moved, strict=True):
                found = first_divergence(
                    slice_positions(right, 0, cut), slice_positions(values, 0, cut), tolerance
                )
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


def lacks_causal(subject: ModelUnderTest) -> str:
    if isinstance(subject.model, Encoder):
        return "every position of an encoder may see the whole text"
    if all(len(text.ids) < 2 for text in subject.inputs):
        return "no text has two tokens"
    return ""


CAUSAL = Check(
    "no future leak",
    "what is said of a token does not change with the tokens after it",
    1e-4,
    find_future_leak,
    lacks_causal,
)

MORE = 3  # columns


def find_padding(subject: ModelUnderTest, tolerance: float) -> Finding:
    tally = DeviationTracker(tolerance)
    for which, model in subject.models():
        for number, text in enumerate(subject.inputs, start=1):
            room = model.config.length - max(len(text.ids), len(text.source))
            if room < 1:
                continue
            fills, more = (0, _last_token(model)), min(MORE, room)
            padded = (partial(forward, model, [text], more, fill) for fill in fills)
            alone, *others = record_forwards(model, partial(forward, model, [text]), *padded)
            for fill, values in zip(fills, others, strict=True):
                found = first_divergence(alone, values, tolerance)
                remark = f"the padding was token {fill}"
                tally.add(found.worst, found.told(which, f"text {number}"), remark)
    return tally.finding()


def _last_token(model: Model) -> int:
    tables = [model.config.embedding]
    if isinstance(model, Translator) and model.config.source is not None:
        tables.append(model.config.source)
    return min(table.vocabulary for table in tables) - 1


def lacks(subject: ModelUnderTest) -> str:
    length = subject.model.config.length
    full = all(max(len(t.ids), len(t.source)) >= length for t in subject.inputs)
    return f"the model reads {length} positions, so there is no room for padding" if full else ""


PADDING = Check(
    "padding does not matter",
    "columns that only fill up a batch change nothing, whatever stands in them",
    1e-4,
    find_padding,
    lacks,
)


def find_packed(subject: ModelUnderTest, tolerance: float) -> Finding:
    tally = DeviationTracker(tolerance)
    for which, model in subject.models():
        assert not isinstance(model, Translator)
        texts = subject.inputs
        ways = {"training's documents": documents(model, texts)}
        if isinstance(model, Encoder):
            ways["packed texts"] = neighbours(texts)
        runs = (partial(states, model, one_row(model, text.ids)) for text in texts)
        each = record_forwards(model, *runs)
        for how, (ids, mask, positions) in ways.items():
            read = partial(states, model, one_row(model, ids), mask, positions)
            (together,), start = record_forwards(model, read), 0
            for number, (text, alone) in enumerate(zip(texts, each, strict=True), start=1):
                stop = start + len(text.ids)
                found = first_divergence(alone, slice_positions(together, start, stop), tolerance)
                tally.add(found.worst, found.told(which, f"text {number} of {how}"))
                start = stop
        if isinstance(model, Encoder) and isinstance(model.output, PooledOutput):
            _answers(model, which, texts, tally)
    return tally.finding()


Packing = tuple[list[int], Mask | None, Tensor | None]


def neighbours(texts: list[ProbeInput]) -> Packing:
    """All texts in one row, as they are answered."""
    lengths = [len(text.ids) for text in texts]
    places = torch.cat([torch.arange(length) for length in lengths])
    return [token for text in texts for token in text.ids], Mask.packed(lengths), places


def documents(model: Encoder | Decoder, texts: list[ProbeInput]) -> Packing:
    """All texts in one window, as they are learned from; one more stands behind them."""
    stream = Encoded.of([*(text.ids for text in texts), (0, 0)], model.config.embedding.vocabulary)
    window = windows(stream, np.array([0]), len(stream.ids) - 2)
    assert window.documents is not None
    return window.ids[0].tolist(), Mask.documents(window.documents), window.positions


def states(
    model: Encoder | Decoder, ids: Tensor, mask: Mask | None = None, positions: Tensor | None = None
) -> Tensor:
    if positions is not None:
        positions = positions.to(ids.device)
    if isinstance(model, Encoder):
        return model.encode(ids, mask=mask, positions=positions)
    return model.states(ids, mask=mask, positions=positions)


def _answers(model: Encoder, which: str, texts: list[ProbeInput], tally: DeviationTracker) -> None:
    """What is said of the texts in the end, by the function that commands use."""
    found = batched_outputs(model, [text.ids for text in texts])
    for number, (text, answer) in enumerate(zip(texts, found, strict=True), start=1):
        with inference(model):
            alone = forward(model, [text])[0].float().cpu()
        where = filter(None, ("output", which, f"text {number} of all answers"))
        tally.add(distance(alone, answer), ", ".join(where))


def lacks_packed(subject: ModelUnderTest) -> str:
    if isinstance(subject.model, Translator):
        return "pairs of texts are never packed, but padded"
    return "there is only one text" if len(subject.inputs) < 2 else ""


PACKED = Check(
    "packed = separate",
    "a text among others in one row sees only itself",
    1e-4,
    find_packed,
    lacks_packed,
)
