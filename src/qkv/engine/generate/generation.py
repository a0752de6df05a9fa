"""Completions from a decoder: one as a stream of tokens, or many prompts as a batch.

    stream = generate(model, tokenizer, "Once upon a time", max_tokens=50)
    for token in stream:
        print(token.text, end="", flush=True)
    stream.stop_reason

All take the keyword arguments of `make_request`.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import NamedTuple, Unpack

from qkv.engine.generate.decode import SessionCache, decode_one
from qkv.engine.generate.request import Options, Request, make_request
from qkv.engine.generate.scheduler import DEFAULT_CACHE_TOKENS, Scheduler
from qkv.engine.generate.sequence import Completion, Sequence, StopReason, Token
from qkv.engine.generate.speculative import Acceptance, Drafter, decode_speculative
from qkv.errors import QkvError, UsageError, suggest_arguments
from qkv.model import Decoder
from qkv.text import Prompt, Tokenizer

LOOKAHEAD = 64  # prompts taken from the iterable before the scheduler has capacity for them


@suggest_arguments
def generate(
    model: Decoder,
    tokenizer: Tokenizer,
    prompt: Prompt,
    *,
    draft: Drafter | None = None,
    sample_index: int = 0,
    **options: Unpack[Options],
) -> "CompletionStream":
    """A completion of the prompt, a text or chat messages, as a stream of tokens.

    Nothing is computed before it is iterated.

    draft: proposes tokens for speculative decoding; the distribution of completions is the same.
    sample_index: completions of one seed that differ in it are sampled independently.
    """
    request = make_request(model, tokenizer, prompt, sample_index=sample_index, **options)
    return CompletionStream(model, tokenizer, request, draft)


class CompletionStream(Iterator[Token]):
    """A completion while it is generated: iterate it for its tokens, or `finish` it."""

    def __init__(
        self,
        model: Decoder,
        tokenizer: Tokenizer,
        request: Request,
        draft: Drafter | None = None,
        session: SessionCache | None = None,
    ) -> None:
        self.request = request
        self.acceptance = Acceptance()
        self._sequence = Sequence(request, tokenizer)
        if draft is None:
            self._samples = decode_one(model, request, tokenizer.vocab_size, session)
        else:
            self._samples = decode_speculative(
                model, request, tokenizer.vocab_size, draft, self.acceptance
            )

    def __next__(self) -> Token:
        if self._sequence.stop_reason is not None:
            self._samples = iter(())  # frees the cache
            raise StopIteration
        return self._sequence.append(next(self._samples))

    @property
    def text(self) -> str:
        """The text that is certain so far."""
        return self._sequence.text

    @property
    def tokens(self) -> list[int]:
        """The token ids so far."""
        return self._sequence.tokens

    @property
    def logprobs(self) -> list[float]:
        """The log-probabilities of the tokens so far."""
        return self._sequence.logprobs

    @property
    def stop_reason(self) -> StopReason | None:
        """Why the completion ended; None while it is generated."""
        return self._sequence.stop_reason

    def finish(self) -> Completion:
        """Generates the rest and returns the completion."""
        for _ in self:
            pass
        return self._sequence.completion()


class CompletionResult(NamedTuple):
    """A completion of one of many prompts, or the error in its place."""

    prompt_index: int
    sample_index: int
    prompt: Prompt
    completion: Completion | None
    error: Exception | None


@suggest_arguments
def generate_many(
    model: Decoder,
    tokenizer: Tokenizer,
    prompts: Iterable[Prompt],
    *,
    n: int = 1,
    cache_tokens: int = DEFAULT_CACHE_TOKENS,
    **options: Unpack[Options],
) -> list[Completion]:
    """The completions in the order of the prompts, n for each, those of one prompt adjacent.

    If one fails, its error is raised when the others are done; `generate_each` yields those too.
    """
    results = list(
        generate_each(model, tokenizer, prompts, n=n, cache_tokens=cache_tokens, **options)
    )
    results.sort(key=lambda result: (result.prompt_index, result.sample_index))
    completions = []
    for result in results:
        if result.error is not None:
            raise result.error
        assert result.completion is not None
        completions.append(result.completion)
    return completions


@suggest_arguments
def generate_each(
    model: Decoder,
    tokenizer: Tokenizer,
    prompts: Iterable[Prompt],
    *,
    n: int = 1,
    cache_tokens: int = DEFAULT_CACHE_TOKENS,
    **options: Unpack[Options],
) -> Iterator[CompletionResult]:
    """Yields each completion when it is finished; prompts are taken only as they are needed.

    A prompt gets the same completion from the same seed whatever else is in the batch.
    """
    if n < 1:
        raise UsageError(f"n={n} completions: ask for 1 or more")
    scheduler = Scheduler(model, tokenizer.vocab_size, cache_tokens, tokenizer=tokenizer)
    pending = _requests(model, tokenizer, prompts, n, options)
    origins: dict[Sequence, CompletionResult] = {}
    while True:
        while scheduler.waiting < LOOKAHEAD and (item := next(pending, None)) is not None:
            result, request = item
            if request is None:
                yield result
            else:
                origins[scheduler.add(request)] = result
        if scheduler.idle:
            return
        for event in scheduler.step():
            if event.done:
                completion = None if event.error else event.sequence.completion()
                result = origins.pop(event.sequence)
                yield result._replace(completion=completion, error=event.error)


def _requests(
    model: Decoder,
    tokenizer: Tokenizer,
    prompts: Iterable[Prompt],
    n: int,
    options: Options,
) -> Iterator[tuple[CompletionResult, Request | None]]:
    """n requests for each prompt with their still empty results; none where there is an error."""
    for prompt_index, prompt in enumerate(prompts):
        try:
            request = make_request(model, tokenizer, prompt, **options)
        except QkvError as error:
            for sample_index in range(n):
                yield CompletionResult(prompt_index, sample_index, prompt, None, error), None
            continue
        for sample_index in range(n):
            result = CompletionResult(prompt_index, sample_index, prompt, None, None)
            yield result, replace(request, sample_index=sample_index)
