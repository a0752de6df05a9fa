"""An answer that somebody else is writing."""

import queue
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError

from qkv.engine.generate.request import Request
from qkv.engine.generate.writing import Generation, Token


class Handle:
    """What a caller holds. One thread may iterate it; any number may wait for it."""

    def __init__(self, request: Request, cancel: Callable[["Handle"], None]) -> None:
        self.request = request
        self._cancel = cancel
        self._tokens: queue.SimpleQueue[Token | None] = queue.SimpleQueue()
        self._done = threading.Event()
        self._found: Generation | BaseException | None = None

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

    def result(self, timeout: float | None = None) -> Generation:
        """The whole answer; raises what went wrong, CancelledError, or TimeoutError."""
        if not self._done.wait(timeout):
            raise TimeoutError(f"the answer is not finished after {timeout:g} seconds")
        if isinstance(self._found, Generation):
            return self._found
        assert self._found is not None
        raise self._found

    def cancel(self) -> None:
        """Stop writing and free what it keeps in memory; nothing happens if it is finished."""
        self._cancel(self)

    def add(self, token: Token) -> None:
        """One more token, from the thread that writes."""
        self._tokens.put(token)

    def end(self, found: Generation | BaseException) -> None:
        """The last word, from the thread that writes."""
        self._found = found
        self._done.set()
        self._tokens.put(None)
