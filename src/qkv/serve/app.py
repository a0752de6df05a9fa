"""The HTTP application: every route, its documentation, and what errors become."""

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from fastapi import APIRouter, FastAPI
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from qkv.errors import unknown
from qkv.serve import completions, text_routes
from qkv.serve.access import AccessControl
from qkv.serve.anthropic_routes import MessagesBody, add_anthropic_routes
from qkv.serve.engine_client import (
    EngineUnavailableError,
    ModelState,
    RequestFailedError,
)
from qkv.serve.gateway import Gateway
from qkv.serve.ollama_routes import GenerateBody, OllamaOptions, add_ollama_routes
from qkv.serve.responses import (
    ApiError,
    ClientDisconnectedError,
    json_response,
    to_api_error,
)
from qkv.serve.responses_api import ResponsesBody, add_responses_routes
from qkv.serve.schemas import (
    ChatBody,
    ClassifyBody,
    ClusterBody,
    CompletionBody,
    DetokenizeBody,
    EmbeddingBody,
    ExplainBody,
    LoadBody,
    RerankBody,
    SimilarityBody,
    TokenizeBody,
    TraceBody,
    TranslateBody,
)
from qkv.serve.settings import ModelSource, Settings
from qkv.version import __version__

MAX_JSON_DEPTH = 32
GONE = 499  # nobody reads it: the client has closed the connection


class StrictRequest(Request):
    """A request whose JSON has no NaN, no half characters and no deep nesting."""

    async def json(self) -> Any:
        if not hasattr(self, "_value"):
            self._value = await self._parse()
        return self._value

    async def _parse(self) -> Any:
        kind = self.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "application/json":
            raise ApiError(
                415, "send JSON, with Content-Type: application/json", code="unsupported_media_type"
            )
        return parse_body(await self.body())


def parse_body(raw: bytes) -> Any:
    """The JSON of a body; raises a 400 that says what is wrong with it."""
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ApiError(
            400, f"the body is not UTF-8: byte {error.start} is wrong", code="invalid_utf8"
        ) from error
    if _depth(text) > MAX_JSON_DEPTH:
        raise ApiError(
            400, f"the JSON is nested deeper than {MAX_JSON_DEPTH} levels", code="nested_too_deep"
        )
    try:
        value = json.loads(text, parse_constant=_refuse_constant, parse_float=_parse_float)
    except (ValueError, RecursionError) as error:
        raise ApiError(400, f"the body is not JSON: {error}", code="invalid_json") from error
    if "\\u" in text and _has_surrogates(value):
        raise ApiError(400, "the JSON holds half a character (a surrogate)", code="invalid_utf8")
    return value


def _depth(text: str) -> int:
    """How deep brackets are nested, strings left out; an upper bound for broken JSON."""
    depth = deepest = 0
    in_string = escaped = False
    for character in text:
        if in_string:
            if escaped:
                escaped = False
            elif character == "\\":
                escaped = True
            elif character == '"':
                in_string = False
        elif character == '"':
            in_string = True
        elif character in "[{":
            depth += 1
            deepest = max(deepest, depth)
        elif character in "]}":
            depth -= 1
    return deepest


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a JSON number")


def _parse_float(text: str) -> float:
    value = float(text)
    if value in (float("inf"), float("-inf")):
        raise ValueError(f"the number {text[:20]} is too large")
    return value


def _has_surrogates(value: Any) -> bool:
    if isinstance(value, str):
        return any("\ud800" <= character <= "\udfff" for character in value)
    if isinstance(value, dict):
        return any(map(_has_surrogates, (*value, *value.values())))
    return isinstance(value, list) and any(map(_has_surrogates, value))


class StrictRoute(APIRoute):
    """A route that reads its body strictly, and answers every failure in OpenAI's shape."""

    def get_route_handler(self) -> Callable[[Request], Awaitable[Response]]:  # type: ignore[override]
        handler = super().get_route_handler()

        async def handle(request: Request) -> Response:
            try:
                strict = StrictRequest(request.scope, request.receive)
                if self.body_field is not None:
                    await strict.json()  # FastAPI would hide what is wrong with it
                return await handler(strict)
            except (ClientDisconnectedError, ClientDisconnect):
                request.state.record.error = "client_disconnected"
                return Response(status_code=GONE)
            except RequestValidationError as error:
                api_error = validation_error(error.errors())
            except (ApiError, EngineUnavailableError, RequestFailedError) as error:
                api_error = to_api_error(error)
            request.state.record.error = api_error.code
            return api_error.response()

        return handle


