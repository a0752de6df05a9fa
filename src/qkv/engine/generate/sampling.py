"""How the next token is sampled: logits processors change the logits, then a strategy picks.

    Sampling((Temperature(0.8), TopP(0.95)))      samples
    Sampling((), Greedy())                        always takes the argmax
    Sampling.of(temperature=0.7, top_k=40)        the common processors in the common order

The processors are those of `transformers`, applied in its order: repetition penalty, temperature,
top-k, top-p, min-p. Before them come those of the OpenAI API: logit bias, presence and frequency
penalty.
"""

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from qkv.errors import NotFiniteError, QkvError, UsageError

if TYPE_CHECKING:
    from qkv.engine.generate.request import Request

# Top-p needs the most probable tokens only, and a few of them usually hold nearly all of the
# probability: so many are sorted first, and the whole vocabulary only if those do not suffice.
TOP_P_CANDIDATES = (128, 2048)


class LogitsProcessor:
    """One change of the logits. A processor of your own is a subclass of this."""

    def apply(self, logits: Tensor, ids: Tensor) -> Tensor:
        """Processed logits of the next token, (V,) float32; −∞ rules a token out.

        ids (n,): prompt and completion so far. Neither argument may be written to.
        """
        raise NotImplementedError


@dataclass(frozen=True)
class RepetitionPenalty(LogitsProcessor):
    """Tokens that occurred before become less probable (Keskar et al. 2019); 1 has no effect."""

    x: float

    def __post_init__(self) -> None:
        if not (math.isfinite(self.x) and self.x > 0):
            raise UsageError(f"repetition_penalty={self.x:g} must be above 0; 1 has no effect")

    def apply(self, logits: Tensor, ids: Tensor) -> Tensor:
        old = logits[ids]
        penalized = torch.where(old < 0, old * self.x, old / self.x)
        return logits.scatter(0, ids, penalized)


@dataclass(frozen=True)
class FrequencyPenalty(LogitsProcessor):
    """Lowers the logits of tokens the completion has already: by `frequency` for each time a token
    occurs, and once by `presence`. Negative penalties raise them.

    prompt_tokens: how many of the ids are the prompt, whose tokens do not count.
    """

    frequency: float
    presence: float
    prompt_tokens: int

    def __post_init__(self) -> None:
        for name, value in (("frequency", self.frequency), ("presence", self.presence)):
            if not -2 <= value <= 2:
                raise UsageError(f"{name}_penalty={value:g} must be between -2 and 2")

    def apply(self, logits: Tensor, ids: Tensor) -> Tensor:
        counts = ids[self.prompt_tokens :].bincount(minlength=len(logits))
        return logits - self.frequency * counts - self.presence * (counts > 0)


@dataclass(frozen=True)
class LogitBias(LogitsProcessor):
    """Adds a number to the logits of some tokens, given as (token, bias) pairs."""

    biases: tuple[tuple[int, float], ...]

    def __post_init__(self) -> None:
        for token, bias in self.biases:
            if not -100 <= bias <= 100:
                raise UsageError(f"logit_bias of token {token} is {bias:g}, not within -100 to 100")

    def apply(self, logits: Tensor, ids: Tensor) -> Tensor:
        for token, _ in self.biases:
            if not 0 <= token < len(logits):
                raise UsageError(
                    f"logit_bias names token {token}, but there are only 0 to {len(logits) - 1}"
                )
        tokens = torch.tensor([token for token, _ in self.biases], device=logits.device)
        biases = torch.tensor([bias for _, bias in self.biases]).to(logits)
        return logits.index_add(0, tokens, biases)


@dataclass(frozen=True)
class Temperature(LogitsProcessor):
    """Divides the logits: below 1 the distribution gets sharper, above 1 flatter."""

    t: float

    def __post_init__(self) -> None:
        if self.t == 0:
            raise UsageError("temperature=0 would divide by zero; use Greedy() as the strategy")
        if not (math.isfinite(self.t) and self.t > 0):
            raise UsageError(f"temperature={self.t:g} must be 0 (greedy) or above")

    def apply(self, logits: Tensor, ids: Tensor) -> Tensor:
        return logits / self.t


@dataclass(frozen=True)
class TopK(LogitsProcessor):
    """Keeps the k most probable tokens (Fan et al. 2018), and any that tie with the last."""

    k: int

    def __post_init__(self) -> None:
        if isinstance(self.k, bool) or not isinstance(self.k, int) or self.k < 1:
            raise UsageError(f"top_k={self.k} must be an integer of 1 or more")

    def apply(self, logits: Tensor, ids: Tensor) -> Tensor:
        if self.k >= len(logits):
            return logits
        threshold = logits.topk(self.k).values[-1]
        return logits.masked_fill(logits < threshold, -torch.inf)


