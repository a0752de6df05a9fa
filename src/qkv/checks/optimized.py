"""Twin = model: the arrangement that answers gives what the model itself gives."""

from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from qkv.checks.divergence import parting, passed, row
from qkv.checks.model_under_test import Reading, Subject, ask, pooled
from qkv.checks.result import Check, Finding, Tally
from qkv.engine.batching import inference
from qkv.engine.optimized import int8_supported, optimize
from qkv.model import Model, Translator
from qkv.model.output import Pooled

# FOLDED check/int8: int8 close to fp32: how far answers in 8 bits are from those of the model
#   itself.


def find_optimized(subject: Subject, tolerance: float) -> Finding:
    twin, texts, tally = subject.twin, subject.readings, Tally(tolerance)
    assert twin is not None
    (right,) = passed(subject.model, partial(ask, subject.model, texts))
    (other,) = passed(twin, partial(ask, twin, texts))
    for b in range(len(texts)):
        found = parting(row(right, b), row(other, b), tolerance)
        tally.add(found.worst, found.told(f"text {b + 1}"))
    return tally.finding()


def lacks_optimized(subject: Subject) -> str:
    if subject.too_large:
        return subject.too_large
    return "" if subject.twin is not None else "the model answers itself"


TWIN = Check(
    "twin = model",
    "the twin that answers sooner gives what the model gives",
    1e-4,
    find_optimized,
    lacks_optimized,
)


def find_int8(subject: Subject, tolerance: float) -> Finding:
    """1 − cosine of each text's vector, or of the scores of all its tokens, less their mean."""
    model, tally = subject.model, Tally(tolerance)
    twin = optimize(model, int8=True)
    same, largest, count = 0, 0.0, 0
    for number, text in enumerate(subject.readings, start=1):
        with inference(model), inference(twin):  # each has parts of its own
            right, other = _vector(model, text), _vector(twin, text)
            first, again = ask(model, [text]), ask(twin, [text])
        cosine = float(F.cosine_similarity(right.flatten(), other.flatten(), dim=0))
        tally.add(1.0 - cosine, f"output, text {number}")
        same += int((first.argmax(dim=-1) == again.argmax(dim=-1)).sum())
        count += first[..., 0].numel()
        largest = max(largest, float((first - again).abs().max()))
    agreed = f"; {same} of {count} first choices are the same" if _chooses(model) else ""
    remark = f"cosine {1.0 - tally.worst:.4f} or more, numbers at most {largest:.2g} apart{agreed}"
    tally.remark = remark
    return tally.finding(remark)


def _vector(model: Model, text: Reading) -> Tensor:
    if not isinstance(model, Translator) and isinstance(model.output, Pooled):
        return pooled(model, text).double()
    scores = ask(model, [text]).double()  # (1, T, V)
    return scores - scores.mean(dim=-1, keepdim=True)  # what all have in common says nothing


def _chooses(model: Model) -> bool:
    """Whether its answers are scores of which the largest counts."""
    return model.config.output.kind != "text_vector"


def lacks(subject: Subject) -> str:
    if subject.too_large:
        return subject.too_large
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