def validation_error(errors: Sequence[Any]) -> ApiError:
    """The first problem of a body in one sentence, with the name of the field."""
    first = errors[0]
    location = [str(part) for part in first.get("loc", ()) if part != "body"]
    # Alternatives of a union are part of the location; only names and numbers are of the body.
    path = [part for part in location if part.isdecimal() or part.replace("_", "").isalpha()]
    name = ".".join(part for part in path if part not in UNION_PARTS)
    if first["type"] == "extra_forbidden":
        return ApiError(
            400, unknown("field", location[-1], FIELD_NAMES), code="unknown_field", param=name
        )
    message = first["msg"]
    if name:
        message = f"{name}: {message[0].lower()}{message[1:]}"
    return ApiError(400, message, code="invalid_value", param=name or None)


UNION_PARTS = frozenset(("str", "int", "bool", "function-before", "list", "ExplainOptions"))
BODIES = (
    CompletionBody,
    ChatBody,
    EmbeddingBody,
    ClassifyBody,
    RerankBody,
    SimilarityBody,
    ClusterBody,
    TranslateBody,
    TokenizeBody,
    DetokenizeBody,
    ExplainBody,
    TraceBody,
    ResponsesBody,
    MessagesBody,
    GenerateBody,
    OllamaOptions,
)
FIELD_NAMES = sorted({name for body in BODIES for name in body.model_fields})

ERROR_SCHEMA = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["message", "type", "param", "code"],
            "properties": {
                "message": {"type": "string"},
                "type": {"type": "string"},
                "param": {"type": ["string", "null"]},
                "code": {"type": ["string", "null"]},
            },
        }
    },
}
ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"description": text, "content": {"application/json": {"schema": ERROR_SCHEMA}}}
    for status, text in (
        (400, "The request is at fault"),
        (401, "The key is missing or wrong"),
        (403, "The host, origin or route is not allowed"),
        (404, "There is no such model"),
        (405, "The route has other methods"),
        (408, "The request took too long to arrive"),
        (413, "The body is too large"),
        (415, "The body is not JSON"),
        (429, "Too many requests are waiting"),
        (500, "The model failed on this request"),
        (503, "The engine is starting, or was restarted"),
    )
}


def create_app(settings: Settings, gateway: Gateway | None = None) -> AccessControl:
    """The application, with its middleware around it; the engine starts with it."""
    gateway = gateway or Gateway(settings)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        await gateway.engine.start()
        try:
            yield
        finally:
            await gateway.engine.close()

    app = FastAPI(
        title="qkv",
        version=__version__,
        summary="Every job of the toolkit over HTTP, and every answer explained",
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        openapi_url="/openapi.json",
        redirect_slashes=False,
    )
    app.state.gateway = gateway
    router = APIRouter(route_class=StrictRoute, responses=ERRORS)
    add_health_routes(router, gateway)
    add_model_routes(router, gateway)
    add_inference_routes(router, gateway)
    add_responses_routes(router, gateway)
    add_anthropic_routes(router, gateway)
    add_ollama_routes(router, gateway)
    app.include_router(router)
    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(Exception, _internal_error)
    return AccessControl(app, settings, gateway.engine, gateway.metrics)


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    path = request.url.path[:200]
    if error.status_code == 404:
        return ApiError(404, f"there is no route {path}", code="route_not_found").response()
    if error.status_code == 405:
        text = f"{path} does not take {request.method}"
        return ApiError(405, text, code="method_not_allowed").response()
    return ApiError(error.status_code, str(error.detail), code="http_error").response()


async def _internal_error(request: Request, error: Exception) -> Response:
    return to_api_error(error).response()


def add_health_routes(router: APIRouter, gateway: Gateway) -> None:
    engine = gateway.engine

    @router.get("/healthz", tags=["health"])
    async def healthz() -> Response:
        """This process answers."""
        return json_response({"status": "ok"})

    @router.get("/readyz", tags=["health"])
    async def readyz() -> Response:
        """The engine's heartbeat is recent, and every model is loaded."""
        models = {
            name: "ready" if state.info else state.error or "loading"
            for name, state in engine.models.items()
        }
        if engine.ready:
            return json_response({"status": "ready", "models": models})
        body = ApiError(503, "the engine is not ready", code="not_ready").body()
        return json_response(body | {"models": models}, 503, {"retry-after": "1"})

    @router.get("/metrics", tags=["health"], response_class=Response)
    async def metrics() -> Response:
        """Counters and gauges in Prometheus' format."""
        text = gateway.metrics.render(engine)
        return Response(text, media_type="text/plain; version=0.0.4")


def add_model_routes(router: APIRouter, gateway: Gateway) -> None:
    engine = gateway.engine

    @router.get("/v1/models", tags=["models"])
    async def list_models() -> Response:
        """The models by name, with what they can do."""
        data = [describe_model(gateway, name, state) for name, state in engine.models.items()]
        return json_response({"object": "list", "data": data})

    @router.get("/v1/models/{name}", tags=["models"])
    async def get_model(name: str) -> Response:
        """One model: its task, limits and size."""
        return json_response(describe_model(gateway, name, gateway.state(name)))

    @router.post("/admin/models", tags=["admin"])
    async def load_model(body: LoadBody) -> Response:
        """Load a model from a directory of the server, or load it again."""
        state = await engine.load(ModelSource(body.name, body.path))
        if state.error is not None:
            engine.models.pop(body.name, None)
            raise ApiError(400, state.error, code="model_not_loaded", param="path")
        return json_response(describe_model(gateway, body.name, state))

    @router.delete("/admin/models/{name}", tags=["admin"])
    async def unload_model(name: str) -> Response:
        """Free the memory of a model."""
        gateway.state(name)
        engine.unload(name)
        return json_response({"id": name, "object": "model", "deleted": True})