@dataclass(frozen=True)
class TopP(LogitsProcessor):
    """Keeps the most probable tokens that together reach probability p (Holtzman et al. 2019)."""

    p: float

    def __post_init__(self) -> None:
        if not 0 < self.p <= 1:
            raise UsageError(f"top_p={self.p:g} must be above 0 and at most 1")

    def apply(self, logits: Tensor, ids: Tensor) -> Tensor:
        if self.p == 1:
            return logits
        probs = logits.softmax(dim=0)
        V = len(logits)
        for candidates in (*(count for count in TOP_P_CANDIDATES if count < V), V):
            top_probs, top_ids = probs.topk(candidates)
            above = top_probs.cumsum(dim=0) - top_probs  # probability of the tokens ranked higher
            if above[-1] >= self.p or candidates == V:
                break
        nucleus = top_ids[: int((above < self.p).sum())]  # `above` only grows
        return torch.full_like(logits, -torch.inf).scatter(0, nucleus, logits[nucleus])


@dataclass(frozen=True)
class MinP(LogitsProcessor):
    """Keeps tokens at least p times as probable as the most probable (Nguyen et al. 2024)."""

    p: float

    def __post_init__(self) -> None:
        if not 0 <= self.p <= 1:
            raise UsageError(f"min_p={self.p:g} must be between 0 and 1")

    def apply(self, logits: Tensor, ids: Tensor) -> Tensor:
        if self.p == 0:
            return logits
        return logits.masked_fill(logits < logits.max() + math.log(self.p), -torch.inf)


@dataclass(frozen=True)
class SuppressTokens(LogitsProcessor):
    """Never generates these tokens."""

    ids: tuple[int, ...]

    def apply(self, logits: Tensor, ids: Tensor) -> Tensor:
        suppressed = torch.tensor(self.ids, dtype=torch.long, device=logits.device)
        return logits.index_fill(0, suppressed, -torch.inf)


@dataclass(frozen=True)
class Greedy:
    """Takes the argmax; of equal logits the first."""

    def probs(self, logits: Tensor) -> Tensor:
        return torch.zeros_like(logits, dtype=torch.float64).index_fill_(0, logits.argmax(), 1.0)

    def pick(self, logits: Tensor, random: torch.Generator) -> int:
        return int(logits.argmax())


@dataclass(frozen=True)
class Multinomial:
    """Samples a token from the softmax of the logits."""

    def probs(self, logits: Tensor) -> Tensor:
        return logits.double().softmax(dim=0)

    def pick(self, logits: Tensor, random: torch.Generator) -> int:
        return multinomial(self.probs(logits), random)


@dataclass(frozen=True)
class Sampling:
    """Sampling parameters: processors change the logits in order, then one token is picked."""

    processors: tuple[LogitsProcessor, ...] = ()
    strategy: Greedy | Multinomial = Multinomial()

    @classmethod
    def of(
        cls,
        temperature: float = 1.0,
        top_k: int | None = None,
        top_p: float | None = None,
        min_p: float | None = None,
        repetition_penalty: float | None = None,
    ) -> "Sampling":
        """The given parameters as processors in the usual order; temperature 0 is greedy."""
        penalties: list[LogitsProcessor] = []
        if repetition_penalty is not None:
            penalties.append(RepetitionPenalty(repetition_penalty))
        warpers: list[LogitsProcessor] = []
        if temperature not in (0, 1):
            warpers.append(Temperature(temperature))
        if top_k is not None:
            warpers.append(TopK(top_k))
        if top_p is not None:
            warpers.append(TopP(top_p))
        if min_p is not None:
            warpers.append(MinP(min_p))
        if temperature == 0:
            # The argmax is the same whatever top-k, top-p and min-p leave over.
            return cls(tuple(penalties), Greedy())
        return cls((*penalties, *warpers), Multinomial())

    @property
    def is_argmax(self) -> bool:
        """Whether it is greedy with no processors, so a whole batch can be sampled at once."""
        return not self.processors and isinstance(self.strategy, Greedy)

    def probs(self, logits: Tensor, ids: Tensor) -> Tensor:
        """The probability of each token to be sampled, (V,) float64."""
        return self.strategy.probs(self._process(logits, ids))

    def sample(self, logits: Tensor, ids: Tensor, random: torch.Generator) -> int:
        """The next token, from its logits (V,) and the ids so far (n,)."""
        return self.strategy.pick(self._process(logits, ids), random)

    def _process(self, logits: Tensor, ids: Tensor) -> Tensor:
        for processor in self.processors:
            logits = processor.apply(logits, ids)
        return logits


