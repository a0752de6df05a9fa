"""Who may ask for what: Host, Origin, keys and limits, before anything else is done.

A pure ASGI middleware around the whole application, so that no route can be forgotten. It denies
by default: only the routes in OPEN answer without a key.
"""

import hashlib
import hmac
import json
import logging
import re
import secrets
import time
from collections.abc import Iterable
from typing import Any
from urllib.parse import urlsplit

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from qkv.serve.engine_client import EngineClient
from qkv.serve.metrics import ServerMetrics
from qkv.serve.responses import ApiError
from qkv.serve.settings import LOOPBACK, Settings

OPEN = frozenset(("/healthz", "/readyz"))  # health is for those who have no key
UNLIMITED = frozenset(("/healthz", "/readyz", "/metrics", "/v1/models"))
ADMIN_PREFIX = "/admin/"
MAX_HEADERS = 64
MAX_HEADER_BYTES = 16_384
REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")

logger = logging.getLogger("qkv.serve.requests")


class AccessControl:
    """The middleware: identifies, checks, limits, logs and counts every request."""

    def __init__(
        self, app: ASGIApp, settings: Settings, engine: EngineClient, metrics: ServerMetrics
    ) -> None:
        self.app = app
        self.settings = settings
        self.engine = engine
        self.metrics = metrics
        self._keys = {_digest(key): name for name, key in settings.keys.items()}
        self._admin = None if settings.admin_key is None else _digest(settings.admin_key)
        self._hosts = {*LOOPBACK, "[::1]", settings.host.lower(), *settings.allowed_hosts}
        self._origins = frozenset(settings.allowed_origins)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
            return
        headers = _headers(scope["headers"])
        record = RequestRecord(scope, headers)
        scope["state"]["record"] = record
        try:
            self._check(scope, headers, record)
            receive = self._limited(receive, headers)
        except ApiError as error:
            record.error = error.code
            await error.response()(scope, receive, record.watch(send, self._origin(headers)))
        else:
            await self.app(scope, receive, record.watch(send, self._origin(headers)))
        finally:
            record.seconds = time.monotonic() - record.started
            self.metrics.observe(record)
            logger.info(json.dumps(record.fields(), ensure_ascii=False))

    def _check(self, scope: Scope, headers: dict[str, str], record: "RequestRecord") -> None:
        if len(scope["headers"]) > MAX_HEADERS:
            raise ApiError(431, f"more than {MAX_HEADERS} header fields", code="too_many_headers")
        if sum(len(name) + len(value) for name, value in scope["headers"]) > MAX_HEADER_BYTES:
            raise ApiError(
                431, f"more than {MAX_HEADER_BYTES:,} bytes of header fields", code="large_headers"
            )
        self._check_host(headers)
        origin = headers.get("origin")
        if origin is not None and not self._same_origin(origin, headers):
            if origin not in self._origins:
                raise ApiError(
                    403,
                    f"the origin {origin[:100]} may not call this server; start it with "
                    f"--allow-origin {origin[:100]}",
                    code="origin_not_allowed",
                )
            if scope["method"] == "OPTIONS":
                return
        path = scope["path"]
        if path not in OPEN:
            record.key = self._identify(path, headers)
            scope["state"]["key"] = record.key
        if path not in UNLIMITED:
            self._check_load()

    def _check_host(self, headers: dict[str, str]) -> None:
        """Only known names: a page that rebinds its own name to this address has another Host."""
        host = headers.get("host", "").lower()
        name, _, port = host.rpartition(":")
        if not port.isdecimal():
            name = host
        if name not in self._hosts:
            raise ApiError(
                403,
                f"this server does not answer to the host {host[:100]!r}; start it with "
                "--allow-host NAME",
                code="host_not_allowed",
            )

    def _same_origin(self, origin: str, headers: dict[str, str]) -> bool:
        return urlsplit(origin).netloc.lower() == headers.get("host", "").lower()

    def _origin(self, headers: dict[str, str]) -> str | None:
        """The origin to allow in the answer, if it is on the list."""
        origin = headers.get("origin")
        return origin if origin in self._origins else None

    def _identify(self, path: str, headers: dict[str, str]) -> str:
        """The name of the key that came with the request; raises without a right one."""
        digest = _digest(_key_of(headers))
        if path.startswith(ADMIN_PREFIX):
            if self._admin is None:
                raise ApiError(
                    403,
                    "no admin key is set; start the server with --admin-key-file",
                    code="admin_disabled",
                )
            if not hmac.compare_digest(digest, self._admin):
                raise ApiError(401, "this route needs the admin key", code="invalid_api_key")
            return "admin"
        if not self._keys:
            return ""
        name = None
        for known, key_name in self._keys.items():  # all of them: no early end to be timed
            if hmac.compare_digest(digest, known):
                name = key_name
        if name is None:
            problem = "missing" if not _key_of(headers) else "wrong"
            raise ApiError(
                401,
                f"the API key is {problem}; send it as Authorization: Bearer KEY",
                code="invalid_api_key",
            )
        return name

    def _check_load(self) -> None:
        """Turn a request away before its body is read, if too many are waiting."""
        limits = self.settings.limits
        busy = self.engine.pending >= limits.requests
        if busy or self.engine.queue_tokens >= limits.queue_tokens:
            raise ApiError(
                429,
                f"{self.engine.pending} requests are waiting, as many as this server takes",
                code="queue_full",
                retry_after=self.metrics.retry_after(self.engine.queue_tokens),
            )

    def _limited(self, receive: Receive, headers: dict[str, str]) -> Receive:
        """The same, but a body that is too large is an error."""
        limit = self.settings.limits.body_bytes
        length = headers.get("content-length", "0")
        if not length.isdecimal() or int(length) > limit:
            raise _too_large(limit)
        received = 0

        async def receive_limited() -> Message:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            if received > limit:
                raise _too_large(limit)
            return message

        return receive_limited


