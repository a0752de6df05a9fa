"""Answers for many callers at once: a thread of its own runs the batch.

with Service(model, tokenizer) as service:
    handle = service.ask("Once upon a time", max_tokens=50)
    for token in handle: ...
    handle.result(timeout=10)
"""

import queue
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError
from contextlib import suppress
from typing import NamedTuple, Unpack

from qkv.engine.generate.request import Options, Prompt, Prompter, Request
from qkv.engine.generate.scheduler import BUDGET, KEPT, Event, Scheduler, Sequence
from qkv.engine.generate.streaming import Completion, Token, Writing
from qkv.errors import UsageError
from qkv.model import Decoder
from qkv.text import Tokenizer

# FOLDED engine/generate/desk: A batch whose answers are texts: what `generate_many` and the
#   service stand on.
# FOLDED engine/generate/handle: An answer that somebody else is writing.


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
        self.batch = Scheduler(model, tokenizer.vocab_size, budget, kept)
        self._writings: dict[Sequence, Writing] = {}
        self._running: dict[Writing, Sequence] = {}

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


class CompletionFuture:
    """What a caller holds. One thread may iterate it; any number may wait for it."""

    def __init__(self, request: Request, cancel: Callable[["CompletionFuture"], None]) -> None:
        self.request = request
        self._cancel = cancel
        self._tokens: queue.SimpleQueue[Token | None] = queue.SimpleQueue()
        self._done = threading.Event()
        self._found: Completion | BaseException | None = None

    def __iter__(self) -> Iterator[Token]:
        """The tokens as they come; raises what went wrong, and just ends if it was cancelled."""
        while (token := self._tokens.get()) is not None:
            yield token
        self._tokens.put(None)  # who iterates again finds the end
        if isinstance(self._found, BaseException) and not isinstance(self._found, CancelledError):
            raise self._found

    @property
    def done(self) -> bool:
        return self._done.is_set()

    def result(self, timeout: float | None = None) -> Completion:
        """The whole answer; raises what went wrong, CancelledError, or TimeoutError."""
        if not self._done.wait(timeout):
            raise TimeoutError(f"the answer is not finished after {timeout:g} seconds")
        if isinstance(self._found, Completion):
            return self._found
        assert self._found is not None
        raise self._found

    def cancel(self) -> None:
        """Stop writing and free what it keeps in memory; nothing happens if it is finished."""
        self._cancel(self)

    def add(self, token: Token) -> None:
        """One more token, from the thread that writes."""
        self._tokens.put(token)

    def end(self, found: Completion | BaseException) -> None:
        """The last word, from the thread that writes."""
        self._found = found
        self._done.set()
        self._tokens.put(None)


class Service:
    """A model that many threads may ask; it sleeps while there is nothing to do."""

    def __init__(
        self,
        model: Decoder,
        tokenizer: Tokenizer,
        budget: int = BUDGET,
        kept: int = KEPT,
    ) -> None:
        self._desk = Desk(model, tokenizer, budget, kept)
        self._handles: dict[Writing, CompletionFuture] = {}  # only the worker looks at these two
        self._writings: dict[CompletionFuture, Writing] = {}
        self._changed = threading.Condition()
        self._new: list[CompletionFuture] = []
        self._unwanted: list[CompletionFuture] = []
        self._closing = False
        self._worker = threading.Thread(target=self._work, name="qkv generate", daemon=True)
        self._worker.start()

    def __enter__(self) -> "Service":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def ask(self, prompt: Prompt, number: int = 0, **options: Unpack[Options]) -> CompletionFuture:
        """A handle on the answer; a prompt that does not fit is refused here and now."""
        return self.submit(self._desk.prompter.request(prompt, number, **options))

    def submit(self, request: Request) -> CompletionFuture:
        """A handle on the answer to a request that is made already."""
        request.check(self._desk.batch.model)
        handle = CompletionFuture(request, self._cancel)
        with self._changed:
            if self._closing:
                raise UsageError("the service is closed; make another one")
            self._new.append(handle)
            self._changed.notify()
        return handle

    def close(self) -> None:
        """Stop at the next step; what is not finished is cancelled. Closing twice does no harm."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._worker.join()

    def _cancel(self, handle: CompletionFuture) -> None:
        with self._changed:
            self._unwanted.append(handle)
            self._changed.notify()

    def _work(self) -> None:
        failure: BaseException = CancelledError("the service was closed")
        try:
            while self._next_orders():
                for update in self._desk.step():
                    self._tell(update)
        except BaseException as error:  # nobody is left to raise it to but those who wait
            failure = error
        finally:
            with self._changed:
                self._closing = True
                unfinished = [*self._handles.values(), *self._new]
            for handle in unfinished:
                handle.end(failure)
            with suppress(Exception):  # after a failure the desk may be in any state
                for writing in list(self._handles):
                    self._desk.cancel(writing)

    def _next_orders(self) -> bool:
        """Wait until there is something to do, take it in; False when the service closes."""
        with self._changed:
            while not (self._closing or self._new or self._unwanted or not self._desk.idle):
                self._changed.wait()
            if self._closing:
                return False
            new, self._new = self._new, []
            unwanted, self._unwanted = self._unwanted, []
        for handle in new:
            try:
                writing = self._desk.add(handle.request)
            except Exception as error:
                handle.end(error)
            else:
                self._handles[writing], self._writings[handle] = handle, writing
        for handle in unwanted:
            if handle in self._writings:
                writing = self._writings.pop(handle)
                del self._handles[writing]
                self._desk.cancel(writing)
                handle.end(CancelledError("the answer was cancelled"))
        return True

    def _tell(self, update: Update) -> None:
        handle = self._handles[update.writing]
        if update.token is not None:
            handle.add(update.token)
        if update.last:
            del self._handles[update.writing], self._writings[handle]
            handle.end(update.error or update.writing.generation())
