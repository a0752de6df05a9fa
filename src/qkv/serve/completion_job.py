"""A completion request on its way: the sequences it asks for, their tokens, its parameters.

A `CompletionJob` is all that one request asks for: each of its prompts n times. The routes of
OpenAI's, Anthropic's and Ollama's APIs make the same jobs and only word the answers differently.
"""

import asyncio
import secrets
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, Protocol

from starlette.requests import Request

from qkv.errors import QkvError
from qkv.serve.access import RequestRecord
from qkv.serve.engine_client import Ticket
from qkv.serve.gateway import Gateway
from qkv.serve.link import Generate, ModelInfo, SamplingParameters, TokenEvent
from qkv.serve.responses import ApiError
from qkv.serve.schemas import (
    ChatMessage,
    Explain,
    ExplainOptions,
    GenerationBody,
    JsonSchema,
    ResponseFormat,
)
from qkv.text import Tokenizer

DEFAULT_TEMPERATURE = 1.0
FINISH_REASONS = {"end": "stop", "stop": "stop", "length": "length"}


@dataclass
class Choice:
    """One completion as it grows."""

    index: int
    prompt: list[int]
    events: list[TokenEvent] = field(default_factory=list)

    @property
    def text(self) -> str:
        return "".join(event.text for event in self.events)

    @property
    def finish_reason(self) -> str | None:
        """OpenAI's word for why it ended; None while it is generated."""
        if not self.events or self.events[-1].stop_reason is None:
            return None
        return FINISH_REASONS[self.events[-1].stop_reason]


@dataclass
class CompletionJob:
    """What one request asks the engine for.

    limit_name: what its API calls max_tokens, for error messages.
    """

    info: ModelInfo
    prompts: list[list[int]]
    max_tokens: int | None
    sampling: SamplingParameters
    n: int = 1
    seed: int = 0
    stop: list[str] = field(default_factory=list)
    top_logprobs: int = 0
    explain: ExplainOptions | None = None
    limit_name: str = "max_tokens"

    @property
    def stream_explain(self) -> list[str]:
        """What the engine adds to each token."""
        if self.explain is None:
            return []
        return [each for each in self.explain.stream if each != "alternatives"]


