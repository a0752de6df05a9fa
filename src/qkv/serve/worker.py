"""The engine process: loads the models, does the work of all requests, and says that it is alive.

    python -m qkv.serve.worker FD OPTIONS

FD is its end of the socket pair. Nothing else computes in this process, and it does nothing else:
HTTP, keys, tokenizing and JSON are the front's.
"""

from __future__ import annotations

import gc
import json
import selectors
import socket
import sys
import time
from functools import partial
from typing import TYPE_CHECKING, Any

from qkv.errors import QkvError
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
    ModelLoaded,
    Result,
    SamplingParameters,
    Score,
    Shutdown,
    Tokens,
    UnloadModel,
    encode_frame,
    to_engine_decoder,
)
from qkv.serve.served_model import ServedModel, WorkerOptions, load_model, token_explainer

if TYPE_CHECKING:
    from qkv.engine.generate import Request, Sampling
    from qkv.serve.call_work import CallWorkload
    from qkv.serve.fair_queue import Workload

HEARTBEAT_SECONDS = 0.25
IDLE_SECONDS = 0.5
STEP_ALLOWANCE = 2.0  # seconds one step may take before something must be wrong
LOAD_ALLOWANCE = 600.0
READ_BYTES = 1 << 18


class Worker:
    """The loop of the engine process."""

    def __init__(self, connection: socket.socket, options: WorkerOptions) -> None:
        from qkv.serve.fair_queue import FairQueue

        self.options = options
        self.models: dict[str, ServedModel] = {}
        self.queue = FairQueue()
        self._connection = connection
        connection.setblocking(False)
        self._selector = selectors.DefaultSelector()
        self._selector.register(connection, selectors.EVENT_READ)
        self._frames = FrameBuffer()
        self._outgoing = bytearray()
        self._owners: dict[int, Workload] = {}
        self._closing = False
        self._last_heartbeat = 0.0
        self._steps = 0

    def run(self) -> None:
        """Serve until the front says so, or is gone."""
        self._heartbeat(LOAD_ALLOWANCE)
        while not self._closing:
            busy = self.queue.ready
            self._receive(wait=0.0 if busy else self._idle_seconds())
            if self.queue.run():
                self._steps += 1
            if time.monotonic() - self._last_heartbeat > HEARTBEAT_SECONDS:
                self._heartbeat()
            self._flush()

    def send(self, message: Message) -> None:
        """Queue a message for the front; a result that cannot cross fails its request alone."""
        match message:
            case Result(id) | Failed(id):
                self._owners.pop(id, None)
            case Tokens(events):
                for event in events:
                    if event.stop_reason is not None:
                        self._owners.pop(event.id, None)
        try:
            self._outgoing += encode_frame(message)
        except (TypeError, ValueError) as error:
            if not isinstance(message, Result):
                raise
            failure = Failed(message.id, False, f"the result cannot be sent: {error}")
            self._outgoing += encode_frame(failure)

    def _idle_seconds(self) -> float:
        if self.queue.pending:
            return 0.005  # a detached call may come back at any time
        return IDLE_SECONDS

    def _heartbeat(self, allowance: float = STEP_ALLOWANCE) -> None:
        self._last_heartbeat = time.monotonic()
        self.send(Heartbeat(allowance, self._stats()))
        self._flush()

    def _stats(self) -> dict[str, float]:
        stats: dict[str, float] = {"steps": self._steps, "pending": self.queue.pending}
        stats["owners"] = len(self._owners)
        for name in ("running", "waiting", "cache_bytes", "prefix_cache_bytes", "prefix_tokens"):
            stats[name] = 0
        for served in self.models.values():
            generation: Any = served.workloads.get("generate")
            if generation is None:
                continue
            scheduler = generation.scheduler
            stats["running"] += len(scheduler.running)
            stats["waiting"] += scheduler.waiting + len(scheduler.prefill_queue.active)
            stats["cache_bytes"] += scheduler.cache.cache.bytes if scheduler.running else 0
            stats["prefix_cache_bytes"] += scheduler.prefill_queue.prefix_cache.bytes
            stats["prefix_tokens"] += scheduler.prefill_queue.prefix_cache.tokens
        return stats

    def _flush(self) -> None:
        """Write as much as the front takes now."""
        while self._outgoing:
            try:
                count = self._connection.send(self._outgoing[: 1 << 20])
            except BlockingIOError:
                return
            except OSError:
                self._closing = True  # the front is gone
                return
            del self._outgoing[:count]

    def _receive(self, wait: float) -> None:
        """Handle every message that has arrived; wait at most so long for the first."""
        self._selector.select(wait)
        try:
            data = self._connection.recv(READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._closing = True
            return
        for body in self._frames.feed(data):
            self._handle(to_engine_decoder.decode(body))

    def _handle(self, message: Message) -> None:
        match message:
            case Shutdown():
                self._closing = True
            case LoadModel():
                self._load(message)
            case UnloadModel(name):
                self._unload(name)
            case Cancel(id):
                owner = self._owners.pop(id, None)
                if owner is not None:
                    owner.cancel(id)
            case Generate() | Score() | Encode() | Call():
                try:
                    self._submit(message)
                except QkvError as error:
                    self.send(Failed(message.id, True, str(error)))
                except Exception as error:
                    self.send(Failed(message.id, False, f"{type(error).__name__}: {error}"))

    def _submit(self, message: Generate | Score | Encode | Call) -> None:
        served = self.models.get(message.model)
        if served is None:
            raise QkvError(f"the model {message.model} is not loaded any more")
        match message:
            case Generate():
                workload: Any = served.workloads["generate"]
                workload.add(
                    message.id, self._request(served, message), token_explainer(served, message)
                )
            case Score():
                workload = served.workloads["score"]
                workload.add(message)
            case Encode():
                workload = served.workloads["encode"]
                workload.add(message)
            case Call():
                workload = self._call(served, message)
        self._owners[message.id] = workload

    def _call(self, served: ServedModel, message: Call) -> CallWorkload:
        """Queue a long call; a translation joins those that wait for the same kind."""
        from qkv.serve.call_work import PendingCall, TranslationWorkload
        from qkv.serve.calls import FUNCTIONS
        from qkv.serve.cooperative import CooperativeCall

        if message.function == "translate":
            translations = served.workloads["translate"]
            assert isinstance(translations, TranslationWorkload)
            translations.submit(message)
            return translations
        function = partial(FUNCTIONS[message.function], served.box, **message.arguments)
        workload: Any = served.workloads["call"]
        call = CooperativeCall(function, message.budget_seconds)
        workload.add(PendingCall([message.id], call))
        owner: CallWorkload = workload
        return owner

    def _request(self, served: ServedModel, message: Generate) -> Request:
        from qkv.engine.generate import Request

        tokenizer = served.engine.tokenizer
        eos_ids: frozenset[int] = frozenset(tokenizer.eos_ids)
        if message.sampling.ignore_eos:
            eos_ids = frozenset()
        return Request(
            tuple(message.ids),
            message.max_tokens,
            self._sampling(served, message.sampling, len(message.ids)),
            message.seed,
            message.sample_index,
            eos_ids,
            tuple(message.stop),
            message.top_logprobs,
            message.cache_salt,
        )

    def _sampling(
        self, served: ServedModel, parameters: SamplingParameters, prompt_tokens: int
    ) -> Sampling:
        from dataclasses import replace

        from qkv.engine.generate import choose_sampling, with_penalties

        sampling = choose_sampling(
            None,
            parameters.temperature,
            parameters.top_k,
            parameters.top_p,
            parameters.min_p,
            parameters.repetition_penalty,
        )
        sampling = with_penalties(
            sampling,
            prompt_tokens,
            parameters.presence_penalty,
            parameters.frequency_penalty,
            parameters.logit_bias,
        )
        if parameters.grammar is not None:
            from qkv.serve.grammar_mask import GrammarMask, grammar_tokenizer

            mask = GrammarMask(
                grammar_tokenizer(served.engine.tokenizer), parameters.grammar, prompt_tokens
            )
            sampling = replace(sampling, processors=(mask, *sampling.processors))
        return sampling

    def _load(self, message: LoadModel) -> None:
        self._heartbeat(LOAD_ALLOWANCE)
        started = time.monotonic()
        try:
            served = load_model(message.name, message.path, self.options, self.send)
        except QkvError as error:
            self.send(LoadFailed(message.name, str(error)))
        except Exception as error:
            self.send(LoadFailed(message.name, f"{type(error).__name__}: {error}"))
        else:
            self._unload(message.name)
            self.models[message.name] = served
            self.queue.workloads += served.workloads.values()
            self.send(ModelLoaded(served.info, time.monotonic() - started))
            gc.collect()
            gc.freeze()  # what was loaded stays, and need not be looked at again
        self._heartbeat()

    def _unload(self, name: str) -> None:
        served = self.models.pop(name, None)
        if served is None:
            return
        gone = set(map(id, served.workloads.values()))
        for request, owner in list(self._owners.items()):
            if id(owner) in gone:
                self.send(Failed(request, False, f"the model {name} was unloaded"))
        self.queue.workloads = [each for each in self.queue.workloads if id(each) not in gone]
        gc.unfreeze()
        gc.collect()


def main() -> None:
    connection = socket.socket(fileno=int(sys.argv[1]))
    options = WorkerOptions(**json.loads(sys.argv[2]))
    import signal

    # Ctrl-C reaches the whole group; the front decides when the engine ends.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    from qkv.machine import set_threads

    if options.threads is not None:
        set_threads(options.threads)
    Worker(connection, options).run()


if __name__ == "__main__":
    main()
