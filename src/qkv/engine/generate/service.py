"""Answers for many callers at once: a thread of its own runs the batch.

with Service(model, tokenizer) as service:
    handle = service.ask("Once upon a time", max_tokens=50)
    for token in handle: ...
    handle.result(timeout=10)
"""

import threading
from concurrent.futures import CancelledError
from contextlib import suppress
from typing import Unpack

from qkv.engine.generate.batch import BUDGET, KEPT
from qkv.engine.generate.desk import Desk, Update
from qkv.engine.generate.handle import Handle
from qkv.engine.generate.prompting import Options, Prompt
from qkv.engine.generate.request import Request
from qkv.engine.generate.writing import Writing
from qkv.errors import UsageError
from qkv.model import Decoder
from qkv.text import Tokenizer


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
        self._handles: dict[Writing, Handle] = {}  # only the worker looks at these two
        self._writings: dict[Handle, Writing] = {}
        self._changed = threading.Condition()
        self._new: list[Handle] = []
        self._unwanted: list[Handle] = []
        self._closing = False
        self._worker = threading.Thread(target=self._work, name="qkv generate", daemon=True)
        self._worker.start()

    def __enter__(self) -> "Service":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def ask(self, prompt: Prompt, number: int = 0, **options: Unpack[Options]) -> Handle:
        """A handle on the answer; a prompt that does not fit is refused here and now."""
        return self.submit(self._desk.prompter.request(prompt, number, **options))

    def submit(self, request: Request) -> Handle:
        """A handle on the answer to a request that is made already."""
        request.check(self._desk.batch.model)
        handle = Handle(request, self._cancel)
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

    def _cancel(self, handle: Handle) -> None:
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
