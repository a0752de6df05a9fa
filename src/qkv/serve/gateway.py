"""What every route shares: the models by name, their tokenizers, and the way to the engine."""

import asyncio
import secrets
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from starlette.requests import Request
from tokenizers import Tokenizer as Backend

from qkv.errors import QkvError, unknown
from qkv.serve.access import RequestRecord
from qkv.serve.engine_client import EngineClient, ModelState
from qkv.serve.link import Call, Encode, Encoded, ModelInfo
from qkv.serve.metrics import ServerMetrics
from qkv.serve.responses import ApiError, unless_disconnected
from qkv.serve.settings import Settings
from qkv.text import Prompt, SpecialTokens, Tokenizer, encode_prompt

LONG_TEXT = 20_000  # characters that are tokenized in a thread, not between two events

TASK_ROUTES = {
    "generate": "/v1/completions",
    "embed": "/v1/embeddings",
    "classify": "/v1/classify",
    "translate": "/translate",
}

Value = TypeVar("Value")


class Gateway:
    """The state of the front."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.engine = EngineClient(settings)
        self.engine.on_model = self._add_model
        self.metrics = ServerMetrics()
        self.started = int(time.time())
        self._tokenizers: dict[str, Tokenizer] = {}
        self._salt = secrets.token_hex(16)

    def _add_model(self, info: ModelInfo) -> None:
        if info.tokenizer is not None:
            fields: dict[str, Any] = dict(info.special_tokens)
            fields["extra_eos"] = tuple(fields["extra_eos"])  # they cross the link as lists
            fields["template_names"] = tuple(map(tuple, fields["template_names"]))
            backend = Backend.from_str(info.tokenizer)
            self._tokenizers[info.name] = Tokenizer(backend, SpecialTokens(**fields))

    def state(self, name: str) -> ModelState:
        """A model by its name; raises a 404 if there is none."""
        state = self.engine.models.get(name)
        if state is None:
            message = unknown("model", name[:100], self.engine.models)
            raise ApiError(404, message, code="model_not_found", param="model")
        return state

    def model(self, request: Request, name: str | None, *tasks: str) -> ModelInfo:
        """A loaded model that does one of these tasks; without a name, the only one that does."""
        if name is None:
            name = self._only_model(tasks)
        state = self.state(name)
        record: RequestRecord = request.state.record
        record.model = name
        if state.error is not None:
            raise ApiError(
                503, f"the model {name} could not be loaded: {state.error}", code="model_not_loaded"
            )
        if state.info is None:
            raise ApiError(
                503, f"the model {name} is being loaded", code="model_loading", retry_after=2
            )
        if tasks and state.info.task not in tasks:
            raise ApiError(
                400,
                f"{name} is {state.info.description}; use {TASK_ROUTES[state.info.task]}",
                code="model_not_suitable",
                param="model",
            )
        return state.info

    def _only_model(self, tasks: Sequence[str]) -> str:
        names = []
        for name, state in self.engine.models.items():
            if state.info is None or not tasks or state.info.task in tasks:
                names.append(name)
        if len(names) == 1:
            return names[0]
        known = ", ".join(self.engine.models)
        raise ApiError(
            400, f"name the model; there are {known}", code="model_required", param="model"
        )

    def tokenizer(self, info: ModelInfo) -> Tokenizer:
        if info.name not in self._tokenizers:
            raise ApiError(
                400,
                f"{info.name} has a tokenizer for each language, which only /translate uses",
                code="model_not_suitable",
                param="model",
            )
        return self._tokenizers[info.name]

    async def encode(self, info: ModelInfo, texts: Sequence[str]) -> list[list[int]]:
        """The ids of texts, without special tokens."""
        tokenizer = self.tokenizer(info)
        length = sum(map(len, texts))
        return await self._in_thread(length, lambda: tokenizer.encode_many(texts))

    async def prompt_ids(self, info: ModelInfo, prompt: Prompt) -> list[int]:
        """The ids of a text or of chat messages, with the special tokens they had in training."""
        tokenizer = self.tokenizer(info)
        length = len(prompt) if isinstance(prompt, str) else LONG_TEXT + 1
        return await self._in_thread(length, lambda: encode_prompt(tokenizer, prompt))

    async def _in_thread(self, characters: int, function: Callable[[], Value]) -> Value:
        """The result of tokenizing so much, in a thread if it may take long."""
        try:
            if characters > LONG_TEXT:
                return await asyncio.to_thread(function)
            return function()
        except QkvError as error:
            raise ApiError(400, str(error), code="invalid_text") from error

    async def text_ids(
        self, info: ModelInfo, texts: Sequence[str], truncate: bool = False
    ) -> list[list[int]]:
        """The ids of texts for an encoder, with their special tokens, within its context."""
        tokenizer = self.tokenizer(info)
        rows = []
        for index, ids in enumerate(await self.encode(info, texts)):
            row = tokenizer.add_special_tokens(ids, None)
            if len(row) > info.context_length and truncate:
                row = tokenizer.add_special_tokens(ids, info.context_length)
            self.check_length(info, len(row), f"text {index + 1}")
            rows.append(row)
        return rows

    def check_length(self, info: ModelInfo, tokens: int, name: str) -> None:
        if tokens > info.context_length:
            raise ApiError(
                400,
                f"{name} has {tokens:,} tokens but {info.name} reads at most "
                f'{info.context_length:,}; shorten it, or pass "truncate"',
                code="context_length_exceeded",
            )
        if not tokens:
            raise ApiError(400, f"{name} is empty", code="empty_text")

    def check_ids(self, info: ModelInfo, ids: Sequence[int], param: str) -> None:
        """Token ids from a client must be those of this model's tokenizer."""
        for id in ids:
            if not 0 <= id < info.vocab_size:
                raise ApiError(
                    400,
                    f"token {id} does not exist; {info.name} has 0 to {info.vocab_size - 1}. If "
                    "your client tokenizes for another model (LangChain does), send text instead: "
                    "check_embedding_ctx_length=False",
                    code="invalid_token",
                    param=param,
                )

    def admit(self, requests: int, tokens: int) -> None:
        """Raises a 429 if so much more does not fit into the queue."""
        limits = self.settings.limits
        engine = self.engine
        waiting = engine.pending + requests
        if requests > limits.requests or tokens > limits.queue_tokens:
            raise ApiError(
                400,
                f"this asks for {requests} answers to {tokens:,} tokens; at most "
                f"{limits.requests} and {limits.queue_tokens:,} are taken at a time",
                code="request_too_large",
            )
        if waiting > limits.requests or engine.queue_tokens + tokens > limits.queue_tokens:
            raise ApiError(
                429,
                f"{engine.pending} requests are waiting, as many as this server takes",
                code="queue_full",
                retry_after=self.metrics.retry_after(engine.queue_tokens),
            )

    def cache_salt(self, request: Request) -> str:
        """Prompts of different keys share no cached prefixes."""
        return f"{self._salt}/{request.state.record.key}"

    async def encode_texts(
        self, request: Request, info: ModelInfo, rows: list[list[int]], output: str
    ) -> NDArray[np.float32]:
        """The encoder's output for each text, (n, width)."""
        tokens = sum(map(len, rows))
        self.admit(1, tokens)
        record: RequestRecord = request.state.record
        record.prompt_tokens = tokens
        message = Encode(0, info.name, rows, output)
        with self.engine.submit(message, tokens) as ticket:
            count, width, data = await unless_disconnected(request, ticket.result())
        encoded = Encoded(count, width, data)
        values = np.frombuffer(encoded.data, "<f4").reshape(encoded.rows, encoded.width)
        if not np.isfinite(values).all():
            text = int(np.flatnonzero(~np.isfinite(values).all(axis=1))[0]) + 1
            raise ApiError(500, f"the vector of text {text} is not finite", code="model_error")
        return values

    async def call(
        self,
        request: Request,
        info: ModelInfo,
        function: str,
        arguments: dict[str, Any],
        tokens: int = 0,
        budget_ms: float | None = None,
        watch: bool = True,
    ) -> Any:
        """The result of a function in `calls`; in a stream somebody else watches the client."""
        self.admit(1, tokens)
        budget = None if budget_ms is None else budget_ms / 1000
        message = Call(0, info.name, function, arguments, budget)
        with self.engine.submit(message, tokens) as ticket:
            if not watch:
                return await ticket.result()
            return await unless_disconnected(request, ticket.result())
