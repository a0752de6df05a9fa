"""OpenAI's Responses API without its memory: each request brings the whole conversation."""

import secrets
import time
from collections.abc import AsyncIterator, Sequence
from typing import Annotated, Any, Literal

from fastapi import APIRouter
from pydantic import BeforeValidator, Field
from pydantic_core import PydanticCustomError
from starlette.requests import Request
from starlette.responses import Response

from qkv.serve.completion_job import (
    Choice,
    CompletionJob,
    CompletionRunner,
    chat_message,
    schema_format,
    token_logprob,
)
from qkv.serve.completions import chat_job
from qkv.serve.gateway import Gateway
from qkv.serve.link import TokenEvent
from qkv.serve.responses import (
    ApiError,
    EventStream,
    json_response,
    sse,
    unless_disconnected,
)
from qkv.serve.schemas import (
    MAX_IDS,
    Body,
    ChatBody,
    Content,
    Int,
    ModelName,
    ResponseFormat,
    Text,
    Unsupported,
    refuse_media,
)

LOGPROBS = "message.output_text.logprobs"


def _refuse_memory(value: object) -> None:
    """Whatever would have to be remembered from one request to the next."""
    if value:
        raise PydanticCustomError(
            "stateless", "this server stores nothing; send the whole conversation as input"
        )


def _refuse_items(value: object) -> object:
    if isinstance(value, str) and value != "message":
        raise PydanticCustomError(
            "unsupported",
            "this server reads messages, so it does not support items of type {type}",
            {"type": value[:50]},
        )
    return value


Memory = Annotated[None, BeforeValidator(_refuse_memory)]
NoMemory = Annotated[
    None, BeforeValidator(_refuse_memory, json_schema_input_type=Literal[False] | None)
]


class ResponsePart(Body):
    type: Annotated[Literal["input_text", "output_text"], BeforeValidator(refuse_media)]
    text: Text
    annotations: list[Any] | None = None
    logprobs: list[Any] | None = None


class ResponseItem(Body):
    """A message, as a client writes it or as an earlier response had it."""

    type: Annotated[Literal["message"], BeforeValidator(_refuse_items)] = "message"
    role: Literal["user", "assistant", "system", "developer"]
    content: Content[ResponsePart]
    id: str | None = Field(None, max_length=200)
    status: str | None = Field(None, max_length=20)
    phase: str | None = Field(None, max_length=20)


class TextFormat(Body):
    type: Literal["text", "json_object", "json_schema"]
    name: str = Field("answer", max_length=200)
    description: str | None = Field(None, max_length=10_000)
    schema_: dict[str, Any] | None = Field(None, alias="schema")
    strict: bool | None = None


class TextConfig(Body):
    format: TextFormat | None = None
    verbosity: str | None = Field(None, max_length=20)


class ResponseStreamOptions(Body):
    include_obfuscation: bool | None = None


class ResponsesBody(Body):
    """POST /v1/responses"""

    model: ModelName
    input: Content[ResponseItem]
    instructions: Text | None = None
    max_output_tokens: Int | None = Field(None, ge=1, le=MAX_IDS)
    temperature: float | None = Field(None, ge=0, le=100)
    top_p: float | None = Field(None, gt=0, le=1)
    top_logprobs: Int | None = Field(None, ge=0, le=20)
    include: list[Literal["message.output_text.logprobs", "reasoning.encrypted_content"]] | None = (
        None
    )
    text: TextConfig | None = None
    truncation: Literal["auto", "disabled"] | None = None
    stream: bool | None = None
    stream_options: ResponseStreamOptions | None = None
    store: NoMemory = None
    previous_response_id: Memory = None
    conversation: Memory = None
    prompt: Memory = None
    background: NoMemory = None
    tools: Unsupported = None
    tool_choice: Literal["none", "auto"] | None = None
    parallel_tool_calls: bool | None = None
    max_tool_calls: Int | None = Field(None, ge=0)
    context_management: Unsupported = None
    moderation: Unsupported = None
    image: Unsupported = None
    access_programs: Unsupported = None
    reasoning: dict[str, Any] | None = None
    metadata: dict[str, str] | None = None
    user: str | None = Field(None, max_length=1000)
    safety_identifier: str | None = Field(None, max_length=1000)
    service_tier: str | None = Field(None, max_length=20)
    prompt_cache_key: str | None = Field(None, max_length=1000)
    prompt_cache_retention: str | None = Field(None, max_length=20)
    prompt_cache_options: dict[str, Any] | None = None


