"""What training does with gradients: parts of a batch add up to it, and none is missing.

The gradients are those of the training loop itself; only the step at the end is left out.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from qkv.check.excused import SHIFTED, shifts
from qkv.check.lesson import Lesson, lesson_for
from qkv.check.report import Check, Finding, Tally
from qkv.check.subject import Subject
from qkv.model import Model
from qkv.model.dropout import Dropout
from qkv.task.task import Batch
from qkv.train.loop import Trainer
from qkv.train.schedule import Constant

Gradients = dict[str, Tensor | None]
TINY = 0.01  # of the largest gradient: what is smaller is compared with that


def find_sums(subject: Subject, tolerance: float) -> Finding:
    model, tally = subject.model, Tally(tolerance)
    lesson = lesson_for(model, subject.readings)
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


def find_missing(subject: Subject, tolerance: float) -> Finding:
    """How many tensors of parameters receive none, or one that is not finite."""
    model = subject.model
    lesson = lesson_for(model, subject.readings)
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
    dropped, modes = [part.dropped for part in still], [m.training for m in model.modules()]
    learns = [parameter.requires_grad for parameter in model.parameters()]
    for part in still:
        part.dropped = 0
    model.requires_grad_(True)
    try:
        yield
    finally:
        for part, share in zip(still, dropped, strict=True):
            part.dropped = share
        for module, mode in zip(model.modules(), modes, strict=True):
            module.training = mode
        for parameter, did in zip(model.parameters(), learns, strict=True):
            parameter.requires_grad_(did)


def lacks(subject: Subject) -> str:
    return subject.too_large


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
