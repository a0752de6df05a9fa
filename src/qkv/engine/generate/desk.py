"""A batch whose answers are texts: what `generate_many` and the service stand on."""

from typing import NamedTuple

from qkv.engine.generate.batch import BUDGET, KEPT, Batch
from qkv.engine.generate.prompting import Prompter
from qkv.engine.generate.request import Request
from qkv.engine.generate.running import Event, Running
from qkv.engine.generate.writing import Token, Writing
from qkv.model import Decoder
from qkv.text import Tokenizer


class Update(NamedTuple):
    """A writing has one more token, or has failed; its `stop_reason` says if it is finished."""

    writing: Writing
    token: Token | None
    error: Exception | None

    @property
    def last(self) -> bool:
        return self.error is not None or self.writing.stop_reason is not None


class Desk:
    """Requests go in, tokens with their text come out."""

    def __init__(
        self,
        model: Decoder,
        tokenizer: Tokenizer,
        budget: int = BUDGET,
        kept: int = KEPT,
    ) -> None:
        self.prompter = Prompter(model, tokenizer)
        self.batch = Batch(model, tokenizer.size, budget, kept)
        self._writings: dict[Running, Writing] = {}
        self._running: dict[Writing, Running] = {}

    @property
    def idle(self) -> bool:
        return self.batch.idle

    @property
    def waiting(self) -> int:
        """How many requests have not begun to be read."""
        return len(self.batch.intake.waiting)

    def add(self, request: Request) -> Writing:
        writing = Writing(request, self.prompter.tokenizer)
        running = self.batch.add(request)
        self._writings[running], self._running[writing] = writing, running
        return writing

    def cancel(self, writing: Writing) -> None:
        """Forget it at once; nothing happens if it is finished."""
        running = self._running.pop(writing, None)
        if running is not None:
            del self._writings[running]
            self.batch.cancel(running)

    def step(self) -> list[Update]:
        updates = []
        for event in self.batch.step():
            writing = self._writings.get(event.running)
            if writing is not None:
                updates.append(_update(writing, event))
                if updates[-1].last:
                    self.cancel(writing)  # a stop text ends it before the batch would
        return updates


def _update(writing: Writing, event: Event) -> Update:
    if event.choice is None:
        return Update(writing, None, event.error)
    try:
        return Update(writing, writing.push(event.choice), None)
    except Exception as error:  # ends this one, not the others
        return Update(writing, None, error)
