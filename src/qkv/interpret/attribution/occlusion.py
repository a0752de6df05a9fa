"""Occlusion: the output of a model when some words of its input are hidden.

Hidden words are removed unless a mask token is asked for. To a masked language model a mask token
means "something is missing", but to a fine-tuned model it is a word like any other: in a
classifier on all-MiniLM-L6-v2, [MASK] for any word of two reviews raised the log-odds of the label
by 0.2 to 0.3 on average, while removing one moved them by less than 0.1. And two texts with masks
become similar because of them.

Occlusion and the faithfulness tests need many of the same outputs, so these are cached by the set
of hidden words.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np
import torch
from torch import Tensor

from qkv.attention import Mask
from qkv.engine import batched_outputs
from qkv.engine.translate import TranslationTemplate, forced_log_probs
from qkv.interpret.attribution.faithfulness import FloatArray, WordSet
from qkv.interpret.attribution.gradients import Objective
from qkv.interpret.attribution.words import TokenizedPair, TokenizedText
from qkv.model import Encoder, Translator
from qkv.text import Tokenizer

OCCLUSION_CAVEAT = (
    "occlusion is a deletion itself, so deleting the first word it names only repeats it"
)


@dataclass(frozen=True)
class RemoveTokens:
    """Hidden tokens are removed and the rest moves up; `empty` is read if none are left."""

    empty: tuple[int, ...] = ()

    def apply(self, ids: Sequence[int], positions: Collection[int]) -> list[int]:
        """The input ids with the tokens at these positions hidden."""
        visible = [id for at, id in enumerate(ids) if at not in positions]
        return visible or list(self.empty)

    @property
    def description(self) -> str:
        return "the word is removed from the text"


@dataclass(frozen=True)
class MaskTokens:
    """A mask token replaces each hidden token."""

    id: int
    token: str

    @classmethod
    def of(cls, tokenizer: Tokenizer) -> "MaskTokens":
        """With the tokenizer's own mask token; raises if it has none."""
        return cls(tokenizer.mask_id, tokenizer.token(tokenizer.mask_id))

    def apply(self, ids: Sequence[int], positions: Collection[int]) -> list[int]:
        """The input ids with the tokens at these positions hidden."""
        return [self.id if at in positions else id for at, id in enumerate(ids)]

    @property
    def description(self) -> str:
        return f"{self.token} replaces each token of the word"


Occlusion = RemoveTokens | MaskTokens
REMOVE = RemoveTokens()
Output = TypeVar("Output")


class DeletionCache(Generic[Output]):
    """Outputs by the set of hidden words; `evaluate` is called once with all that are new."""

    def __init__(self, evaluate: Callable[[list[WordSet]], Sequence[Output]]) -> None:
        self.evaluate = evaluate
        self.outputs: dict[WordSet, Output] = {}

    def __call__(self, sets: Sequence[WordSet]) -> list[Output]:
        # All at once, so that the model runs them in large batches.
        missing = [words for words in dict.fromkeys(sets) if words not in self.outputs]
        if missing:
            self.outputs.update(zip(missing, self.evaluate(missing), strict=True))
        return [self.outputs[words] for words in sets]

    def full(self) -> Output:
        """The output for the full text."""
        return self([frozenset()])[0]

    def leave_one_out(self, words: int) -> list[Output]:
        """The outputs without each single word."""
        return self([frozenset({word}) for word in range(words)])


@dataclass(frozen=True)
class EncoderProbe:
    """An encoder and the text to explain, with words hidden or with embeddings replaced."""

    model: Encoder
    text: TokenizedText
    occlusion: Occlusion

    def outputs(self, sets: list[WordSet]) -> list[FloatArray]:
        """The model's output without each set of words."""
        ids = [self.occlusion.apply(self.text.ids, self.text.positions_of(words)) for words in sets]
        return list(batched_outputs(self.model, ids).double().numpy())

    def embed(self, ids: Sequence[int]) -> Tensor:
        """The token embeddings, without positions: (T, D)."""
        device = self.model.embedding.weight.device
        with torch.no_grad():
            x: Tensor = self.model.embedding(torch.tensor([list(ids)], device=device))[0]
        return x

    def log_odds_of(self, label: int) -> Objective:
        """The function from embeddings (B, T, D) to the log-odds of a label (B,)."""

        def objective(x: Tensor) -> Tensor:
            lengths = torch.full((len(x),), x.shape[1], device=x.device)
            states = self.model.encoder(x, Mask.full())
            logits = self.model.output(states, lengths, self.model.embedding.weight).double()
            return log_odds(logits, label)

        return objective


def log_odds(logits: Tensor, label: int) -> Tensor:
    """log p − log (1 − p) of one label, from the logits (..., labels) of all."""
    # log p − log (1 − p): the normalizer of softmax cancels.
    others = [i for i in range(logits.shape[-1]) if i != label]
    return logits[..., label] - logits[..., others].logsumexp(dim=-1)


@dataclass(frozen=True)
class ForcedDecoding:
    """The probability of a fixed target, whatever words of its source are hidden."""

    model: Translator
    marking: TranslationTemplate
    pair: TokenizedPair

    def word_log_probs(self, sets: list[WordSet]) -> list[FloatArray]:
        """log p of each target word, (words,), with each set of source words hidden."""
        end = self.marking.source_suffix or (
            self.marking.eos_id,
        )  # an empty source still has its end
        occlusion = RemoveTokens(tuple(end))
        source = self.pair.source
        sources = [occlusion.apply(source.ids, source.positions_of(words)) for words in sets]
        token_log_probs = forced_log_probs(self.model, self.marking, sources, self.pair.target_ids)
        rows = []
        for row in token_log_probs:
            sums = [row[list(word.positions)].sum() for word in self.pair.target_words]
            rows.append(np.array(sums))
        return rows
