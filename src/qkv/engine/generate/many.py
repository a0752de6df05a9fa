"""The answers to many prompts: as many at a time as there is room for."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import NamedTuple, Unpack

from qkv.engine.generate.batch import BUDGET
from qkv.engine.generate.desk import Desk
from qkv.engine.generate.prompting import Options, Prompt, Prompter
from qkv.engine.generate.request import Request
from qkv.engine.generate.writing import Generation, Writing
from qkv.errors import QkvError, UsageError
from qkv.model import Decoder
from qkv.text import Tokenizer

AHEAD = 64  # prompts that are looked at before their turn


class Answered(NamedTuple):
    """One of the answers to a prompt, or why there is none."""

    place: int  # of the prompt
    number: int  # of the answer
    prompt: Prompt
    generation: Generation | None
    error: Exception | None


def generate_many(
    model: Decoder,
    tokenizer: Tokenizer,
    prompts: Iterable[Prompt],
    *,
    n: int = 1,
    budget: int = BUDGET,
    **options: Unpack[Options],
) -> list[Generation]:
    """The answers in the order of the prompts, n to each, neighbours together.

    If one of them fails, its error is raised when the others are done; `generate_each` gives
    those too.
    """
    each = generate_each(model, tokenizer, prompts, n=n, budget=budget, **options)
    answers = []
    for answered in sorted(each, key=lambda answered: (answered.place, answered.number)):
        if answered.error is not None:
            raise answered.error
        assert answered.generation is not None
        answers.append(answered.generation)
    return answers


def generate_each(
    model: Decoder,
    tokenizer: Tokenizer,
    prompts: Iterable[Prompt],
    *,
    n: int = 1,
    budget: int = BUDGET,
    **options: Unpack[Options],
) -> Iterator[Answered]:
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
                yield Answered(*place, None, asked)
            else:
                places[desk.add(asked)] = place
        if desk.idle:
            return
        for update in desk.step():
            if update.last:
                whole = None if update.error else update.writing.generation()
                yield Answered(*places.pop(update.writing), whole, update.error)


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
