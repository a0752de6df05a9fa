"""Twin = model: the arrangement that answers gives what the model itself gives."""

from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from qkv.checks.divergence import first_divergence, record_forwards, select_row
from qkv.checks.model_under_test import ModelUnderTest, ProbeInput, forward, pooled
from qkv.checks.result import Check, DeviationTracker, Finding
from qkv.engine.batching import inference
from qkv.engine.optimized import int8_supported, optimize
from qkv.model import Model, Translator
from qkv.model.output import PooledOutput

# FOLDED check/int8: int8 close to fp32: how far answers in 8 bits are from those of the model
#   itself.


def find_optimized(subject: ModelUnderTest, tolerance: float) -> Finding:
    twin, texts, tally = subject.optimized, subject.inputs, DeviationTracker(tolerance)
    assert twin is not None
    (right,) = record_forwards(subject.model, partial(forward, subject.model, texts))
    (other,) = record_forwards(twin, partial(forward, twin, texts))
    for b in range(len(texts)):
        found = first_divergence(select_row(right, b), select_row(other, b), tolerance)
        tally.add(found.worst, found.told(f"text {b + 1}"))
    return tally.finding()


def lacks_optimized(subject: ModelUnderTest) -> str:
    if subject.too_large_reason:
        return subject.too_large_reason
    return "" if subject.optimized is not None else "the model answers itself"


TWIN = Check(
    "twin = model",
    "the twin that answers sooner gives what the model gives",
    1e-4,
    find_optimized,
    lacks_optimized,
)


def find_int8(subject: ModelUnderTest, tolerance: float) -> Finding:
    """1 − cosine of each text's vector, or of the scores of all its tokens, less their mean."""
    model, tally = subject.model, DeviationTracker(tolerance)
    twin = optimize(model, int8=True)
    same, largest, count = 0, 0.0, 0
    for number, text in enumerate(subject.inputs, start=1):
        with inference(model), inference(twin):  # each has parts of its own
            right, other = _vector(model, text), _vector(twin, text)
            first, again = forward(model, [text]), forward(twin, [text])
        cosine = float(F.cosine_similarity(right.flatten(), other.flatten(), dim=0))
        tally.add(1.0 - cosine, f"output, text {number}")
        same += int((first.argmax(dim=-1) == again.argmax(dim=-1)).sum())
        count += first[..., 0].numel()
        largest = max(largest, float((first - again).abs().max()))
    agreed = f"; {same} of {count} first choices are the same" if _chooses(model) else ""
    remark = f"cosine {1.0 - tally.worst:.4f} or more, numbers at most {largest:.2g} apart{agreed}"
    tally.remark = remark
    return tally.finding(remark)


def _vector(model: Model, text: ProbeInput) -> Tensor:
    if not isinstance(model, Translator) and isinstance(model.output, PooledOutput):
        return pooled(model, text).double()
    scores = forward(model, [text]).double()  # (1, T, V)
    return scores - scores.mean(dim=-1, keepdim=True)  # what all have in common says nothing


def _chooses(model: Model) -> bool:
    """Whether its answers are scores of which the largest counts."""
    return model.config.output.kind != "text_vector"


def lacks(subject: ModelUnderTest) -> str:
    if subject.too_large_reason:
        return subject.too_large_reason
    table = subject.model.embedding
    if table.weight.device.type != "cpu" or table.weight.dtype != torch.float32:
        return "8 bits need float32 weights on a CPU"
    return "" if int8_supported() else "torch does not multiply in 8 bits on this CPU"


INT8 = Check(
    "int8 close to fp32",
    "answers in 8 bits point the same way as those in float32",
    0.05,
    find_int8,
    lacks,
)
