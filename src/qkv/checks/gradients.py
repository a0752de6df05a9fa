"""What training does with gradients: parts of a batch add up to it, and none is missing.

The gradients are those of the training loop itself; only the step at the end is left out.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from qkv.checks.model_under_test import ModelUnderTest, ProbeInput
from qkv.checks.result import Check, DeviationTracker, Finding
from qkv.data.encoded import Encoded
from qkv.engine.batching import PaddedBatch
from qkv.model import (
    Attention,
    Classify,
    CrossAttention,
    Decoder,
    Layers,
    MaskedToken,
    Model,
    TextVector,
    Translator,
)
from qkv.model.norm import Dropout
from qkv.model.position.rope import RopePosition
from qkv.tasks.text_tasks import ClassifyTask, EmbedTask, LabelledTexts, Twins
from qkv.tasks.token_tasks import (
    Batch,
    Hidden,
    LanguageTask,
    MaskedTask,
    PairBatch,
    Task,
    TranslateTask,
    Windows,
    windows,
)
from qkv.training.optimizer import Constant
from qkv.training.trainer import Trainer

# FOLDED check/excused: Parameters that can have no gradient, and why.
# FOLDED check/lesson: A made-up lesson for any model: the task it would be trained for, and
#   texts with made-up targets.
#
#   Batches are made by the code that makes those of real training.

SHIFTED = (
    "the biases of keys have none by construction: they change all scores of a row alike, and "
    "softmax does not see that"
)


def shifts(model: Model) -> set[str]:
    """What is added to every key as it is, neither turned nor normed: it adds the same number to
    all scores of a query.
    """
    found = set[str]()
    for name, stack in model.named_children():
        if not isinstance(stack, Layers):
            continue
        turned = any(isinstance(way.position, RopePosition) for way in stack.patterns)
        for path, part in stack.named_modules():
            if not isinstance(part, Attention) or part.core.cap is not None:
                continue
            if isinstance(part, CrossAttention) or not turned:
                last = "key" if isinstance(part.key_norm, nn.Identity) else "key_norm"
                found.add(f"{name}.{path}.{last}.bias")
    return found & {name for name, _ in model.named_parameters()}


ROWS = 3  # windows of text, of which the first is a part of its own


@dataclass(frozen=True)
class Lesson:
    """A task, one batch for it, and the same batch in parts of different size."""

    task: Task
    whole: Batch
    parts: tuple[Batch, ...]
    remark: str = ""


def lesson_for(model: Model, texts: Sequence[ProbeInput]) -> Lesson:
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
        return Lesson(EmbedTask(supervision="scores"), twins[0], (*twins[1:],), why)
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


def _numbered(texts: Sequence[ProbeInput]) -> list[Sequence[tuple[int, ProbeInput]]]:
    return _parted([*enumerate(texts)])


def _pairs(texts: Sequence[ProbeInput], start: Sequence[int]) -> PairBatch:
    sources, targets = [text.source for text in texts], [text.ids[1:] for text in texts]
    return PairBatch.of(sources, targets, start, end=0, pad=0)


def _labelled(part: Sequence[tuple[int, ProbeInput]], labels: Tensor) -> LabelledTexts:
    numbers = torch.tensor([number for number, _ in part])
    texts = PaddedBatch.of([text.ids for _, text in part], 0)
    return LabelledTexts(texts, labels[numbers], 0.5 + numbers.float())


def _twins(part: Sequence[tuple[int, ProbeInput]], texts: Sequence[ProbeInput]) -> Twins:
    """Each text and its neighbour; how alike they should be is as good as random."""
    one = PaddedBatch.of([text.ids for _, text in part], 0)
    other = PaddedBatch.of([texts[(number + 1) % len(texts)].ids for number, _ in part], 0)
    return Twins(one, other, scores=torch.tensor([(7 * n % 10) / 10 for n, _ in part]))


def _rows(model: Model, texts: Sequence[ProbeInput]) -> Windows:
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


Gradients = dict[str, Tensor | None]

TINY = 0.01  # of the largest gradient: what is smaller is compared with that


def find_sums(subject: ModelUnderTest, tolerance: float) -> Finding:
    model, tally = subject.model, DeviationTracker(tolerance)
    lesson = lesson_for(model, subject.inputs)
    whole, parts = (
        _gradients(model, lesson, batches) for batches in ([lesson.whole], lesson.parts)
    )
    if not whole or not parts:
        return Finding(math.inf, "the loss", "it is not a finite number")
    largest = max((float(g.abs().max()) for g in whole.values() if g is not None), default=0.0)
    nothing = shifts(model)  # but for rounding
    for name, gradient in whole.items():
        other = parts[name]
        if gradient is None or other is None:
            tally.add(0.0 if gradient is other else math.inf, name)
            continue
        least = largest * (1.0 if name in nothing else TINY)
        size = max(float(gradient.abs().max()), least) or 1.0
        tally.add(float((gradient - other).abs().max()) / size, name)
    sizes = " + ".join(str(part.targets) for part in lesson.parts)
    return tally.finding(f"{sizes} targets{', ' * bool(lesson.remark)}{lesson.remark}")


def find_missing(subject: ModelUnderTest, tolerance: float) -> Finding:
    """How many tensors of parameters receive none, or one that is not finite."""
    model = subject.model
    lesson = lesson_for(model, subject.inputs)
    found = _gradients(model, lesson, [lesson.whole])
    if not found:
        return Finding(math.inf, "the loss", "it is not a finite number")
    none = [name for name, gradient in found.items() if gradient is None or not gradient.any()]
    excused = shifts(model)
    missing = [name for name in none if name not in excused]
    rest = f"; {len(missing)} of {len(found)} tensors have none" if missing else ""
    excuse = SHIFTED if excused else ""
    place = missing[0] if missing else ""
    return Finding(float(len(missing)), place, f"{excuse}{rest}".removeprefix("; "))


def _gradients(model: Model, lesson: Lesson, batches: Sequence[Batch]) -> Gradients:
    """By parameter, after one step of the training loop; nothing if its loss is not finite."""
    device = model.embedding.weight.device
    with _ready(model):
        kept = Kept(model)
        trainer = Trainer(model, lesson.task.loss, [kept], Constant(), total=1, clip=math.inf)
        for _ in trainer.steps([[batch.to(device) for batch in batches]]):
            pass
    return kept.gradients


class Kept(torch.optim.Optimizer):
    """Takes no step, but keeps the gradients that there are to take it with."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__(model.parameters(), {"lr": 0.0})
        self.model, self.gradients = model, Gradients()

    def step(self, closure: Callable[[], Any] | None = None) -> None:  # type: ignore[override]
        self.gradients = {name: p.grad for name, p in self.model.named_parameters()}


@contextmanager
def _ready(model: Model) -> Iterator[None]:
    """Inside, every parameter learns and nothing is dropped at random; afterwards all is as was."""
    still = [part for part in model.modules() if isinstance(part, Dropout)]
    dropped, modes = [part.threshold for part in still], [m.training for m in model.modules()]
    learns = [parameter.requires_grad for parameter in model.parameters()]
    for part in still:
        part.threshold = 0
    model.requires_grad_(True)
    try:
        yield
    finally:
        for part, share in zip(still, dropped, strict=True):
            part.threshold = share
        for module, mode in zip(model.modules(), modes, strict=True):
            module.training = mode
        for parameter, did in zip(model.parameters(), learns, strict=True):
            parameter.requires_grad_(did)


def lacks(subject: ModelUnderTest) -> str:
    return subject.too_large_reason


ACCUMULATED = Check(
    "gradient accumulation = big batch",
    "the gradients of a batch in unequal parts add up to those of the whole batch",
    1e-3,
    find_sums,
    lacks,
)

GRADIENTS = Check(
    "every parameter receives a gradient",
    "no part of the model is cut off from what it is trained for",
    0.0,
    find_missing,
    lacks,
)
