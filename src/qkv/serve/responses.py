"""What goes back to a client: JSON, streams of events, and errors in the shape of its API."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from qkv.serve.engine_client import EngineUnavailableError, RequestFailedError

Value = TypeVar("Value")

KEEP_ALIVE_SECONDS = 10.0  # between two comments in a stream that has nothing else to say

_json = msgspec.json.Encoder()

ERROR_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    405: "invalid_request_error",
    408: "timeout_error",
    409: "invalid_request_error",
    413: "invalid_request_error",
    415: "invalid_request_error",
    429: "rate_limit_error",
    500: "server_error",
    503: "server_error",
}
ANTHROPIC_ERROR_TYPES = ERROR_TYPES | {
    413: "request_too_large",
    500: "api_error",
    503: "overloaded_error",
}
ANTHROPIC_PREFIX = "/v1/messages"
OLLAMA_PREFIX = "/api/"


class ApiError(Exception):
    """An error that the client gets as the object its API has for errors.

    param: the field at fault. retry_after: seconds after which the same request may work.
    """

    def __init__(
        self,
        status: int,
        message: str,
        *,
        code: str = "invalid_request",
        param: str | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.code = code
        self.param = param
        self.retry_after = retry_after

    def body(self, path: str = "") -> dict[str, Any]:
        """Anthropic's or Ollama's object on their routes, OpenAI's on all others."""
        if path.startswith(ANTHROPIC_PREFIX):
            kind = ANTHROPIC_ERROR_TYPES.get(self.status, "invalid_request_error")
            return {"type": "error", "error": {"type": kind, "message": self.message}}
        if path.startswith(OLLAMA_PREFIX):
            return {"error": self.message}
        error = {
            "message": self.message,
            "type": ERROR_TYPES.get(self.status, "invalid_request_error"),
            "param": self.param,
            "code": self.code,
        }
        return {"error": error}

    def response(self) -> Response:
        return ErrorResponse(self)

    def headers(self) -> dict[str, str]:
        headers = {"x-should-retry": "true" if self.status in (408, 429, 503) else "false"}
        if self.retry_after is not None:
            headers["retry-after"] = str(max(1, round(self.retry_after)))
        if self.status == 401:
            headers["www-authenticate"] = "Bearer"
        return headers


class ErrorResponse(Response):
    """An error as a response; its shape depends on the path, which is known when it is sent."""

    def __init__(self, error: ApiError) -> None:
        super().__init__(status_code=error.status)
        self.error = error

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        error = self.error
        response = json_response(error.body(scope["path"]), error.status, error.headers())
        await response(scope, receive, send)


def error_responses(schema: dict[str, Any]) -> dict[int | str, dict[str, Any]]:
    """The errors of a route whose API has its own object for them, for the documentation."""
    content = {"application/json": {"schema": schema}}
    return {status: {"content": content} for status in ERROR_TYPES}


def to_api_error(error: Exception) -> ApiError:
    """The error for what went wrong in the engine."""
    if isinstance(error, ApiError):
        return error
    if isinstance(error, EngineUnavailableError):
        return ApiError(503, str(error), code="engine_unavailable", retry_after=3)
    if isinstance(error, RequestFailedError) and error.user:
        return ApiError(400, str(error), code="invalid_request")
    if isinstance(error, RequestFailedError):
        return ApiError(500, str(error), code="model_error")
    return ApiError(500, f"{type(error).__name__} inside the server", code="internal_error")


def json_response(value: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(_json.encode(value), status, headers, "application/json")


class ClientDisconnectedError(Exception):
    """The client is gone, so there is nobody to answer."""


async def unless_disconnected(request: Request, answer: Awaitable[Value]) -> Value:
    """The answer; its computation is cancelled as soon as the client is gone."""
    work = asyncio.ensure_future(answer)
    watch = asyncio.ensure_future(_disconnected(request.receive))
    try:
        await asyncio.wait((work, watch), return_when=asyncio.FIRST_COMPLETED)
        if work.done():
            return work.result()
        raise ClientDisconnectedError
    finally:
        for task in (work, watch):
            if not task.done():
                task.cancel()
        await asyncio.gather(work, watch, return_exceptions=True)


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


Chunks = AsyncIterator[bytes]


class EventStream(Response):
    """A stream of chunks that ends when the client is gone; comments keep it alive meanwhile.

    The first chunk is waited for before the headers are sent, so that an error is a status.
    """

    def __init__(
        self,
        chunks: Chunks,
        format_error: Callable[[ApiError], bytes],
        media_type: str = "text/event-stream",
    ) -> None:
        self.chunks = chunks
        self.format_error = format_error
        self.media_type = media_type
        self.background = None
        self.status_code = 200
        self.raw_headers = [
            (b"content-type", media_type.encode()),
            (b"cache-control", b"no-cache"),
            (b"x-accel-buffering", b"no"),  # a proxy should not collect the events
        ]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        work = asyncio.ensure_future(self._send_all(scope, receive, send))
        watch = asyncio.ensure_future(_disconnected(receive))
        try:
            await asyncio.wait((work, watch), return_when=asyncio.FIRST_COMPLETED)
            if work.done():
                work.result()
        finally:
            for task in (work, watch):
                if not task.done():
                    task.cancel()
            await asyncio.gather(work, watch, return_exceptions=True)

    async def _send_all(self, scope: Scope, receive: Receive, send: Send) -> None:
        chunks = aiter(self.chunks)
        try:
            first = await anext(chunks)
        except Exception as error:
            await to_api_error(error).response()(scope, receive, send)
            return
        start = {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
        await send(start)
        await send({"type": "http.response.body", "body": first, "more_body": True})
        pending: asyncio.Future[bytes] | None = None
        try:
            while True:
                pending = pending or asyncio.ensure_future(_next_chunk(chunks))
                done, _ = await asyncio.wait((pending,), timeout=KEEP_ALIVE_SECONDS)
                if not done:
                    if self.media_type == "text/event-stream":
                        await send(_body(b": keep-alive\n\n"))
                    continue
                chunk = pending.result()
                pending = None
                if not chunk:
                    break
                await send(_body(chunk))
        except Exception as error:
            await send(_body(self.format_error(to_api_error(error))))
        finally:
            if pending is not None and not pending.done():
                pending.cancel()
                await asyncio.gather(pending, return_exceptions=True)
            await chunks.aclose()  # type: ignore[attr-defined]
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _next_chunk(chunks: Chunks) -> bytes:
    """The next chunk; empty after the last."""
    async for chunk in chunks:
        return chunk
    return b""


def _body(chunk: bytes) -> dict[str, Any]:
    return {"type": "http.response.body", "body": chunk, "more_body": True}


def sse(value: Any, event: str | None = None) -> bytes:
    """One event of a stream."""
    data = b"data: " + _json.encode(value) + b"\n\n"
    if event is None:
        return data
    return b"event: " + event.encode() + b"\n" + data


SSE_DONE = b"data: [DONE]\n\n"


def sse_error(error: ApiError) -> bytes:
    """An error in the middle of a stream, which ends after it."""
    return sse(error.body()) + SSE_DONE


def json_line(value: Any) -> bytes:
    """One line of a stream of JSON lines."""
    return _json.encode(value) + b"\n"
