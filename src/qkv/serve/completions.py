"""OpenAI's completions and chat: from a body to a job, and from its tokens to their shapes."""

import asyncio
import secrets
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from qkv.serve.completion_job import (
    Choice,
    CompletionJob,
    CompletionRunner,
    content_text,
    explain_choice,
    explain_options,
    random_seed,
    sampling_of,
    stop_strings,
    token_explanation,
    token_logprob,
    token_text,
    truncate_left,
)
from qkv.serve.gateway import Gateway
from qkv.serve.link import ModelInfo, Score, TokenEvent
from qkv.serve.responses import (
    SSE_DONE,
    ApiError,
    EventStream,
    json_response,
    sse,
    sse_error,
    unless_disconnected,
)
from qkv.serve.schemas import ChatBody, ChatMessage, CompletionBody, ExplainOptions

DEFAULT_COMPLETION_TOKENS = 16  # OpenAI's default

Alternatives = list[tuple[int, float]]


@dataclass
class ScoredToken:
    """A token of a prompt; the first one follows nothing and has no log-probability."""

    id: int
    logprob: float | None
    alternatives: Alternatives


async def completion_prompts(
    gateway: Gateway, info: ModelInfo, body: CompletionBody
) -> list[list[int]]:
    """The prompts of a request as ids, whether they came as texts or ids."""
    given: Any = body.prompt
    if isinstance(given, str) or isinstance(given[0], int):
        given = [given]
    prompts = []
    for each in given:
        if isinstance(each, str):
            ids = await gateway.prompt_ids(info, each)
        else:
            gateway.check_ids(info, each, "prompt")
            ids = each
        if body.truncate == "left":
            reserve = max(1, body.max_tokens or DEFAULT_COMPLETION_TOKENS)
            ids = truncate_left(ids, info, gateway.tokenizer(info), reserve)
        prompts.append(ids)
    return prompts


async def completion_job(
    gateway: Gateway, info: ModelInfo, body: CompletionBody, limit_name: str = "max_tokens"
) -> CompletionJob:
    """What a completion asks the engine for, in whichever API it came."""
    prompts = await completion_prompts(gateway, info, body)
    explain = explain_options(body.explain)
    top = body.logprobs or 0
    if explain is not None and "alternatives" in explain.stream:
        top = max(top, explain.top)
    return CompletionJob(
        info,
        prompts,
        body.max_tokens,
        sampling_of(body),
        body.n or 1,
        random_seed(body.seed),
        stop_strings(body),
        max(top, 1) if body.logprobs is not None else top,
        explain,
        limit_name,
    )


async def completions(gateway: Gateway, request: Request, body: CompletionBody) -> Response:
    """POST /v1/completions"""
    info = gateway.model(request, body.model, "generate")
    if body.best_of is not None and body.best_of != (body.n or 1):
        raise ApiError(400, "best_of other than n is not supported", param="best_of")
    if body.max_tokens is None:
        body.max_tokens = DEFAULT_COMPLETION_TOKENS
    job = await completion_job(gateway, info, body)
    writer = CompletionWriter(gateway, info, body, job.explain)
    if body.echo:
        await writer.score_prompts(request, job.prompts)
    if body.max_tokens == 0:
        return json_response(writer.prompts_only(request, job))
    if body.stream:
        return EventStream(writer.stream(request, job), sse_error)
    with CompletionRunner(gateway, request, job) as runner:
        choices = await unless_disconnected(request, runner.finish())
        objects = [await writer.choice(request, choice) for choice in choices]
        return json_response(writer.object(objects) | {"usage": runner.usage()})


