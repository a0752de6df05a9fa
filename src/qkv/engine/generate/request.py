"""A generation request: the prompt as token ids and every parameter, validated once.

    request = make_request(model, tokenizer, "Once upon a time", max_tokens=50, temperature=0.7)

Everything that generates text starts here; nothing behind this file checks a parameter again.
"""

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypedDict

from qkv.engine.generate.sampling import (
    DEFAULT_SAMPLING,
    DEFAULT_TEMPERATURE,
    DEFAULT_TOP_P,
    FrequencyPenalty,
    LogitBias,
    LogitsProcessor,
    Sampling,
)
from qkv.engine.purpose import purpose_of
from qkv.errors import UsageError
from qkv.model import Decoder, Model, NextToken
from qkv.text import Prompt, Tokenizer, encode_prompt

Truncate = Literal["left"] | None

DEFAULT_MAX_TOKENS = 200

MAX_TOP_LOGPROBS = 100


class Options(TypedDict, total=False):
    """The keyword arguments of `make_request`, which all generating functions pass on to it."""

    max_tokens: int | None
    sampling: Sampling | None
    temperature: float | None
    top_k: int | None
    top_p: float | None
    min_p: float | None
    repetition_penalty: float | None
    presence_penalty: float | None
    frequency_penalty: float | None
    logit_bias: Mapping[int, float] | None
    top_logprobs: int
    seed: int | None
    stop: Sequence[str]
    truncate: Truncate


@dataclass(frozen=True)
class Request:
    """A prompt and how it is to be completed.

    sample_index: completions of one seed that differ in it are sampled independently.
    eos_ids: tokens that end the completion.
    stop: strings that end it, where somebody detokenizes.
    top_logprobs: how many alternatives each token gets.
    cache_salt: prompts share cached prefixes only with others of the same salt.
    """

    ids: tuple[int, ...]
    max_tokens: int
    sampling: Sampling = DEFAULT_SAMPLING
    seed: int = 0
    sample_index: int = 0
    eos_ids: frozenset[int] = frozenset()
    stop: tuple[str, ...] = ()
    top_logprobs: int = 0
    cache_salt: str = ""

    def __post_init__(self) -> None:
        if not self.ids:
            raise UsageError("the prompt has no tokens; a model needs at least one to start from")
        if self.max_tokens < 1:
            raise UsageError(f"max_tokens={self.max_tokens} must be 1 or more")
        if not isinstance(self.sampling, Sampling):
            raise UsageError(
                f"sampling is a {type(self.sampling).__name__}; use Sampling.of(temperature=…)"
            )
        check_stop_strings(self.stop)
        if not 0 <= self.top_logprobs <= MAX_TOP_LOGPROBS:
            raise UsageError(
                f"top_logprobs={self.top_logprobs} must be between 0 and {MAX_TOP_LOGPROBS}"
            )

    @property
    def max_length(self) -> int:
        """The tokens of the prompt and the longest completion."""
        return len(self.ids) + self.max_tokens

    def check(self, model: Decoder) -> None:
        """Raises a UsageError if the request does not fit the model."""
        limit = context_length(model)
        vocabulary = model.config.embedding.vocabulary
        if len(self.ids) >= limit:
            raise UsageError(_prompt_too_long(len(self.ids), limit))
        if self.max_length > limit:
            raise UsageError(
                f"the prompt has {len(self.ids)} tokens and max_tokens={self.max_tokens}, but the "
                f"model reads at most {limit}; ask for at most {limit - len(self.ids)}"
            )
        for id in self.ids:
            if not 0 <= id < vocabulary:
                raise UsageError(f"token {id} does not exist; the model has 0 to {vocabulary - 1}")


def make_request(
    model: Decoder,
    tokenizer: Tokenizer,
    prompt: Prompt,
    *,
    sample_index: int = 0,
    max_tokens: int | None = None,
    sampling: Sampling | None = None,
    temperature: float | None = None,
    top_k: int | None = None,
    top_p: float | None = None,
    min_p: float | None = None,
    repetition_penalty: float | None = None,
    presence_penalty: float | None = None,
    frequency_penalty: float | None = None,
    logit_bias: Mapping[int, float] | None = None,
    top_logprobs: int = 0,
    seed: int | None = None,
    stop: Sequence[str] = (),
    truncate: Truncate = None,
) -> Request:
    """The validated request for a completion of this prompt.

    max_tokens: by default as many as fit into the context, at most DEFAULT_MAX_TOKENS.
    sampling: in place of the five parameters that follow it.
    presence_penalty, frequency_penalty, logit_bias: as in the OpenAI API.
    top_logprobs: how many alternatives each token gets.
    seed: random by default.
    stop: strings before which the completion ends.
    truncate: "left" drops the beginning of a prompt that does not fit, otherwise it is an error.
    """
    expect_language_model(model)
    check_stop_strings(stop)
    if truncate not in (None, "left"):
        raise UsageError(
            f'truncate="{truncate}" is unknown: only "left" is known, which drops the beginning '
            "of the prompt"
        )
    ids = encode_prompt(tokenizer, prompt)
    limit = context_length(model)
    if truncate == "left":
        ids = _truncate_left(ids, tokenizer.prefix_ids, limit, max_tokens)
    if len(ids) > limit:
        raise UsageError(_prompt_too_long(len(ids), limit))
    if max_tokens is None:
        max_tokens = max(1, min(DEFAULT_MAX_TOKENS, limit - len(ids)))
    if seed is None:
        seed = secrets.randbits(32)
    sampling = choose_sampling(sampling, temperature, top_k, top_p, min_p, repetition_penalty)
    request = Request(
        tuple(ids),
        max_tokens,
        with_penalties(sampling, len(ids), presence_penalty, frequency_penalty, logit_bias),
        seed,
        sample_index,
        frozenset(tokenizer.eos_ids),
        tuple(stop),
        top_logprobs,
    )
    request.check(model)
    return request


