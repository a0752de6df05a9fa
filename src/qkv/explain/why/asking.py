"""An encoder asked about one text: its answers without some words, and its score along a path."""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from qkv.attention import Mask
from qkv.engine.answer import answers
from qkv.explain.why.faithfulness import Words
from qkv.explain.why.gradients import Score
from qkv.explain.why.hiding import Hiding
from qkv.explain.why.words import Reading
from qkv.model import Encoder

Numbers = NDArray[np.float64]


@dataclass(frozen=True)
class Asked:
    """The model, the text as it reads it, and how words of it are hidden."""

    model: Encoder
    text: Reading
    hiding: Hiding

    def without(self, sets: list[Words]) -> list[Numbers]:
        """What the model answers without each set of words."""
        ids = [self.hiding.without(self.text.ids, self.text.places(words)) for words in sets]
        return list(answers(self.model, ids).double().numpy())

    def embedded(self, ids: list[int] | tuple[int, ...]) -> Tensor:
        """What the first layer reads of these ids but for positions, (T, D)."""
        device = self.model.embedding.weight.device
        with torch.no_grad():
            x: Tensor = self.model.embedding(torch.tensor([ids], device=device))[0]
        return x

    def log_odds_of(self, label: int) -> Score:
        """From embeddings (B, T, D) to the log-odds of a label."""

        def score(x: Tensor) -> Tensor:
            lengths = torch.full((len(x),), x.shape[1], device=x.device)
            states = self.model.encoder(x, Mask.full())
            scores = self.model.output(states, lengths, self.model.embedding.weight).double()
            return log_odds(scores, label)

        return score


def log_odds(scores: Tensor, label: int) -> Tensor:
    """log p − log (1 − p) of one of the labels, from the scores (..., labels) of all."""
    others = [i for i in range(scores.shape[-1]) if i != label]
    return scores[..., label] - scores[..., others].logsumexp(dim=-1)
