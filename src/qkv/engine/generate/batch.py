"""Many answers at once: sequences join, each gets a token a step, and they leave when done.

This is the whole of continuous batching without threads: `add`, `step`, `cancel`. A sequence's
answer does not depend on its neighbours, and what goes wrong in one ends only that one.
"""

import torch

from qkv.attention import Rows
from qkv.engine.generate.choosing import Choice, choose_many
from qkv.engine.generate.intake import Intake, Read, Unreadable
from qkv.engine.generate.reading import expect_writer, last_scores, reading
from qkv.engine.generate.request import Request
from qkv.engine.generate.running import Event, Running, event
from qkv.engine.generate.single import following
from qkv.model import Decoder

BUDGET = 16_384  # positions that may be needed by all sequences at work
KEPT = 4_096  # tokens of recent prompts that are remembered


class Batch:
    """Sequences at work on one model.

    vocabulary: how many tokens there are to choose from.
    budget: positions that the sequences at work may need in all; the rest wait in their order.
    kept: tokens of recent prompts whose keys and values are remembered.
    """

    def __init__(
        self, model: Decoder, vocabulary: int, budget: int = BUDGET, kept: int = KEPT
    ) -> None:
        expect_writer(model)
        self.model, self.vocabulary, self.budget = model, vocabulary, budget
        self.intake = Intake(model, vocabulary, kept)
        self.running: list[Running] = []  # in the order of the rows
        self.rows = self._no_rows()

    @property
    def idle(self) -> bool:
        """Whether nothing is left to do."""
        return not (self.running or self.intake.active or self.intake.waiting)

    @property
    def computed(self) -> int:
        """Tokens of prompts that were computed; those that were copied do not count."""
        return self.intake.computed

    def add(self, request: Request) -> Running:
        """Let it wait for its turn; a request the model cannot answer is refused."""
        request.check(self.model)
        running = Running(request)
        self.intake.waiting.append(running)
        return running

    def cancel(self, running: Running) -> None:
        """Forget a sequence and its keys and values at once; one that is done stays done."""
        if running in self.running:
            with reading(self.model):
                self._leave([running])
        else:
            self.intake.cancel(running)

    def step(self) -> list[Event]:
        """One more token for every sequence at work, and the first one for prompts just read."""
        with reading(self.model):
            events = self._decode() if self.running else []
            at_work = [*self.intake.active, *self.running]
            room = self.budget - sum(member.request.room for member in at_work)
            self.intake.admit(room, anyone=not at_work)
            found = self.intake.step()
            if isinstance(found, Unreadable):
                events.append(event(*found))
            elif found is not None:
                events += self._begin(found)
            return events

    def _decode(self) -> list[Event]:
        try:
            found = self._next_choices()
        except Exception as error:
            return self._lost(error)
        events = list(map(event, self.running, found))
        self._leave([e.running for e in events if e.done])
        return events

    def _next_choices(self) -> list[Choice | Exception]:
        device = self.model.embedding.weight.device
        ids = torch.tensor([[member.last] for member in self.running], device=device)
        positions, mask = self.rows.show()
        states = self.model.states(ids, mask=mask, positions=positions, cache=self.rows.cache)
        choosers = [member.chooser for member in self.running]
        if len(choosers) == 1:
            return [following(self.model, states, choosers[0], self.vocabulary)]
        return choose_many(choosers, last_scores(self.model, states, self.vocabulary))

    def _begin(self, read: Read) -> list[Event]:
        """The first token of prompts that have been read; those that go on get a row."""
        rows = list(read.members)
        members = list(read.members.values())
        found = choose_many([member.chooser for member in members], read.scores[rows])
        events = list(map(event, members, found))
        for row, e in zip(rows, events, strict=True):
            if e.error is None:
                self.intake.keep(read, row)
        staying = [row for row, e in zip(rows, events, strict=True) if not e.done]
        self.running += [read.members[row] for row in staying]
        if staying:
            try:
                lengths = {row: read.prefill.lengths[row] for row in staying}
                self.rows.join(read.prefill.cache, lengths)
            except Exception as error:
                events += self._lost(error)
        return events

    def _lost(self, error: Exception) -> list[Event]:
        """The cache is in an unknown state: nobody who needs it can go on."""
        failed, self.running, self.rows = self.running, [], self._no_rows()
        return [event(member, error) for member in failed]

    def _leave(self, members: list[Running]) -> None:
        for member in members:
            row = self.running.index(member)
            self.rows.leave(row)
            self.running[row] = self.running[-1]
            self.running.pop()

    def _no_rows(self) -> Rows:
        with reading(self.model):
            return Rows(self.model.empty_cache(1, 0))
