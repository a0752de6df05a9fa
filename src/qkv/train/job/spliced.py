"""New texts for a teacher to judge: the beginning of one text and the end of another.

Their words are those of the data, their combinations are not. From them a model learns what a
teacher knows of words, where the few texts there are would only be learnt by heart.
"""

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from qkv.measure.counted import WordCounts
from qkv.text import Tokenizer
from qkv.train.job.sentences import Cut, cut_texts

SALT = 0x5B1CE  # so that these draws are not those of the batches


class Spliced:
    """As many new texts in each epoch as asked for, with how likely counting finds each label."""

    def __init__(
        self,
        texts: Sequence[str],
        counts: WordCounts,
        tokenizer: Tokenizer,
        length: int,
        number: int,
        seed: int,
    ) -> None:
        self.words = [text.split() for text in texts]
        self.counts, self.tokenizer, self.length = counts, tokenizer, length
        self.number, self.seed = number, seed
        self.of = lru_cache(maxsize=1)(self._of)  # an epoch's batches come one after the other

    def texts(self, epoch: int) -> list[str]:
        """A pure function of seed and epoch."""
        draws = np.random.default_rng((self.seed, SALT, epoch))
        ones, others = draws.integers(len(self.words), size=(2, self.number)).tolist()
        parts = draws.random((self.number, 2)).tolist()
        return [
            _splice(self.words[one], self.words[other], *part)
            for one, other, part in zip(ones, others, parts, strict=True)
        ]

    def _of(self, epoch: int) -> tuple[Cut, Tensor]:
        """The epoch's texts as ids, and their labels' shares (texts, labels)."""
        texts = self.texts(epoch)
        shares = torch.from_numpy(self.counts.shares(texts))
        return cut_texts(texts, self.tokenizer, self.length), shares


def _splice(one: Sequence[str], other: Sequence[str], begin: float, end: float) -> str:
    """The first words of one text, at least one of them, and the last of another."""
    kept = one[: 1 + int(begin * len(one))]
    return " ".join([*kept, *other[int(end * len(other)) :]])