GREEDY = Sampling((), Greedy())

DEFAULT_TEMPERATURE = 0.8
DEFAULT_TOP_P = 0.95
DEFAULT_SAMPLING = Sampling.of(temperature=DEFAULT_TEMPERATURE, top_p=DEFAULT_TOP_P)


class SampledToken(NamedTuple):
    """A token, and its log-probability under the model before any processor.

    alternatives: the most probable tokens with theirs, as many as the request asks for.
    """

    id: int
    logprob: float
    alternatives: tuple[tuple[int, float], ...] = ()


def top_alternatives(logprobs: Tensor, count: int) -> tuple[tuple[int, float], ...]:
    """The `count` most probable tokens with their log-probabilities, from logprobs (V,)."""
    if not count:
        return ()
    top = logprobs.topk(min(count, len(logprobs)))
    return tuple(zip(top.indices.tolist(), top.values.tolist(), strict=True))


class Sampler:
    """Samples the tokens of one request: its random numbers, and the ids its processors see."""

    def __init__(self, request: "Request") -> None:
        self.sampling = request.sampling
        self.top_logprobs = request.top_logprobs
        self.random = seeded_generator(request.seed, request.sample_index)
        self._buffer = torch.tensor(request.ids + (0,) * request.max_tokens)
        self._count = len(request.ids)

    @property
    def ids(self) -> Tensor:
        """Prompt and completion so far; only the prompt for an argmax, which looks at neither."""
        return self._buffer[: self._count]

    def sample(self, logits: Tensor) -> SampledToken:
        """The next token, from its logits (V,)."""
        logprobs = logits.log_softmax(dim=0)
        alternatives = top_alternatives(logprobs, self.top_logprobs)
        if self.sampling.is_argmax:
            id = int(logits.cpu().numpy().argmax())  # faster than torch's argmax
            logprob = float(logprobs[id])
            expect_finite(logprob)
            return SampledToken(id, logprob, alternatives)
        expect_finite(float(logprobs.max()))
        id = self.sampling.sample(logits, self.ids.to(logits.device), self.random)
        return SampledToken(id, float(logprobs[id]), alternatives)

    @property
    def is_plain_argmax(self) -> bool:
        """Whether the argmax of the logits and its log-probability are all that is needed."""
        return self.sampling.is_argmax and not self.top_logprobs

    def append(self, id: int) -> None:
        """Show the processors one more token of the completion."""
        if not self.sampling.is_argmax:
            self._buffer[self._count] = id
            self._count += 1


def sample_batch(samplers: Sequence[Sampler], logits: Tensor) -> list[SampledToken | Exception]:
    """One token for each row of logits (B, V), or the error; rows do not affect each other."""
    totals = logits.logsumexp(dim=1)
    best, tokens = logits.max(dim=1)
    rows = zip(samplers, tokens.tolist(), (best - totals).tolist(), strict=True)
    samples: list[SampledToken | Exception] = []
    for row, (sampler, token, logprob) in enumerate(rows):
        try:
            expect_finite(logprob)
            if sampler.is_plain_argmax:
                samples.append(SampledToken(token, logprob))
            else:
                samples.append(sampler.sample(logits[row]))
        except Exception as error:  # a processor may be anybody's code
            samples.append(error)
    return samples


def multinomial(probs: Tensor, random: torch.Generator) -> int:
    """A token sampled from probabilities (V,), which need not sum to 1."""
    cumulative = probs.double().cumsum(dim=0)
    total = float(cumulative[-1])
    if not (math.isfinite(total) and total > 0):
        raise QkvError("no token is left to sample: the logits processors ruled out every one")
    threshold = float(torch.rand((), generator=random, dtype=torch.float64)) * total
    token = int(torch.searchsorted(cumulative, threshold, right=True))
    if token < len(cumulative):
        return token
    return int(probs.nonzero()[-1])  # rounding put the threshold at the very end


def seeded_generator(seed: int, sample_index: int = 0) -> torch.Generator:
    """The random numbers of one completion, the same on any machine."""
    digest = hashlib.blake2b(f"{seed}/{sample_index}".encode(), digest_size=7).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest, "big"))


def expect_finite(logprob: float) -> None:
    """Raises a NotFiniteError if the logits of the next token contain NaN or infinity."""
    if not math.isfinite(logprob):
        raise NotFiniteError(
            "the logits of the next token are not finite; the model's weights are damaged, or "
            "this prompt drives them out of range"
        )
