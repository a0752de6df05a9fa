"""The front's side of the engine process: starts it, watches it, restarts it, and talks to it.

The engine sends a heartbeat between its steps. If it is gone, or silent for longer than the step
it announced may take, its requests fail with a clean error, and a new one is started. A silent
engine that computes is given more time than one that uses no processor.
"""

import asyncio
import json
import os
import signal
import socket
import sys
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import msgspec

from qkv.serve.link import (
    Call,
    Cancel,
    Encode,
    Failed,
    FrameBuffer,
    Generate,
    Heartbeat,
    LoadFailed,
    LoadModel,
    Message,
    ModelInfo,
    ModelLoaded,
    Result,
    Score,
    Shutdown,
    TokenEvent,
    Tokens,
    UnloadModel,
    encode_frame,
    to_front_decoder,
)
from qkv.serve.settings import ModelSource, Settings

READY_SECONDS = 2.5  # a heartbeat older than that is not ready
WATCH_SECONDS = 0.25
MAX_RESTARTS = 3  # a minute
RESTART_WINDOW = 60.0
EXIT_SECONDS = 5.0


class EngineUnavailableError(Exception):
    """The engine is not there, or died while it worked on a request; trying again may help."""


class RequestFailedError(Exception):
    """The engine could not answer a request. user: whether the request itself is at fault."""

    def __init__(self, message: str, user: bool) -> None:
        super().__init__(message)
        self.user = user


Answer = TokenEvent | Result | Exception


class Ticket:
    """One request to the engine: its tokens as they come, or its result.

    Use it as a context manager: leaving it early cancels the request.
    """

    def __init__(self, id: int, tokens: int, client: "EngineClient") -> None:
        self.id = id
        self.tokens = tokens  # of the prompt or the texts, for the length of the queue
        self.submitted = time.monotonic()
        self.first_answer: float | None = None
        self._client = client
        self._answers: asyncio.Queue[Answer] = asyncio.Queue()

    def __enter__(self) -> "Ticket":
        return self

    def __exit__(self, *_: object) -> None:
        self._client.forget(self)

    def put(self, answer: Answer) -> None:
        """Add an answer; called by the client."""
        if self.first_answer is None:
            self.first_answer = time.monotonic()
        self._answers.put_nowait(answer)

    async def result(self) -> Any:
        """The result of a request that has one."""
        answer = await self._next()
        assert isinstance(answer, Result)
        return answer.value

    async def events(self) -> AsyncIterator[TokenEvent]:
        """The tokens of a completion, until the last one."""
        while True:
            event = await self._next()
            assert isinstance(event, TokenEvent)
            yield event
            if event.stop_reason is not None:
                return

    async def _next(self) -> TokenEvent | Result:
        answer = await self._answers.get()
        if isinstance(answer, Exception):
            raise answer
        return answer


@dataclass
class ModelState:
    """A model as the front knows it: loaded, loading, or why not."""

    source: ModelSource
    info: ModelInfo | None = None
    error: str | None = None
    load_seconds: float = 0.0


