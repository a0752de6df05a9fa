"""Where a model looked: the attention each position received. It is no reason for anything.

Weights can be changed a great deal without changing an answer (Jain and Wallace 2019, "Attention is
not Explanation"), so they stand beside an explanation and are tested like one.
"""

import numpy as np
import torch
from numpy.typing import NDArray

from qkv.attention import Steps
from qkv.engine.answering import answering
from qkv.model import Encoder

LOOKED = "attention is where the model looked, not why it answered so"


def attention_received(model: Encoder, ids: tuple[int, ...]) -> NDArray[np.float64]:
    """The share of all looks that each position got, over layers, heads and positions: (T,)."""
    seen: list[NDArray[np.float64]] = []

    def keep(tap: object, given: object, steps: Steps) -> None:
        seen.append(np.asarray(steps.weights[0].double().mean(dim=(0, 1)).cpu().numpy()))

    blocks = {id(block): block for block in model.encoder.blocks()}.values()
    taps = [block.get_submodule("attention.mix.steps") for block in blocks]
    hooks = [tap.register_forward_hook(keep) for tap in taps]
    try:
        with answering(model):
            model.encode(torch.tensor([ids], device=model.embedding.weight.device))
    finally:
        for hook in hooks:
            hook.remove()
    return np.asarray(np.mean(seen, axis=0))
