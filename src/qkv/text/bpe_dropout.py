"""Subword noise: words cut into pieces at random, as a model in training may see them.

A word has one plain cut and many others that spell it too. Each way to join pieces is left out
with some probability while a word is cut, and so a model learns what words are made of; what it
is measured on and used for is always cut plainly. For `bpe` the ways are merges (Provilkov et al.
2020), for `wordpiece` they are matches (Hiraoka 2022); the other kinds have no such ways.

The library leaves merges out too, but its draws cannot be repeated. Here all words are cut side by
side, from draws that are given.
"""

import json
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer as Backend

from qkv.errors import DataError, UsageError
from qkv.text.vocab_training import words_of

# FOLDED text/merging: Byte-pair merges with some left out: BPE-dropout (Provilkov et al. 2020).
#
#   A word begins as its letters. Of all neighbours that a merge could join, each is passed
#   over with
#   the probability of the noise; of the rest the earliest merge is done, and so on until none
#   is left.
#
#   All words take such a step at once. It leaves a word one piece shorter or ends it, so the
#   words
#   that go on with n pieces are those that began with n and those that had one more: one
#   matrix,
#   without any padding, that becomes a column narrower with every step.
# FOLDED text/matching: Longest matches with some left out: MaxMatch-dropout (Hiraoka 2022).
#
#   WordPiece takes the longest token a word begins with, then the longest one that goes on
#   from there.
#   With noise each match is passed over with that probability for the next shorter one; the
#   shortest
#   is never. A match after which the word could not be spelled to its end is none.

Ids = NDArray[np.int64]

DROPOUT_KINDS = ("bpe", "wordpiece")

WORDS_PER_CHUNK = 1 << 16  # words cut at a time: more are no faster, and need more memory


class SubwordSampler(ABC):
    """Cuts words that it knows by their numbers."""

    def sample(
        self, words: NDArray[Any], dropout: float, rng: np.random.Generator
    ) -> tuple[NDArray[np.int32], Ids]:
        """The ids of these words behind each other, and where each begins, with the end of all.

        Every occurrence of a word is cut by itself. Without noise the cut is the plain one, and
        nothing is drawn.
        """
        found = [
            self.sample_chunk(words[i : i + WORDS_PER_CHUNK], dropout, rng)
            for i in _steps(len(words))
        ]
        counts = np.concatenate([np.zeros(1, np.int64), *(counts for _, counts in found)])
        return np.concatenate([np.zeros(0, np.int32), *(ids for ids, _ in found)]), counts.cumsum()

    @abstractmethod
    def sample_chunk(
        self, words: NDArray[Any], noise: float, draws: np.random.Generator
    ) -> tuple[NDArray[np.int32], Ids]:
        """The ids of a few of them behind each other, and how many each has."""


def check_dropout_supported(kind: str) -> None:
    """If words of that kind have no other cuts."""
    if kind not in DROPOUT_KINDS:
        raise UsageError(
            f"tokens.noise is for {' and '.join(DROPOUT_KINDS)} tokenizers, not for {kind}; "
            "leave it out"
        )


def _steps(count: int) -> range:
    return range(0, count, WORDS_PER_CHUNK)


Pieces = NDArray[np.int32]

LONGEST = 512  # letters of a word that is cut at random; the work grows with the square

NEVER = np.int32(np.iinfo(np.int32).max)  # the rank of what no merge joins


