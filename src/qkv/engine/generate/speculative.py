"""Several tokens a pass: a draft guesses, the model checks all guesses at once.

A guess that the model would draw with probability p and that was drawn with probability q is kept
with probability min(1, p/q); where one is not kept, a token is drawn from what p has more than q.
What comes out is distributed exactly as without the draft (Leviathan et al. 2023; Chen et al.
2023); a greedy choice keeps the guesses that are its own.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from qkv.engine.generate.decode import Choice, Chooser, read_prompt
from qkv.engine.generate.request import (
    Request,
    context_length,
    expect_finite,
    expect_writer,
    last_token_logits,
    reading,
    token_logits,
)
from qkv.engine.generate.sampling import draw
from qkv.errors import UsageError
from qkv.model import Decoder

# FOLDED engine/generate/drafts: Who guesses the next tokens, so that the model only has to
#   check them.
#
#   A draft is a value: another, quicker model, or the text so far, which often repeats
#   itself.


class Guess(NamedTuple):
    """A token, and the distribution (V,) it was drawn from; None if it was certain."""

    id: int
    shares: Tensor | None


class Guesser(Protocol):
    """A draft at work on one text."""

    def guess(self, ids: Sequence[int], count: int) -> list[Guess]:
        """At most `count` tokens that may follow; ids only ever grows, by what was accepted."""


class Drafter(Protocol):
    """Where guesses come from."""

    @property
    def guesses(self) -> int:
        """How many tokens are guessed at a time."""

    def begin(self, chooser: Chooser, room: int, vocabulary: int) -> Guesser:
        """To work on a text of at most `room` tokens, drawing as the chooser does."""


@dataclass
class Acceptance:
    """How good the guesses were."""

    drafted: int = 0
    accepted: int = 0

    @property
    def rate(self) -> float:
        """The share that was right."""
        return self.accepted / max(1, self.drafted)


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
        return _WritesOn(self.model, chooser, min(room, context_length(self.model)), vocabulary)


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
                scores = last_token_logits(self.model, states, self.vocabulary)[0]
                shares = self.chooser.sampling.shares(scores, so_far[:n].to(scores.device))
                id = draw(shares, self.chooser.random)
                found.append(Guess(id, shares))
                so_far[n] = id
                if len(found) < count:
                    self.read.append(id)
                    states = read_prompt(self.model, [id], self.cache)
        return found


def speculate(
    model: Decoder, request: Request, vocabulary: int, draft: Drafter, tally: Acceptance
) -> Iterator[Choice]:
    """What `write_one` gives, in fewer passes of the model; the tally counts good guesses."""
    request.check(model)
    chooser, ids = Chooser(request), list(request.ids)
    guesser = draft.begin(chooser, request.room, vocabulary)
    with reading(model):
        cache = model.empty_cache(1, request.room)
        if len(ids) > 1:
            read_prompt(model, ids[:-1], cache)
    while len(ids) < request.room:
        guesses = guesser.guess(ids, min(draft.guesses, request.room - len(ids) - 1))
        with reading(model):
            states = read_prompt(model, [ids[-1], *(guess.id for guess in guesses)], cache)
            scores = token_logits(model, states, vocabulary)[0]  # (guesses + 1, V)
            choices = checked(chooser, guesses, scores)
            cache.truncate(len(ids) + len(choices) - 1)
        tally.drafted += len(guesses)
        tally.accepted += len(choices) - 1
        for choice in choices:
            ids.append(choice.id)
            yield choice
            if choice.id in request.ends:
                return


def checked(chooser: Chooser, guesses: list[Guess], scores: Tensor) -> list[Choice]:
    """The guesses up to the first that is not kept, and one token of the model's own."""
    choices: list[Choice] = []
    totals = scores.logsumexp(dim=1)
    for row, total in enumerate(totals.tolist()):
        expect_finite(total)
        shares = chooser.sampling.shares(scores[row], chooser.so_far.to(scores.device))
        guess = guesses[row] if row < len(guesses) else None
        kept = guess is not None and _kept(guess, shares, chooser.random)
        id = guess.id if guess is not None and kept else draw(_left(guess, shares), chooser.random)
        choices.append(Choice(id, float(scores[row, id] - totals[row])))
        chooser.add(id)
        if not kept:
            break
    return choices


def _kept(guess: Guess, shares: Tensor, random: torch.Generator) -> bool:
    p = float(shares[guess.id])
    q = 1.0 if guess.shares is None else float(guess.shares[guess.id])
    if p >= q:
        return True
    return float(torch.rand((), generator=random, dtype=torch.float64)) * q < p


def _left(guess: Guess | None, shares: Tensor) -> Tensor:
    """What a token is drawn from after this guess was not kept."""
    if guess is None:
        return shares
    if guess.shares is None:
        return shares.index_fill(0, torch.tensor([guess.id], device=shares.device), 0.0)
    left = (shares - guess.shares).clamp(min=0.0)
    return left if float(left.sum()) > 0 else shares  # equal but for rounding
