"""Long calls in slices: explanations, clusters, and translations that are searched together."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from qkv.interpret import GlassBox
from qkv.serve.calls import translate
from qkv.serve.cooperative import CooperativeCall
from qkv.serve.fair_queue import Send, Workload
from qkv.serve.link import Call, Result

SLICE_SECONDS = 0.02  # its passes between two pause points may take longer
MAX_GROUPED_TEXTS = 64  # translations of several requests that are searched together


@dataclass
class PendingCall:
    """A long call and who waits for it: several requests that were grouped, or one."""

    ids: list[int]
    call: CooperativeCall
    retry: Callable[[int], CooperativeCall] | None = None  # one request of a group by itself
    cancelled: set[int] = field(default_factory=set)  # those of ids that nobody waits for

    @property
    def waiting_ids(self) -> list[int]:
        return [id for id in self.ids if id not in self.cancelled]


class CallWorkload(Workload):
    """Long calls in slices, one after the other."""

    def __init__(self, send: Send, weight: float) -> None:
        super().__init__(send)
        self.weight = weight
        self._active: deque[PendingCall] = deque()
        self._waiting: deque[PendingCall] = deque()

    @property
    def ready(self) -> bool:
        self._admit()
        return any(pending.call.ready for pending in self._active)

    @property
    def pending(self) -> int:
        return sum(len(each.waiting_ids) for each in (*self._active, *self._waiting))

    def add(self, pending: PendingCall) -> None:
        self._waiting.append(pending)

    def cancel(self, id: int) -> None:
        for pending in (*self._active, *self._waiting):
            if id in pending.ids:
                pending.cancelled.add(id)
                if not pending.waiting_ids:
                    pending.call.cancel()

    def run(self) -> None:
        while not self._active[0].call.ready:
            self._active.rotate(-1)
        pending = self._active[0]
        pending.call.run_slice(SLICE_SECONDS)
        self._active.rotate(-1)
        if pending.call.done:
            self._active.remove(pending)
            self._finish(pending)

    def _admit(self) -> None:
        for pending in [each for each in self._active if each.call.done]:
            self._active.remove(pending)  # it was detached, and is done since
            self._finish(pending)
        # One at a time: calls put hooks on the modules of the model. One that is detached does not.
        if self._waiting and all(each.call.detached for each in self._active):
            self._active.append(self._waiting.popleft())

    def _finish(self, pending: PendingCall) -> None:
        call = pending.call
        ids = pending.waiting_ids
        if not ids:
            return
        if call.error is None:
            results = call.result if pending.retry is not None else [call.result]
            for id, result in zip(pending.ids, results, strict=True):
                if id in ids:
                    self.send(Result(id, result))
        elif pending.retry is None or len(pending.ids) == 1:
            for id in ids:
                self.fail(id, call.error)
        else:
            for id in ids:  # only the one at fault fails
                self.add(PendingCall([id], pending.retry(id), pending.retry))


class TranslationWorkload(CallWorkload):
    """Translations: requests that wait for the same kind of search are searched together."""

    def __init__(self, send: Send, box: GlassBox) -> None:
        super().__init__(send, weight=4.0)
        self.box = box
        self._queue: deque[Call] = deque()

    @property
    def ready(self) -> bool:
        return super().ready or (bool(self._queue) and not self._active)

    @property
    def pending(self) -> int:
        return len(self._queue) + super().pending

    def submit(self, message: Call) -> None:
        self._queue.append(message)

    def cancel(self, id: int) -> None:
        self._queue = deque(message for message in self._queue if message.id != id)
        super().cancel(id)

    def run(self) -> None:
        if self._queue and not self._active:
            self._start_group()
        super().run()

    def _start_group(self) -> None:
        """The oldest request, and the others with the same options, as far as they fit."""
        options = _search_options(self._queue[0])
        group: list[Call] = []
        count = 0
        for message in self._queue:
            texts = len(message.arguments["texts"])
            fits = _search_options(message) == options and count + texts <= MAX_GROUPED_TEXTS
            if group and not fits:
                continue
            group.append(message)
            count += texts
        ids = {message.id for message in group}
        self._queue = deque(message for message in self._queue if message.id not in ids)
        by_id = {message.id: message for message in group}

        def translate_alone(id: int) -> CooperativeCall:
            return CooperativeCall(lambda: self._translate([by_id[id]], options))

        call = CooperativeCall(lambda: self._translate(group, options))
        self._active.append(PendingCall([each.id for each in group], call, translate_alone))

    def _translate(self, group: list[Call], options: dict[str, Any]) -> list[Any]:
        """The translations of each request."""
        texts = [text for message in group for text in message.arguments["texts"]]
        translations = iter(translate(self.box, texts, **options))
        return [[next(translations) for _ in message.arguments["texts"]] for message in group]


def _search_options(message: Call) -> dict[str, Any]:
    return {name: value for name, value in message.arguments.items() if name != "texts"}