def _too_large(limit: int) -> ApiError:
    return ApiError(
        413, f"the body is larger than {limit:,} bytes; send less at a time", code="body_too_large"
    )


class RequestRecord:
    """What is logged and counted of one request: never a text, never a key."""

    def __init__(self, scope: Scope, headers: dict[str, str]) -> None:
        self.id = headers.get("x-request-id", "")
        if not REQUEST_ID.fullmatch(self.id):
            self.id = f"req_{secrets.token_hex(12)}"
        self.method: str = scope["method"]
        self.scope = scope
        self.key = ""
        self.model = ""
        self.status = 0
        self.error: str | None = None
        self.finish: str | None = None
        self.prompt_tokens = 0
        self.completion_tokens = 0
        self.cached_tokens = 0
        self.started = time.monotonic()
        self.first_token: float | None = None
        self.seconds = 0.0

    @property
    def route(self) -> str:
        """The pattern of the route; unknown paths all count as one."""
        route = self.scope.get("route")
        return str(getattr(route, "path", "")) or "unknown"

    def watch(self, send: Send, origin: str | None) -> Send:
        """The same, and the status is remembered; the answer carries the id of the request."""

        async def send_watched(message: Message) -> None:
            if message["type"] == "http.response.start":
                self.status = message["status"]
                extra = [(b"x-request-id", self.id.encode())]
                if origin is not None:
                    extra.append((b"access-control-allow-origin", origin.encode()))
                    extra.append((b"access-control-allow-headers", b"authorization, content-type"))
                    extra.append((b"vary", b"Origin"))
                message["headers"] = [*message.get("headers", []), *extra]
            await send(message)

        return send_watched

    def fields(self) -> dict[str, Any]:
        first = None if self.first_token is None else self.first_token - self.started
        return {
            "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "id": self.id,
            "key": self.key,
            "method": self.method,
            "route": self.route,
            "model": self.model,
            "status": self.status,
            "error": self.error,
            "finish": self.finish,
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.completion_tokens,
            "cached_tokens": self.cached_tokens,
            "first_token_ms": None if first is None else round(1000 * first, 1),
            "ms": round(1000 * self.seconds, 1),
        }


def _headers(raw: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    return {name.decode("latin-1"): value.decode("latin-1") for name, value in raw}


def _key_of(headers: dict[str, str]) -> str:
    """The key of a request, as OpenAI's or Anthropic's clients send it."""
    scheme, _, key = headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer":
        return key.strip()
    return headers.get("x-api-key", "")


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode("latin-1", "replace")).digest()
