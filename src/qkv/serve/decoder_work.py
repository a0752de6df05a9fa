"""The work of a decoder: completions by continuous batching, and the scoring of prompts."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from qkv.engine.generate import Event, Request, Scheduler, score_prompts
from qkv.engine.generate import Sequence as GeneratedSequence
from qkv.model import Decoder
from qkv.serve.fair_queue import Send, Workload
from qkv.serve.link import Result, Score, Scored, TokenEvent, Tokens

SCORE_BATCH_TOKENS = 1024

Explainer = Callable[[Sequence[int], int], dict[str, Any]]  # ids before a token, the token


@dataclass
class Stream:
    """A completion on its way, and what its tokens are explained by."""

    id: int
    explainer: Explainer | None = None


class GenerationWorkload(Workload):
    """Completions of one decoder, by continuous batching."""

    weight = 8.0

    def __init__(self, send: Send, scheduler: Scheduler) -> None:
        super().__init__(send)
        self.scheduler = scheduler
        self._streams: dict[GeneratedSequence, Stream] = {}
        self._sequences: dict[int, GeneratedSequence] = {}

    @property
    def ready(self) -> bool:
        return not self.scheduler.idle

    @property
    def pending(self) -> int:
        return len(self._sequences)

    def add(self, id: int, request: Request, explainer: Explainer | None = None) -> None:
        sequence = self.scheduler.add(request)
        self._streams[sequence] = Stream(id, explainer)
        self._sequences[id] = sequence

    def cancel(self, id: int) -> None:
        sequence = self._sequences.pop(id, None)
        if sequence is not None:
            del self._streams[sequence]
            self.scheduler.cancel(sequence)

    def run(self) -> None:
        events = [self._token_event(event) for event in self.scheduler.step()]
        tokens = [event for event in events if event is not None]
        if tokens:
            self.send(Tokens(tokens))

    def _token_event(self, event: Event) -> TokenEvent | None:
        """The event as the front gets it; a failure is sent at once."""
        stream = self._streams[event.sequence]
        if event.done:
            del self._streams[event.sequence]
            del self._sequences[stream.id]
        if event.error is not None:
            self.fail(stream.id, event.error)
            return None
        token = event.token
        assert token is not None
        explanation = None
        if stream.explainer is not None:
            sequence = event.sequence
            before = [*sequence.request.ids, *sequence.tokens[:-1]]
            explanation = stream.explainer(before, token.id)
        return TokenEvent(
            stream.id,
            token.id,
            token.text,
            token.logprob,
            list(token.alternatives),
            event.sequence.stop_reason,
            event.sequence.cached_tokens,
            explanation,
        )


class ScoringWorkload(Workload):
    """The log-probabilities of prompts, several of similar length together."""

    weight = 4.0

    def __init__(self, send: Send, model: Decoder, vocab_size: int) -> None:
        super().__init__(send)
        self.model = model
        self.vocab_size = vocab_size
        self._waiting: list[Score] = []

    @property
    def ready(self) -> bool:
        return bool(self._waiting)

    @property
    def pending(self) -> int:
        return len(self._waiting)

    def add(self, request: Score) -> None:
        self._waiting.append(request)

    def cancel(self, id: int) -> None:
        self._waiting = [request for request in self._waiting if request.id != id]

    def run(self) -> None:
        first = self._waiting[0]
        group = [first]
        longest = len(first.ids)
        for request in self._waiting[1:]:
            length = max(longest, len(request.ids))
            if request.top_logprobs != first.top_logprobs:
                continue
            if length * (len(group) + 1) > SCORE_BATCH_TOKENS or 2 * len(request.ids) < longest:
                continue
            group.append(request)
            longest = length
        ids = {request.id for request in group}
        self._waiting = [request for request in self._waiting if request.id not in ids]
        self._score(group)

    def _score(self, group: list[Score]) -> None:
        try:
            prompts = [request.ids for request in group]
            scored = score_prompts(self.model, prompts, self.vocab_size, group[0].top_logprobs)
        except Exception as error:
            if len(group) == 1:
                self.fail(group[0].id, error)
                return
            for request in group:  # only the one at fault fails
                self._score([request])
            return
        for request, prompt in zip(group, scored, strict=True):
            tokens = [
                Scored(token.id, token.logprob, list(token.alternatives)) for token in prompt.tokens
            ]
            self.send(Result(request.id, tokens))
