"""Subword regularisation: random segmentations of words, for training only.

A word has one deterministic segmentation and many others that spell it too. During training each
way to join subwords is dropped with some probability, so that a model learns what words are made
of; validation and inference always use the deterministic segmentation. For `bpe` merges are
dropped (BPE-dropout, Provilkov et al. 2020, https://arxiv.org/abs/1910.13267), for `wordpiece`
matches are (MaxMatch-Dropout, Hiraoka 2022, https://arxiv.org/abs/2209.04126); the other kinds
have neither.

The tokenizers library implements BPE-dropout too, but its random numbers cannot be seeded. Here all
words are segmented side by side in numpy, with the caller's generator.
"""

import json
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer as Backend

from qkv.errors import DataError, UsageError
from qkv.text.vocab_training import pre_tokenize

Ids = NDArray[np.int64]
Pieces = NDArray[np.int32]

DROPOUT_KINDS = ("bpe", "wordpiece")
WORDS_PER_CHUNK = 1 << 16  # segmented at a time: more are no faster, and need more memory


class SubwordSampler(ABC):
    """Segments words of a fixed list, which callers refer to by their indices."""

    def sample(
        self, words: NDArray[Any], dropout: float, rng: np.random.Generator
    ) -> tuple[Pieces, Ids]:
        """The ids of these words, concatenated, and where each word begins, then the total.

        Every occurrence of a word is segmented independently. With dropout 0 the segmentation is
        the deterministic one and the generator is not used.
        """
        chunk_ids = [np.zeros(0, np.int32)]
        chunk_counts = [np.zeros(1, np.int64)]
        for start in range(0, len(words), WORDS_PER_CHUNK):
            ids, counts = self.sample_chunk(words[start : start + WORDS_PER_CHUNK], dropout, rng)
            chunk_ids.append(ids)
            chunk_counts.append(counts)
        return np.concatenate(chunk_ids), np.concatenate(chunk_counts).cumsum()

    @abstractmethod
    def sample_chunk(
        self, words: NDArray[Any], dropout: float, rng: np.random.Generator
    ) -> tuple[Pieces, Ids]:
        """The ids of one chunk of words, concatenated, and how many each word has."""


def check_dropout_supported(kind: str) -> None:
    """Raises UsageError unless words of a tokenizer of this kind have several segmentations."""
    if kind not in DROPOUT_KINDS:
        raise UsageError(
            f"tokens.bpe_dropout is for {' and '.join(DROPOUT_KINDS)} tokenizers, not for {kind}; "
            "leave it out"
        )


MAX_WORD_LETTERS = 512  # of a word with dropout; the work grows with the square
NO_MERGE = np.int32(np.iinfo(np.int32).max)  # the rank of a pair that no merge joins


