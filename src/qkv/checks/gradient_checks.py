"""Gradients in training: accumulated micro-batches equal one batch, and no gradient is missing.

The gradients are those of the training loop itself, with an optimizer that takes no step. The task
is the one the model would be trained for; its batches have synthetic targets, but are built by the
code that builds those of real training.
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
from qkv.checks.result import Check, DeviationTracker, Finding, first_or_empty
from qkv.data import TokenizedTexts
from qkv.engine import PaddedBatch
from qkv.model import (
    Attention,
    Classify,
    CrossAttention,
    Decoder,
    Dropout,
    Layers,
    MaskedToken,
    Model,
    TextVector,
    Translator,
)
from qkv.model.position import RopePosition
from qkv.training import Constant, Trainer
from qkv.training.tasks import (
    Batch,
    ClassifyTask,
    ContrastiveBatch,
    EmbedTask,
    LabelledBatch,
    LanguageTask,
    MaskedBatch,
    MaskedTask,
    Task,
    TranslateTask,
    TranslationBatch,
    Windows,
    windows,
)

ROWS = 3  # windows of text, of which the first is a micro-batch of its own
MIN_SCALE = 0.01  # of the largest gradient: smaller ones are compared relative to that
NOT_FINITE = "it is not a finite number"
KEY_BIAS_EXEMPTION = (
    "the biases of keys have none by construction: they change all scores of a row alike, and "
    "softmax does not see that"
)

Gradients = dict[str, Tensor | None]  # by parameter


def key_biases_without_gradient(model: Model) -> set[str]:
    """Biases that add the same number to all scores of a query, which softmax ignores.

    That is so if keys are neither rotated by RoPE nor normalized after the bias was added, and the
    scores are not soft-capped.
    """
    names = set[str]()
    for name, stack in model.named_children():
        if not isinstance(stack, Layers):
            continue
        rotated = any(isinstance(pattern.position, RopePosition) for pattern in stack.patterns)
        for path, module in stack.named_modules():
            if not isinstance(module, Attention) or module.core.cap is not None:
                continue
            if isinstance(module, CrossAttention) or not rotated:
                last = "key" if isinstance(module.key_norm, nn.Identity) else "key_norm"
                names.add(f"{name}.{path}.{last}.bias")
    return names & {name for name, _ in model.named_parameters()}


@dataclass(frozen=True)
class SyntheticBatch:
    """A task, one batch for it, and the same batch as micro-batches of different sizes."""

    task: Task
    full: Batch
    micro_batches: tuple[Batch, ...]
    remark: str = ""


def synthetic_batch(model: Model, inputs: Sequence[ProbeInput]) -> SyntheticBatch:
    """A batch for the task that the model would be trained for."""
    output = model.config.output
    batches: list[Any]
    task: Task
    remark = ""
    if isinstance(model, Translator):
        task = TranslateTask()
        start = inputs[0].ids[:1]
        batches = [_pair_batch(group, start) for group in _split(inputs)]
    elif isinstance(output, Classify):
        task = ClassifyTask()
        labels = torch.arange(len(inputs)) % len(output.labels)
        batches = [_labelled_batch(group, labels) for group in _split([*enumerate(inputs)])]
    elif isinstance(output, TextVector):
        task = EmbedTask(supervision="scores")
        batches = [_similarity_batch(group, inputs) for group in _split([*enumerate(inputs)])]
        remark = "by scores: contrast compares the texts of a batch, which no parts can equal"
    else:
        rows = _pack_windows(model, inputs)
        slices = (slice(None), slice(0, 1), slice(1, None))
        batches = [_select_rows(rows, each) for each in slices]
        if isinstance(model, Decoder) and not isinstance(output, MaskedToken):
            task = LanguageTask()
        else:
            task = MaskedTask()
            batches = [_masked_batch(batch) for batch in batches]
    return SyntheticBatch(task, batches[0], tuple(batches[1:]), remark)


def _split(inputs: Sequence[Any]) -> list[Sequence[Any]]:
    """All of them, then the same in two groups, of which the first has a single one."""
    if len(inputs) == 1:
        return [inputs, inputs]
    return [inputs, inputs[:1], inputs[1:]]


def _pair_batch(inputs: Sequence[ProbeInput], start: Sequence[int]) -> TranslationBatch:
    sources = [text.source for text in inputs]
    targets = [text.ids[1:] for text in inputs]
    return TranslationBatch.of(sources, targets, start, end=0, pad=0)


def _labelled_batch(group: Sequence[tuple[int, ProbeInput]], labels: Tensor) -> LabelledBatch:
    numbers = torch.tensor([number for number, _ in group])
    texts = PaddedBatch.of([text.ids for _, text in group], 0)
    weights = 0.5 + numbers.float()  # all different: an unweighted mean would be noticed
    return LabelledBatch(texts, labels[numbers], weights)


def _similarity_batch(
    group: Sequence[tuple[int, ProbeInput]], inputs: Sequence[ProbeInput]
) -> ContrastiveBatch:
    """Each text and the next one, with an arbitrary similarity as the target."""
    texts = PaddedBatch.of([text.ids for _, text in group], 0)
    neighbours = [inputs[(number + 1) % len(inputs)].ids for number, _ in group]
    similarities = torch.tensor([(7 * number % 10) / 10 for number, _ in group])
    return ContrastiveBatch(texts, PaddedBatch.of(neighbours, 0), scores=similarities)


def _pack_windows(model: Model, inputs: Sequence[ProbeInput]) -> Windows:
    """The texts packed into windows of equal length."""
    ids = [text.ids for text in inputs]
    # Every window needs a few tokens, and the stream one more, the target of the last.
    while sum(map(len, ids)) < 4 * ROWS:
        ids = ids * 2
    stream = TokenizedTexts.of(ids, model.config.embedding.vocabulary)
    length = min(model.config.length, (len(stream.ids) - 1) // ROWS)
    return windows(stream, np.arange(ROWS) * length, length)


def _select_rows(batch: Windows, rows: slice) -> Windows:
    documents = None if batch.documents is None else batch.documents[rows]
    positions = None if batch.positions is None else batch.positions[rows]
    return Windows(batch.ids[rows], batch.targets[rows], documents, positions)


def _masked_batch(batch: Windows) -> MaskedBatch:
    """Every third token of each row is a target; it is not masked, only predicted."""
    flat = torch.arange(batch.ids.numel())
    positions = flat[flat % batch.ids.shape[1] % 3 == 0]
    return MaskedBatch(batch, positions, batch.ids.flatten()[positions])


def measure_accumulation(subject: ModelUnderTest, tolerance: float) -> Finding:
    """The largest difference of a gradient, relative to the size of gradients."""
    model = subject.model
    batch = synthetic_batch(model, subject.inputs)
    full = _gradients(model, batch.task, [batch.full])
    accumulated = _gradients(model, batch.task, batch.micro_batches)
    if not full or not accumulated:
        return Finding(math.inf, "the loss", NOT_FINITE)
    tracker = DeviationTracker(tolerance)
    largest = max((float(g.abs().max()) for g in full.values() if g is not None), default=0.0)
    exempt = key_biases_without_gradient(model)  # these are rounding noise only
    for name, gradient in full.items():
        other = accumulated[name]
        if gradient is None or other is None:
            if gradient is not other:  # one of them is missing
                tracker.add(math.inf, name)
            continue
        # Tiny gradients are mostly rounding error, so these are not compared with themselves.
        min_scale = largest * MIN_SCALE
        if name in exempt:
            min_scale = largest
        scale = max(float(gradient.abs().max()), min_scale) or 1.0
        tracker.add(float((gradient - other).abs().max()) / scale, name)
    sizes = " + ".join(str(part.num_targets) for part in batch.micro_batches)
    return tracker.finding(", ".join(filter(None, (f"{sizes} targets", batch.remark))))


def measure_missing(subject: ModelUnderTest, tolerance: float) -> Finding:
    """How many parameter tensors receive no gradient."""
    model = subject.model
    batch = synthetic_batch(model, subject.inputs)
    gradients = _gradients(model, batch.task, [batch.full])
    if not gradients:
        return Finding(math.inf, "the loss", NOT_FINITE)
    exempt = key_biases_without_gradient(model)
    missing = []
    for name, gradient in gradients.items():
        if name not in exempt and (gradient is None or not gradient.any()):
            missing.append(name)
    remarks = []
    if exempt:
        remarks.append(KEY_BIAS_EXEMPTION)
    if missing:
        remarks.append(f"{len(missing)} of {len(gradients)} tensors have none")
    return Finding(float(len(missing)), first_or_empty(missing), "; ".join(remarks))


def _gradients(model: Model, task: Task, batches: Sequence[Batch]) -> Gradients:
    """The gradients of one step of the training loop; empty if its loss is not finite."""
    device = model.embedding.weight.device
    with _prepared_for_backward(model):
        capture = GradientCapture(model)
        # clip=inf: gradients are measured, but not scaled down.
        trainer = Trainer(model, task.loss, [capture], Constant(), total=1, clip=math.inf)
        for _ in trainer.steps([[batch.to(device) for batch in batches]]):
            pass
    return capture.gradients


class GradientCapture(torch.optim.Optimizer):
    """An optimizer that takes no step, but keeps the gradients it was to take it with."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__(model.parameters(), {"lr": 0.0})
        self.model = model
        self.gradients = Gradients()

    def step(self, closure: Callable[[], Any] | None = None) -> None:  # type: ignore[override]
        self.gradients = {name: p.grad for name, p in self.model.named_parameters()}