class CompletionRunner:
    """Runs the sequences of one job; leaving it early cancels them."""

    def __init__(self, gateway: Gateway, request: Request, job: CompletionJob) -> None:
        self.gateway = gateway
        self.request = request
        self.job = job
        self.record: RequestRecord = request.state.record
        self.choices: list[Choice] = []
        self._stack = ExitStack()
        self._tickets: list[Ticket] = []

    def __enter__(self) -> "CompletionRunner":
        job = self.job
        count = len(job.prompts) * job.n
        if count > self.gateway.settings.limits.completions:
            raise ApiError(
                400,
                f"{len(job.prompts)} prompts × n = {count} completions; at most "
                f"{self.gateway.settings.limits.completions} in one request",
                code="too_many_completions",
                param="n",
            )
        tokens = sum(map(len, job.prompts)) * job.n
        self.gateway.admit(count, tokens)
        self.record.prompt_tokens = sum(map(len, job.prompts))
        try:
            for prompt in job.prompts:
                limit = self._token_limit(prompt)
                for sample_index in range(job.n):
                    self._submit(prompt, sample_index, limit)
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _token_limit(self, prompt: list[int]) -> int:
        info = self.job.info
        room = info.context_length - len(prompt)
        limit = self.job.max_tokens
        if room < 1:
            self.gateway.check_length(info, len(prompt) + 1, "the prompt with one more token")
        if limit is None:
            return room
        if limit > room:
            raise ApiError(
                400,
                f"the prompt has {len(prompt):,} tokens and {self.job.limit_name} is {limit:,}, "
                f"but {info.name} reads at most {info.context_length:,}; ask for at most {room:,}",
                code="context_length_exceeded",
                param=self.job.limit_name,
            )
        return limit

    def _submit(self, prompt: list[int], sample_index: int, limit: int) -> None:
        job = self.job
        message = Generate(
            0,
            job.info.name,
            prompt,
            limit,
            job.sampling,
            job.seed,
            sample_index,
            job.stop,
            job.top_logprobs,
            self.gateway.cache_salt(self.request),
            job.stream_explain,
            job.explain.top if job.explain else 5,
        )
        ticket = self._stack.enter_context(self.gateway.engine.submit(message, len(prompt)))
        self._tickets.append(ticket)
        self.choices.append(Choice(len(self.choices), prompt))

    async def events(self) -> AsyncIterator[tuple[Choice, TokenEvent]]:
        """The tokens of all sequences, as they come."""
        if len(self._tickets) == 1:
            async for event in self._tickets[0].events():
                self._add(self.choices[0], event)
                yield self.choices[0], event
            return
        merged: asyncio.Queue[tuple[Choice, TokenEvent] | Exception | None] = asyncio.Queue()

        async def pump(choice: Choice, ticket: Ticket) -> None:
            try:
                async for event in ticket.events():
                    merged.put_nowait((choice, event))
                merged.put_nowait(None)
            except Exception as error:
                merged.put_nowait(error)

        pairs = zip(self.choices, self._tickets, strict=True)
        tasks = [asyncio.ensure_future(pump(choice, ticket)) for choice, ticket in pairs]
        try:
            open_streams = len(tasks)
            while open_streams:
                item = await merged.get()
                if item is None:
                    open_streams -= 1
                elif isinstance(item, Exception):
                    raise item
                else:
                    self._add(*item)
                    yield item
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def finish(self) -> list[Choice]:
        """All completions, when they are done."""
        async for _ in self.events():
            pass
        return self.choices

    def _add(self, choice: Choice, event: TokenEvent) -> None:
        if self.record.first_token is None:
            self.record.first_token = time.monotonic()
        choice.events.append(event)
        self.record.completion_tokens += 1
        if len(choice.events) == 1:
            self.record.cached_tokens += event.cached_tokens
        if event.stop_reason is not None:
            self.record.finish = FINISH_REASONS[event.stop_reason]

    def usage(self) -> dict[str, Any]:
        """Exact counts: prompts once each, every generated token."""
        prompt = self.record.prompt_tokens
        completion = self.record.completion_tokens
        return {
            "prompt_tokens": prompt,
            "completion_tokens": completion,
            "total_tokens": prompt + completion,
            "prompt_tokens_details": {"cached_tokens": self.record.cached_tokens},
        }


def sampling_of(body: GenerationBody) -> SamplingParameters:
    """The sampling parameters of a body, with OpenAI's defaults: temperature 1, every token."""
    bias = {}
    for token, value in (body.logit_bias or {}).items():
        if not token.isdecimal():
            raise ApiError(
                400, f"logit_bias takes token ids, not {token[:50]!r}", param="logit_bias"
            )
        bias[int(token)] = value
    return SamplingParameters(
        temperature=DEFAULT_TEMPERATURE if body.temperature is None else body.temperature,
        top_k=body.top_k,
        top_p=1.0 if body.top_p is None else body.top_p,
        min_p=body.min_p,
        repetition_penalty=body.repetition_penalty,
        presence_penalty=body.presence_penalty,
        frequency_penalty=body.frequency_penalty,
        logit_bias=bias,
        grammar=grammar_of(body),
        ignore_eos=body.ignore_eos,
    )


def grammar_of(body: GenerationBody) -> str | None:
    """The grammar that the answer is held to, if any."""
    kinds: list[tuple[str, Any]] = []
    format = body.response_format
    if format is not None and format.type == "json_object":
        kinds.append(("json_object", None))
    if format is not None and format.type == "json_schema":
        if format.json_schema is None:
            raise ApiError(400, "response_format lacks json_schema", param="response_format")
        kinds.append(("json_schema", format.json_schema.schema_))
    if body.regex is not None:
        kinds.append(("regex", body.regex))
    if body.grammar is not None:
        kinds.append(("grammar", body.grammar))
    if not kinds:
        return None
    if len(kinds) > 1:
        raise ApiError(400, "give only one of response_format, regex and grammar")
    from qkv.serve.grammar import compile_grammar

    try:
        return compile_grammar(*kinds[0])
    except QkvError as error:
        raise ApiError(400, str(error), code="invalid_grammar", param="response_format") from error


class TextPart(Protocol):
    """A part of a message in any API."""

    text: str