class BPEDropout(SubwordSampler):
    """BPE-dropout: each applicable merge is skipped with probability `dropout` at every step.

    A word begins as its letters. Of all neighbouring pairs that a merge could join, some are
    dropped; of the rest the merge of the lowest rank is applied, and so on until none is left.

    All words take such a step at once. It either shortens a word by one piece or finishes it, so
    the words still at work with n pieces are those that began with n letters and those that had
    one piece more: one matrix without padding, a column narrower after every step.
    """

    def __init__(self, backend: Backend, words: Sequence[str]) -> None:
        model = json.loads(backend.to_str())["model"]
        if model["continuing_subword_prefix"] or model["end_of_word_suffix"]:
            raise DataError(
                "tokens.bpe_dropout cannot segment words whose letters are spelled differently at "
                "their beginning or end, as this tokenizer's are; leave it out"
            )
        # In so long a word a merge that is dropped once is applied at one of the many later steps.
        if len(pre_tokenize(backend, "one two")) == 1:
            raise DataError(
                "tokens.bpe_dropout segments words, but this tokenizer takes a text for one word; "
                "leave it out"
            )
        ids = model["vocab"]
        self._set_merges(ids, model["merges"])

        can_vary = [len(word) <= MAX_WORD_LETTERS and ids.keys() >= set(word) for word in words]
        letters: list[list[int]] = []
        for word, varies in zip(words, can_vary, strict=True):
            if varies:
                letters.append([ids[letter] for letter in word])
            else:  # only the deterministic segmentation
                letters.append([token.id for token in backend.model.tokenize(word)])
        self._lengths = np.array([len(word) for word in letters], np.int64)
        self._starts = self._lengths.cumsum() - self._lengths
        self._letters = np.array([id for word in letters for id in word], np.int32)

        # The rank of the merge that joins each letter to the next; none across words.
        self._ranks = np.full(len(self._letters), NO_MERGE, np.int32)
        self._ranks[:-1] = self._rank(self._letters[:-1], self._letters[1:])
        self._ranks[~np.repeat(np.array(can_vary, np.bool_), self._lengths)] = NO_MERGE
        self._ranks[(self._starts + self._lengths - 1)[self._lengths > 0]] = NO_MERGE

    def _set_merges(self, ids: dict[str, int], merges: list[list[str]]) -> None:
        """A sorted table of pairs, so that ranks are looked up by binary search."""
        self._merge_results = np.array([ids[left + right] for left, right in merges], np.int32)
        self._vocab_size = max(ids.values(), default=0) + 1
        pairs = [(ids[left], ids[right]) for left, right in merges]
        keys = self._keys(*np.array(pairs, np.int64).reshape(-1, 2).T)
        order = np.argsort(keys, kind="stable")
        self._pair_keys = np.append(keys[order], np.iinfo(np.int64).max)
        self._pair_ranks = np.append(order.astype(np.int32), NO_MERGE)

    def sample_chunk(
        self, words: NDArray[Any], dropout: float, rng: np.random.Generator
    ) -> tuple[Pieces, Ids]:
        lengths = self._lengths[words]
        starts = self._starts[words]
        longest = int(lengths.max(initial=0))
        by_length = np.argsort(lengths, kind="stable")
        edges = np.searchsorted(lengths[by_length], np.arange(longest + 2))

        # The words at work: their indices, their pieces, and the ranks of neighbouring pieces.
        rows = np.zeros(0, np.int64)
        pieces = np.zeros((0, longest), np.int32)
        ranks = np.zeros((0, longest), np.int32)
        counts = np.zeros(len(words), np.int64)
        finished: list[tuple[Ids, Pieces]] = []
        for width in range(longest, 0, -1):
            new = by_length[edges[width] : edges[width + 1]]
            letters = starts[new, None] + np.arange(width)
            rows = np.concatenate([rows, new])
            pieces = np.concatenate([pieces, self._letters[letters]])
            ranks = np.concatenate([ranks, self._ranks[letters]])
            candidates = ranks
            if dropout:
                is_dropped = rng.random(ranks.shape, np.float32) < dropout
                candidates = np.where(is_dropped, NO_MERGE, ranks)
            best = candidates.argmin(axis=1)
            goes_on = candidates[np.arange(len(rows)), best] < NO_MERGE
            counts[rows[~goes_on]] = width
            finished.append((rows[~goes_on], pieces[~goes_on]))
            rows = rows[goes_on]
            pieces, ranks = self._merge(pieces[goes_on], ranks[goes_on], best[goes_on])

        begins = counts.cumsum() - counts
        ids = np.empty(int(counts.sum()), np.int32)
        for rows, pieces in finished:
            ids[begins[rows, None] + np.arange(pieces.shape[1])] = pieces
        return ids, counts

    def _merge(self, pieces: Pieces, ranks: Pieces, best: Ids) -> tuple[Pieces, Pieces]:
        """Each row with its piece `best` and the next one merged: one column less."""
        row = np.arange(len(best))
        columns = np.arange(pieces.shape[1] - 1)
        merged = self._merge_results[ranks[row, best]]
        pieces = np.where(columns <= best[:, None], pieces[:, :-1], pieces[:, 1:])
        ranks = np.where(columns < best[:, None], ranks[:, :-1], ranks[:, 1:])
        pieces[row, best] = merged
        for left in (best - 1, best):  # the two pairs that the new piece is part of
            row = np.flatnonzero((left >= 0) & (left < len(columns) - 1))
            at = left[row]
            ranks[row, at] = self._rank(pieces[row, at], pieces[row, at + 1])
        return pieces, ranks

    def _rank(self, left: NDArray[Any], right: NDArray[Any]) -> Pieces:
        """The rank of the merge that joins the two, or NO_MERGE."""
        keys = self._keys(left, right)
        at = np.searchsorted(self._pair_keys, keys)
        return np.where(self._pair_keys[at] == keys, self._pair_ranks[at], NO_MERGE)

    def _keys(self, left: NDArray[Any], right: NDArray[Any]) -> Ids:
        keys: Ids = left.astype(np.int64) * self._vocab_size + right
        return keys


