"""What a text looks like without some of its words: nothing in their place, or a mask.

They are taken out unless a mask is asked for. A mask is known to a model that fills it in, but to
one that was trained further it is a word like others: in a classifier on all-MiniLM-L6-v2, [MASK]
for a word of two reviews raised the log-odds of the label by 0.2 to 0.3 on average, whichever word
it was, and taking one out moved them by less than 0.1. Two texts with masks become alike by them.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from qkv.attention import Mask
from qkv.engine.batching import PaddedBatch, batched_outputs, inference
from qkv.engine.translate import Marking
from qkv.interpret.attribution.faithfulness import Words
from qkv.interpret.attribution.gradients import Score
from qkv.interpret.attribution.words import Reading, TokenizedPair
from qkv.model import Encoder, Translator
from qkv.text import Tokenizer

# FOLDED explain/why/deletions: Answers to a text without some of its words; each set of words
#   is asked for once.
#
#   Occlusion and the tests of faithfulness ask for many of the same.
# FOLDED explain/why/asking: An encoder asked about one text: its answers without some words,
#   and its score along a path.
# FOLDED explain/why/ablation: How likely a translation is, token by token, when some words of
#   its source are hidden.


@dataclass(frozen=True)
class Removed:
    """Hidden tokens are left out, and what follows moves up; `nothing` is read if all are."""

    nothing: tuple[int, ...] = ()

    def without(self, ids: Sequence[int], hidden: Collection[int]) -> list[int]:
        """The ids as the model reads them when the tokens at these positions are hidden."""
        left = [id for at, id in enumerate(ids) if at not in hidden]
        return left or list(self.nothing)

    @property
    def said(self) -> str:
        return "it is taken out of the text"


@dataclass(frozen=True)
class Masked:
    """A mask token stands in the place of each hidden token."""

    id: int
    name: str

    @classmethod
    def of(cls, tokenizer: Tokenizer) -> "Masked":
        """With the tokenizer's own mask; refused if it has none."""
        return cls(tokenizer.mask_id, tokenizer.token(tokenizer.mask_id))

    def without(self, ids: Sequence[int], hidden: Collection[int]) -> list[int]:
        return [self.id if at in hidden else id for at, id in enumerate(ids)]

    @property
    def said(self) -> str:
        return f"{self.name} stands in for each of its tokens"


Hiding = Removed | Masked

REMOVE = Removed()

Answer = TypeVar("Answer")

CIRCULAR = "occlusion is a deletion itself, so deleting the first word it names only repeats it"


class DeletionCache(Generic[Answer]):
    """Calls `ask` with those sets that it has not met, all at once, and keeps what comes out."""

    def __init__(self, ask: Callable[[list[Words]], Sequence[Answer]]) -> None:
        self.ask = ask
        self.known: dict[Words, Answer] = {}

    def __call__(self, sets: Sequence[Words]) -> list[Answer]:
        new = [words for words in dict.fromkeys(sets) if words not in self.known]
        if new:
            self.known.update(zip(new, self.ask(new), strict=True))
        return [self.known[words] for words in sets]

    def full(self) -> Answer:
        """The answer to the whole text."""
        return self([frozenset()])[0]

    def one_by_one(self, words: int) -> list[Answer]:
        """The answers without each word by itself."""
        return self([frozenset({word}) for word in range(words)])


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
        return list(batched_outputs(self.model, ids).double().numpy())

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


SCORES = 2**25  # numbers held at a time

NumbersAblation = NDArray[np.float64]


@dataclass(frozen=True)
class ForcedDecoding:
    """A target that is not searched for but read, whatever is left of its source."""

    model: Translator
    marking: Marking
    pair: TokenizedPair

    def without(self, sets: list[Words]) -> list[NumbersAblation]:
        """log p of each target word when these source words are hidden, for each set: (words,)."""
        end = self.marking.after or (self.marking.end,)  # an empty source still has its end
        hiding, source = Removed(tuple(end)), self.pair.source
        texts = [hiding.without(source.ids, source.places(words)) for words in sets]
        logs = forced_log_probs(self.model, self.marking, texts, self.pair.ids)
        return [np.array([row[list(word.at)].sum() for word in self.pair.words]) for row in logs]


def forced_log_probs(
    model: Translator,
    marking: Marking,
    sources: Sequence[Sequence[int]],
    target: Sequence[int],
) -> NumbersAblation:
    """log p of each token of one target for each of these marked sources, (N, T)."""
    found = np.zeros((len(sources), len(target)))
    if not target:
        return found
    device, start = model.embedding.weight.device, len(marking.start) - 1
    read = torch.tensor([*marking.start, *target][: start + len(target)], device=device)
    chosen = torch.tensor(target, device=device)
    at_once = max(1, SCORES // (len(read) * model.config.embedding.vocabulary))
    with inference(model):
        for first in range(0, len(sources), at_once):
            texts = PaddedBatch.of(sources[first : first + at_once], pad=0).to(device)
            written = read.expand(len(texts.ids), -1)
            scores = model(texts.ids, written, texts.lengths)[:, start:]
            logs = scores.double().log_softmax(dim=-1)
            picked = logs.gather(-1, chosen.expand(len(logs), -1)[..., None])[..., 0]
            found[first : first + at_once] = picked.cpu().numpy()
    return found
