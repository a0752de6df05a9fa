"""A request at work, and what can happen to it."""

from typing import NamedTuple

from qkv.engine.generate.choosing import Choice, Chooser
from qkv.engine.generate.prefixes import as_array
from qkv.engine.generate.request import Request


class Running:
    """How far a request has come."""

    def __init__(self, request: Request) -> None:
        self.request, self.chooser = request, Chooser(request)
        self.ids = as_array(request.ids)
        self.written, self.last = 0, -1
        self.alone = False  # its group could not be read, so it is read by itself


class Event(NamedTuple):
    """A sequence has one more token; or has failed, and says why."""

    running: Running
    choice: Choice | None
    error: Exception | None
    done: bool  # it has left the batch


def event(running: Running, found: Choice | Exception) -> Event:
    """What the choice means for the sequence, which is one token further now."""
    if isinstance(found, Exception):
        return Event(running, None, found, done=True)
    running.last = found.id
    running.written += 1
    running.chooser.add(found.id)
    request = running.request
    done = found.id in request.ends or running.written == request.max_tokens
    return Event(running, found, None, done)
