"""From a prompt that waits to one that has been read: order, room, groups and known beginnings."""

from typing import NamedTuple

from torch import Tensor

from qkv.engine.generate.prefill import Prefill, together
from qkv.engine.generate.prefixes import Prefixes
from qkv.engine.generate.running import Running
from qkv.model import Decoder


class Read(NamedTuple):
    """A group that has been read: its members by their rows, and their scores (B, V)."""

    members: dict[int, Running]
    prefill: Prefill
    scores: Tensor


class Unreadable(NamedTuple):
    """A prompt that the model could not read."""

    running: Running
    error: Exception


class Intake:
    """Sequences before their first token."""

    def __init__(self, model: Decoder, vocabulary: int, kept: int) -> None:
        self.model, self.vocabulary = model, vocabulary
        self.waiting: list[Running] = []  # for room
        self.admitted: list[Running] = []  # for their turn
        self.members: dict[int, Running] = {}  # being read, by their rows
        self.prefixes = Prefixes(kept)
        self.computed = 0  # tokens of prompts, those that were copied left out
        self._prefill: Prefill | None = None

    @property
    def active(self) -> list[Running]:
        """Those that have been let in."""
        return [*self.admitted, *self.members.values()]

    def admit(self, room: int, anyone: bool) -> None:
        """Let in what fits into that many positions, in order; the first of all if `anyone`."""
        while self.waiting and (self.waiting[0].request.room <= room or anyone):
            self.admitted.append(self.waiting.pop(0))
            room, anyone = room - self.admitted[-1].request.room, False

    def cancel(self, running: Running) -> None:
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
        self.prefixes.keep(read.members[row].ids, read.prefill.cache, row)

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
