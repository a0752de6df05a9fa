"""HTTP/1.1 with deadlines: uvicorn has none for headers, bodies or clients that do not read.

Each deadline is absolute: a client that sends one byte every second gains nothing by it.
"""

import asyncio
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from qkv.serve.responses import ApiError, json_response
from qkv.serve.settings import Deadlines

MAX_REQUESTS_PER_CONNECTION = 1000


def protocol_with(deadlines: Deadlines) -> type[H11Protocol]:
    """The protocol class with these deadlines."""

    class DeadlineProtocol(H11Protocol):
        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            self._deadline: asyncio.TimerHandle | None = None
            self._write_deadline: asyncio.TimerHandle | None = None
            self._phase = "idle"
            self._requests = 0
            self._enter("first byte", deadlines.first_byte)

        def connection_lost(self, exc: Exception | None) -> None:
            self._cancel_deadline()
            self._cancel_write_deadline()
            super().connection_lost(exc)

        def data_received(self, data: bytes) -> None:
            if self._phase in ("idle", "first byte"):
                self._enter("headers", deadlines.headers)
            super().data_received(data)

        def handle_events(self) -> None:
            before = self.cycle
            super().handle_events()
            if self.transport.is_closing() or self.cycle is None:
                return
            if self.cycle is not before:
                self._requests += 1
                if self._requests >= MAX_REQUESTS_PER_CONNECTION:
                    self.cycle.keep_alive = False
            if self.cycle.response_complete:
                return
            if self.conn.their_state is h11.SEND_BODY:
                if self._phase != "body":
                    self._enter("body", deadlines.body)
            elif self._phase in ("headers", "body"):
                self._enter("answer", None)

        def on_response_complete(self) -> None:
            self._enter("idle", None)
            super().on_response_complete()

        def pause_writing(self) -> None:
            super().pause_writing()
            if self._write_deadline is None:
                self._write_deadline = self.loop.call_later(deadlines.write, self.transport.abort)

        def resume_writing(self) -> None:
            super().resume_writing()
            self._cancel_write_deadline()

        def send_400_response(self, msg: str) -> None:
            self._send_error(ApiError(400, msg, code="invalid_http"))

        def _enter(self, phase: str, seconds: float | None) -> None:
            self._cancel_deadline()
            self._phase = phase
            if seconds is not None:
                self._deadline = self.loop.call_later(seconds, self._expire)

        def _expire(self) -> None:
            """Answer 408 if a request had begun, and close."""
            if self.transport.is_closing():
                return
            if self._phase == "headers" or (self._phase == "body" and not self._answering()):
                text = f"the {self._phase} took too long to arrive"
                self._send_error(ApiError(408, text, code="request_timeout"))
            self.transport.close()

        def _answering(self) -> bool:
            return self.cycle is not None and self.cycle.response_started

        def _send_error(self, error: ApiError) -> None:
            """Write an answer outside of the application, and close the connection."""
            response = json_response(error.body(), error.status, error.headers())
            headers: list[Any] = [*response.raw_headers, (b"connection", b"close")]
            try:
                output = self.conn.send(
                    h11.Response(status_code=error.status, headers=headers, reason=b"")
                )
                output += self.conn.send(h11.Data(data=bytes(response.body))) or b""
                output += self.conn.send(h11.EndOfMessage()) or b""
                self.transport.write(output or b"")
            except h11.LocalProtocolError:
                pass  # an answer is on its way already
            self.transport.close()

        def _cancel_deadline(self) -> None:
            if self._deadline is not None:
                self._deadline.cancel()
                self._deadline = None

        def _cancel_write_deadline(self) -> None:
            if self._write_deadline is not None:
                self._write_deadline.cancel()
                self._write_deadline = None

    return DeadlineProtocol
