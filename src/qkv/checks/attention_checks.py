"""Attention in every layer: fused = reference, and softmax rows sum to 1."""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from qkv.attention import AttentionSteps, reference
from qkv.checks.divergence import Divergence, ModuleNames, first_divergence
from qkv.checks.model_under_test import (
    IncrementalDecoder,
    ModelUnderTest,
    ProbeInput,
    context_length,
    forward,
)
from qkv.checks.result import Check, DeviationTracker, Finding
from qkv.engine import inference
from qkv.model import AttentionCore, Encoder, Model, StepsHook

MAX_LONG_POSITIONS = 300  # more than one block of the fused kernel


def measure_fused(subject: ModelUnderTest, tolerance: float) -> Finding:
    """Both kernels on the queries, keys, values and mask that each layer receives."""
    tracker = DeviationTracker(tolerance)

    def compare(
        variant: str, location: str, core: nn.Module, args: tuple[Any, ...], output: Tensor
    ) -> None:
        assert isinstance(core, AttentionCore)
        q, k, v, mask = args
        expected = {location: reference(q, k, v, mask, core.scale, core.cap).output}
        divergence = first_divergence(expected, {location: output}, tolerance)
        tracker.add(divergence.worst, divergence.describe(variant))

    for variant, model in subject.models():
        with inference(model), _hooked(model, AttentionCore, partial(compare, variant)):
            _run_all_paths(subject, model)
    return tracker.finding()


def measure_row_sums(subject: ModelUnderTest, tolerance: float) -> Finding:
    """The weights of every layer, head and query; zeros where a query may see nothing."""
    tracker = DeviationTracker(tolerance)

    def sum_rows(
        variant: str, location: str, hook: nn.Module, args: tuple[Any, ...], steps: AttentionSteps
    ) -> None:
        blind = (steps.masked == -torch.inf).all(dim=-1)
        expected = (~blind).float()
        deviation = (steps.weights.float().sum(dim=-1) - expected).abs().amax(dim=(0, 1))  # (T,)
        negative = float((-steps.weights.float()).clamp(min=0).max())
        worst = max(float(deviation.max()), negative)
        divergence = Divergence(worst, location, int(deviation.argmax()))
        tracker.add(divergence.worst, divergence.describe(variant))

    for variant, model in subject.models():
        with inference(model), _hooked(model, StepsHook, partial(sum_rows, variant)):
            _run_all_paths(subject, model)
    return tracker.finding()


def _run_all_paths(subject: ModelUnderTest, model: Model) -> None:
    """Every kind of call: a batch, a single text, one with a cache, and a long one."""
    inputs = subject.inputs
    first = inputs[0]
    forward(model, inputs)
    forward(model, [first])
    if not isinstance(model, Encoder):
        decoder = IncrementalDecoder(model, first)
        cache = decoder.empty_cache()
        half = len(first.ids) // 2
        for start, stop in ((0, half), (half, len(first.ids))):
            if stop > start:
                decoder.decode_span(start, stop, cache)
    if not subject.quick:
        forward(model, [_long_input(model, first)])


def _long_input(model: Model, text: ProbeInput) -> ProbeInput:
    """The text repeated up to the model's context length, with an upper limit."""
    length = min(MAX_LONG_POSITIONS, context_length(model))
    ids = (text.ids * length)[:length]
    source = (text.source * length)[:length]
    return replace(text, ids=ids, source=source)


@contextmanager
def _hooked(
    model: Model, module_type: type[nn.Module], observe: Callable[..., None]
) -> Iterator[None]:
    """Inside, `observe` is called after every forward of a module of this type."""
    names = ModuleNames(model)
    calls = Counter[str]()

    def hook(path: str, module: nn.Module, args: Any, output: Any) -> None:
        location = names.location(path, calls[path])
        calls[path] += 1
        observe(location.removesuffix(".hook_point"), module, args, output)

    with ExitStack() as hooks:
        for path, module in model.named_modules():
            if isinstance(module, module_type):
                hooks.callback(module.register_forward_hook(partial(hook, path)).remove)
        yield


FUSED = Check(
    name="fused = reference",
    invariant="in every layer the fused kernel computes what the definition of attention says",
    violation="the fused kernel does not compute what the definition of attention says",
    tolerance=1e-4,
    measure=measure_fused,
)
SOFTMAX = Check(
    name="softmax rows sum to 1",
    invariant="the weights of every query sum to 1, or are all 0 if it may see nothing",
    violation="the attention weights of a query do not sum to 1",
    tolerance=1e-5,
    measure=measure_row_sums,
)
