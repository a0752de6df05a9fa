"""How likely a translation is, token by token, when some words of its source are hidden."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from qkv.engine.answering import answering
from qkv.engine.texts import Texts
from qkv.engine.translate import Marking
from qkv.explain.why.faithfulness import Words
from qkv.explain.why.hiding import Removed
from qkv.explain.why.pairing import Pairing
from qkv.model import Translator

SCORES = 2**25  # numbers held at a time

Numbers = NDArray[np.float64]


@dataclass(frozen=True)
class Forced:
    """A target that is not searched for but read, whatever is left of its source."""

    model: Translator
    marking: Marking
    pair: Pairing

    def without(self, sets: list[Words]) -> list[Numbers]:
        """log p of each target word when these source words are hidden, for each set: (words,)."""
        end = self.marking.after or (self.marking.end,)  # an empty source still has its end
        hiding, source = Removed(tuple(end)), self.pair.source
        texts = [hiding.without(source.ids, source.places(words)) for words in sets]
        logs = forced_logs(self.model, self.marking, texts, self.pair.ids)
        return [np.array([row[list(word.at)].sum() for word in self.pair.words]) for row in logs]


def forced_logs(
    model: Translator,
    marking: Marking,
    sources: Sequence[Sequence[int]],
    target: Sequence[int],
) -> Numbers:
    """log p of each token of one target for each of these marked sources, (N, T)."""
    found = np.zeros((len(sources), len(target)))
    if not target:
        return found
    device, start = model.embedding.weight.device, len(marking.start) - 1
    read = torch.tensor([*marking.start, *target][: start + len(target)], device=device)
    chosen = torch.tensor(target, device=device)
    at_once = max(1, SCORES // (len(read) * model.config.embedding.vocabulary))
    with answering(model):
        for first in range(0, len(sources), at_once):
            texts = Texts.of(sources[first : first + at_once], pad=0).to(device)
            written = read.expand(len(texts.ids), -1)
            scores = model(texts.ids, written, texts.lengths)[:, start:]
            logs = scores.double().log_softmax(dim=-1)
            picked = logs.gather(-1, chosen.expand(len(logs), -1)[..., None])[..., 0]
            found[first : first + at_once] = picked.cpu().numpy()
    return found
