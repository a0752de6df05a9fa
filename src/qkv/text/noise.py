"""Subword noise: words cut into pieces at random, as a model in training may see them.

A word has one plain cut and many others that spell it too. Each way to join pieces is left out
with some probability while a word is cut, and so a model learns what words are made of; what it
is measured on and used for is always cut plainly. For `bpe` the ways are merges (Provilkov et al.
2020), for `wordpiece` they are matches (Hiraoka 2022); the other kinds have no such ways.

The library leaves merges out too, but its draws cannot be repeated. Here all words are cut side by
side, from draws that are given.
"""

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qkv.errors import UsageError

Ids = NDArray[np.int64]

NOISY = ("bpe", "wordpiece")
SOME = 1 << 16  # words cut at a time: more are no faster, and need more memory


class Cutter(ABC):
    """Cuts words that it knows by their numbers."""

    def cut(
        self, words: NDArray[Any], noise: float, draws: np.random.Generator
    ) -> tuple[NDArray[np.int32], Ids]:
        """The ids of these words behind each other, and where each begins, with the end of all.

        Every occurrence of a word is cut by itself. Without noise the cut is the plain one, and
        nothing is drawn.
        """
        found = [self.cut_some(words[i : i + SOME], noise, draws) for i in _steps(len(words))]
        counts = np.concatenate([np.zeros(1, np.int64), *(counts for _, counts in found)])
        return np.concatenate([np.zeros(0, np.int32), *(ids for ids, _ in found)]), counts.cumsum()

    @abstractmethod
    def cut_some(
        self, words: NDArray[Any], noise: float, draws: np.random.Generator
    ) -> tuple[NDArray[np.int32], Ids]:
        """The ids of a few of them behind each other, and how many each has."""


def refuse_noise(kind: str) -> None:
    """If words of that kind have no other cuts."""
    if kind not in NOISY:
        raise UsageError(
            f"tokens.noise is for {' and '.join(NOISY)} tokenizers, not for {kind}; leave it out"
        )


def _steps(count: int) -> range:
    return range(0, count, SOME)
