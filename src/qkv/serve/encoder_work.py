"""The work of an encoder: texts of all requests, batched by length, with nobody passed over."""

import time
from collections import deque
from dataclasses import dataclass, field

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray

from qkv.engine import batched_outputs
from qkv.engine.embed import embedding_model
from qkv.interpret import GlassBox
from qkv.model import Encoder
from qkv.serve.fair_queue import UNIT_SECONDS, Send, Workload
from qkv.serve.link import Encode, Encoded, Result

FIRST_TOKENS_PER_SECOND = 4000.0  # an encoder's speed before it was measured
MAX_PASSES = 2  # so often a text may be overtaken by others of a fitting length


@dataclass
class TextOfRequest:
    """One text of an Encode request."""

    request: "EncodeRequest"
    index: int
    ids: list[int]
    passed: int = 0  # how often others went first


@dataclass
class EncodeRequest:
    """The rows of one request, filled in as its texts are computed."""

    message: Encode
    rows: list[NDArray[np.float32] | None]
    missing: int
    failed: bool = field(default=False)


class EncoderWorkload(Workload):
    """Vectors or label probabilities of one encoder, texts of all requests batched by length."""

    weight = 4.0

    def __init__(self, send: Send, box: GlassBox) -> None:
        super().__init__(send)
        self.model = box.optimized
        assert isinstance(self.model, Encoder)
        self.embedder = embedding_model(self.model, raw=False)
        self.tokens_per_second = FIRST_TOKENS_PER_SECOND
        self._queue: deque[TextOfRequest] = deque()
        self._requests: dict[int, EncodeRequest] = {}

    @property
    def ready(self) -> bool:
        return bool(self._queue)

    @property
    def pending(self) -> int:
        return len(self._requests)

    def add(self, message: Encode) -> None:
        request = EncodeRequest(message, [None] * len(message.texts), len(message.texts))
        self._requests[message.id] = request
        for index, ids in enumerate(message.texts):
            self._queue.append(TextOfRequest(request, index, ids))

    def cancel(self, id: int) -> None:
        if self._requests.pop(id, None) is not None:
            self._queue = deque(text for text in self._queue if text.request.message.id != id)

    def run(self) -> None:
        batch = self._next_batch(max(64, int(self.tokens_per_second * UNIT_SECONDS)))
        tokens = sum(len(text.ids) for text in batch)
        started = time.perf_counter()
        self._compute(batch)
        seconds = time.perf_counter() - started
        # A short batch says little about the speed, but many of them do.
        share = min(0.5, tokens / (self.tokens_per_second * UNIT_SECONDS) / 2)
        self.tokens_per_second += share * (tokens / max(seconds, 1e-6) - self.tokens_per_second)

    def _next_batch(self, budget: int) -> list[TextOfRequest]:
        """The oldest text, those that have waited, and of a window those nearest in length."""
        oldest = self._queue[0]
        window: list[TextOfRequest] = []
        tokens = 0
        for text in self._queue:
            if text.request.message.output != oldest.request.message.output:
                continue
            window.append(text)
            tokens += len(text.ids)
            if tokens > 4 * budget:
                break

        def rank(text: TextOfRequest) -> tuple[bool, int]:
            overdue = text is oldest or text.passed >= MAX_PASSES
            return not overdue, abs(len(text.ids) - len(oldest.ids))

        batch: list[TextOfRequest] = []
        tokens = 0
        for text in sorted(window, key=rank):
            if batch and tokens + len(text.ids) > budget:
                break
            batch.append(text)
            tokens += len(text.ids)
        chosen = {id(text) for text in batch}
        last = max(i for i, text in enumerate(window) if id(text) in chosen)
        for text in window[:last]:
            text.passed += id(text) not in chosen
        self._queue = deque(text for text in self._queue if id(text) not in chosen)
        return batch

    def _compute(self, batch: list[TextOfRequest]) -> None:
        try:
            rows = self._rows([text.ids for text in batch], batch[0].request.message.output)
        except Exception as error:
            if len(batch) > 1:
                for text in batch:  # only the one at fault fails
                    self._compute([text])
            else:
                self._fail_request(batch[0].request, error)
            return
        for text, row in zip(batch, rows, strict=True):
            if not np.isfinite(row).all():
                problem = ValueError("the output is not finite; the weights are damaged")
                self._fail_request(text.request, problem)
                continue
            self._add_row(text.request, text.index, row)

    def _rows(self, texts: list[list[int]], output: str) -> NDArray[np.float32]:
        """The same numbers as `embed` and `classify` give."""
        if output == "vector":
            vectors = batched_outputs(self.embedder, texts).double().float()
            return np.asarray(F.normalize(vectors, dim=-1).numpy())
        assert isinstance(self.model, Encoder)
        logits = batched_outputs(self.model, texts)
        return np.asarray(torch.softmax(logits.double(), dim=-1).float().numpy())

    def _add_row(self, request: EncodeRequest, index: int, row: NDArray[np.float32]) -> None:
        request.rows[index] = row
        request.missing -= 1
        if request.missing == 0 and self._requests.pop(request.message.id, None) is not None:
            data = np.stack([row for row in request.rows if row is not None]).astype("<f4")
            encoded = Encoded(len(data), data.shape[1], data.tobytes())
            self.send(Result(request.message.id, encoded))

    def _fail_request(self, request: EncodeRequest, error: Exception) -> None:
        id = request.message.id
        if id in self._requests:
            self.cancel(id)
            self.fail(id, error)
