"""Many answers at once: sequences join, each gets a token a step, and they leave when done.

This is the whole of continuous batching without threads: `add`, `step`, `cancel`. A sequence's
answer does not depend on its neighbours, and what goes wrong in one ends only that one.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from qkv.attention import RaggedCache
from qkv.engine.generate.decode import Choice, Chooser, choose_many, following
from qkv.engine.generate.prefill import Prefill, PrefixCache, as_array, together
from qkv.engine.generate.request import Request, expect_writer, last_token_logits, reading
from qkv.model import Decoder

# FOLDED engine/generate/running: A request at work, and what can happen to it.
# FOLDED engine/generate/intake: From a prompt that waits to one that has been read: order,
#   room, groups and known beginnings.


class Sequence:
    """How far a request has come."""

    def __init__(self, request: Request) -> None:
        self.request, self.chooser = request, Chooser(request)
        self.ids = as_array(request.ids)
        self.written, self.last = 0, -1
        self.alone = False  # its group could not be read, so it is read by itself


class Event(NamedTuple):
    """A sequence has one more token; or has failed, and says why."""

    running: Sequence
    choice: Choice | None
    error: Exception | None
    done: bool  # it has left the batch


def event(running: Sequence, found: Choice | Exception) -> Event:
    """What the choice means for the sequence, which is one token further now."""
    if isinstance(found, Exception):
        return Event(running, None, found, done=True)
    running.last = found.id
    running.written += 1
    running.chooser.add(found.id)
    request = running.request
    done = found.id in request.ends or running.written == request.max_tokens
    return Event(running, found, None, done)


class Read(NamedTuple):
    """A group that has been read: its members by their rows, and their scores (B, V)."""

    members: dict[int, Sequence]
    prefill: Prefill
    scores: Tensor


class Unreadable(NamedTuple):
    """A prompt that the model could not read."""

    running: Sequence
    error: Exception


class Intake:
    """Sequences before their first token."""

    def __init__(self, model: Decoder, vocabulary: int, kept: int) -> None:
        self.model, self.vocabulary = model, vocabulary
        self.waiting: list[Sequence] = []  # for room
        self.admitted: list[Sequence] = []  # for their turn
        self.members: dict[int, Sequence] = {}  # being read, by their rows
        self.prefixes = PrefixCache(kept)
        self.computed = 0  # tokens of prompts, those that were copied left out
        self._prefill: Prefill | None = None

    @property
    def active(self) -> list[Sequence]:
        """Those that have been let in."""
        return [*self.admitted, *self.members.values()]

    def admit(self, room: int, anyone: bool) -> None:
        """Let in what fits into that many positions, in order; the first of all if `anyone`."""
        while self.waiting and (self.waiting[0].request.room <= room or anyone):
            self.admitted.append(self.waiting.pop(0))
            room, anyone = room - self.admitted[-1].request.room, False

    def cancel(self, running: Sequence) -> None:
        for queue in (self.waiting, self.admitted):
            if running in queue:
                queue.remove(running)
        self.members = {row: m for row, m in self.members.items() if m is not running}
        if not self.members:
            self._prefill = None

    def step(self) -> Read | Unreadable | None:
        """Read one chunk of prompts; what came of it if a group is through."""
        if not self.members and not self.admitted:
            return None
        try:
            if self._prefill is None:
                self._prefill = self._next_group()
            before = self._prefill.computed
            scores = self._prefill.step(self.vocabulary)
        except Exception as error:
            return self._unreadable(error)
        self.computed += self._prefill.computed - before
        if scores is None:
            return None
        read = Read(self.members, self._prefill, scores)
        self.members, self._prefill = {}, None
        return read

    def keep(self, read: Read, row: int) -> None:
        """Remember a prompt, for others that begin like it."""
        self.prefixes.store(read.members[row].ids, read.prefill.cache, row)

    def _next_group(self) -> Prefill:
        queue = self.admitted
        ready = queue[:1] if queue[0].alone else [m for m in queue if not m.alone]
        chosen = together([member.ids for member in ready], self.prefixes)
        self.members = dict(enumerate(ready[i] for i in chosen))
        taken = set(self.members.values())
        self.admitted = [member for member in queue if member not in taken]
        return Prefill(self.model, [m.ids for m in self.members.values()], self.prefixes)

    def _unreadable(self, error: Exception) -> Unreadable | None:
        """If it could be any of several, each gets another try by itself."""
        group = list(self.members.values()) or [self.admitted.pop(0)]
        self.members, self._prefill = {}, None
        if len(group) == 1:
            return Unreadable(group[0], error)
        for member in group:
            member.alone = True
        self.admitted = group + self.admitted
        return None


BUDGET = 16_384  # positions that may be needed by all sequences at work

KEPT = 4_096  # tokens of recent prompts that are remembered


class Scheduler:
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
        self.running: list[Sequence] = []  # in the order of the rows
        self.rows = self._no_rows()

    @property
    def idle(self) -> bool:
        """Whether nothing is left to do."""
        return not (self.running or self.intake.active or self.intake.waiting)

    @property
    def computed(self) -> int:
        """Tokens of prompts that were computed; those that were copied do not count."""
        return self.intake.computed

    def add(self, request: Request) -> Sequence:
        """Let it wait for its turn; a request the model cannot answer is refused."""
        request.check(self.model)
        running = Sequence(request)
        self.intake.waiting.append(running)
        return running

    def cancel(self, running: Sequence) -> None:
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
        positions, mask = self.rows.prepare()
        states = self.model.states(ids, mask=mask, positions=positions, cache=self.rows.cache)
        choosers = [member.chooser for member in self.running]
        if len(choosers) == 1:
            return [following(self.model, states, choosers[0], self.vocabulary)]
        return choose_many(choosers, last_token_logits(self.model, states, self.vocabulary))

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
                self.rows.add(read.prefill.cache, lengths)
            except Exception as error:
                events += self._lost(error)
        return events

    def _lost(self, error: Exception) -> list[Event]:
        """The cache is in an unknown state: nobody who needs it can go on."""
        failed, self.running, self.rows = self.running, [], self._no_rows()
        return [event(member, error) for member in failed]

    def _leave(self, members: list[Sequence]) -> None:
        for member in members:
            row = self.running.index(member)
            self.rows.remove(row)
            self.running[row] = self.running[-1]
            self.running.pop()

    def _no_rows(self) -> RaggedCache:
        with reading(self.model):
            return RaggedCache(self.model.empty_cache(1, 0))
