"""What an encoder says of many texts: grouped by length, computed, and put back in order."""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from qkv.data.grouping import near_length
from qkv.engine.answering import answering
from qkv.engine.texts import Texts
from qkv.model import Encoder

TOKENS = 4096  # computed at a time


def answers(model: Encoder, texts: Sequence[ArrayLike], pad: int, budget: int = TOKENS) -> Tensor:
    """The model's answer for each text, in their order, whatever stands beside them: (N, …)."""
    device = model.embedding.weight.device
    lengths = np.array([[max(1, len(np.asarray(text)))] for text in texts])
    batches = near_length(lengths, budget, np.random.default_rng(0))
    found = []
    with answering(model):
        for batch in batches:
            side = Texts.of([texts[i] for i in batch], pad).to(device)
            found.append(model(side.ids, side.lengths).float().cpu())
    back = torch.from_numpy(np.concatenate(batches).argsort())
    return torch.cat(found)[back]
