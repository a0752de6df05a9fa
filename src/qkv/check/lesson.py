"""A made-up lesson for any model: the task it would be trained for, and texts with made-up targets.

Batches are made by the code that makes those of real training.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from qkv.check.samples import Reading
from qkv.data.encoded import Encoded
from qkv.engine.texts import Texts
from qkv.model import Classify, Decoder, MaskedToken, Model, TextVector, Translator
from qkv.task.classify import ClassifyTask, LabelledTexts
from qkv.task.embed import EmbedTask, Twins
from qkv.task.language import LanguageTask, Windows, windows
from qkv.task.masked import Hidden, MaskedTask
from qkv.task.task import Batch, Task
from qkv.task.translate import PairBatch, TranslateTask

ROWS = 3  # windows of text, of which the first is a part of its own


@dataclass(frozen=True)
class Lesson:
    """A task, one batch for it, and the same batch in parts of different size."""

    task: Task
    whole: Batch
    parts: tuple[Batch, ...]
    remark: str = ""


def lesson_for(model: Model, texts: Sequence[Reading]) -> Lesson:
    """What suits the model's family and output."""
    output = model.config.output
    if isinstance(model, Translator):
        start = texts[0].ids[:1]
        batches = [_pairs(part, start) for part in _parted(texts)]
        return Lesson(TranslateTask(), batches[0], (*batches[1:],))
    if isinstance(output, Classify):
        labels = torch.arange(len(texts)) % len(output.labels)
        labelled = [_labelled(part, labels) for part in _numbered(texts)]
        return Lesson(ClassifyTask(), labelled[0], (*labelled[1:],))
    if isinstance(output, TextVector):
        twins = [_twins(part, texts) for part in _numbered(texts)]
        why = "by scores: contrast compares the texts of a batch, which no parts can equal"
        return Lesson(EmbedTask(learns_from="scores"), twins[0], (*twins[1:],), why)
    rows = _rows(model, texts)
    slices = [slice(None), slice(0, 1), slice(1, None)]
    if isinstance(model, Decoder) and not isinstance(output, MaskedToken):
        cut = [_cut(rows, part) for part in slices]
        return Lesson(LanguageTask(), cut[0], (*cut[1:],))
    hidden = [_hidden(_cut(rows, part)) for part in slices]
    return Lesson(MaskedTask(), hidden[0], (*hidden[1:],))


def _parted(texts: Sequence[Any]) -> list[Sequence[Any]]:
    """All of them, and the same in two parts; the first part has a single one."""
    return [texts, texts[:1], texts[1:]] if len(texts) > 1 else [texts, texts]


def _numbered(texts: Sequence[Reading]) -> list[Sequence[tuple[int, Reading]]]:
    return _parted([*enumerate(texts)])


def _pairs(texts: Sequence[Reading], start: Sequence[int]) -> PairBatch:
    sources, targets = [text.source for text in texts], [text.ids[1:] for text in texts]
    return PairBatch.of(sources, targets, start, end=0, pad=0)


def _labelled(part: Sequence[tuple[int, Reading]], labels: Tensor) -> LabelledTexts:
    numbers = torch.tensor([number for number, _ in part])
    texts = Texts.of([text.ids for _, text in part], 0)
    return LabelledTexts(texts, labels[numbers], 0.5 + numbers.float())


def _twins(part: Sequence[tuple[int, Reading]], texts: Sequence[Reading]) -> Twins:
    """Each text and its neighbour; how alike they should be is as good as random."""
    one = Texts.of([text.ids for _, text in part], 0)
    other = Texts.of([texts[(number + 1) % len(texts)].ids for number, _ in part], 0)
    return Twins(one, other, scores=torch.tensor([(7 * n % 10) / 10 for n, _ in part]))


def _rows(model: Model, texts: Sequence[Reading]) -> Windows:
    """The texts packed into windows of equal length."""
    ids = [text.ids for text in texts]
    while sum(map(len, ids)) < 4 * ROWS:
        ids = ids * 2
    stream = Encoded.of(ids, model.config.embedding.vocabulary)
    length = min(model.config.length, (len(stream.ids) - 1) // ROWS)
    return windows(stream, np.arange(ROWS) * length, length)


def _cut(w: Windows, rows: slice) -> Windows:
    documents, positions = (None if t is None else t[rows] for t in (w.documents, w.positions))
    return Windows(w.ids[rows], w.following[rows], documents, positions)


def _hidden(w: Windows) -> Hidden:
    """Every third token is to be guessed, in each row alike; it is not covered, only asked for."""
    flat = torch.arange(w.ids.numel())
    places = flat[flat % w.ids.shape[1] % 3 == 0]
    return Hidden(w, places, w.ids.flatten()[places])
