"""Ollama's API: its bodies as completions and chats, its answers as lines of JSON."""

import time
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from fastapi import APIRouter
from pydantic import Discriminator, Field, Tag
from starlette.requests import Request
from starlette.responses import Response

from qkv.serve.access import RequestRecord
from qkv.serve.completion_job import (
    CompletionJob,
    CompletionRunner,
    chat_message,
    schema_format,
    token_logprob,
)
from qkv.serve.completions import chat_job, completion_job
from qkv.serve.gateway import Gateway
from qkv.serve.link import ModelInfo, TokenEvent
from qkv.serve.responses import (
    OLLAMA_PREFIX,
    ApiError,
    EventStream,
    error_responses,
    json_line,
    json_response,
    unless_disconnected,
)
from qkv.serve.schemas import (
    MAX_IDS,
    MAX_SEED,
    Body,
    ChatBody,
    ChatMessage,
    CompletionBody,
    GenerationBody,
    Int,
    ModelName,
    ResponseFormat,
    Text,
    Texts,
    Unsupported,
)
from qkv.serve.text_routes import check_dimensions
from qkv.version import __version__

DEFAULT_TEMPERATURE = 0.8
DEFAULT_TOP_P = 0.9
DEFAULT_TOP_K = 40
JSON_LINES = "application/x-ndjson"

ERROR_SCHEMA = {
    "type": "object",
    "required": ["error"],
    "properties": {"error": {"type": "string"}},
}


class OllamaOptions(Body):
    """How tokens are sampled. What only concerns memory and speed has no effect here."""

    temperature: float | None = Field(None, ge=0, le=100)
    top_k: Int | None = Field(None, ge=0, le=1 << 31)
    top_p: float | None = Field(None, gt=0, le=1)
    min_p: float | None = Field(None, ge=0, le=1)
    seed: Int | None = Field(None, ge=-MAX_SEED, le=MAX_SEED)
    num_predict: Int | None = Field(None, ge=-2, le=MAX_IDS)
    stop: Text | Annotated[list[Text], Field(max_length=16)] | None = None
    repeat_penalty: float | None = Field(None, gt=0, le=100)
    presence_penalty: float | None = Field(None, ge=-2, le=2)
    frequency_penalty: float | None = Field(None, ge=-2, le=2)
    # Only the values that change nothing: penalties cover all the text, and there is no mirostat.
    repeat_last_n: Annotated[Int, Field(ge=-1, le=-1)] | None = None
    typical_p: Annotated[float, Field(ge=1, le=1)] | None = None
    tfs_z: Annotated[float, Field(ge=1, le=1)] | None = None
    mirostat: Annotated[Int, Field(ge=0, le=0)] | None = None
    mirostat_tau: float | None = None
    mirostat_eta: float | None = None
    penalize_newline: Literal[True] | None = None
    num_ctx: Int | None = Field(None, ge=1)
    num_keep: Int | None = None
    num_batch: Int | None = None
    num_gpu: Int | None = None
    num_thread: Int | None = None
    main_gpu: Int | None = None
    numa: bool | None = None
    low_vram: bool | None = None
    f16_kv: bool | None = None
    logits_all: bool | None = None
    vocab_only: bool | None = None
    use_mmap: bool | None = None
    use_mlock: bool | None = None
    embedding_only: bool | None = None


def _format_kind(value: object) -> str:
    return "str" if isinstance(value, str) else "dict"


OutputFormat = Annotated[
    Annotated[Literal["", "json"], Tag("str")] | Annotated[dict[str, Any], Tag("dict")],
    Discriminator(_format_kind),
]


class OllamaBody(Body):
    """What all of Ollama's routes that run a model take."""

    model: ModelName
    options: OllamaOptions | None = None
    keep_alive: str | float | None = None


class OllamaGenerationBody(OllamaBody):
    stream: bool | None = None
    format: OutputFormat | None = None
    think: Unsupported = None
    logprobs: bool | None = None
    top_logprobs: Int | None = Field(None, ge=0, le=20)


