"""Several tokens a pass: a draft guesses, the model checks all guesses at once.

A guess that the model would draw with probability p and that was drawn with probability q is kept
with probability min(1, p/q); where one is not kept, a token is drawn from what p has more than q.
What comes out is distributed exactly as without the draft (Leviathan et al. 2023; Chen et al.
2023); a greedy choice keeps the guesses that are its own.
"""

from collections.abc import Iterator

import torch
from torch import Tensor

from qkv.engine.generate.choosing import Choice, Chooser
from qkv.engine.generate.drafts import Draft, Guess, Tally
from qkv.engine.generate.reading import all_scores, reading
from qkv.engine.generate.request import Request, expect_finite
from qkv.engine.generate.sampling import draw
from qkv.engine.generate.single import read_prompt
from qkv.model import Decoder


def speculate(
    model: Decoder, request: Request, vocabulary: int, draft: Draft, tally: Tally
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
            scores = all_scores(model, states, vocabulary)[0]  # (guesses + 1, V)
            choices = checked(chooser, guesses, scores)
            cache.truncate(len(ids) + len(choices) - 1)
        tally.guessed += len(guesses)
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
