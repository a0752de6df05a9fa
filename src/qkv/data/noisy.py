"""Encoded texts whose words are cut anew in every epoch."""

from array import array
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from qkv.data.encoded import Encoded
from qkv.text import Tokenizer

STREAM = 1  # keeps these draws apart from those of the order and of the steps


class Noisy:
    """Texts with subword noise: the ids of an epoch are a pure function of the seed and its number.

    A text that would not fit into `room` tokens is cut plainly in that epoch. So is, always, one
    whose plain ids are not those of its words: `stiff` of them, in which tokens were found that
    had been added to a published vocabulary.
    """

    def __init__(
        self,
        texts: Iterable[str],
        plain: Encoded,
        tokenizer: Tokenizer,
        noise: float,
        room: int,
        seed: tuple[int, int],
    ) -> None:
        """`seed` is that of the run, and a number for these texts among those of the run."""
        self.plain, self.noise, self.room, self.seed = plain, noise, room, seed
        numbers, words, ends = dict[str, int](), array("i"), array("q", [0])
        for text in texts:
            words.extend(numbers.setdefault(word, len(numbers)) for word in tokenizer.words(text))
            ends.append(len(words))
        self.words, self.ends = np.array(words, np.int32), np.array(ends, np.int64)
        self.cutter = tokenizer.cutter(list(numbers))
        self._stiff = _different(self._cut(0.0, np.random.default_rng(0)), plain)
        self._made: tuple[int, Encoded] | None = None

    @property
    def stiff(self) -> int:
        return int(self._stiff.sum())

    def epoch(self, number: int) -> Encoded:
        """The texts as they are read in that epoch; the last one asked for is kept."""
        if self._made is None or self._made[0] != number:
            seed, which = self.seed
            draws = np.random.default_rng((seed, number, which, STREAM))
            noisy = self._cut(self.noise, draws)
            plainly = self._stiff | (noisy.lengths > self.room)
            self._made = number, _chosen(plainly, self.plain, noisy)
        return self._made[1]

    def _cut(self, noise: float, draws: np.random.Generator) -> Encoded:
        ids, starts = self.cutter.cut(self.words, noise, draws)
        return Encoded(ids.astype(self.plain.ids.dtype), starts[self.ends])


def _different(one: Encoded, other: Encoded) -> NDArray[np.bool_]:
    """Which texts have not the same ids in both."""
    if np.array_equal(one.starts, other.starts) and np.array_equal(one.ids, other.ids):
        return np.zeros(len(one), np.bool_)
    return np.array([not np.array_equal(a, b) for a, b in zip(one, other, strict=True)])


def _chosen(first: NDArray[np.bool_], one: Encoded, other: Encoded) -> Encoded:
    """Each text from the one where `first`, else from the other."""
    if not first.any():
        return other
    ids = np.concatenate([one.ids, other.ids])
    begins = np.where(first, one.starts[:-1], other.starts[:-1] + len(one.ids))
    lengths = np.where(first, one.lengths, other.lengths)
    starts = np.concatenate([np.zeros(1, np.int64), lengths.cumsum()])
    places = np.arange(starts[-1]) + np.repeat(begins - starts[:-1], lengths)
    return Encoded(ids[places], starts)
