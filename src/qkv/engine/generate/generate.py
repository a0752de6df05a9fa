"""One answer, token by token.

answer = generate(model, tokenizer, "Once upon a time", max_tokens=50)
for token in answer:
    print(token.text, end="", flush=True)
answer.stop_reason
"""

from collections.abc import Iterator
from typing import Unpack

from qkv.engine.generate.choosing import Choice
from qkv.engine.generate.drafts import Draft, Tally
from qkv.engine.generate.prompting import Options, Prompt, Prompter
from qkv.engine.generate.request import Request
from qkv.engine.generate.single import write_one
from qkv.engine.generate.speculative import speculate
from qkv.engine.generate.writing import Generation, StopReason, Token, Writing
from qkv.model import Decoder
from qkv.text import Tokenizer


def generate(
    model: Decoder,
    tokenizer: Tokenizer,
    prompt: Prompt,
    *,
    draft: Draft | None = None,
    number: int = 0,
    **options: Unpack[Options],
) -> "Generating":
    """An answer to the prompt, a text or the messages of a chat; `Options` says how.

    Nothing is computed before it is iterated.

    draft: somebody quick whose guesses the model only has to check; the answer is the same.
    number: answers of one seed that differ in this are drawn independently.
    """
    request = Prompter(model, tokenizer).request(prompt, number, **options)
    return Generating(model, tokenizer, request, draft)


class Generating(Iterator[Token]):
    """An answer that is being written: iterate it for the tokens, or `finish` it."""

    def __init__(
        self,
        model: Decoder,
        tokenizer: Tokenizer,
        request: Request,
        draft: Draft | None = None,
    ) -> None:
        self.request, self.tally = request, Tally()
        self._writing = Writing(request, tokenizer)
        self._choices: Iterator[Choice] = (
            write_one(model, request, tokenizer.size)
            if draft is None
            else speculate(model, request, tokenizer.size, draft, self.tally)
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

    def finish(self) -> Generation:
        """The whole answer."""
        for _ in self:
            pass
        return self._writing.generation()
