"""Speculative decoding: a drafter proposes tokens, the model verifies all of them in one pass.

A drafted token that the model would sample with probability p and that was drafted with
probability q is accepted with probability min(1, p/q); after a rejection a token is sampled from
the excess of p over q. The result is distributed exactly as without a drafter (Leviathan et al.
2023; Chen et al. 2023); with greedy sampling, drafted tokens that are the argmax are accepted.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from qkv.engine.generate.decode import decoding, forward_tokens, last_token_logits, token_logits
from qkv.engine.generate.request import Request, context_length, expect_language_model
from qkv.engine.generate.sampling import SampledToken, Sampler, expect_finite, multinomial
from qkv.errors import UsageError
from qkv.model import Decoder


class DraftToken(NamedTuple):
    """A proposed token, and the distribution (V,) it was sampled from; None if it was certain."""

    id: int
    probs: Tensor | None


class DraftSequence(Protocol):
    """A drafter at work on one sequence."""

    def propose(self, ids: Sequence[int], count: int) -> list[DraftToken]:
        """At most `count` tokens that may follow; ids only grows, by accepted tokens."""


class Drafter(Protocol):
    """Where drafted tokens come from: another, faster model, or the text so far."""

    @property
    def draft_tokens(self) -> int:
        """How many tokens are proposed at a time."""

    def start(self, sampler: Sampler, max_length: int, vocab_size: int) -> DraftSequence:
        """Begins a sequence of at most `max_length` tokens, sampled as the sampler does."""


@dataclass
class Acceptance:
    """How many drafted tokens were accepted."""

    drafted: int = 0
    accepted: int = 0

    @property
    def rate(self) -> float:
        """The acceptance rate, between 0 and 1."""
        return self.accepted / max(1, self.drafted)


@dataclass(frozen=True)
class NGram:
    """Prompt lookup: proposes what followed the last few tokens where they last occurred.

    max_size, min_size: how many tokens have to match; longer matches are tried first.
    """

    max_size: int = 3
    min_size: int = 2
    draft_tokens: int = 6

    def __post_init__(self) -> None:
        if not 1 <= self.min_size <= self.max_size or self.draft_tokens < 1:
            raise UsageError(
                f"max_size={self.max_size}, min_size={self.min_size}, "
                f"draft_tokens={self.draft_tokens}: needs 1 ≤ min_size ≤ max_size and "
                f"1 ≤ draft_tokens"
            )

    def start(self, sampler: Sampler, max_length: int, vocab_size: int) -> DraftSequence:
        return _NGramSequence(self)


class _NGramSequence:
    def __init__(self, drafter: NGram) -> None:
        self.sizes = range(drafter.max_size, drafter.min_size - 1, -1)
        self.after: dict[tuple[int, ...], int] = {}  # n-gram -> where its latest occurrence ends
        self.indexed = 0

    def propose(self, ids: Sequence[int], count: int) -> list[DraftToken]:
        for end in range(self.indexed, len(ids)):
            for size in self.sizes:
                if end >= size:
                    self.after[tuple(ids[end - size : end])] = end
        self.indexed = len(ids)
        for size in self.sizes:
            suffix = tuple(ids[max(0, len(ids) - size) :])
            if suffix in self.after:
                end = self.after[suffix]
                return [DraftToken(id, None) for id in ids[end : end + count]]
        return []


@dataclass(frozen=True)
class DraftModel:
    """A smaller model with the same tokenizer (Leviathan et al. 2023)."""

    model: Decoder = field(repr=False)
    draft_tokens: int = 4

    def __post_init__(self) -> None:
        expect_language_model(self.model)
        if self.draft_tokens < 1:
            raise UsageError(f"draft_tokens={self.draft_tokens} must be 1 or more")

    def start(self, sampler: Sampler, max_length: int, vocab_size: int) -> DraftSequence:
        vocabulary = self.model.config.embedding.vocabulary
        if vocabulary < vocab_size:
            raise UsageError(
                f"the draft model has {vocabulary} tokens but the model has {vocab_size}; "
                f"they must share a tokenizer"
            )
        max_length = min(max_length, context_length(self.model))
        return _ModelSequence(self.model, sampler, max_length, vocab_size)


class _ModelSequence:
    def __init__(self, model: Decoder, sampler: Sampler, max_length: int, vocab_size: int) -> None:
        self.model = model
        self.sampler = sampler
        self.max_length = max_length
        self.vocab_size = vocab_size
        with decoding(model):
            self.cache = model.empty_cache(1, max_length)
        self.cached_ids: list[int] = []
        self.verified = 0  # so many of the cached ids are known to be in the sequence

    def propose(self, ids: Sequence[int], count: int) -> list[DraftToken]:
        count = min(count, self.max_length - len(ids))
        if count < 1:
            return []
        start = self._rewind(ids)
        drafts: list[DraftToken] = []
        # What the processors see: the sampler's ids, and the drafted ones behind them.
        so_far = torch.cat((self.sampler.ids, torch.zeros(count, dtype=torch.long)))
        with decoding(self.model):
            states = forward_tokens(self.model, list(ids[start:]), self.cache)
            for n in range(len(so_far) - count, len(so_far)):
                logits = last_token_logits(self.model, states, self.vocab_size)[0]
                probs = self.sampler.sampling.probs(logits, so_far[:n].to(logits.device))
                id = multinomial(probs, self.sampler.random)
                drafts.append(DraftToken(id, probs))
                so_far[n] = id
                if len(drafts) < count:
                    self.cached_ids.append(id)
                    states = forward_tokens(self.model, [id], self.cache)
        return drafts

    def _rewind(self, ids: Sequence[int]) -> int:
        """Drops rejected drafts from the cache; the index of the first id to read."""
        start = self.verified
        end = min(len(self.cached_ids), len(ids) - 1)  # the last id is read in any case
        while start < end and self.cached_ids[start] == ids[start]:
            start += 1
        self.cache.truncate(start)
        self.verified = len(ids) - 1
        self.cached_ids = list(ids)
        return start


def decode_speculative(
    model: Decoder, request: Request, vocab_size: int, drafter: Drafter, acceptance: Acceptance
) -> Iterator[SampledToken]:
    """The tokens of `decode_one`, in fewer passes of the model; counts accepted drafts."""
    sampler = Sampler(request)
    ids = list(request.ids)
    draft = drafter.start(sampler, request.max_length, vocab_size)
    with decoding(model):
        cache = model.empty_cache(1, request.max_length)
        if len(ids) > 1:
            forward_tokens(model, ids[:-1], cache)
    while len(ids) < request.max_length:
        count = min(drafter.draft_tokens, request.max_length - len(ids) - 1)
        drafts = draft.propose(ids, count)
        with decoding(model):
            states = forward_tokens(model, [ids[-1], *(token.id for token in drafts)], cache)
            logits = token_logits(model, states, vocab_size)[0]  # (drafts + 1, V)
            samples = verify(sampler, drafts, logits)
            cache.truncate(len(ids) + len(samples) - 1)
        acceptance.drafted += len(drafts)
        acceptance.accepted += len(samples) - 1
        for sample in samples:
            ids.append(sample.id)
            yield sample
            if sample.id in request.eos_ids:
                return


def verify(sampler: Sampler, drafts: list[DraftToken], logits: Tensor) -> list[SampledToken]:
    """The drafted tokens up to the first rejection, and one token of the model's own."""
    samples: list[SampledToken] = []
    totals = logits.logsumexp(dim=1)
    for row, total in enumerate(totals.tolist()):
        expect_finite(total)
        probs = sampler.sampling.probs(logits[row], sampler.ids.to(logits.device))
        draft = drafts[row] if row < len(drafts) else None
        accepted = draft is not None and _accept(draft, probs, sampler.random)
        if draft is not None and accepted:
            id = draft.id
        else:
            id = multinomial(_residual(draft, probs), sampler.random)
        samples.append(SampledToken(id, float(logits[row, id] - totals[row])))
        sampler.append(id)
        if not accepted:
            break
    return samples


def _accept(draft: DraftToken, probs: Tensor, random: torch.Generator) -> bool:
    p = float(probs[draft.id])
    q = 1.0 if draft.probs is None else float(draft.probs[draft.id])
    if p >= q:
        return True
    return float(torch.rand((), generator=random, dtype=torch.float64)) * q < p


def _residual(draft: DraftToken | None, probs: Tensor) -> Tensor:
    """The distribution to sample from after this draft was rejected, not normalised."""
    if draft is None:
        return probs
    if draft.probs is None:
        return probs.index_fill(0, torch.tensor([draft.id], device=probs.device), 0.0)
    residual = (probs - draft.probs).clamp(min=0.0)
    if float(residual.sum()) > 0:
        return residual
    return probs  # p and q are equal up to rounding