class CompletionWriter:
    """Words completions as /v1/completions does."""

    kind = "text_completion"

    def __init__(
        self,
        gateway: Gateway,
        info: ModelInfo,
        body: CompletionBody,
        explain: ExplainOptions | None,
    ) -> None:
        self.gateway = gateway
        self.tokenizer = gateway.tokenizer(info)
        self.info = info
        self.body = body
        self.explain = explain
        self.id = f"cmpl-{secrets.token_hex(12)}"
        self.created = int(time.time())
        self.scored: dict[tuple[int, ...], list[ScoredToken]] = {}

    def object(self, choices: list[dict[str, Any]]) -> dict[str, Any]:
        return {
            "id": self.id,
            "object": self.kind,
            "created": self.created,
            "model": self.info.name,
            "choices": choices,
        }

    async def score_prompts(self, request: Request, prompts: Sequence[list[int]]) -> None:
        """With echo: the log-probabilities of the prompts' own tokens."""
        if self.body.logprobs is None:
            return
        for prompt in prompts:
            self.gateway.check_length(self.info, len(prompt), "the prompt")
        unique = {tuple(prompt): prompt for prompt in prompts}
        self.gateway.admit(len(unique), sum(map(len, unique)))
        top = max(self.body.logprobs, 1)

        async def score(prompt: list[int]) -> list[ScoredToken]:
            message = Score(0, self.info.name, prompt, top)
            with self.gateway.engine.submit(message, len(prompt)) as ticket:
                rows = await ticket.result()
            first = ScoredToken(prompt[0], None, [])
            return [first, *(ScoredToken(id, value, list(best)) for id, value, best in rows)]

        tasks = [score(prompt) for prompt in unique.values()]
        results = await unless_disconnected(request, asyncio.gather(*tasks))
        self.scored = dict(zip(unique, results, strict=True))

    def prompts_only(self, request: Request, job: CompletionJob) -> dict[str, Any]:
        """The answer to max_tokens 0: nothing is generated."""
        tokens = sum(map(len, job.prompts))
        request.state.record.prompt_tokens = tokens
        choices = []
        for index in range(len(job.prompts) * job.n):
            choice = Choice(index, job.prompts[index // job.n])
            choices.append(self._fields(choice, [], "length"))
        usage = {"prompt_tokens": tokens, "completion_tokens": 0, "total_tokens": tokens}
        return self.object(choices) | {"usage": usage}

    async def choice(self, request: Request, choice: Choice) -> dict[str, Any]:
        """A finished choice, explained if that was asked for."""
        fields = self._fields(choice, choice.events, choice.finish_reason)
        if self.explain is not None and not self.explain.stream:
            fields["explain"] = await explain_choice(
                self.gateway, request, self.info, choice, self.explain
            )
        elif self.explain is not None:
            fields["explain"] = [self._token_explanation(event) for event in choice.events]
        return fields

    def _fields(
        self, choice: Choice, events: Sequence[TokenEvent], finish: str | None
    ) -> dict[str, Any]:
        text = "".join(event.text for event in events)
        fields: dict[str, Any] = {
            "index": choice.index,
            "text": self._echo(choice) + text,
            "logprobs": self._logprobs(choice, events, len(self._echo(choice)), echo=True),
            "finish_reason": finish,
        }
        return fields

    def _echo(self, choice: Choice) -> str:
        if not self.body.echo:
            return ""
        return self.tokenizer.decode(choice.prompt)

    def _logprobs(
        self, choice: Choice, events: Sequence[TokenEvent], offset: int, echo: bool
    ) -> dict[str, Any] | None:
        """The shape of /v1/completions: four lists of equal length."""
        if self.body.logprobs is None:
            return None
        tokens: list[str] = []
        values: list[float | None] = []
        tops: list[dict[str, float] | None] = []
        offsets: list[int] = []
        if echo and self.body.echo:
            position = 0
            for scored in self.scored[tuple(choice.prompt)]:
                text = token_text(self.tokenizer, scored.id)
                tokens.append(text)
                values.append(scored.logprob)
                own = (scored.id, scored.logprob)
                tops.append(None if scored.logprob is None else self._top(own, scored.alternatives))
                offsets.append(position)
                position += len(text)
        for event in events:
            tokens.append(token_text(self.tokenizer, event.token))
            values.append(event.logprob)
            tops.append(self._top((event.token, event.logprob), event.alternatives))
            offsets.append(offset)
            offset += len(event.text)
        return {
            "tokens": tokens,
            "token_logprobs": values,
            "top_logprobs": tops,
            "text_offset": offsets,
        }

    def _top(self, own: tuple[int, float | None], best: Alternatives) -> dict[str, float]:
        """The most probable tokens, and the one that stands there, by their texts."""
        top: dict[str, float] = {}
        for id, logprob in best[: self.body.logprobs or 0]:
            # Two tokens of one text, such as a byte and a letter: the more probable one counts.
            top.setdefault(token_text(self.tokenizer, id), logprob)
        if own[1] is not None:
            top.setdefault(token_text(self.tokenizer, own[0]), own[1])
        return top

    def _token_explanation(self, event: TokenEvent) -> dict[str, Any]:
        return token_explanation(self.tokenizer, event, self.explain)

    async def stream(self, request: Request, job: CompletionJob) -> AsyncIterator[bytes]:
        with CompletionRunner(self.gateway, request, job) as runner:
            offsets: dict[int, int] = {}
            if self.body.echo:
                for choice in runner.choices:
                    offsets[choice.index] = len(self._echo(choice))
                    fields = self._fields(choice, [], None)
                    yield sse(self.object([fields]))
            async for choice, event in runner.events():
                offset = offsets.get(choice.index, 0)
                offsets[choice.index] = offset + len(event.text)
                fields = {
                    "index": choice.index,
                    "text": event.text,
                    "logprobs": self._logprobs(choice, [event], offset, echo=False),
                    "finish_reason": choice.finish_reason,
                }
                if self.explain is not None and self.explain.stream:
                    fields["explain"] = self._token_explanation(event)
                elif self.explain is not None and choice.finish_reason is not None:
                    fields["explain"] = await explain_choice(
                        self.gateway, request, self.info, choice, self.explain, watch=False
                    )
                yield sse(self.object([fields]))
            if self.body.stream_options is not None and self.body.stream_options.include_usage:
                yield sse(self.object([]) | {"usage": runner.usage()})
        yield SSE_DONE


def chat_messages(messages: Sequence[ChatMessage]) -> list[dict[str, str]]:
    """The messages as a template reads them: each content one text."""
    result = []
    for message in messages:
        role = "system" if message.role == "developer" else message.role
        result.append({"role": role, "content": content_text(message.content)})
    return result


async def chat_job(
    gateway: Gateway, info: ModelInfo, body: ChatBody, limit_name: str = "max_tokens"
) -> CompletionJob:
    """What a chat asks the engine for, in whichever API it came."""
    prompt = await gateway.prompt_ids(info, chat_messages(body.messages))
    max_tokens = body.max_completion_tokens or body.max_tokens
    if body.truncate == "left":
        reserve = max_tokens or info.context_length // 2
        prompt = truncate_left(prompt, info, gateway.tokenizer(info), reserve)
    if body.top_logprobs and not body.logprobs:
        raise ApiError(400, "top_logprobs needs logprobs: true", param="top_logprobs")
    explain = explain_options(body.explain)
    top = body.top_logprobs or 0
    if explain is not None and "alternatives" in explain.stream:
        top = max(top, explain.top)
    return CompletionJob(
        info,
        [prompt],
        max_tokens,
        sampling_of(body),
        body.n or 1,
        random_seed(body.seed),
        stop_strings(body),
        top,
        explain,
        limit_name,
    )


async def chat_completions(gateway: Gateway, request: Request, body: ChatBody) -> Response:
    """POST /v1/chat/completions"""
    info = gateway.model(request, body.model, "generate")
    job = await chat_job(gateway, info, body)
    writer = ChatWriter(gateway, info, body, job.explain)
    if body.stream:
        return EventStream(writer.stream(request, job), sse_error)
    with CompletionRunner(gateway, request, job) as runner:
        choices = await unless_disconnected(request, runner.finish())
        objects = [await writer.choice(request, choice) for choice in choices]
        return json_response(writer.object(objects) | {"usage": runner.usage()})


class ChatWriter:
    """Words completions as /v1/chat/completions does."""

    def __init__(
        self, gateway: Gateway, info: ModelInfo, body: ChatBody, explain: ExplainOptions | None
    ) -> None:
        self.gateway = gateway
        self.tokenizer = gateway.tokenizer(info)
        self.info = info
        self.body = body
        self.explain = explain
        self.id = f"chatcmpl-{secrets.token_hex(12)}"
        self.created = int(time.time())

    def object(self, choices: list[dict[str, Any]], chunk: bool = False) -> dict[str, Any]:
        return {
            "id": self.id,
            "object": "chat.completion.chunk" if chunk else "chat.completion",
            "created": self.created,
            "model": self.info.name,
            "choices": choices,
        }

    async def choice(self, request: Request, choice: Choice) -> dict[str, Any]:
        fields: dict[str, Any] = {
            "index": choice.index,
            "message": {"role": "assistant", "content": choice.text, "refusal": None},
            "logprobs": self._logprobs(choice.events),
            "finish_reason": choice.finish_reason,
        }
        if self.explain is not None and not self.explain.stream:
            fields["explain"] = await explain_choice(
                self.gateway, request, self.info, choice, self.explain
            )
        elif self.explain is not None:
            fields["explain"] = [
                token_explanation(self.tokenizer, event, self.explain) for event in choice.events
            ]
        return fields

    def _logprobs(self, events: Sequence[TokenEvent]) -> dict[str, Any] | None:
        """The shape of /v1/chat/completions: one object a token."""
        if not self.body.logprobs:
            return None
        top = self.body.top_logprobs or 0
        content = [token_logprob(self.tokenizer, event, top) for event in events]
        return {"content": content, "refusal": None}

    async def stream(self, request: Request, job: CompletionJob) -> AsyncIterator[bytes]:
        with CompletionRunner(self.gateway, request, job) as runner:
            started: set[int] = set()
            async for choice, event in runner.events():
                if choice.index not in started:
                    started.add(choice.index)
                    role = {"role": "assistant", "content": ""}
                    yield sse(self._chunk(choice, role, None))
                delta = {"content": event.text} if event.text else {}
                fields = self._chunk(choice, delta, choice.finish_reason, [event])
                if self.explain is not None and self.explain.stream:
                    fields["choices"][0]["explain"] = token_explanation(
                        self.tokenizer, event, self.explain
                    )
                elif self.explain is not None and choice.finish_reason is not None:
                    fields["choices"][0]["explain"] = await explain_choice(
                        self.gateway, request, self.info, choice, self.explain, watch=False
                    )
                yield sse(fields)
            if self.body.stream_options is not None and self.body.stream_options.include_usage:
                yield sse(self.object([], chunk=True) | {"usage": runner.usage()})
        yield SSE_DONE

    def _chunk(
        self,
        choice: Choice,
        delta: dict[str, Any],
        finish: str | None,
        events: Sequence[TokenEvent] = (),
    ) -> dict[str, Any]:
        fields: dict[str, Any] = {
            "index": choice.index,
            "delta": delta,
            "logprobs": self._logprobs(events) if events else None,
            "finish_reason": finish,
        }
        return self.object([fields], chunk=True)
