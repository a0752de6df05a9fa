"""Packed = separate: texts one after the other in a single row, and each of them alone.

They are packed as `embed` and `classify` pack them, and as training packs documents into windows.
"""

from functools import partial

import numpy as np
import torch
from torch import Tensor

from qkv.attention import Mask
from qkv.check.asking import ask, one_row
from qkv.check.parting import distance, parting
from qkv.check.passage import passed, span
from qkv.check.report import Check, Finding, Tally
from qkv.check.samples import Reading
from qkv.check.subject import Subject
from qkv.data.encoded import Encoded
from qkv.engine.answer import answers
from qkv.engine.answering import answering
from qkv.model import Decoder, Encoder, Translator
from qkv.model.output import Pooled
from qkv.task.language import windows


def find(subject: Subject, tolerance: float) -> Finding:
    tally = Tally(tolerance)
    for which, model in subject.models():
        assert not isinstance(model, Translator)
        texts = subject.readings
        ways = {"training's documents": documents(model, texts)}
        if isinstance(model, Encoder):
            ways["packed texts"] = neighbours(texts)
        runs = (partial(states, model, one_row(model, text.ids)) for text in texts)
        each = passed(model, *runs)
        for how, (ids, mask, positions) in ways.items():
            read = partial(states, model, one_row(model, ids), mask, positions)
            (together,), start = passed(model, read), 0
            for number, (text, alone) in enumerate(zip(texts, each, strict=True), start=1):
                stop = start + len(text.ids)
                found = parting(alone, span(together, start, stop), tolerance)
                tally.add(found.worst, found.told(which, f"text {number} of {how}"))
                start = stop
        if isinstance(model, Encoder) and isinstance(model.output, Pooled):
            _answers(model, which, texts, tally)
    return tally.finding()


Packing = tuple[list[int], Mask | None, Tensor | None]


def neighbours(texts: list[Reading]) -> Packing:
    """All texts in one row, as they are answered."""
    lengths = [len(text.ids) for text in texts]
    places = torch.cat([torch.arange(length) for length in lengths])
    return [token for text in texts for token in text.ids], Mask.packed(lengths), places


def documents(model: Encoder | Decoder, texts: list[Reading]) -> Packing:
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


def _answers(model: Encoder, which: str, texts: list[Reading], tally: Tally) -> None:
    """What is said of the texts in the end, by the function that commands use."""
    found = answers(model, [text.ids for text in texts])
    for number, (text, answer) in enumerate(zip(texts, found, strict=True), start=1):
        with answering(model):
            alone = ask(model, [text])[0].float().cpu()
        where = filter(None, ("output", which, f"text {number} of all answers"))
        tally.add(distance(alone, answer), ", ".join(where))


def lacks(subject: Subject) -> str:
    if isinstance(subject.model, Translator):
        return "pairs of texts are never packed, but padded"
    return "there is only one text" if len(subject.readings) < 2 else ""


PACKED = Check(
    "packed = separate",
    "a text among others in one row sees only itself",
    1e-4,
    find,
    lacks,
)