class GenerateBody(OllamaGenerationBody):
    """POST /api/generate"""

    prompt: Text = ""
    system: Text | None = None
    raw: bool | None = None
    suffix: Unsupported = None
    template: Unsupported = None
    context: Unsupported = None
    images: Unsupported = None


class OllamaMessage(Body):
    role: Literal["system", "user", "assistant"]
    content: Text = ""
    images: Unsupported = None
    tool_calls: Unsupported = None
    thinking: Unsupported = None


class OllamaChatBody(OllamaGenerationBody):
    """POST /api/chat"""

    messages: list[OllamaMessage] = Field(default=[], max_length=1024)
    tools: Unsupported = None


class EmbedBody(OllamaBody):
    """POST /api/embed"""

    input: Text | Texts
    truncate: bool = True
    dimensions: Int | None = Field(None, ge=1, le=65_536)


class OllamaEmbeddingBody(OllamaBody):
    """POST /api/embeddings, which takes one text"""

    prompt: Text


class ShowBody(Body):
    """POST /api/show"""

    model: ModelName
    verbose: bool | None = None


def add_ollama_routes(router: APIRouter, gateway: Gateway) -> None:
    options: dict[str, Any] = {"tags": ["ollama"], "responses": error_responses(ERROR_SCHEMA)}

    @router.post(f"{OLLAMA_PREFIX}generate", **options)
    async def generate_route(request: Request, body: GenerateBody) -> Response:
        """Answer a prompt, or continue it with a model that has no chat template."""
        return await generate(gateway, request, body)

    @router.post(f"{OLLAMA_PREFIX}chat", **options)
    async def chat_route(request: Request, body: OllamaChatBody) -> Response:
        """Answer the messages of a chat, in the shape of Ollama's API."""
        return await chat(gateway, request, body)

    @router.post(f"{OLLAMA_PREFIX}embed", **options)
    async def embed_route(request: Request, body: EmbedBody) -> Response:
        """A vector of length 1 for each text."""
        return await embed(gateway, request, body)

    @router.post(f"{OLLAMA_PREFIX}embeddings", **options)
    async def embeddings_route(request: Request, body: OllamaEmbeddingBody) -> Response:
        """The vector of one text."""
        return await embeddings(gateway, request, body)

    @router.get(f"{OLLAMA_PREFIX}tags", **options)
    async def tags_route() -> Response:
        """The models that are loaded."""
        return json_response({"models": list_models(gateway)})

    @router.post(f"{OLLAMA_PREFIX}show", **options)
    async def show_route(request: Request, body: ShowBody) -> Response:
        """One model: its size, limits and chat template."""
        info = find_model(gateway, request, body.model)
        return json_response(describe_model(gateway, info))

    @router.get(f"{OLLAMA_PREFIX}version", **options)
    async def version_route() -> Response:
        """The version of this server."""
        return json_response({"version": __version__})


async def generate(gateway: Gateway, request: Request, body: GenerateBody) -> Response:
    """POST /api/generate"""
    info = find_model(gateway, request, body.model, "generate")
    writer = OllamaWriter(gateway, info, body, _generate_piece)
    if not body.prompt:
        return writer.nothing(request)
    templated = gateway.tokenizer(info).special_tokens.chat_template is not None
    if templated and not body.raw:
        messages = [chat_message("user", body.prompt)]
        if body.system:
            messages.insert(0, chat_message("system", body.system))
        return await writer.run(request, await _chat_job(gateway, info, body, messages))
    if body.system:
        raise ApiError(
            400,
            f"a system prompt needs a chat template, which {info.name} does not have or raw "
            "leaves out",
            param="system",
        )
    fields = generation_fields(info, body)
    top = max(body.top_logprobs or 0, 1) if body.logprobs else None
    completion = CompletionBody.model_construct(prompt=body.prompt, logprobs=top, **fields)
    return await writer.run(request, await completion_job(gateway, info, completion, "num_predict"))


