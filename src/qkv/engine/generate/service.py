"""Completions for many callers at once: a thread of its own runs the scheduler.

with Service(model, tokenizer) as service:
    future = service.submit("Once upon a time", max_tokens=50)
    for token in future: ...
    future.result(timeout=10)
"""

import queue
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError
from contextlib import suppress
from typing import Unpack

from qkv.engine.generate.request import Options, Request, make_request
from qkv.engine.generate.scheduler import (
    DEFAULT_CACHE_TOKENS,
    DEFAULT_PREFIX_CACHE_TOKENS,
    Event,
    Scheduler,
)
from qkv.engine.generate.sequence import Completion, Sequence, Token
from qkv.errors import UsageError, suggest_arguments
from qkv.model import Decoder
from qkv.text import Prompt, Tokenizer


class CompletionFuture:
    """A completion that the service generates. One thread may iterate it; any may wait for it."""

    def __init__(self, request: Request, cancel: Callable[["CompletionFuture"], None]) -> None:
        self.request = request
        self._cancel = cancel
        self._tokens: queue.SimpleQueue[Token | None] = queue.SimpleQueue()
        self._done = threading.Event()
        self._outcome: Completion | BaseException | None = None

    def __iter__(self) -> Iterator[Token]:
        """The tokens as they come; raises the error, and just ends after a cancellation."""
        while (token := self._tokens.get()) is not None:
            yield token
        self._tokens.put(None)  # a second iteration ends at once
        outcome = self._outcome
        if isinstance(outcome, BaseException) and not isinstance(outcome, CancelledError):
            raise outcome

    @property
    def done(self) -> bool:
        """Whether the completion is finished, failed or cancelled."""
        return self._done.is_set()

    def result(self, timeout: float | None = None) -> Completion:
        """The finished completion; raises its error, CancelledError or TimeoutError."""
        if not self._done.wait(timeout):
            raise TimeoutError(f"the completion is not finished after {timeout:g} seconds")
        if isinstance(self._outcome, Completion):
            return self._outcome
        assert self._outcome is not None
        raise self._outcome

    def cancel(self) -> None:
        """Stops generating and frees its cache; no effect on a finished completion."""
        self._cancel(self)

    def put(self, token: Token) -> None:
        """Adds a token; called by the service's thread."""
        self._tokens.put(token)

    def set_outcome(self, outcome: Completion | BaseException) -> None:
        """Ends the completion; called by the service's thread."""
        self._outcome = outcome
        self._done.set()
        self._tokens.put(None)


class Service:
    """A model that many threads may use; its own thread sleeps while there is nothing to do."""

    def __init__(
        self,
        model: Decoder,
        tokenizer: Tokenizer,
        cache_tokens: int = DEFAULT_CACHE_TOKENS,
        prefix_cache_tokens: int = DEFAULT_PREFIX_CACHE_TOKENS,
    ) -> None:
        self._model = model
        self._tokenizer = tokenizer
        self._scheduler = Scheduler(
            model, tokenizer.vocab_size, cache_tokens, prefix_cache_tokens, tokenizer=tokenizer
        )
        # Only the worker touches these two.
        self._futures: dict[Sequence, CompletionFuture] = {}
        self._sequences: dict[CompletionFuture, Sequence] = {}
        # The condition guards these three.
        self._condition = threading.Condition()
        self._submitted: list[CompletionFuture] = []
        self._cancelled: list[CompletionFuture] = []
        self._closing = False
        self._worker = threading.Thread(target=self._work, name="qkv generate", daemon=True)
        self._worker.start()

    def __enter__(self) -> "Service":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @suggest_arguments
    def submit(
        self, prompt: Prompt, *, sample_index: int = 0, **options: Unpack[Options]
    ) -> CompletionFuture:
        """Queues a prompt, with the keyword arguments of `make_request`.

        Raises a UsageError at once if the request does not fit the model.
        """
        request = make_request(
            self._model, self._tokenizer, prompt, sample_index=sample_index, **options
        )
        return self.submit_request(request)

    def submit_request(self, request: Request) -> CompletionFuture:
        """Queues a request."""
        request.check(self._model)
        future = CompletionFuture(request, self._cancel)
        with self._condition:
            if self._closing:
                raise UsageError("the service is closed; make another one")
            self._submitted.append(future)
            self._condition.notify()
        return future

    def close(self) -> None:
        """Stops after the current step and cancels what is unfinished; may be called twice."""
        with self._condition:
            self._closing = True
            self._condition.notify()
        self._worker.join()

    def _cancel(self, future: CompletionFuture) -> None:
        with self._condition:
            self._cancelled.append(future)
            self._condition.notify()

    def _work(self) -> None:
        failure: BaseException = CancelledError("the service was closed")
        try:
            while self._accept():
                for event in self._scheduler.step():
                    self._publish(event)
        except BaseException as error:  # the only ones left to raise it to are those who wait
            failure = error
        finally:
            with self._condition:
                self._closing = True
                unfinished = [*self._futures.values(), *self._submitted]
            for future in unfinished:
                future.set_outcome(failure)
            with suppress(Exception):  # after a failure the scheduler may be in any state
                for sequence in list(self._futures):
                    self._scheduler.cancel(sequence)

    def _accept(self) -> bool:
        """Waits for work and takes over what was submitted; False when the service closes."""
        with self._condition:
            while not self._has_work():
                self._condition.wait()
            if self._closing:
                return False
            submitted = self._submitted
            cancelled = self._cancelled
            self._submitted = []
            self._cancelled = []
        for future in submitted:
            try:
                sequence = self._scheduler.add(future.request)
            except Exception as error:
                future.set_outcome(error)
            else:
                self._futures[sequence] = future
                self._sequences[future] = sequence
        for future in cancelled:
            if future in self._sequences:
                sequence = self._sequences.pop(future)
                del self._futures[sequence]
                self._scheduler.cancel(sequence)
                future.set_outcome(CancelledError("the completion was cancelled"))
        return True

    def _has_work(self) -> bool:
        return bool(self._closing or self._submitted or self._cancelled or not self._scheduler.idle)

    def _publish(self, event: Event) -> None:
        future = self._futures[event.sequence]
        if event.token is not None:
            future.put(event.token)
        if event.done:
            del self._futures[event.sequence]
            del self._sequences[future]
            future.set_outcome(event.error or event.sequence.completion())