def describe_model(gateway: Gateway, name: str, state: ModelState) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "id": name,
        "object": "model",
        "created": gateway.started,
        "owned_by": "qkv",
        "ready": state.info is not None,
    }
    info = state.info
    if info is None:
        return fields | {"error": state.error}
    has_template = info.special_tokens.get("chat_template") is not None
    return fields | {
        "task": info.task,
        "description": info.description,
        "parameters": info.parameters,
        "bytes": info.bytes,
        "max_model_len": info.context_length,
        "vocab_size": info.vocab_size,
        "dimensions": info.width,
        "layers": info.layers,
        "heads": info.heads,
        "labels": info.labels,
        "chat": has_template,
        "sha256": info.sha256,
        "load_seconds": round(state.load_seconds, 3),
        "warnings": info.warnings,
    }


def add_inference_routes(router: APIRouter, gateway: Gateway) -> None:
    @router.post("/v1/completions", tags=["openai"])
    async def completions_route(request: Request, body: CompletionBody) -> Response:
        """Continue a text."""
        return await completions.completions(gateway, request, body)

    @router.post("/v1/chat/completions", tags=["openai"])
    async def chat_route(request: Request, body: ChatBody) -> Response:
        """Answer the messages of a chat, with a model that has a chat template."""
        return await completions.chat_completions(gateway, request, body)

    @router.post("/v1/embeddings", tags=["openai"])
    async def embeddings_route(request: Request, body: EmbeddingBody) -> Response:
        """A vector of length 1 for each text."""
        return await text_routes.embeddings(gateway, request, body)

    @router.post("/v1/classify", tags=["text"])
    async def classify_route(request: Request, body: ClassifyBody) -> Response:
        """The label of each text, and the probability of every label."""
        return await text_routes.classify(gateway, request, body)

    @router.post("/v1/rerank", tags=["text"])
    @router.post("/rerank", tags=["text"])
    async def rerank_route(request: Request, body: RerankBody) -> Response:
        """Documents in the order of their similarity to a query."""
        return await text_routes.rerank(gateway, request, body)

    @router.post("/v1/similarity", tags=["text"])
    async def similarity_route(request: Request, body: SimilarityBody) -> Response:
        """The cosine of two texts; explained, the word pairs that add up to it."""
        return await text_routes.similarity(gateway, request, body)

    @router.post("/v1/cluster", tags=["text"])
    async def cluster_route(request: Request, body: ClusterBody) -> Response:
        """Groups of similar texts, named."""
        return await text_routes.cluster(gateway, request, body)

    @router.post(
        "/translate",
        tags=["translate"],
        openapi_extra={
            "requestBody": {
                "required": True,
                "content": {"application/json": {"schema": TranslateBody.model_json_schema()}},
            }
        },
    )
    async def translate_route(request: Request) -> Response:
        """Translate a text, or a list of them."""
        return await text_routes.translate(gateway, StrictRequest(request.scope, request.receive))

    @router.get("/languages", tags=["translate"])
    async def languages_route(request: Request) -> Response:
        """The translators."""
        return await text_routes.languages(gateway, request)

    @router.post("/tokenize", tags=["tokenizer"])
    async def tokenize_route(request: Request, body: TokenizeBody) -> Response:
        """The token ids of a text."""
        return await text_routes.tokenize(gateway, request, body)

    @router.post("/detokenize", tags=["tokenizer"])
    async def detokenize_route(request: Request, body: DetokenizeBody) -> Response:
        """The text of token ids."""
        return await text_routes.detokenize(gateway, request, body)

    @router.get("/tokenizer_info", tags=["tokenizer"])
    async def tokenizer_info_route(request: Request, model: str | None = None) -> Response:
        """What a client has to know of a tokenizer."""
        return await text_routes.tokenizer_info(gateway, request)

    @router.post("/v1/explain", tags=["explain"])
    async def explain_route(request: Request, body: ExplainBody) -> Response:
        """Why the model answers as it does: what `qkv explain --json` prints."""
        return await text_routes.explain(gateway, request, body)

    @router.post("/v1/trace", tags=["explain"])
    async def trace_route(request: Request, body: TraceBody) -> Response:
        """Named tensors of one forward pass, as JSON or as safetensors."""
        return await text_routes.trace(gateway, request, body)
