"""Broken requests, clients that vanish, a failing model, a dying engine: each falls alone."""

import json
import random
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.serve.running_server import RunningServer, serving
from tests.serve.tiny_bundles import write_all, write_decoder

import qkv
from qkv.bundle import Bundle
from qkv.serve.call_work import TranslationWorkload
from qkv.serve.link import Call

KEY = "a-key-for-tests"
CANARY = {"model": "writer", "prompt": "the dog ran", "max_tokens": 24, "temperature": 0}


def routes(server: RunningServer) -> list[tuple[str, str]]:
    """Every method and path that the server documents, parameters filled in."""
    paths = server.get("/openapi.json")["paths"]
    return [
        (method.upper(), path.replace("{name}", "writer"))
        for path, methods in paths.items()
        for method in methods
    ]


def address(server: RunningServer) -> tuple[str, int]:
    host, _, port = server.url.removeprefix("http://").rpartition(":")
    return host, int(port)


@contextmanager
def connection(server: RunningServer) -> Iterator[socket.socket]:
    with socket.create_connection(address(server), timeout=60) as client:
        yield client


def http(path: str, body: bytes, *headers: str, method: str = "POST") -> bytes:
    lines = [f"{method} {path} HTTP/1.1", "Host: localhost", "Content-Type: application/json"]
    lines += [f"Content-Length: {len(body)}", *headers, "", ""]
    return "\r\n".join(lines).encode() + body


def read_all(client: socket.socket) -> bytes:
    data = b""
    while chunk := client.recv(65536):
        data += chunk
    return data


def canary(server: RunningServer) -> str:
    text = server.post("/v1/completions", CANARY)["choices"][0]["text"]
    assert isinstance(text, str)
    return text


class TestBrokenRequests:
    @pytest.mark.parametrize(
        ("body", "code"),
        [
            (b'{"model": "writer", "prompt": "\xff\xfe"}', "invalid_utf8"),
            (b'{"model": "writer", "prompt": "\\ud800"}', "invalid_utf8"),
            (b'{"model": "writer", "prompt": ', "invalid_json"),
            (b'{"model": "writer", "temperature": NaN}', "invalid_json"),
            (b'{"model": "writer", "temperature": -Infinity}', "invalid_json"),
            (b'{"model": "writer", "temperature": 1e999}', "invalid_json"),
            (b'{"model": "writer", "seed": ' + b"9" * 5000 + b"}", "invalid_json"),
            (b'{"model":' + b"[" * 5000 + b"]" * 5000 + b"}", "nested_too_deep"),
            (b"[]", "invalid_value"),
            (b"null", "invalid_value"),
            (b"", "invalid_json"),
        ],
    )
    def test_a_broken_body_is_a_clear_400_on_every_route(
        self, server: RunningServer, body: bytes, code: str
    ) -> None:
        for method, path in routes(server):
            if method != "POST" or path.startswith("/admin"):
                continue
            status, headers, answer = server.request(path, body)
            assert status == 400, (path, answer)
            assert headers["x-should-retry"] == "false"
            if path.startswith(("/api/", "/v1/messages")):
                assert "error" in json.loads(answer)
            else:
                assert json.loads(answer)["error"]["code"] == code, path

    @pytest.mark.parametrize("value", [10**400, -(10**30), 1e300, "\0", [], {}, [[[]]], True, -1])
    def test_no_value_of_any_field_is_an_error_of_the_server(
        self, server: RunningServer, value: Any
    ) -> None:
        schemas = server.get("/openapi.json")["components"]["schemas"]
        bodies = {
            "/v1/completions": ("CompletionBody", {"model": "writer", "prompt": "a"}),
            "/v1/embeddings": ("EmbeddingBody", {"model": "vectors", "input": "a"}),
            "/v1/classify": ("ClassifyBody", {"model": "labels", "input": "a"}),
            "/v1/explain": ("ExplainBody", {"model": "labels", "input": "the dog"}),
            "/tokenize": ("TokenizeBody", {"model": "writer", "prompt": "a"}),
        }
        for path, (name, body) in bodies.items():
            for field in schemas[name]["properties"]:
                status, _, answer = server.request(path, body | {field: value})
                assert status < 500, (path, field, answer)

    def test_another_content_type_is_refused(self, server: RunningServer) -> None:
        status, _, _ = server.request(
            "/v1/completions", CANARY, headers={"content-type": "text/plain"}
        )
        assert status == 415

    def test_too_much_is_refused_before_it_is_read(self, server: RunningServer) -> None:
        with connection(server) as client:
            client.sendall(http("/v1/completions", b"").replace(b"th: 0", b"th: 99999999999"))
            assert b" 413 " in client.recv(4096)
        with connection(server) as client:
            head = http("/v1/completions", b"", "Transfer-Encoding: chunked")
            client.sendall(head.replace(b"Content-Length: 0\r\n", b""))
            chunk = b"100000\r\n" + b" " * 0x100000 + b"\r\n"
            try:
                for _ in range(5):
                    client.sendall(chunk)
            except OSError:
                pass  # it does not wait for the rest
            assert b" 413 " in client.recv(4096)

    def test_too_many_and_too_large_headers_are_refused(self, server: RunningServer) -> None:
        many = [f"X-Header-{number}: a" for number in range(100)]
        with connection(server) as client:
            client.sendall(http("/healthz", b"", *many, "Connection: close", method="GET"))
            assert b" 431 " in read_all(client)
        with connection(server) as client:
            client.sendall(http("/healthz", b"", "X-Header: " + "a" * 100_000, method="GET"))
            assert b" 431 " in read_all(client)

    def test_unknown_routes_and_methods(self, server: RunningServer) -> None:
        assert server.request("/v1/nothing", {})[0] == 404
        assert server.request("/v1/completions", method="DELETE")[0] == 405
        assert server.request("/v1/models/%2e%2e%2fetc")[0] == 404


