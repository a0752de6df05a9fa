"""Why this token rather than that one: the words of a prompt that set the two apart.

Asked of one token alone, an explanation mostly finds what makes any token likely; asked of the
difference of two it finds what decides between them (Yin and Neubig 2022, "Interpreting Language
Models with Contrastive Explanations"). The difference of their scores is log p(this) ÷ p(that).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from qkv.attention import Mask
from qkv.engine.answering import answering
from qkv.engine.generate.reading import last_scores
from qkv.explain.why.faithfulness import Words
from qkv.explain.why.gradients import gradient_times_input, with_slopes
from qkv.explain.why.hiding import Removed
from qkv.explain.why.words import Reading
from qkv.model import Decoder

TOKENS = 4096  # that are read at a time


@dataclass(frozen=True)
class Contrast:
    """Two tokens that might follow a prompt: `token` rather than `against`."""

    model: Decoder
    prompt: Reading
    hiding: Removed
    token: int
    against: int

    def without(self, sets: list[Words]) -> list[float]:
        """The difference of the two scores when these words are hidden, for each set."""
        texts = [self.hiding.without(self.prompt.ids, self.prompt.places(words)) for words in sets]
        scores = scores_after(self.model, texts, 1 + max(self.token, self.against))
        return [float(row[self.token] - row[self.against]) for row in scores]

    def slopes(self) -> NDArray[np.float64]:
        """The difference's slope in each position of the prompt times its embedding, (T,)."""
        model = self.model
        with with_slopes(model):
            ids = torch.tensor([self.prompt.ids], device=model.embedding.weight.device)
            return gradient_times_input(self.difference, model.embedding(ids)[0].detach())

    def difference(self, x: Tensor) -> Tensor:
        """From embeddings (B, T, D) to the difference of the two scores after the last, (B,)."""
        states = self.model.decoder(x, Mask.causal())
        scores = last_scores(self.model, states, 1 + max(self.token, self.against)).double()
        return scores[:, self.token] - scores[:, self.against]


def scores_after(
    model: Decoder, texts: Sequence[Sequence[int]], vocabulary: int
) -> NDArray[np.float64]:
    """The scores of the token that follows each text, (N, V); texts of like length go together."""
    lengths = np.array([len(text) for text in texts])
    found = np.zeros((len(texts), vocabulary))
    rest = np.argsort(-lengths, kind="stable")
    with answering(model):
        while len(rest):
            batch, rest = np.split(rest, [max(1, TOKENS // int(lengths[rest[0]]))])
            ids = torch.zeros(len(batch), int(lengths[batch[0]]), dtype=torch.long)
            for row, at in zip(ids, batch, strict=True):
                row[: lengths[at]] = torch.tensor(texts[at])
            states = model.states(ids.to(model.embedding.weight.device))  # none sees what follows
            last = states[torch.arange(len(batch)), torch.from_numpy(lengths[batch] - 1)]
            found[batch] = last_scores(model, last[:, None], vocabulary).double().cpu().numpy()
    return found