class BPEDropout(SubwordSampler):
    """Words as letters, and the merges that join them."""

    def __init__(self, backend: Backend, words: Sequence[str]) -> None:
        model = json.loads(backend.to_str())["model"]
        if model["continuing_subword_prefix"] or model["end_of_word_suffix"]:
            raise DataError(
                "tokens.noise cannot cut words whose letters are spelled unlike at their beginning "
                "or end, as this tokenizer's are; leave it out"
            )
        # In so long a word a merge left out once is done at one of the many steps that follow.
        if len(words_of(backend, "one two")) == 1:
            raise DataError(
                "tokens.noise cuts words, but this tokenizer takes a whole text for one; leave it "
                "out"
            )
        ids, merges = model["vocab"], model["merges"]
        self._joined = np.array([ids[a + b] for a, b in merges], np.int32)
        self._size = max(ids.values(), default=0) + 1
        pairs = np.array([(ids[a], ids[b]) for a, b in merges], np.int64).reshape(-1, 2)
        keys = self._keys(*pairs.T)
        order = np.argsort(keys, kind="stable")
        self._pairs = np.append(keys[order], np.iinfo(np.int64).max)
        self._order = np.append(order.astype(np.int32), NEVER)

        free = [len(word) <= LONGEST and ids.keys() >= set(word) for word in words]
        letters = [
            [ids[letter] for letter in word]
            if is_free  # else the word has its plain cut only
            else [token.id for token in backend.model.tokenize(word)]
            for word, is_free in zip(words, free, strict=True)
        ]
        self._lengths = np.array([len(word) for word in letters], np.int64)
        self._starts = self._lengths.cumsum() - self._lengths
        self._letters = np.array([id for word in letters for id in word], np.int32)
        self._ranks = np.full(len(self._letters), NEVER, np.int32)  # of a letter and the next
        self._ranks[:-1] = self._rank(self._letters[:-1], self._letters[1:])
        self._ranks[~np.repeat(np.array(free, np.bool_), self._lengths)] = NEVER
        self._ranks[(self._starts + self._lengths - 1)[self._lengths > 0]] = NEVER

    def sample_chunk(
        self, words: NDArray[Any], noise: float, draws: np.random.Generator
    ) -> tuple[Pieces, Ids]:
        lengths, starts = self._lengths[words], self._starts[words]
        longest = int(lengths.max(initial=0))
        by_length = np.argsort(lengths, kind="stable")
        edges = np.searchsorted(lengths[by_length], np.arange(longest + 2))
        rows = np.zeros(0, np.int64)  # the words at work: their places,
        pieces = ranks = np.zeros((0, longest), np.int32)  # pieces, and ranks of neighbours
        counts, ended = np.zeros(len(words), np.int64), list[tuple[Ids, Pieces]]()
        for width in range(longest, 0, -1):
            new = by_length[edges[width] : edges[width + 1]]
            places = starts[new, None] + np.arange(width)
            rows = np.concatenate([rows, new])
            pieces = np.concatenate([pieces, self._letters[places]])
            ranks = np.concatenate([ranks, self._ranks[places]])
            offered = ranks
            if noise:
                offered = np.where(draws.random(ranks.shape, np.float32) < noise, NEVER, ranks)
            best = offered.argmin(axis=1)
            goes_on = offered[np.arange(len(rows)), best] < NEVER
            counts[rows[~goes_on]] = width
            ended.append((rows[~goes_on], pieces[~goes_on]))
            rows = rows[goes_on]
            pieces, ranks = self._merged(pieces[goes_on], ranks[goes_on], best[goes_on])
        begins, ids = counts.cumsum() - counts, np.empty(int(counts.sum()), np.int32)
        for rows, pieces in ended:
            ids[begins[rows, None] + np.arange(pieces.shape[1])] = pieces
        return ids, counts

    def _merged(self, pieces: Pieces, ranks: Pieces, best: Ids) -> tuple[Pieces, Pieces]:
        """Each row with its piece `best` and the next one as one: a column less."""
        row, columns = np.arange(len(best)), np.arange(pieces.shape[1] - 1)
        joined = self._joined[ranks[row, best]]
        pieces = np.where(columns <= best[:, None], pieces[:, :-1], pieces[:, 1:])
        ranks = np.where(columns < best[:, None], ranks[:, :-1], ranks[:, 1:])
        pieces[row, best] = joined
        for left in (best - 1, best):  # the two pairs that the new piece is part of
            row = np.flatnonzero((left >= 0) & (left < len(columns) - 1))
            at = left[row]
            ranks[row, at] = self._rank(pieces[row, at], pieces[row, at + 1])
        return pieces, ranks

    def _rank(self, left: NDArray[Any], right: NDArray[Any]) -> Pieces:
        """Which merge joins the two."""
        keys = self._keys(left, right)
        at = np.searchsorted(self._pairs, keys)
        return np.where(self._pairs[at] == keys, self._order[at], NEVER)

    def _keys(self, left: NDArray[Any], right: NDArray[Any]) -> Ids:
        keys: Ids = left.astype(np.int64) * self._size + right
        return keys


END = -1

Match = tuple[int, int]  # a token, and the place behind it


class MaxMatchDropout(SubwordSampler):
    """For each place in each word, the tokens that match there, the longest first."""

    def __init__(self, backend: Backend, words: Sequence[str]) -> None:
        model = json.loads(backend.to_str())["model"]
        self._vocabulary: dict[str, int] = model["vocab"]
        self._prefix: str = model["continuing_subword_prefix"]
        self._longest = max(map(len, self._vocabulary), default=0)
        places, first = list[list[Match]](), list[int]()
        for word in words:
            first.append(len(places))
            found = self._matches(word) if len(word) <= model["max_input_chars_per_word"] else []
            for matches in found or [[(self._vocabulary[model["unk_token"]], 1)]]:
                ends = len(found) or 1
                places.append([(id, END if to == ends else first[-1] + to) for id, to in matches])
        self._first = np.array(first, np.int64)
        self._counts = np.array([len(matches) for matches in places], np.int64)
        self._starts = self._counts.cumsum() - self._counts
        pairs = np.array([match for matches in places for match in matches], np.int64)
        self._ids, self._next = pairs.reshape(-1, 2).T

    def sample_chunk(
        self, words: NDArray[Any], noise: float, draws: np.random.Generator
    ) -> tuple[NDArray[np.int32], Ids]:
        rows, place = np.arange(len(words)), self._first[words]
        counts, taken = np.zeros(len(words), np.int64), list[tuple[Ids, Ids]]()
        while len(rows):
            match = self._starts[place]
            if noise:
                passed = draws.geometric(1.0 - noise, len(rows)) - 1
                match = match + np.minimum(passed, self._counts[place] - 1)
            counts[rows] += 1
            taken.append((rows, self._ids[match]))
            place = self._next[match]
            rows, place = rows[place != END], place[place != END]
        begins, ids = counts.cumsum() - counts, np.empty(int(counts.sum()), np.int32)
        for number, (rows, pieces) in enumerate(taken):
            ids[begins[rows] + number] = pieces
        return ids, counts

    def _matches(self, word: str) -> list[list[Match]]:
        """At each place; nothing if the plain cut knows no way to the end."""
        size = len(word)
        found: list[list[Match]] = [[] for _ in word]
        for start in range(size):
            prefix = self._prefix if start else ""
            for stop in range(min(size, start + self._longest), start, -1):
                id = self._vocabulary.get(prefix + word[start:stop])
                if id is not None:
                    found[start].append((id, stop))
        place = 0
        while place < size:
            if not found[place]:
                return []
            place = found[place][0][1]
        for start in reversed(range(size)):
            found[start] = [(id, to) for id, to in found[start] if to == size or found[to]]
        return found