@pytest.fixture(scope="module")
def locked(bundles: dict[str, Path]) -> Iterator[RunningServer]:
    options = tuple(f"{name}={path}" for name, path in bundles.items())
    with serving(*options, key=KEY) as running:
        yield running


def status_of(server: RunningServer, method: str, path: str, **headers: str) -> int:
    body = b"{}" if method == "POST" else None
    return server.request(path, body, method=method, headers=headers)[0]


class TestAccess:
    def test_every_route_refuses_strangers(self, locked: RunningServer) -> None:
        everything = routes(locked)
        assert len(everything) > 25
        host, port = address(locked)
        for method, path in everything:
            status = partial(status_of, locked, method, path)
            open_to_all = path in ("/healthz", "/readyz")
            denied = 403 if path.startswith("/admin") else 401
            if not open_to_all:
                assert status(authorization="") == denied, path
                assert status(authorization="Bearer wrong") == denied, path
                assert status(authorization=f"Basic {KEY}") == denied, path
            assert status(host="evil.example") == 403, path
            assert status(host=f"evil.example:{port}") == 403, path
            assert status(origin="http://evil.example") == 403, path
            assert status(origin="null") == 403, path
            assert status(origin=f"http://{host}:{port}") not in (401,), path

    def test_the_right_key_opens_in_both_headers(self, locked: RunningServer) -> None:
        assert locked.request("/v1/models")[0] == 200
        headers = {"authorization": "", "x-api-key": KEY}
        assert locked.request("/v1/models", headers=headers)[0] == 200

    def test_no_text_and_no_key_is_logged(self, locked: RunningServer) -> None:
        locked.request("/v1/completions", CANARY | {"prompt": "a very secret sentence"})
        locked.request("/healthz")
        time.sleep(0.2)
        log = "".join(locked.log)
        assert "secret" not in log
        assert KEY not in log
        entry = json.loads(locked.log[-2])
        assert (entry["route"], entry["status"]) == ("/v1/completions", 200)


def test_the_front_never_imports_torch() -> None:
    code = "import sys, qkv.serve.server; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[RunningServer]:
    """A server that the test may harm."""
    bundles = write_all(tmp_path)
    with serving(*(f"{name}={path}" for name, path in bundles.items())) as running:
        yield running


def is_quiet(server: RunningServer) -> bool:
    values = server.metrics()
    names = ("running", "waiting")
    counts = [values[f"qkv_num_requests_{name}"] for name in names]
    counts += [
        values[f"qkv_{name}"] for name in ("engine_pending", "front_pending", "queue_tokens")
    ]
    return not any(counts) and values["qkv_kv_cache_bytes"] == 0


