"""Anthropic's Messages API: its bodies as a chat, and the chat's tokens as its messages."""

import secrets
from collections.abc import AsyncIterator
from typing import Annotated, Any, Literal

from fastapi import APIRouter
from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from qkv.serve.completion_job import (
    Choice,
    CompletionJob,
    CompletionRunner,
    chat_message,
    schema_format,
    stop_string,
)
from qkv.serve.completions import chat_job, chat_messages
from qkv.serve.gateway import Gateway
from qkv.serve.responses import (
    ANTHROPIC_PREFIX,
    ApiError,
    EventStream,
    error_responses,
    json_response,
    sse,
    unless_disconnected,
)
from qkv.serve.schemas import (
    MAX_IDS,
    Body,
    ChatBody,
    ChatMessage,
    Content,
    Int,
    ModelName,
    Text,
    TextType,
    Unsupported,
)

STOP_REASONS = {"end": "end_turn", "length": "max_tokens", "stop": "stop_sequence"}

ERROR_SCHEMA = {
    "type": "object",
    "required": ["type", "error"],
    "properties": {
        "type": {"const": "error"},
        "error": {
            "type": "object",
            "required": ["type", "message"],
            "properties": {"type": {"type": "string"}, "message": {"type": "string"}},
        },
    },
}


class CacheControl(Body):
    """Accepted: the prefix cache here needs no marks."""

    type: Literal["ephemeral"]
    ttl: str | None = Field(None, max_length=20)


class TextBlock(Body):
    type: TextType
    text: Text
    cache_control: CacheControl | None = None
    citations: Unsupported = None


class AnthropicMessage(Body):
    role: Literal["user", "assistant", "system"]
    content: Content[TextBlock]


class Thinking(Body):
    """Only that there is none: "adaptive" leaves it to the model."""

    type: Literal["disabled", "adaptive"]
    display: str | None = Field(None, max_length=20)


class OutputFormat(Body):
    type: Literal["json_schema"]
    schema_: dict[str, Any] = Field(alias="schema")


class OutputConfig(Body):
    format: OutputFormat | None = None
    effort: str | None = Field(None, max_length=20)


class CountTokensBody(Body):
    """POST /v1/messages/count_tokens"""

    model: ModelName
    messages: Annotated[list[AnthropicMessage], Field(min_length=1, max_length=1024)]
    system: Content[TextBlock] | None = None
    output_config: OutputConfig | None = None
    thinking: Thinking | None = None
    tools: Unsupported = None
    tool_choice: dict[str, Any] | None = None
    mcp_servers: Unsupported = None
    cache_control: CacheControl | None = None
    speed: str | None = Field(None, max_length=20)
    user_profile_id: str | None = Field(None, max_length=1000)
    workspace_id: str | None = Field(None, max_length=1000)


class MessagesBody(CountTokensBody):
    """POST /v1/messages"""

    max_tokens: Int = Field(ge=1, le=MAX_IDS)
    temperature: float | None = Field(None, ge=0, le=100)
    top_p: float | None = Field(None, gt=0, le=1)
    top_k: Int | None = Field(None, ge=0, le=1 << 31)
    stop_sequences: Annotated[list[Text], Field(max_length=16)] | None = None
    stream: bool | None = None
    metadata: dict[str, str | None] | None = None
    service_tier: str | None = Field(None, max_length=20)
    inference_geo: str | None = Field(None, max_length=20)
    container: Unsupported = None
    context_management: Unsupported = None
    diagnostics: Unsupported = None


def add_anthropic_routes(router: APIRouter, gateway: Gateway) -> None:
    errors = error_responses(ERROR_SCHEMA)

    @router.post(ANTHROPIC_PREFIX, tags=["anthropic"], responses=errors)
    async def messages_route(request: Request, body: MessagesBody) -> Response:
        """Answer the messages of a chat, in the shape of Anthropic's API."""
        return await messages(gateway, request, body)

    @router.post(f"{ANTHROPIC_PREFIX}/count_tokens", tags=["anthropic"], responses=errors)
    async def count_tokens_route(request: Request, body: CountTokensBody) -> Response:
        """How many tokens the model would read."""
        return await count_tokens(gateway, request, body)