def content_text(content: str | Sequence[TextPart]) -> str:
    """The content of a message as one text."""
    if isinstance(content, str):
        return content
    return "".join(part.text for part in content)


def chat_message(role: str, content: str | Sequence[TextPart]) -> ChatMessage:
    """A message of another API, which has been validated, as OpenAI's chat has it."""
    return ChatMessage.model_construct(role=role, content=content_text(content))


def schema_format(schema: dict[str, Any]) -> ResponseFormat:
    """The response_format that holds an answer to a JSON schema."""
    json_schema = JsonSchema.model_validate({"schema": schema})
    return ResponseFormat(type="json_schema", json_schema=json_schema)


def stop_strings(body: GenerationBody) -> list[str]:
    stop = body.stop
    if stop is None:
        return []
    if isinstance(stop, str):
        stop = [stop]
    if "" in stop:
        raise ApiError(400, "a stop string is empty", param="stop")
    return list(stop)


def random_seed(seed: int | None) -> int:
    if seed is None:
        return secrets.randbits(32)
    return seed


def explain_options(explain: Explain) -> ExplainOptions | None:
    if explain is True:
        return ExplainOptions.model_validate({})
    return explain or None


def truncate_left(
    prompt: list[int], info: ModelInfo, tokenizer: Tokenizer, reserve: int
) -> list[int]:
    """The last tokens of a prompt, after its special tokens, that leave so many for the answer."""
    budget = info.context_length - reserve
    prefix = list(tokenizer.prefix_ids)
    if prompt[: len(prefix)] != prefix:
        prefix = []
    if len(prompt) <= budget:
        return prompt
    if budget <= len(prefix):
        raise ApiError(400, f"max_tokens={reserve} leaves no room for a prompt", param="max_tokens")
    return [*prefix, *prompt[len(prompt) - budget + len(prefix) :]]


def token_text(tokenizer: Tokenizer, id: int) -> str:
    """The text of one token by itself; bytes that are no character are shown as \\xNN."""
    raw = tokenizer.token_bytes(id)
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in raw)


def token_logprob(tokenizer: Tokenizer, event: TokenEvent, top: int) -> dict[str, Any]:
    """A token with its log-probability and the most probable ones in its position."""
    entry = _logprob_entry(tokenizer, event.token, event.logprob)
    best = event.alternatives[:top]
    entry["top_logprobs"] = [_logprob_entry(tokenizer, id, logprob) for id, logprob in best]
    return entry


def _logprob_entry(tokenizer: Tokenizer, id: int, logprob: float) -> dict[str, Any]:
    return {
        "token": token_text(tokenizer, id),
        "logprob": logprob,
        "bytes": list(tokenizer.token_bytes(id)),
    }


def stop_string(tokenizer: Tokenizer, choice: Choice, stop: Sequence[str]) -> str | None:
    """The stop string that ended a completion; None if it ended otherwise."""
    if not choice.events or choice.events[-1].stop_reason != "stop":
        return None
    if len(stop) == 1:
        return stop[0]
    # The tokens include those of the stop string, which the text leaves out.
    text = tokenizer.decode([event.token for event in choice.events])
    matches = [each for each in stop if choice.text + each in text]
    return min(matches, key=len, default=None)


def token_explanation(
    tokenizer: Tokenizer, event: TokenEvent, explain: ExplainOptions | None
) -> dict[str, Any]:
    """What is said of one token, inside its own chunk."""
    explanation = dict(event.explain or {})
    if explain is not None and "alternatives" in explain.stream:
        explanation["alternatives"] = [
            {"token": token_text(tokenizer, id), "id": id, "logprob": logprob}
            for id, logprob in event.alternatives[: explain.top]
        ]
    return explanation


async def explain_choice(
    gateway: Gateway,
    request: Request,
    info: ModelInfo,
    choice: Choice,
    explain: ExplainOptions,
    watch: bool = True,
) -> dict[str, Any]:
    """Which words of the prompt the completion comes from, by occlusion."""
    tokens = [event.token for event in choice.events]
    arguments = {"prompt_ids": choice.prompt, "answer_ids": tokens}
    result: dict[str, Any] = await gateway.call(
        request, info, "why_completion", arguments, budget_ms=explain.budget_ms, watch=watch
    )
    return {"method": "occlusion", "target": "completion", **result}
