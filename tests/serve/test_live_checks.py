"""`qkv check http://…` proves a running server, and finds one that is wrong."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from tests.serve.running_server import RunningServer
from typer.testing import CliRunner

from qkv.cli.app import app
from qkv.errors import UsageError
from qkv.serve import LiveServer, check_server


def test_every_invariant_holds_on_a_running_server(server: RunningServer) -> None:
    result = CliRunner().invoke(app, ["check", server.url, "--json"])
    assert result.exit_code == 0, result.output
    report = json.loads(result.output)
    names = [check["name"] for check in report["checks"]]
    for name in ("batch = single", "stream = whole", "echo = generation", "cached = uncached"):
        assert f"writer: {name}" in names
    assert "vectors: batch = single" in names
    assert "translator: batch = single" in names
    assert report["ok"]


class ForgetfulServer(BaseHTTPRequestHandler):
    """A wrong server: each completion has the log-probabilities of another batch."""

    calls = 0

    def do_GET(self) -> None:
        model = {"id": "bad", "ready": True, "task": "generate"}
        self._answer({"data": [model], "vocab_size": 9})

    def do_POST(self) -> None:
        length = int(self.headers["content-length"])
        body = json.loads(self.rfile.read(length))
        type(self).calls += 1
        logprobs = {"tokens": ["a"], "token_logprobs": [-1.0 - 1e-3 * type(self).calls]}
        choice = {"text": "a", "logprobs": logprobs}
        if body.get("stream"):
            self._send(f"data: {json.dumps({'choices': [choice]})}\n\ndata: [DONE]\n\n".encode())
        else:
            self._answer({"choices": [choice], "tokens": [1]})

    def _answer(self, value: Any) -> None:
        self._send(json.dumps(value).encode())

    def _send(self, raw: bytes) -> None:
        self.send_response(200)
        self.send_header("content-length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def wrong_server() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), ForgetfulServer)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


def test_a_server_whose_answers_depend_on_the_batch_is_found_out(wrong_server: str) -> None:
    report = check_server(LiveServer(wrong_server))
    failed = {result.name for result in report.checks if not result.ok}
    assert "bad: batch = single" in failed
    assert "bad: cached = uncached" in failed
    assert "bad: stream = whole" not in failed
    assert CliRunner().invoke(app, ["check", wrong_server]).exit_code == 1


def test_a_server_that_is_not_there_is_one_clear_sentence() -> None:
    with pytest.raises(UsageError, match="is the server up"):
        check_server(LiveServer("http://127.0.0.1:9"))
