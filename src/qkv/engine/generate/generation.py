"""One answer, token by token.

answer = generate(model, tokenizer, "Once upon a time", max_tokens=50)
for token in answer:
    print(token.text, end="", flush=True)
answer.stop_reason
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import NamedTuple, Unpack

from qkv.engine.generate.decode import Choice, write_one
from qkv.engine.generate.request import Options, Prompt, Prompter, Request
from qkv.engine.generate.scheduler import BUDGET
from qkv.engine.generate.service import Desk
from qkv.engine.generate.speculative import Acceptance, Drafter, speculate
from qkv.engine.generate.streaming import Completion, StopReason, Token, Writing
from qkv.errors import QkvError, UsageError
from qkv.model import Decoder
from qkv.text import Tokenizer

# FOLDED engine/generate/many: The answers to many prompts: as many at a time as there is room
#   for.


def generate(
    model: Decoder,
    tokenizer: Tokenizer,
    prompt: Prompt,
    *,
    draft: Drafter | None = None,
    sample_index: int = 0,
    **options: Unpack[Options],
) -> "CompletionStream":
    """An answer to the prompt, a text or the messages of a chat; `Options` says how.

    Nothing is computed before it is iterated.

    draft: somebody quick whose guesses the model only has to check; the answer is the same.
    number: answers of one seed that differ in this are drawn independently.
    """
    request = Prompter(model, tokenizer).request(prompt, sample_index, **options)
    return CompletionStream(model, tokenizer, request, draft)


class CompletionStream(Iterator[Token]):
    """An answer that is being written: iterate it for the tokens, or `finish` it."""

    def __init__(
        self,
        model: Decoder,
        tokenizer: Tokenizer,
        request: Request,
        draft: Drafter | None = None,
    ) -> None:
        self.request, self.acceptance = request, Acceptance()
        self._writing = Writing(request, tokenizer)
        self._choices: Iterator[Choice] = (
            write_one(model, request, tokenizer.vocab_size)
            if draft is None
            else speculate(model, request, tokenizer.vocab_size, draft, self.acceptance)
        )

    def __next__(self) -> Token:
        if self._writing.stop_reason is not None:
            self._choices = iter(())  # lets go of the cache
            raise StopIteration
        return self._writing.push(next(self._choices))

    @property
    def text(self) -> str:
        """All text that is certain so far."""
        return self._writing.text

    @property
    def tokens(self) -> list[int]:
        return self._writing.tokens

    @property
    def logprobs(self) -> list[float]:
        return self._writing.logprobs

    @property
    def stop_reason(self) -> StopReason | None:
        """Why the answer ended; None while it goes on."""
        return self._writing.stop_reason

    def finish(self) -> Completion:
        """The whole answer."""
        for _ in self:
            pass
        return self._writing.generation()


AHEAD = 64  # prompts that are looked at before their turn


class CompletionResult(NamedTuple):
    """One of the answers to a prompt, or why there is none."""

    prompt_index: int  # of the prompt
    sample_index: int  # of the answer
    prompt: Prompt
    completion: Completion | None
    error: Exception | None


def generate_many(
    model: Decoder,
    tokenizer: Tokenizer,
    prompts: Iterable[Prompt],
    *,
    n: int = 1,
    budget: int = BUDGET,
    **options: Unpack[Options],
) -> list[Completion]:
    """The answers in the order of the prompts, n to each, neighbours together.

    If one of them fails, its error is raised when the others are done; `generate_each` gives
    those too.
    """
    each = generate_each(model, tokenizer, prompts, n=n, budget=budget, **options)
    answers = []
    for answered in sorted(
        each, key=lambda answered: (answered.prompt_index, answered.sample_index)
    ):
        if answered.error is not None:
            raise answered.error
        assert answered.completion is not None
        answers.append(answered.completion)
    return answers


def generate_each(
    model: Decoder,
    tokenizer: Tokenizer,
    prompts: Iterable[Prompt],
    *,
    n: int = 1,
    budget: int = BUDGET,
    **options: Unpack[Options],
) -> Iterator[CompletionResult]:
    """Each answer when it is finished; prompts are taken only as they are needed.

    A prompt gets the same answer from the same seed whatever stands beside it.
    """
    if n < 1:
        raise UsageError(f"n={n} answers: ask for 1 or more")
    desk = Desk(model, tokenizer, budget)
    requests = _requests(desk.prompter, prompts, n, options)
    places: dict[Writing, tuple[int, int, Prompt]] = {}
    while True:
        while desk.waiting < AHEAD and (found := next(requests, None)) is not None:
            place, asked = found
            if isinstance(asked, QkvError):
                yield CompletionResult(*place, None, asked)
            else:
                places[desk.add(asked)] = place
        if desk.idle:
            return
        for update in desk.step():
            if update.last:
                whole = None if update.error else update.writing.generation()
                yield CompletionResult(*places.pop(update.writing), whole, update.error)


def _requests(
    prompter: Prompter, prompts: Iterable[Prompt], n: int, options: Options
) -> Iterator[tuple[tuple[int, int, Prompt], Request | QkvError]]:
    """n requests for each prompt, or why there can be none, with their place and number."""
    for place, prompt in enumerate(prompts):
        try:
            asked: Request | QkvError = prompter.request(prompt, **options)
        except QkvError as error:
            asked = error
        for number in range(n):
            mine = asked if isinstance(asked, QkvError) else replace(asked, number=number)
            yield (place, number, prompt), mine
