"""Longest matches with some left out: MaxMatch-dropout (Hiraoka 2022).

WordPiece takes the longest token a word begins with, then the longest one that goes on from there.
With noise each match is passed over with that probability for the next shorter one; the shortest
is never. A match after which the word could not be spelled to its end is none.
"""

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer as Backend

from qkv.text.noise import Cutter, Ids

END = -1
Match = tuple[int, int]  # a token, and the place behind it


class Matching(Cutter):
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

    def cut_some(
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
