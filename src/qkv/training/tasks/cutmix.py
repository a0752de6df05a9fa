"""CutMix for texts: the beginning of one text and the end of another, labelled by a teacher.

Yun et al. 2019 cut and paste images; here the words are those of the data, but their combinations
are new. The label distribution comes from a naive Bayes model over word counts, so that a student
learns what the teacher knows about words where the few texts would only be memorized.
"""

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from qkv.metrics import WordCountClassifier
from qkv.text import Tokenizer
from qkv.training.tasks.encoded_texts import TruncatedTexts, encode_texts

SALT = 0x5B1CE  # keeps this random stream apart from that of the batches


class CutMix:
    """`count` new texts per epoch, and the teacher's label probabilities for each."""

    def __init__(
        self,
        texts: Sequence[str],
        teacher: WordCountClassifier,
        tokenizer: Tokenizer,
        length: int,
        count: int,
        seed: int,
    ) -> None:
        self.words = [text.split() for text in texts]
        self.teacher = teacher
        self.tokenizer = tokenizer
        self.length = length
        self.count = count
        self.seed = seed
        # The batches of an epoch come one after the other, so one epoch is enough to remember.
        self.epoch = lru_cache(maxsize=1)(self._epoch)

    def texts(self, epoch: int) -> list[str]:
        """A pure function of seed and epoch."""
        rng = np.random.default_rng((self.seed, SALT, epoch))
        firsts, seconds = rng.integers(len(self.words), size=(2, self.count)).tolist()
        fractions = rng.random((self.count, 2)).tolist()
        texts = []
        for first, second, (begin, end) in zip(firsts, seconds, fractions, strict=True):
            texts.append(_join(self.words[first], self.words[second], begin, end))
        return texts

    def _epoch(self, epoch: int) -> tuple[TruncatedTexts, Tensor]:
        """The texts of an epoch as ids, and their label probabilities (texts, labels)."""
        texts = self.texts(epoch)
        probs = torch.from_numpy(self.teacher.predict_proba(texts))
        return encode_texts(texts, self.tokenizer, self.length), probs


def _join(first: Sequence[str], second: Sequence[str], begin: float, end: float) -> str:
    """The first words of one text, at least one of them, and the last words of another."""
    beginning = first[: 1 + int(begin * len(first))]
    ending = second[int(end * len(second)) :]
    return " ".join([*beginning, *ending])