@contextmanager
def _prepared_for_backward(model: Model) -> Iterator[None]:
    """Inside, no parameter has a gradient, all are trainable and dropout is off.

    Afterwards all is as before, gradients included.
    """
    dropouts = [module for module in model.modules() if isinstance(module, Dropout)]
    thresholds = [module.threshold for module in dropouts]
    modes = [module.training for module in model.modules()]
    trainable = [parameter.requires_grad for parameter in model.parameters()]
    gradients = [parameter.grad for parameter in model.parameters()]
    # A backward pass adds to existing gradients in place, and training may have left some.
    model.zero_grad(set_to_none=True)
    for dropout in dropouts:
        dropout.threshold = 0
    model.requires_grad_(True)
    try:
        yield
    finally:
        for dropout, threshold in zip(dropouts, thresholds, strict=True):
            dropout.threshold = threshold
        for module, mode in zip(model.modules(), modes, strict=True):
            module.training = mode
        for parameter, requires_grad in zip(model.parameters(), trainable, strict=True):
            parameter.requires_grad_(requires_grad)
        for parameter, gradient in zip(model.parameters(), gradients, strict=True):
            parameter.grad = gradient


def skip_gradients(subject: ModelUnderTest) -> str:
    return subject.too_large_reason


ACCUMULATED = Check(
    name="gradient accumulation = big batch",
    invariant="the gradients of micro-batches of unequal size add up to those of the batch",
    violation="the gradients of micro-batches do not add up to those of the batch",
    tolerance=1e-3,
    measure=measure_accumulation,
    skip_reason=skip_gradients,
)

GRADIENTS = Check(
    name="every parameter receives a gradient",
    invariant="no part of the model is disconnected from the loss",
    violation="a parameter receives no gradient from the loss",
    tolerance=0.0,
    measure=measure_missing,
    skip_reason=skip_gradients,
)