async def messages(gateway: Gateway, request: Request, body: MessagesBody) -> Response:
    """POST /v1/messages"""
    info = gateway.model(request, body.model, "generate")
    if body.messages[-1].role == "assistant":
        raise ApiError(
            400,
            "the last message is the assistant's, but a model here starts its own answer; end "
            "with a message of the user",
            param="messages",
        )
    job = await chat_job(gateway, info, chat_of(body))
    writer = MessageWriter(gateway, job)
    if body.stream:
        return EventStream(writer.stream(request), stream_error)
    with CompletionRunner(gateway, request, job) as runner:
        (choice,) = await unless_disconnected(request, runner.finish())
        return json_response(writer.message(runner, choice))


async def count_tokens(gateway: Gateway, request: Request, body: CountTokensBody) -> Response:
    """POST /v1/messages/count_tokens"""
    info = gateway.model(request, body.model, "generate")
    prompt = await gateway.prompt_ids(info, chat_messages(messages_of(body)))
    return json_response({"input_tokens": len(prompt)})


def messages_of(body: CountTokensBody) -> list[ChatMessage]:
    """The messages of a chat, the system prompt first."""
    messages = []
    if body.system:
        messages.append(chat_message("system", body.system))
    for message in body.messages:
        messages.append(chat_message(message.role, message.content))
    return messages


def chat_of(body: MessagesBody) -> ChatBody:
    """The same request to /v1/chat/completions."""
    response_format = None
    if body.output_config is not None and body.output_config.format is not None:
        response_format = schema_format(body.output_config.format.schema_)
    return ChatBody.model_construct(
        model=body.model,
        messages=messages_of(body),
        max_tokens=body.max_tokens,
        temperature=body.temperature,
        top_p=body.top_p,
        top_k=body.top_k or None,  # 0 is every token
        stop=body.stop_sequences,
        response_format=response_format,
    )


class MessageWriter:
    """Words completions as /v1/messages does."""

    def __init__(self, gateway: Gateway, job: CompletionJob) -> None:
        self.gateway = gateway
        self.job = job
        self.tokenizer = gateway.tokenizer(job.info)
        self.id = f"msg_{secrets.token_hex(12)}"

    def message(self, runner: CompletionRunner, choice: Choice) -> dict[str, Any]:
        """A finished answer."""
        content = [{"type": "text", "text": choice.text}]
        return self._object(content) | self._stop(choice) | {"usage": self._usage(runner)}

    def _object(self, content: list[dict[str, Any]]) -> dict[str, Any]:
        return {
            "id": self.id,
            "type": "message",
            "role": "assistant",
            "model": self.job.info.name,
            "content": content,
            "stop_reason": None,
            "stop_sequence": None,
        }

    def _stop(self, choice: Choice) -> dict[str, Any]:
        stop_reason = choice.events[-1].stop_reason
        assert stop_reason is not None
        return {
            "stop_reason": STOP_REASONS[stop_reason],
            "stop_sequence": stop_string(self.tokenizer, choice, self.job.stop),
        }

    def _usage(self, runner: CompletionRunner) -> dict[str, int]:
        """The counts so far; input_tokens are those that were not read from the prefix cache."""
        record = runner.record
        return {
            "input_tokens": record.prompt_tokens - record.cached_tokens,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": record.cached_tokens,
            "output_tokens": record.completion_tokens,
        }

    async def stream(self, request: Request) -> AsyncIterator[bytes]:
        with CompletionRunner(self.gateway, request, self.job) as runner:
            (choice,) = runner.choices
            async for _, event in runner.events():
                if len(choice.events) == 1:
                    message = self._object([]) | {"usage": self._usage(runner)}
                    block = {"type": "text", "text": ""}
                    yield _event("message_start", message=message)
                    yield _event("content_block_start", index=0, content_block=block)
                if event.text:
                    delta = {"type": "text_delta", "text": event.text}
                    yield _event("content_block_delta", index=0, delta=delta)
            yield _event("content_block_stop", index=0)
            yield _event("message_delta", delta=self._stop(choice), usage=self._usage(runner))
            yield _event("message_stop")


def _event(type: str, **fields: Any) -> bytes:
    return sse({"type": type, **fields}, type)


def stream_error(error: ApiError) -> bytes:
    """An error in the middle of a stream, which ends after it."""
    return sse(error.body(ANTHROPIC_PREFIX), "error")