def choose_sampling(
    sampling: Sampling | None = None,
    temperature: float | None = None,
    top_k: int | None = None,
    top_p: float | None = None,
    min_p: float | None = None,
    repetition_penalty: float | None = None,
) -> Sampling:
    """The sampling parameters as one value: either `sampling`, or made of the others.

    Parameters that are None have their defaults, the same as on the command line.
    """
    parameters = {
        "temperature": temperature,
        "top_k": top_k,
        "top_p": top_p,
        "min_p": min_p,
        "repetition_penalty": repetition_penalty,
    }
    if sampling is not None:
        for name, value in parameters.items():
            if value is not None:
                raise UsageError(
                    f"sampling and {name}={value:g} were both given; put {name} into "
                    f"Sampling.of({name}={value:g}, …) or leave sampling out"
                )
        return sampling
    if all(value is None for value in parameters.values()):
        return DEFAULT_SAMPLING
    if temperature is None:
        temperature = DEFAULT_TEMPERATURE
    if top_p is None:
        top_p = DEFAULT_TOP_P
    return Sampling.of(temperature, top_k, top_p, min_p, repetition_penalty)


def with_penalties(
    sampling: Sampling,
    prompt_tokens: int,
    presence_penalty: float | None = None,
    frequency_penalty: float | None = None,
    logit_bias: Mapping[int, float] | None = None,
) -> Sampling:
    """The sampling parameters with these processors in front."""
    processors: list[LogitsProcessor] = []
    if logit_bias:
        processors.append(LogitBias(tuple(logit_bias.items())))
    if presence_penalty or frequency_penalty:
        penalty = FrequencyPenalty(frequency_penalty or 0.0, presence_penalty or 0.0, prompt_tokens)
        processors.append(penalty)
    if not processors:
        return sampling
    return replace(sampling, processors=(*processors, *sampling.processors))


def context_length(model: Decoder) -> int:
    """How many tokens the model reads at most."""
    limit = model.decoder.position.limit
    if limit is None:
        return model.config.length
    return int(limit)


def expect_language_model(model: Model) -> None:
    """Raises a UsageError unless the model predicts the next token."""
    if not isinstance(model, Decoder):
        description, command = purpose_of(model)
        raise UsageError(
            f"this model is {description}, so it does not generate text; use {command}"
        )
    if not isinstance(model.config.output, NextToken):
        kind = model.config.output.kind.replace("_", " ")
        raise UsageError(f"this decoder's output is a {kind}, not the logits of the next token")


def check_stop_strings(stop: Sequence[str]) -> None:
    """Raises a UsageError for a bare string and for an empty stop string."""
    if isinstance(stop, str):
        raise UsageError(f'stop takes a list of texts, such as ["{stop[:20]}"], not one text')
    if "" in stop:
        raise UsageError("a stop string is empty, so nothing could be generated; leave it out")


def _prompt_too_long(tokens: int, limit: int) -> str:
    """The error message for a prompt that leaves no context for a completion."""
    if tokens == limit:
        return (
            f"the prompt has {tokens} tokens, all that the model reads, so none is left for the "
            f'completion; shorten it or pass truncate="left"'
        )
    return (
        f"prompt has {tokens} tokens but the model reads at most {limit}; "
        f'shorten it or pass truncate="left"'
    )


def _truncate_left(
    ids: list[int], bos: tuple[int, ...], limit: int, max_tokens: int | None
) -> list[int]:
    """The last tokens of the prompt, after its special tokens, with context for the completion.

    Without max_tokens, half the context at most is reserved for the completion.
    """
    if max_tokens is None and len(ids) < limit:
        return ids
    if max_tokens is None:
        max_tokens = min(DEFAULT_MAX_TOKENS, limit // 2)
    budget = limit - max_tokens
    if len(ids) <= budget:
        return ids
    if budget <= len(bos):
        raise UsageError(
            f"max_tokens={max_tokens} leaves no room for a prompt: the model reads at most {limit}"
        )
    if tuple(ids[: len(bos)]) != bos:  # a chat template writes its own special tokens
        bos = ()
    return [*bos, *ids[len(ids) - budget + len(bos) :]]
