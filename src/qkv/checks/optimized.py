"""The optimized model computes what the model itself computes, and int8 is close to fp32."""

from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from qkv.checks.divergence import first_divergence, record_forwards, select_row
from qkv.checks.model_under_test import ModelUnderTest, ProbeInput, forward, pooled
from qkv.checks.result import Check, DeviationTracker, Finding
from qkv.engine import inference
from qkv.engine.optimized import int8_supported, optimize
from qkv.model import Model, PooledOutput, Translator


def measure_optimized(subject: ModelUnderTest, tolerance: float) -> Finding:
    inputs = subject.inputs
    optimized = subject.optimized
    assert optimized is not None
    tracker = DeviationTracker(tolerance)
    (expected,) = record_forwards(subject.model, partial(forward, subject.model, inputs))
    (actual,) = record_forwards(optimized, partial(forward, optimized, inputs))
    for b in range(len(inputs)):
        divergence = first_divergence(select_row(expected, b), select_row(actual, b), tolerance)
        tracker.add(divergence.worst, divergence.describe(f"text {b + 1}"))
    return tracker.finding()


def skip_optimized(subject: ModelUnderTest) -> str:
    if subject.too_large_reason:
        return subject.too_large_reason
    if subject.optimized is None:
        return "the model has no optimized form, so it runs itself"
    return ""


OPTIMIZED = Check(
    name="twin = model",
    invariant="the optimized model computes what the model itself computes",
    violation="the optimized model does not compute what the model itself computes",
    tolerance=1e-4,
    measure=measure_optimized,
    skip_reason=skip_optimized,
)


def measure_int8(subject: ModelUnderTest, tolerance: float) -> Finding:
    """1 − cosine of each text's vector, or of the centred logits of all its tokens."""
    model = subject.model
    quantized = optimize(model, int8=True)
    tracker = DeviationTracker(tolerance)
    same = 0
    count = 0
    largest = 0.0
    for number, text in enumerate(subject.inputs, start=1):
        with inference(model), inference(quantized):  # they share no modules
            expected = _direction(model, text).flatten()
            actual = _direction(quantized, text).flatten()
            output = forward(model, [text])
            quantized_output = forward(quantized, [text])
        cosine = float(F.cosine_similarity(expected, actual, dim=0))
        tracker.add(1.0 - cosine, f"output, text {number}")
        same += int((output.argmax(dim=-1) == quantized_output.argmax(dim=-1)).sum())
        count += output[..., 0].numel()
        largest = max(largest, float((output - quantized_output).abs().max()))
    remark = f"cosine {1.0 - tracker.worst:.4f} or more, outputs at most {largest:.2g} apart"
    if model.config.output.kind != "text_vector":  # a vector has no argmax
        remark += f"; {same} of {count} argmax predictions agree"
    tracker.remark = remark
    return tracker.finding(remark)


def _direction(model: Model, text: ProbeInput) -> Tensor:
    """The vector of a text, or its logits (1, T, V) without their mean, which softmax ignores."""
    if not isinstance(model, Translator) and isinstance(model.output, PooledOutput):
        return pooled(model, text).double()
    logits = forward(model, [text]).double()
    return logits - logits.mean(dim=-1, keepdim=True)


def skip_int8(subject: ModelUnderTest) -> str:
    if subject.too_large_reason:
        return subject.too_large_reason
    weight = subject.model.embedding.weight
    if weight.device.type != "cpu" or weight.dtype != torch.float32:
        return "int8 needs float32 weights on a CPU"
    if not int8_supported():
        return "torch has no int8 matrix product on this CPU"
    return ""


INT8 = Check(
    name="int8 close to fp32",
    invariant="outputs with int8 weights point in the same direction as those in float32",
    violation="outputs with int8 weights point in another direction than those in float32",
    tolerance=0.05,
    measure=measure_int8,
    skip_reason=skip_int8,
)