def vanish(server: RunningServer, seed: int) -> None:
    """Ask for something, and be gone at a random moment, by RST or by FIN."""
    choose = random.Random(seed)
    path, body = choose.choice(
        (
            ("/v1/completions", CANARY | {"max_tokens": 200, "stream": True, "n": 2}),
            ("/v1/completions", CANARY | {"max_tokens": 200}),
            ("/v1/completions", {**CANARY, "echo": True, "logprobs": 1, "max_tokens": 0}),
            ("/v1/embeddings", {"model": "vectors", "input": ["the dog"] * 20}),
            ("/v1/explain", {"model": "labels", "input": "the dog ran over a hill"}),
            ("/v1/classify", {"model": "labels", "input": "a cat", "explain": True}),
            ("/translate", {"q": "the dog ran over a hill", "model": "translator"}),
        )
    )
    request = http(path, json.dumps(body).encode())
    if choose.random() < 0.2:
        request = request[: choose.randrange(1, len(request))]
    with connection(server) as client:
        client.sendall(request)
        client.settimeout(choose.random() * 0.15)
        try:
            while client.recv(4096):
                if choose.random() < 0.3:
                    break
        except OSError:
            pass
        if choose.random() < 0.5:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def disconnect(server: RunningServer, count: int) -> None:
    before = canary(server)
    server.wait_until(lambda: is_quiet(server), 5, "quiet at first")
    baseline = server.metrics()
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda seed: vanish(server, seed), range(count)))

    def as_before() -> bool:
        values = server.metrics()
        names = ("front_tasks", "open_descriptors", "open_connections")
        return is_quiet(server) and all(
            values[f"qkv_{name}"] <= baseline[f"qkv_{name}"] + 1 for name in names
        )

    assert server.metrics()["qkv_engine_restarts"] == 0, server.messages()
    server.wait_until(as_before, 2, "nothing left of clients that are gone")
    assert canary(server) == before
    failures = [line for line in server.log if '"status": 5' in line and "/readyz" not in line]
    assert not failures


def test_clients_that_vanish_leave_nothing_behind(own_server: RunningServer) -> None:
    disconnect(own_server, 60)


@pytest.mark.slow
def test_five_hundred_clients_that_vanish_leave_nothing_behind(own_server: RunningServer) -> None:
    disconnect(own_server, 500)


def test_a_request_that_fails_in_the_model_fails_alone(tmp_path: Path) -> None:
    """A token whose embedding is not a number: only those who send it notice."""
    bundle = Bundle.load(write_decoder(tmp_path / "plain"))
    poison = bundle.tokenizer.token_to_id("Z")
    with torch.no_grad():
        table = next(
            parameter
            for name, parameter in bundle.model.named_parameters()
            if "embedding" in name and parameter.shape[0] >= bundle.tokenizer.vocab_size
        )
        table[poison] = float("nan")
    bundle.save(tmp_path / "writer")
    with serving(f"writer={tmp_path / 'writer'}") as server:
        prompts = [f"the dog saw {number} cats" for number in range(8)]
        bodies = [CANARY | {"prompt": prompt, "max_tokens": 60} for prompt in prompts]
        alone = [server.post("/v1/completions", body)["choices"][0]["text"] for body in bodies]
        with ThreadPoolExecutor(16) as pool:
            good = [pool.submit(server.post, "/v1/completions", body) for body in bodies]
            bad = [
                pool.submit(server.request, "/v1/completions", CANARY | {"prompt": f"Z{number}"})
                for number in range(8)
            ]
            assert [each.result()["choices"][0]["text"] for each in good] == alone
            for each in bad:
                status, headers, answer = each.result()
                assert (status, headers["x-should-retry"]) == (500, "false"), answer
        server.wait_until(lambda: is_quiet(server), 2, "quiet")
        assert server.is_ready()


def test_one_of_a_group_of_translations_is_cancelled(bundles: dict[str, Path]) -> None:
    """Its neighbours, which are searched together with it, get their own answers."""
    box = qkv.load(bundles["translator"])
    sent: list[Any] = []
    workload = TranslationWorkload(sent.append, box)
    texts = ["the dog ran", "two cats sleeping in warm grass", "the old red barn"]
    for id, text in enumerate(texts):
        options = {"beams": 2, "best": 1, "alignment": False, "long": "sentences"}
        workload.submit(Call(id, "translator", "translate", {"texts": [text], **options}, None))
    workload.run()
    workload.cancel(1)
    for _ in range(10_000):
        if not workload.ready:
            break
        workload.run()
    answers = {result.id: result.value[0]["text"] for result in sent}
    want = [translation.text for translation in box.translate(texts, beams=2)]
    assert answers == {0: want[0], 2: want[2]}
    assert workload.pending == 0