def add_responses_routes(router: APIRouter, gateway: Gateway) -> None:
    @router.post("/v1/responses", tags=["openai"])
    async def responses_route(request: Request, body: ResponsesBody) -> Response:
        """Answer a text or the messages of a chat, in the shape of OpenAI's Responses API."""
        return await responses(gateway, request, body)


async def responses(gateway: Gateway, request: Request, body: ResponsesBody) -> Response:
    """POST /v1/responses"""
    info = gateway.model(request, body.model, "generate")
    job = await chat_job(gateway, info, chat_of(body), "max_output_tokens")
    writer = ResponseWriter(gateway, job, body)
    if body.stream:
        return EventStream(writer.stream(request), writer.stream_error)
    with CompletionRunner(gateway, request, job) as runner:
        (choice,) = await unless_disconnected(request, runner.finish())
        return json_response(writer.response(runner, choice))


def chat_of(body: ResponsesBody) -> ChatBody:
    """The same request to /v1/chat/completions."""
    messages = []
    if body.instructions:
        messages.append(chat_message("system", body.instructions))
    if isinstance(body.input, str):
        messages.append(chat_message("user", body.input))
    else:
        for item in body.input:
            messages.append(chat_message(item.role, item.content))
    if not messages:
        raise ApiError(400, "the input is empty", param="input")
    return ChatBody.model_construct(
        model=body.model,
        messages=messages,
        max_tokens=body.max_output_tokens,
        temperature=body.temperature,
        top_p=body.top_p,
        logprobs=wants_logprobs(body),
        top_logprobs=body.top_logprobs,
        truncate="left" if body.truncation == "auto" else None,
        response_format=response_format(body),
    )


def response_format(body: ResponsesBody) -> ResponseFormat | None:
    """The form of the answer as /v1/chat/completions has it."""
    format = body.text.format if body.text is not None else None
    if format is None:
        return None
    if format.type != "json_schema":
        return ResponseFormat(type=format.type)
    if format.schema_ is None:
        raise ApiError(400, "text.format lacks the schema", param="text.format.schema")
    return schema_format(format.schema_)


def wants_logprobs(body: ResponsesBody) -> bool:
    return LOGPROBS in (body.include or ()) or bool(body.top_logprobs)


