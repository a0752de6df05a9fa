"""Attention itself, layer by layer: fused = reference, and softmax rows sum to 1."""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from qkv.attention import AttentionSteps, reference
from qkv.checks.divergence import Divergence, Places, first_divergence
from qkv.checks.model_under_test import ModelUnderTest, ProbeInput, Writer, forward
from qkv.checks.result import Check, DeviationTracker, Finding
from qkv.engine.batching import inference
from qkv.model import AttentionCore, Encoder, Model, StepsHook

LONG = 300  # positions: more than the fused kernel takes at a time


def find_fused(subject: ModelUnderTest, tolerance: float) -> Finding:
    """Both kernels on the very queries, keys, values and mask that each layer gets."""
    tally = DeviationTracker(tolerance)

    def compare(
        which: str, place: str, mix: nn.Module, given: tuple[Any, ...], mixed: Tensor
    ) -> None:
        assert isinstance(mix, AttentionCore)
        q, k, v, mask = given
        right = {place: reference(q, k, v, mask, mix.scale, mix.cap).output}
        found = first_divergence(right, {place: mixed}, tolerance)
        tally.add(found.worst, found.told(which))

    for which, model in subject.models():
        with inference(model), _hooked(model, AttentionCore, partial(compare, which)):
            _exercise(subject, model)
    return tally.finding()


def find_rows(subject: ModelUnderTest, tolerance: float) -> Finding:
    """The weights of every layer, head and query; zeros where a query may see nothing."""
    tally = DeviationTracker(tolerance)

    def add_up(
        which: str, place: str, tap: nn.Module, given: tuple[Any, ...], steps: AttentionSteps
    ) -> None:
        blind = (steps.masked == -torch.inf).all(dim=-1)
        wanted = (~blind).float()
        gap = (steps.weights.float().sum(dim=-1) - wanted).abs().amax(dim=(0, 1))  # (T,)
        negative = float((-steps.weights.float()).clamp(min=0).max())
        found = Divergence(max(float(gap.max()), negative), place, int(gap.argmax()))
        tally.add(found.worst, found.told(which))

    for which, model in subject.models():
        with inference(model), _hooked(model, StepsHook, partial(add_up, which)):
            _exercise(subject, model)
    return tally.finding()


def _exercise(subject: ModelUnderTest, model: Model) -> None:
    """Every kind of call: texts side by side, one alone, one with a cache, and a long one."""
    texts = subject.inputs
    forward(model, texts)
    forward(model, texts[:1])
    if not isinstance(model, Encoder):
        writer, half = Writer(model, texts[0]), len(texts[0].ids) // 2
        cache = writer.empty_cache()
        for start, stop in ((0, half), (half, len(texts[0].ids))):
            if stop > start:
                writer.read(start, stop, cache)
    if not subject.quick:
        forward(model, [_long(model, texts[0])])


def _long(model: Model, text: ProbeInput) -> ProbeInput:
    """The text over and over, as long as the model reads but not without end."""
    most = min(
        LONG, model.config.context_length if isinstance(model, Encoder) else model.config.length
    )
    return replace(
        text, **{side: (getattr(text, side) * most)[:most] for side in ("ids", "source")}
    )


@contextmanager
def _hooked(model: Model, kind: type[nn.Module], look: Callable[..., None]) -> Iterator[None]:
    """Inside, every module of that kind is looked at whenever it answers."""
    places, calls = Places(model), Counter[str]()

    def hook(path: str, part: nn.Module, given: Any, value: Any) -> None:
        place = places.name(path, calls[path])
        calls[path] += 1
        look(place.removesuffix(".steps"), part, given, value)

    with ExitStack() as hooks:
        for path, part in model.named_modules():
            if isinstance(part, kind):
                hooks.callback(part.register_forward_hook(partial(hook, path)).remove)
        yield


FUSED = Check(
    "fused = reference",
    "in every layer the quick kernel gives what the definition of attention gives",
    1e-4,
    find_fused,
)
SOFTMAX = Check(
    "softmax rows sum to 1",
    "the weights of every query are shares; of a query that may see nothing they are 0",
    1e-5,
    find_rows,
)