class EngineClient:
    """The engine process, and every request it works on."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.models = {source.name: ModelState(source) for source in settings.models}
        self.stats: dict[str, float] = {}
        self.restarts = 0
        self.process: asyncio.subprocess.Process | None = None
        self.failed = False  # too many restarts
        self.on_model: Callable[[ModelInfo], None] = lambda info: None
        self._ids = count(1)
        self._tickets: dict[int, Ticket] = {}
        self._connection: socket.socket | None = None
        self._outgoing = bytearray()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._last_heartbeat = 0.0
        self._allowance = 0.0
        self._cpu_seconds: float | None = None  # of the engine, and when that last changed
        self._cpu_changed = 0.0
        self._starts: deque[float] = deque()
        self._watcher: asyncio.Task[None] | None = None
        self._closing = False
        self._changed = asyncio.Event()

    @property
    def pending(self) -> int:
        """How many requests the engine works on or has waiting."""
        return len(self._tickets)

    @property
    def queue_tokens(self) -> int:
        """The tokens of requests that were not answered at all yet."""
        waiting = [ticket for ticket in self._tickets.values() if ticket.first_answer is None]
        return sum(ticket.tokens for ticket in waiting)

    @property
    def alive(self) -> bool:
        """Whether the engine has shown that it works, a moment ago."""
        silence = time.monotonic() - self._last_heartbeat
        return self._connection is not None and silence < max(READY_SECONDS, self._allowance)

    @property
    def ready(self) -> bool:
        """Whether every model can be used."""
        loaded = all(state.info is not None for state in self.models.values())
        return self.alive and loaded and not self._closing

    async def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        await self._spawn()
        self._watcher = asyncio.create_task(self._watch())

    async def close(self) -> None:
        """End the engine process; requests that are still open fail."""
        self._closing = True
        if self._watcher is not None:
            self._watcher.cancel()
        self._fail_tickets("the server is shutting down")
        if self._connection is not None:
            self._send(Shutdown())
        process = self.process
        if process is not None and process.returncode is None:
            try:
                await asyncio.wait_for(process.wait(), EXIT_SECONDS)
            except TimeoutError:
                process.kill()
                await process.wait()
        self._disconnect()

    def submit(self, message: Generate | Score | Encode | Call, tokens: int) -> Ticket:
        """Hand a request to the engine; its id is set here."""
        if self._connection is None or not self.alive:
            raise EngineUnavailableError("the engine is not ready; try again in a few seconds")
        ticket = Ticket(next(self._ids), tokens, self)
        self._tickets[ticket.id] = ticket
        self._send(_with_id(message, ticket.id))
        return ticket

    def forget(self, ticket: Ticket) -> None:
        """Nobody waits for this ticket any more."""
        if self._tickets.pop(ticket.id, None) is not None:
            self._send(Cancel(ticket.id))

    async def load(self, source: ModelSource) -> ModelState:
        """Load another model, or the same name anew; returns when that is done or has failed."""
        state = ModelState(source)
        self.models[source.name] = state
        self._send(LoadModel(source.name, source.path))
        while state.info is None and state.error is None:
            self._changed.clear()
            await self._changed.wait()
        return state

    def unload(self, name: str) -> None:
        del self.models[name]
        self._send(UnloadModel(name))

    async def _spawn(self) -> None:
        self._starts.append(time.monotonic())
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        settings = self.settings
        options = {
            "int8": settings.int8,
            "compile": settings.compile,
            "threads": settings.threads,
            "cache_tokens": settings.cache_tokens,
            "prefix_cache_tokens": settings.prefix_cache_tokens,
        }
        command = [sys.executable, "-m", "qkv.serve.worker", str(theirs.fileno())]
        with theirs:
            self.process = await asyncio.create_subprocess_exec(
                *command,
                json.dumps(options),
                pass_fds=[theirs.fileno()],
                stdin=asyncio.subprocess.DEVNULL,
                env=os.environ | {"PYTHONUNBUFFERED": "1"},
            )
        self._connection = ours
        self._outgoing.clear()
        self._frames = FrameBuffer()
        self._last_heartbeat = time.monotonic()
        self._allowance = 120.0  # it imports torch first
        assert self._loop is not None
        self._loop.add_reader(ours, self._read)
        for state in self.models.values():
            state.info = None
            state.error = None
            self._send(LoadModel(state.source.name, state.source.path))

    async def _watch(self) -> None:
        """Restart an engine that is gone or stuck."""
        while True:
            await asyncio.sleep(WATCH_SECONDS)
            process = self.process
            assert process is not None
            connected = self._connection is not None
            if process.returncode is None and connected and not self._is_stuck(process.pid):
                continue
            if process.returncode is None:
                process.send_signal(signal.SIGKILL)
                await process.wait()
            self._disconnect()
            self._fail_tickets("the engine stopped while it worked on this; it is being restarted")
            while self._starts and time.monotonic() - self._starts[0] > RESTART_WINDOW:
                self._starts.popleft()
            if len(self._starts) > MAX_RESTARTS:
                self.failed = True
                return
            self.restarts += 1
            await self._spawn()

    def _is_stuck(self, pid: int) -> bool:
        """Whether the engine has been silent for too long."""
        now = time.monotonic()
        late = now - self._last_heartbeat - self._allowance
        seconds = cpu_seconds(pid)
        if late < 0 or seconds != self._cpu_seconds:
            self._cpu_seconds = seconds
            self._cpu_changed = now
        deadlines = self.settings.deadlines
        idle = seconds is not None and now - self._cpu_changed > deadlines.idle
        return late > deadlines.stuck or (late > 0 and idle)

    def _disconnect(self) -> None:
        if self._connection is not None:
            assert self._loop is not None
            self._loop.remove_reader(self._connection)
            self._loop.remove_writer(self._connection)
            self._connection.close()
            self._connection = None
        self.stats = {}

    def _fail_tickets(self, message: str) -> None:
        for ticket in self._tickets.values():
            ticket.put(EngineUnavailableError(message))
        self._tickets = {}

    def _send(self, message: Message) -> None:
        if self._connection is None:
            return
        self._outgoing += encode_frame(message)
        self._write()

    def _write(self) -> None:
        """Write as much as the engine takes now; the rest when it takes more."""
        connection = self._connection
        if connection is None or self._loop is None:
            return
        while self._outgoing:
            try:
                sent = connection.send(self._outgoing[: 1 << 20])
            except BlockingIOError:
                self._loop.add_writer(connection, self._write)
                return
            except OSError:
                return  # the watcher sees to it
            del self._outgoing[:sent]
        self._loop.remove_writer(connection)

    def _read(self) -> None:
        assert self._connection is not None
        try:
            data = self._connection.recv(1 << 18)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._disconnect()
            return
        for body in self._frames.feed(data):
            self._handle(to_front_decoder.decode(body))

    def _handle(self, message: Message) -> None:
        self._last_heartbeat = time.monotonic()
        match message:
            case Tokens(events):
                for event in events:
                    self._answer(event.id, event, event.stop_reason is not None)
            case Result(id):
                self._answer(id, message, True)
            case Failed(id, user, text):
                self._answer(id, RequestFailedError(text, user), True)
            case Heartbeat(allowance, stats):
                self._allowance = allowance
                self.stats = stats
            case ModelLoaded(info, seconds):
                if info.name in self.models:
                    state = self.models[info.name]
                    state.info = info
                    state.load_seconds = seconds
                    self.on_model(info)
                self._changed.set()
            case LoadFailed(name, text):
                if name in self.models:
                    self.models[name].error = text
                self._changed.set()

    def _answer(self, id: int, answer: Answer, last: bool) -> None:
        ticket = self._tickets.get(id)
        if ticket is None:
            return
        ticket.put(answer)
        if last:
            del self._tickets[id]  # so that leaving it cancels nothing


def cpu_seconds(pid: int) -> float | None:
    """The processor time of a process; None if this system does not say."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    fields = stat.rpartition(")")[2].split()  # the name before it may hold spaces
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _with_id(message: Generate | Score | Encode | Call, id: int) -> Message:
    changed: Message = msgspec.structs.replace(message, id=id)
    return changed