async def chat(gateway: Gateway, request: Request, body: OllamaChatBody) -> Response:
    """POST /api/chat"""
    info = find_model(gateway, request, body.model, "generate")
    writer = OllamaWriter(gateway, info, body, _chat_piece)
    if not body.messages:
        return writer.nothing(request)
    messages = [chat_message(message.role, message.content) for message in body.messages]
    return await writer.run(request, await _chat_job(gateway, info, body, messages))


async def _chat_job(
    gateway: Gateway, info: ModelInfo, body: OllamaGenerationBody, messages: list[ChatMessage]
) -> CompletionJob:
    fields = generation_fields(info, body)
    top = body.top_logprobs if body.logprobs else None
    chat_body = ChatBody.model_construct(
        messages=messages, logprobs=body.logprobs, top_logprobs=top, **fields
    )
    return await chat_job(gateway, info, chat_body, "num_predict")


def generation_fields(info: ModelInfo, body: OllamaGenerationBody) -> dict[str, Any]:
    """The fields that OpenAI's completions and chats share, with Ollama's defaults."""
    options = body.options or OllamaOptions.model_validate({})
    fields: dict[str, Any] = {
        "model": info.name,
        "temperature": DEFAULT_TEMPERATURE,
        "top_p": DEFAULT_TOP_P,
        "top_k": DEFAULT_TOP_K,
        "repetition_penalty": options.repeat_penalty,
        "max_tokens": token_limit(options.num_predict),
        "response_format": response_format(body),
    }
    for name in set(OllamaOptions.model_fields) & set(GenerationBody.model_fields):
        value = getattr(options, name)
        if value is not None:
            fields[name] = value
    if fields["top_k"] == 0:  # every token
        fields["top_k"] = None
    return fields


def token_limit(num_predict: int | None) -> int | None:
    """How many tokens to generate; None for as many as the context has room for."""
    if num_predict == 0:
        raise ApiError(400, "num_predict is 0, so there is nothing to do", param="num_predict")
    if num_predict is None or num_predict < 0:
        return None
    return num_predict


def response_format(body: OllamaGenerationBody) -> ResponseFormat | None:
    """The form of the answer as OpenAI's API has it."""
    if not body.format:
        return None
    if body.format == "json":
        return ResponseFormat(type="json_object")
    assert isinstance(body.format, dict)
    return schema_format(body.format)


Piece = Callable[[str], dict[str, Any]]


def _generate_piece(text: str) -> dict[str, Any]:
    return {"response": text}


def _chat_piece(text: str) -> dict[str, Any]:
    return {"message": {"role": "assistant", "content": text}}


class OllamaWriter:
    """Words completions as Ollama does.

    piece: the field that a piece of text has in the answers of its route.
    """

    def __init__(
        self, gateway: Gateway, info: ModelInfo, body: OllamaGenerationBody, piece: Piece
    ) -> None:
        self.gateway = gateway
        self.tokenizer = gateway.tokenizer(info)
        self.body = body
        self.piece = piece

    async def run(self, request: Request, job: CompletionJob) -> Response:
        if self.body.stream is not False:  # Ollama streams unless it is told not to
            return EventStream(self.stream(request, job), stream_error, JSON_LINES)
        with CompletionRunner(self.gateway, request, job) as runner:
            (choice,) = await unless_disconnected(request, runner.finish())
            return json_response(
                self._line(choice.text, choice.events) | _statistics(runner.record)
            )

    async def stream(self, request: Request, job: CompletionJob) -> AsyncIterator[bytes]:
        with CompletionRunner(self.gateway, request, job) as runner:
            async for _, event in runner.events():
                yield json_line(self._line(event.text, [event]) | {"done": False})
            yield json_line(self._line("", []) | _statistics(runner.record))

    def nothing(self, request: Request) -> Response:
        """The answer to an empty prompt, with which clients ask for a model to be loaded."""
        return json_response(self._line("", []) | {"done": True, "done_reason": "load"})

    def _line(self, text: str, events: Sequence[TokenEvent]) -> dict[str, Any]:
        line = {"model": self.body.model, "created_at": timestamp(), **self.piece(text)}
        if self.body.logprobs and events:
            top = self.body.top_logprobs or 0
            line["logprobs"] = [token_logprob(self.tokenizer, event, top) for event in events]
        return line