class ResponseWriter:
    """Words completions as /v1/responses does: one output item, a message of one text."""

    def __init__(self, gateway: Gateway, job: CompletionJob, body: ResponsesBody) -> None:
        self.gateway = gateway
        self.job = job
        self.body = body
        self.tokenizer = gateway.tokenizer(job.info)
        self.id = f"resp_{secrets.token_hex(12)}"
        self.item_id = f"msg_{secrets.token_hex(12)}"
        self.created = int(time.time())
        self._events = 0  # sent so far

    def response(self, runner: CompletionRunner, choice: Choice) -> dict[str, Any]:
        """A finished response."""
        status = self._status(choice)
        fields: dict[str, Any] = {
            "completed_at": int(time.time()),
            "output": [self._item(choice)],
            "usage": self._usage(runner),
        }
        if status == "incomplete":
            fields["incomplete_details"] = {"reason": "max_output_tokens"}
        return self._object(status) | fields

    def _object(self, status: str) -> dict[str, Any]:
        body = self.body
        text_format = {"type": "text"}
        if body.text is not None and body.text.format is not None:
            text_format = body.text.format.model_dump(by_alias=True, exclude_none=True)
        return {
            "id": self.id,
            "object": "response",
            "created_at": self.created,
            "completed_at": None,
            "status": status,
            "background": False,
            "error": None,
            "incomplete_details": None,
            "instructions": body.instructions,
            "max_output_tokens": body.max_output_tokens,
            "metadata": body.metadata or {},
            "model": self.job.info.name,
            "output": [],
            "parallel_tool_calls": True,
            "previous_response_id": None,
            "reasoning": {"effort": None, "summary": None},
            "store": False,
            "temperature": self.job.sampling.temperature,
            "text": {"format": text_format},
            "tool_choice": "auto",
            "tools": [],
            "top_logprobs": body.top_logprobs or 0,
            "top_p": self.job.sampling.top_p,
            "truncation": body.truncation or "disabled",
            "usage": None,
            "user": body.user,
        }

    def _status(self, choice: Choice) -> str:
        if choice.finish_reason is None:
            return "in_progress"
        return "incomplete" if choice.finish_reason == "length" else "completed"

    def _item(self, choice: Choice) -> dict[str, Any]:
        content = [self._part(choice)] if choice.events else []
        return {
            "id": self.item_id,
            "type": "message",
            "role": "assistant",
            "status": self._status(choice),
            "content": content,
        }

    def _part(self, choice: Choice) -> dict[str, Any]:
        return {
            "type": "output_text",
            "text": choice.text,
            "annotations": [],
            "logprobs": self._logprobs(choice.events),
        }

    def _logprobs(self, events: Sequence[TokenEvent]) -> list[dict[str, Any]]:
        if not wants_logprobs(self.body):
            return []
        top = self.body.top_logprobs or 0
        return [token_logprob(self.tokenizer, event, top) for event in events]

    def _usage(self, runner: CompletionRunner) -> dict[str, Any]:
        usage = runner.usage()
        cached = usage["prompt_tokens_details"]["cached_tokens"]
        return {
            "input_tokens": usage["prompt_tokens"],
            "input_tokens_details": {"cached_tokens": cached, "cache_write_tokens": 0},
            "output_tokens": usage["completion_tokens"],
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": usage["total_tokens"],
        }

    async def stream(self, request: Request) -> AsyncIterator[bytes]:
        with CompletionRunner(self.gateway, request, self.job) as runner:
            (choice,) = runner.choices
            position = {"item_id": self.item_id, "output_index": 0, "content_index": 0}
            empty = Choice(0, choice.prompt)
            async for _, event in runner.events():
                if len(choice.events) == 1:
                    response = self._object("in_progress")
                    yield self._event("response.created", response=response)
                    yield self._event("response.in_progress", response=response)
                    item = self._item(empty)
                    yield self._event("response.output_item.added", output_index=0, item=item)
                    part = self._part(empty)
                    yield self._event("response.content_part.added", **position, part=part)
                logprobs = self._logprobs([event])
                if event.text or logprobs:
                    fields = {"delta": event.text, "logprobs": logprobs}
                    yield self._event("response.output_text.delta", **position, **fields)
            part = self._part(choice)
            fields = {"text": part["text"], "logprobs": part["logprobs"]}
            yield self._event("response.output_text.done", **position, **fields)
            yield self._event("response.content_part.done", **position, part=part)
            item = self._item(choice)
            yield self._event("response.output_item.done", output_index=0, item=item)
            response = self.response(runner, choice)
            yield self._event(f"response.{response['status']}", response=response)

    def _event(self, type: str, **fields: Any) -> bytes:
        data = {"type": type, "sequence_number": self._events, **fields}
        self._events += 1
        return sse(data, type)

    def stream_error(self, error: ApiError) -> bytes:
        """An error in the middle of a stream, which ends after it.

        OpenAI's client raises only what has an `error` object; the API documents the other fields.
        """
        fields = {"code": error.code, "message": error.message, "param": error.param}
        return self._event("error", **fields, **error.body())