class TestEngine:
    @pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
    def test_an_engine_that_dies_or_stops_is_replaced(
        self, own_server: RunningServer, number: int
    ) -> None:
        server = own_server
        before = canary(server)
        answers: list[tuple[int, dict[str, str], bytes]] = []
        body = {"model": "labels", "input": "the dog ran over a hill " * 2, "explain": True}
        threads = [
            threading.Thread(target=lambda: answers.append(server.request("/v1/classify", body)))
            for _ in range(4)
        ]
        for thread in threads:
            thread.start()
        pid = server.engine_pid()
        subprocess.run(["kill", f"-{number}", str(pid)], check=True)
        started = time.monotonic()
        server.wait_until(lambda: not server.is_ready(), 3, "not ready")
        server.wait_until(server.is_ready, 10 - (time.monotonic() - started), "ready again")
        for thread in threads:
            thread.join(15)
            assert not thread.is_alive()
        for status, headers, answer in answers:
            if status != 200:
                assert (status, headers["x-should-retry"]) == (503, "true"), answer
        assert server.engine_pid() != pid
        assert canary(server) == before
        assert server.metrics()["qkv_engine_restarts"] == 1

    @pytest.mark.slow
    def test_an_engine_that_keeps_dying_ends_the_server(self, own_server: RunningServer) -> None:
        for _ in range(4):
            own_server.wait_until_ready(20)
            subprocess.run(["kill", "-9", str(own_server.engine_pid())], check=True)
            own_server.wait_until(
                lambda: own_server.process.poll() is not None or not own_server.is_ready(),
                5,
                "the death is noticed",
            )
            if own_server.process.poll() is not None:
                break
        assert own_server.process.wait(20) == 3

    def test_the_engine_ends_with_its_front(self, own_server: RunningServer) -> None:
        pid = own_server.engine_pid()
        own_server.process.kill()
        own_server.process.wait()
        own_server.wait_until(lambda: not Path(f"/proc/{pid}").exists(), 5, "the engine ended")


def open_streams(server: RunningServer, count: int) -> list[socket.socket]:
    clients = []
    for number in range(count):
        body = CANARY | {"prompt": f"the dog {number}", "max_tokens": 150, "stream": True}
        client = socket.create_connection(address(server), timeout=60)
        body |= {"ignore_eos": True}
        client.sendall(http("/v1/completions", json.dumps(body).encode()))
        clients.append(client)
    return clients


def test_drain_lets_every_stream_end(own_server: RunningServer) -> None:
    clients = open_streams(own_server, 32)
    for client in clients:
        assert b" 200 " in client.recv(20, socket.MSG_WAITALL)
    own_server.process.send_signal(signal.SIGTERM)
    with ThreadPoolExecutor(32) as pool:
        answers = list(pool.map(read_all, clients))
    assert sum(b"data: [DONE]" in answer for answer in answers) == 32
    assert own_server.process.wait(40) == 0
    for client in clients:
        client.close()


def test_a_full_queue_refuses_at_once(tmp_path: Path) -> None:
    with serving(f"writer={write_decoder(tmp_path)}") as server:
        clients = open_streams(server, 280)
        refused = []
        for client in clients:
            head = client.recv(4096)
            if b" 429 " in head:
                refused.append(head)
        assert 1 <= len(refused) <= 40
        assert all(b"retry-after:" in head.lower() for head in refused)
        started = time.monotonic()
        assert server.request("/healthz")[0] == 200
        assert time.monotonic() - started < 1
        for client in clients:
            client.close()
        server.wait_until(lambda: is_quiet(server), 3, "quiet")


@pytest.mark.slow
def test_clients_that_are_slow_on_purpose_are_cut_off(own_server: RunningServer) -> None:
    """One byte a second gains nothing; who does not read loses its row."""
    request = http("/v1/completions", json.dumps(CANARY).encode())
    results: dict[str, float] = {}

    def drip(name: str, data: bytes, first: int) -> None:
        started = time.monotonic()
        with connection(own_server) as client:
            client.sendall(data[:first])
            client.settimeout(1)
            for position in range(first, len(data)):
                try:
                    if not client.recv(4096):
                        break
                    client.settimeout(5)
                except TimeoutError:
                    try:
                        client.sendall(data[position : position + 1])
                    except OSError:
                        break
                except OSError:
                    break
            results[name] = time.monotonic() - started

    cases: list[Callable[[], None]] = [
        lambda: drip("nothing", b"", 0),
        lambda: drip("headers", request, 5),
        lambda: drip("body", request, len(request) - 60),
    ]
    threads = [threading.Thread(target=case) for case in cases]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(50)
        assert not thread.is_alive()
    assert results["headers"] < 13
    assert results["body"] < 34
    own_server.wait_until(lambda: is_quiet(own_server), 2, "quiet")

    assert canary(own_server)