def _statistics(record: RequestRecord) -> dict[str, Any]:
    """The end of an answer: why it ended, how many tokens, how many nanoseconds."""
    now = time.monotonic()
    first = record.first_token or now
    return {
        "done": True,
        "done_reason": record.finish,
        "total_duration": _nanoseconds(now - record.started),
        "load_duration": 0,
        "prompt_eval_count": record.prompt_tokens,
        "prompt_eval_duration": _nanoseconds(first - record.started),
        "eval_count": record.completion_tokens,
        "eval_duration": _nanoseconds(now - first),
    }


def _nanoseconds(seconds: float) -> int:
    return round(seconds * 1e9)


def timestamp(seconds: float | None = None) -> str:
    """A time as Ollama writes it; without seconds, now."""
    time = datetime.now(UTC) if seconds is None else datetime.fromtimestamp(seconds, UTC)
    return time.isoformat().replace("+00:00", "Z")


def stream_error(error: ApiError) -> bytes:
    """An error in the middle of a stream, which ends after it."""
    return json_line(error.body(OLLAMA_PREFIX))


async def embed(gateway: Gateway, request: Request, body: EmbedBody) -> Response:
    """POST /api/embed"""
    info = find_model(gateway, request, body.model, "embed", "classify")
    check_dimensions(info, body.dimensions)
    texts = [body.input] if isinstance(body.input, str) else body.input
    rows = await gateway.text_ids(info, texts, body.truncate)
    vectors = await gateway.encode_texts(request, info, rows, "vector")
    record: RequestRecord = request.state.record
    return json_response(
        {
            "model": body.model,
            "embeddings": vectors.tolist(),
            "total_duration": _nanoseconds(time.monotonic() - record.started),
            "load_duration": 0,
            "prompt_eval_count": record.prompt_tokens,
        }
    )


async def embeddings(gateway: Gateway, request: Request, body: OllamaEmbeddingBody) -> Response:
    """POST /api/embeddings"""
    info = find_model(gateway, request, body.model, "embed", "classify")
    rows = await gateway.text_ids(info, [body.prompt], truncate=True)
    (vector,) = await gateway.encode_texts(request, info, rows, "vector")
    return json_response({"embedding": vector.tolist()})


def find_model(gateway: Gateway, request: Request, name: str, *tasks: str) -> ModelInfo:
    """A model by its name, with or without the tag that Ollama's clients add."""
    if name not in gateway.engine.models:
        name = name.removesuffix(":latest")
    return gateway.model(request, name, *tasks)


def list_models(gateway: Gateway) -> list[dict[str, Any]]:
    models = []
    for name, state in gateway.engine.models.items():
        if state.info is None:
            continue
        models.append(
            {
                "name": name,
                "model": name,
                "modified_at": timestamp(gateway.started),
                "size": state.info.bytes,
                "digest": state.info.sha256,
                "details": _details(gateway, state.info),
            }
        )
    return models


def describe_model(gateway: Gateway, info: ModelInfo) -> dict[str, Any]:
    """The answer of /api/show."""
    template = info.special_tokens.get("chat_template")
    capabilities = {"generate": ["completion"], "embed": ["embedding"], "classify": ["embedding"]}
    family = info.task
    return {
        "template": template or "",
        "details": _details(gateway, info),
        "model_info": {
            "general.architecture": family,
            "general.parameter_count": info.parameters,
            f"{family}.context_length": info.context_length,
            f"{family}.embedding_length": info.width,
            f"{family}.block_count": info.layers,
            f"{family}.attention.head_count": info.heads,
        },
        "capabilities": capabilities.get(info.task, []),
        "modified_at": timestamp(gateway.started),
    }


def _details(gateway: Gateway, info: ModelInfo) -> dict[str, Any]:
    return {
        "parent_model": "",
        "format": "qkv",
        "family": info.task,
        "families": [info.task],
        "parameter_size": f"{info.parameters / 1e6:.1f}M",
        "quantization_level": "Q8_0" if gateway.settings.int8 else "F32",
    }
