"""A first proof that a model came over whole: two ways to compute one answer must agree."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from qkv.errors import BundleError
from qkv.model import Model, Translator
from qkv.model.attention import Tap

LENGTHS = (9, 4)  # of the two texts
TOLERANCE = 1e-3


@torch.inference_mode()
def self_test(model: Model) -> float:
    """The largest difference between the fused kernel and the reference, and between texts side by
    side and each text alone; in parts of the largest answer, or of 1 if that is less.

    Answers that are not finite or do not agree are an error.
    """
    config = model.config
    lengths = [min(n, config.length) for n in LENGTHS]
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(config.embedding.vocabulary, (2, max(lengths)), generator=generator)
    if isinstance(model, Translator) and model.config.source is not None:
        ids = ids % model.config.source.vocabulary
    ids, sizes = ids.to(model.embedding.weight.device), torch.tensor(lengths)
    together = _answers(model, ids, sizes)
    with _watched(model):
        watched = _answers(model, ids, sizes)
    alone = [_answers(model, ids[i : i + 1, :n], torch.tensor([n])) for i, n in enumerate(lengths)]
    whole = torch.cat([part.flatten() for part in together])
    if not bool(torch.isfinite(whole).all()):
        raise BundleError("the model's answers are not finite numbers; its weights are damaged")
    largest = max(1.0, float(whole.abs().max()))
    pairs = [*zip(together, watched, strict=True)]
    pairs += [(one, other[0]) for one, other in zip(together, alone, strict=True)]
    difference = max(float((a - b).abs().max()) for a, b in pairs) / largest
    if difference > TOLERANCE:
        raise BundleError(
            f"two ways to compute the model's answers differ by {difference:.1e}, where "
            f"{TOLERANCE:g} is allowed; do not trust this model"
        )
    return difference


def _answers(model: Model, ids: Tensor, lengths: Tensor) -> list[Tensor]:
    """What the model says of each text, where it is real."""
    if isinstance(model, Translator):
        said = model(ids, ids % model.config.embedding.vocabulary, lengths, lengths)
    else:
        said = model(ids, lengths)
    return [row[:n] if said.dim() == 3 else row for row, n in zip(said, lengths, strict=True)]


@contextmanager
def _watched(model: Model) -> Iterator[None]:
    """Inside, every attention runs through the reference kernel."""
    taps = [module for module in model.modules() if isinstance(module, Tap)]
    hooks = [tap.register_forward_hook(lambda module, given, steps: None) for tap in taps]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()