END = -1
Match = tuple[int, int]  # a token id, and the position after it


class MaxMatchDropout(SubwordSampler):
    """MaxMatch-Dropout: each longest match is skipped for the next shorter one.

    WordPiece takes the longest token a word begins with, then the longest that continues from
    there. With dropout each match is skipped with that probability, except the shortest. A match
    after which the rest of the word cannot be spelled does not count.
    """

    def __init__(self, backend: Backend, words: Sequence[str]) -> None:
        model = json.loads(backend.to_str())["model"]
        self._vocab: dict[str, int] = model["vocab"]
        self._prefix: str = model["continuing_subword_prefix"]
        self._longest_token = max(map(len, self._vocab), default=0)
        unk = [[(self._vocab[model["unk_token"]], 1)]]

        # All positions of all words behind each other; `first` is where each word begins.
        positions: list[list[Match]] = []
        first: list[int] = []
        for word in words:
            first.append(len(positions))
            matches_in_word: list[list[Match]] = []
            if len(word) <= model["max_input_chars_per_word"]:
                matches_in_word = self._matches(word)
            matches_in_word = matches_in_word or unk
            end = len(matches_in_word)
            for matches in matches_in_word:
                positions.append([(id, END if to == end else first[-1] + to) for id, to in matches])
        self._first = np.array(first, np.int64)
        self._counts = np.array([len(matches) for matches in positions], np.int64)
        self._starts = self._counts.cumsum() - self._counts
        pairs = np.array([match for matches in positions for match in matches], np.int64)
        self._ids, self._next = pairs.reshape(-1, 2).T

    def sample_chunk(
        self, words: NDArray[Any], dropout: float, rng: np.random.Generator
    ) -> tuple[Pieces, Ids]:
        rows = np.arange(len(words))
        position = self._first[words]
        counts = np.zeros(len(words), np.int64)
        steps: list[tuple[Ids, Ids]] = []
        while len(rows):
            match = self._starts[position]
            if dropout:
                # How many matches are skipped in a row is geometrically distributed.
                skips = rng.geometric(1.0 - dropout, len(rows)) - 1
                match = match + np.minimum(skips, self._counts[position] - 1)
            counts[rows] += 1
            steps.append((rows, self._ids[match]))
            position = self._next[match]
            rows = rows[position != END]
            position = position[position != END]
        begins = counts.cumsum() - counts
        ids = np.empty(int(counts.sum()), np.int32)
        for step, (rows, tokens) in enumerate(steps):
            ids[begins[rows] + step] = tokens
        return ids, counts

    def _matches(self, word: str) -> list[list[Match]]:
        """The matches at each position, longest first; empty if plain WordPiece cannot spell it."""
        size = len(word)
        matches: list[list[Match]] = [[] for _ in word]
        for start in range(size):
            prefix = self._prefix if start else ""
            for stop in range(min(size, start + self._longest_token), start, -1):
                id = self._vocab.get(prefix + word[start:stop])
                if id is not None:
                    matches[start].append((id, stop))
        position = 0
        while position < size:
            if not matches[position]:
                return []
            position = matches[position][0][1]
        for start in reversed(range(size)):
            matches[start] = [(id, to) for id, to in matches[start] if to == size or matches[to]]
        return matches
