"""Who guesses the next tokens, so that the model only has to check them.

A draft is a value: another, quicker model, or the text so far, which often repeats itself.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from qkv.engine.generate.choosing import Chooser
from qkv.engine.generate.reading import (
    expect_writer,
    last_scores,
    reach,
    reading,
)
from qkv.engine.generate.sampling import draw
from qkv.engine.generate.single import read_prompt
from qkv.errors import UsageError
from qkv.model import Decoder


class Guess(NamedTuple):
    """A token, and the distribution (V,) it was drawn from; None if it was certain."""

    id: int
    shares: Tensor | None


class Guesser(Protocol):
    """A draft at work on one text."""

    def guess(self, ids: Sequence[int], count: int) -> list[Guess]:
        """At most `count` tokens that may follow; ids only ever grows, by what was accepted."""


class Draft(Protocol):
    """Where guesses come from."""

    @property
    def guesses(self) -> int:
        """How many tokens are guessed at a time."""

    def begin(self, chooser: Chooser, room: int, vocabulary: int) -> Guesser:
        """To work on a text of at most `room` tokens, drawing as the chooser does."""


@dataclass
class Tally:
    """How good the guesses were."""

    guessed: int = 0
    accepted: int = 0

    @property
    def rate(self) -> float:
        """The share that was right."""
        return self.accepted / max(1, self.guessed)


@dataclass(frozen=True)
class NGram:
    """What came after the latest place where the last few tokens stood before.

    longest, shortest: how many tokens have to be the same; more are tried first.
    """

    longest: int = 3
    shortest: int = 2
    guesses: int = 6

    def __post_init__(self) -> None:
        if not 1 <= self.shortest <= self.longest or self.guesses < 1:
            raise UsageError(
                f"longest={self.longest}, shortest={self.shortest}, guesses={self.guesses}: "
                f"1 ≤ shortest ≤ longest and 1 ≤ guesses are needed"
            )

    def begin(self, chooser: Chooser, room: int, vocabulary: int) -> Guesser:
        return _LookUp(self)


class _LookUp:
    def __init__(self, draft: NGram) -> None:
        self.sizes = range(draft.longest, draft.shortest - 1, -1)
        self.after: dict[tuple[int, ...], int] = {}  # where the latest of these tokens go on
        self.seen = 0

    def guess(self, ids: Sequence[int], count: int) -> list[Guess]:
        for place in range(self.seen, len(ids)):
            for size in self.sizes:
                if place >= size:
                    self.after[tuple(ids[place - size : place])] = place
        self.seen = len(ids)
        for size in self.sizes:
            latest = tuple(ids[max(0, len(ids) - size) :])
            if latest in self.after:
                place = self.after[latest]
                return [Guess(id, None) for id in ids[place : place + count]]
        return []


@dataclass(frozen=True)
class DraftModel:
    """A smaller model with the same tokens, which writes on by itself (Leviathan et al. 2023)."""

    model: Decoder = field(repr=False)
    guesses: int = 4

    def __post_init__(self) -> None:
        expect_writer(self.model)
        if self.guesses < 1:
            raise UsageError(f"guesses={self.guesses} must be 1 or more")

    def begin(self, chooser: Chooser, room: int, vocabulary: int) -> Guesser:
        own = self.model.config.embedding.vocabulary
        if own < vocabulary:
            raise UsageError(
                f"the draft has {own} tokens but the model writes {vocabulary}; they must be alike"
            )
        return _WritesOn(self.model, chooser, min(room, reach(self.model)), vocabulary)


class _WritesOn:
    def __init__(self, model: Decoder, chooser: Chooser, room: int, vocabulary: int) -> None:
        self.model, self.chooser, self.vocabulary, self.room = model, chooser, vocabulary, room
        with reading(model):
            self.cache = model.empty_cache(1, room)
        self.read: list[int] = []  # what the cache holds
        self.sure = 0  # of which so many are known to stand in the text

    def guess(self, ids: Sequence[int], count: int) -> list[Guess]:
        count = min(count, self.room - len(ids))
        if count < 1:
            return []
        same = self.sure
        while same < min(len(self.read), len(ids) - 1) and self.read[same] == ids[same]:
            same += 1
        self.cache.truncate(same)
        self.sure, self.read = len(ids) - 1, list(ids)
        found: list[Guess] = []
        so_far = torch.cat((self.chooser.so_far, torch.zeros(count, dtype=torch.long)))
        with reading(self.model):
            states = read_prompt(self.model, list(ids[same:]), self.cache)
            for n in range(len(so_far) - count, len(so_far)):
                scores = last_scores(self.model, states, self.vocabulary)[0]
                shares = self.chooser.sampling.shares(scores, so_far[:n].to(scores.device))
                id = draw(shares, self.chooser.random)
                found.append(Guess(id, shares))
                so_far[n] = id
                if len(found) < count:
                    self.read.append(id)
                    states = read_prompt(self.model, [id], self.cache)
        return found
