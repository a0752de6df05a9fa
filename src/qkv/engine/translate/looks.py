"""How much each target token looked at each source token: the cross attention of one layer.

The decoder reads the finished target once, and the weights are the mean over the layer's heads.
The layer before the last aligns best as a rule (Garg et al. 2019, "Jointly Learning to Align and
Translate with Transformer Models"). A row of weights is the look taken when its token was chosen.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from qkv.attention import Steps
from qkv.engine.answering import answering
from qkv.engine.translate.marking import Marking
from qkv.errors import UsageError
from qkv.model import Translator


def aligning_layer(model: Translator, asked: int | None = None) -> int:
    """The number of the layer that is asked for, from 0 or, if negative, from behind."""
    layers = model.config.decoder.layers
    if asked is None:
        return max(0, layers - 2)
    if not -layers <= asked < layers:
        raise UsageError(f"layer={asked} does not exist; the decoder has 0 to {layers - 1}")
    return asked % layers


def cross_weights(
    model: Translator, marking: Marking, source: Sequence[int], target: Sequence[int], layer: int
) -> Tensor:
    """How much each target token looked at each source token, both without marks: (T, S)."""
    seen: list[Tensor] = []

    def keep(tap: object, given: object, steps: Steps) -> None:
        seen.append(steps.weights)

    blocks = list(model.decoder.blocks())
    turns = [i for i, block in enumerate(blocks) if block is blocks[layer]]  # layers may share one
    hook = blocks[layer].get_submodule("cross.mix.steps").register_forward_hook(keep)
    try:
        with answering(model):
            device = model.embedding.weight.device
            read = torch.tensor([marking.source(source)], device=device)
            written = torch.tensor([[*marking.start, *target]], device=device)
            model.states(written, model.encode(read))
    finally:
        hook.remove()
    weights = seen[turns.index(layer)][0].float().mean(dim=0)  # (T, S), marks included
    first, before = len(marking.start) - 1, len(marking.before)
    return weights[first : first + len(target), before : before + len(source)].cpu()
