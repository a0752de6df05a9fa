"""Runs the application: a socket, uvicorn with our deadlines, signals, and a line that it is up."""

import asyncio
import logging
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import uvicorn

from qkv.errors import UsageError
from qkv.serve.access import MAX_HEADER_BYTES
from qkv.serve.app import create_app
from qkv.serve.deadlines import protocol_with
from qkv.serve.gateway import Gateway
from qkv.serve.settings import Settings


class Server(uvicorn.Server):
    """uvicorn with our signals: the first one drains, a second one ends at once."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._on_signal)
        yield

    def _on_signal(self) -> None:
        if self.should_exit:
            self.force_exit = True
        self.should_exit = True


def run_server(
    settings: Settings, on_start: Callable[[str], None], log_requests: bool = True
) -> int:
    """Serve until a signal comes; the exit code."""
    _set_up_logs(log_requests)
    listener = _listen(settings)
    gateway = Gateway(settings)
    app = create_app(settings, gateway)
    config = uvicorn.Config(
        app,
        http=protocol_with(settings.deadlines),
        ws="none",
        lifespan="on",
        loop="asyncio",
        log_config=None,
        access_log=False,
        server_header=False,
        date_header=True,
        timeout_keep_alive=5,
        timeout_graceful_shutdown=round(settings.deadlines.drain),
        h11_max_incomplete_event_size=MAX_HEADER_BYTES,
        proxy_headers=False,
    )
    server = Server(config)
    gateway.metrics.connections = lambda: len(server.server_state.connections)
    host, port = listener.getsockname()[:2]
    address = f"[{host}]" if ":" in host else host
    on_start(f"http://{address}:{port}")
    with asyncio.Runner() as runner:
        runner.run(_serve(server, gateway, listener))
    return 3 if gateway.engine.failed else 0


async def _serve(server: Server, gateway: Gateway, listener: socket.socket) -> None:
    watch = asyncio.create_task(_exit_if_failed(server, gateway))
    try:
        await server.serve([listener])
    finally:
        watch.cancel()


async def _exit_if_failed(server: Server, gateway: Gateway) -> None:
    """An engine that cannot be kept up is no server; whoever supervises us should know."""
    while not gateway.engine.failed:
        await asyncio.sleep(0.5)
    server.should_exit = True


def _listen(settings: Settings) -> socket.socket:
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    listener = socket.socket(family)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((settings.host, settings.port))
        listener.listen(2048)
    except OSError as error:
        listener.close()
        raise UsageError(
            f"cannot listen on {settings.host}:{settings.port}: {error.strerror}; "
            "choose another --port"
        ) from error
    return listener


def _set_up_logs(log_requests: bool) -> None:
    """Requests as JSON lines on standard error; of uvicorn only what is wrong."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(message)s"))
    requests = logging.getLogger("qkv.serve.requests")
    requests.handlers = [handler]
    requests.propagate = False
    requests.setLevel(logging.INFO if log_requests else logging.CRITICAL)
    uvicorn_logger = logging.getLogger("uvicorn.error")
    uvicorn_logger.handlers = [handler]
    uvicorn_logger.propagate = False
    uvicorn_logger.setLevel(logging.ERROR)
