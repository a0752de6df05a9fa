"""How much a server answers to many clients at once, next to other servers.

    python bench/serve_load.py PATH/TO/stories15M PATH/TO/minilm

Each row starts its server anew in processes of its own, warms it up, and measures it; servers that
are compared take turns. Clients are plain sockets in this process, the same for every server.
Prints a table and one JSON line.
"""

import argparse
import asyncio
import importlib.util
import json
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from machine import machine

CLIENTS = 32
PROMPT = "Once upon a time"


@dataclass
class Server:
    """A running server: its port, and the name of its model."""

    port: int
    model: str
    process: subprocess.Popen[Any]
    started: float


async def request(
    port: int, path: str, body: Any, read: Callable[[bytes], None] | None = None
) -> Any:
    """One POST on a connection of its own; `read` gets the chunks of a stream as they come."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    raw = json.dumps(body).encode()
    head = (
        f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(raw)}\r\nConnection: close\r\n\r\n"
    )
    writer.write(head.encode() + raw)
    await writer.drain()
    status = int((await reader.readline()).split()[1])
    while (await reader.readline()).strip():
        pass
    content = b""
    while chunk := await reader.read(65536):
        if read is not None:
            read(chunk)
        content += chunk
    writer.close()
    return status, content


def _json(content: bytes) -> Any:
    return json.loads(content[content.index(b"{") : content.rindex(b"}") + 1])


@contextmanager
def running(command: list[str], port: int | None, model: str, ready: str) -> Iterator[Server]:
    """A server started by a command; without a port, ours, which says where it listens."""
    started = time.perf_counter()
    process = subprocess.Popen(
        command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
    )
    assert process.stderr is not None
    try:
        if port is None:
            match = re.search(r":(\d+) ", process.stderr.readline())
            assert match is not None
            port = int(match[1])
        server = Server(port, model, process, started)
        asyncio.run(_until_ready(server, ready))
        yield server
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stderr.close()


async def _until_ready(server: Server, path: str) -> None:
    body = {"model": server.model, "prompt": PROMPT, "max_tokens": 1}
    for _ in range(2400):
        try:
            status, _ = await request(server.port, path, _body(path, body))
            if status == 200:
                return
        except (OSError, IndexError):
            pass
        if server.process.poll() is not None:
            raise SystemExit(f"the server ended: {server.process.args}")
        await asyncio.sleep(0.05)
    raise SystemExit("the server did not get ready")


def _body(path: str, body: dict[str, Any]) -> dict[str, Any]:
    if "embeddings" in path:
        return {"model": body["model"], "input": "x"}
    return body


def our_server(models: list[str], *options: str) -> list[str]:
    return [sys.executable, "-m", "qkv", "serve", *models, "--port", "0", "--quiet", *options]


def transformers_serve(directory: Path, port: int) -> list[str]:
    command = ["transformers", "serve", str(directory), "--host", "127.0.0.1", "--port", str(port)]
    return [str(Path(sys.executable).parent / command[0]), *command[1:], "--continuous-batching"]


def llama_server(gguf: Path, port: int) -> list[str]:
    options = ["--host", "127.0.0.1", "--port", str(port), "--n_ctx", "512", "--n_threads", "2"]
    return [sys.executable, "-m", "llama_cpp.server", "--model", str(gguf), *options]


def lengths(seed: int, count: int) -> list[int]:
    """Lengths of outputs, 8 to 256 tokens, many short and few long."""
    draws = random.Random(seed)
    return [int(8 * 32 ** draws.random()) for _ in range(count)]


async def many_clients(server: Server, counts: list[int], clients: int) -> tuple[float, int]:
    """Seconds until every completion is there, by so many clients; and their tokens."""
    queue = list(enumerate(counts))
    tokens = 0

    async def client() -> None:
        nonlocal tokens
        while queue:
            seed, count = queue.pop()
            body = {
                "model": server.model,
                "prompt": PROMPT,
                "max_tokens": count,
                "temperature": 0.7,
                "seed": seed,
            }
            status, content = await request(server.port, "/v1/completions", body)
            assert status == 200, content
            tokens += _json(content)["usage"]["completion_tokens"]

    started = time.perf_counter()
    await asyncio.gather(*(client() for _ in range(clients)))
    return time.perf_counter() - started, tokens


def generation(directory: Path, requests: int) -> dict[str, float]:
    """Tokens a second of 32 clients and of one, of this server and of others."""
    counts = lengths(1, requests)
    with running(our_server([f"m={directory}"]), None, "m", "/v1/completions") as server:
        asyncio.run(many_clients(server, counts[:32], CLIENTS))
        rates = []
        single = []
        for _ in range(3):
            seconds, tokens = asyncio.run(many_clients(server, counts, CLIENTS))
            rates.append(tokens / seconds)
            seconds, tokens = asyncio.run(many_clients(server, counts[: requests // 4], 1))
            single.append(tokens / seconds)
    return {"32 clients": statistics.median(rates), "one by one": statistics.median(single)}


def peer_generation(command: list[str], port: int, model: str, requests: int) -> float:
    counts = lengths(1, requests)
    with running(command, port, model, "/v1/completions") as server:
        asyncio.run(many_clients(server, counts[:16], CLIENTS))
        seconds, tokens = asyncio.run(many_clients(server, counts, CLIENTS))
        return tokens / seconds


def embedding(directory: Path, texts: list[str], *options: str) -> float:
    """Texts a second, one a request, by 32 clients."""

    async def all_texts(server: Server) -> float:
        queue = list(texts)

        async def client() -> None:
            while queue:
                body = {"model": "m", "input": queue.pop(), "encoding_format": "base64"}
                status, content = await request(server.port, "/v1/embeddings", body)
                assert status == 200, content

        started = time.perf_counter()
        await asyncio.gather(*(client() for _ in range(CLIENTS)))
        return len(texts) / (time.perf_counter() - started)

    with running(our_server([f"m={directory}"], *options), None, "m", "/v1/embeddings") as server:
        asyncio.run(all_texts(server))
        return statistics.median(asyncio.run(all_texts(server)) for _ in range(3))


def overhead(directory: Path, tokens: int) -> dict[str, float]:
    """One client: milliseconds a token over HTTP and in the library, and to the first byte."""
    import qkv

    def body(count: int) -> dict[str, Any]:
        return {
            "model": "m",
            "prompt": PROMPT,
            "max_tokens": count,
            "temperature": 0,
            "stream": True,
            "ignore_eos": True,
        }

    engine = qkv.load(directory)
    first: list[float] = []
    http: list[float] = []
    library: list[float] = []
    with running(qkv_serve(directory), None, "m", "/v1/completions") as server:
        for _ in range(7):
            moments: list[float] = []
            started = time.perf_counter()
            asyncio.run(
                request(
                    server.port,
                    "/v1/completions",
                    body(tokens),
                    lambda chunk, moments=moments: moments.append(time.perf_counter()),
                )
            )
            http.append((moments[-1] - started) / tokens)
            first.append(moments[0] - started)
            started = time.perf_counter()
            stream = engine.generate(PROMPT, max_tokens=tokens, temperature=0)
            next(stream)
            library_first = time.perf_counter() - started
            stream.finish()
            library.append((time.perf_counter() - started) / tokens)
            first[-1] -= library_first
    return {
        "http_ms_per_token": 1000 * statistics.median(http),
        "library_ms_per_token": 1000 * statistics.median(library),
        "extra_ms_to_first_byte": 1000 * statistics.median(first),
    }


def qkv_serve(directory: Path) -> list[str]:
    return our_server([f"m={directory}"])


def gaps_while_explaining(directory: Path) -> dict[str, float]:
    """The 99th percentile of gaps between tokens of 16 streams, with and without an explanation."""

    async def streams(server: Server, explain: bool) -> float:
        gaps: list[float] = []

        async def stream(seed: int) -> None:
            last = 0.0

            def read(chunk: bytes) -> None:
                nonlocal last
                now = time.perf_counter()
                if last:
                    gaps.append(now - last)
                last = now

            body = {
                "model": "m",
                "prompt": PROMPT,
                "max_tokens": 200,
                "seed": seed,
                "stream": True,
                "ignore_eos": True,
            }
            await request(server.port, "/v1/completions", body, read)

        explanation: Awaitable[Any] | None = None
        if explain:
            text = " ".join(["The little dog ran over the hill and saw a big red ball."] * 36)
            body = {"model": "m", "input": text[:1500], "method": "attribution"}
            explanation = asyncio.ensure_future(request(server.port, "/v1/explain", body))
            await asyncio.sleep(0.2)
        await asyncio.gather(*(stream(seed) for seed in range(16)))
        if explanation is not None:
            explanation.cancel()  # type: ignore[attr-defined]
        gaps.sort()
        return 1000 * gaps[int(0.99 * len(gaps))]

    with running(qkv_serve(directory), None, "m", "/v1/completions") as server:
        asyncio.run(streams(server, False))
        plain = [asyncio.run(streams(server, False)) for _ in range(3)]
        busy = [asyncio.run(streams(server, True)) for _ in range(3)]
    return {"plain_p99_ms": statistics.median(plain), "explaining_p99_ms": statistics.median(busy)}


def start_up(directory: Path) -> dict[str, float]:
    """Seconds until the port is open, and until the first text."""
    ports = []
    texts = []
    for _ in range(3):
        started = time.perf_counter()
        process = subprocess.Popen(
            qkv_serve(directory), stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
        )
        assert process.stderr is not None
        match = re.search(r":(\d+) ", process.stderr.readline())
        assert match is not None
        ports.append(time.perf_counter() - started)
        server = Server(int(match[1]), "m", process, started)
        asyncio.run(_until_ready(server, "/v1/completions"))
        texts.append(time.perf_counter() - started)
        process.terminate()
        process.wait(20)
        process.stderr.close()
    return {"port_s": statistics.median(ports), "first_text_s": statistics.median(texts)}


def overload(directory: Path, seconds: float) -> dict[str, float]:
    """Goodput at five times as many clients as are taken, next to the peak; and the rejects."""

    async def load(server: Server, clients: int, seconds: float) -> dict[str, float]:
        end = time.perf_counter() + seconds
        tokens = 0
        rejects: list[float] = []
        health: list[float] = []

        async def client(seed: int) -> None:
            nonlocal tokens
            counts = lengths(seed, 1000)
            while time.perf_counter() < end:
                body = {"model": "m", "prompt": PROMPT, "max_tokens": min(64, counts.pop())}
                started = time.perf_counter()
                status, content = await request(server.port, "/v1/completions", body)
                if status == 200:
                    tokens += _json(content)["usage"]["completion_tokens"]
                else:
                    assert status == 429, content
                    rejects.append(time.perf_counter() - started)
                    await asyncio.sleep(0.25)

        async def watch() -> None:
            while time.perf_counter() < end:
                started = time.perf_counter()
                reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
                writer.write(
                    b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"
                )
                await reader.read()
                writer.close()
                health.append(time.perf_counter() - started)
                await asyncio.sleep(0.1)

        started = time.perf_counter()
        await asyncio.gather(watch(), *(client(seed) for seed in range(clients)))
        elapsed = time.perf_counter() - started
        return {
            "tokens_per_second": tokens / elapsed,
            "rejects": len(rejects),
            "reject_p99_ms": 1000 * _p99(rejects),
            "health_p99_ms": 1000 * _p99(health),
        }

    command = our_server([f"m={directory}"], "--max-requests", "32")
    with running(command, None, "m", "/v1/completions") as server:
        asyncio.run(load(server, 32, 5))
        peak = asyncio.run(load(server, 32, seconds))
        over = asyncio.run(load(server, 160, seconds))
    return {
        "peak": peak["tokens_per_second"],
        "goodput": over["tokens_per_second"],
        "rejects": over["rejects"],
        "reject_p99_ms": over["reject_p99_ms"],
        "health_p99_ms": over["health_p99_ms"],
    }


def _p99(values: list[float]) -> float:
    if not values:
        return 0.0
    return sorted(values)[int(0.99 * (len(values) - 1))]


def sentence_transformers_server(directory: Path) -> str:
    """The same HTTP layer around sentence-transformers, with its batches of whoever waits."""
    return f"""
import asyncio, base64, json, sys, threading
import uvicorn
from fastapi import FastAPI, Request
from sentence_transformers import SentenceTransformer
model = SentenceTransformer({str(directory)!r}, device="cpu")
app = FastAPI()
waiting = []
wake = asyncio.Event()
async def worker():
    while True:
        await wake.wait()
        wake.clear()
        while waiting:
            batch = waiting[:64]
            del waiting[:64]
            texts = [text for text, _ in batch]
            vectors = await asyncio.to_thread(model.encode, texts, normalize_embeddings=True)
            for (_, future), vector in zip(batch, vectors):
                future.set_result(vector)
@app.on_event("startup")
async def start():
    asyncio.create_task(worker())
@app.post("/v1/embeddings")
async def embed(request: Request):
    body = await request.json()
    future = asyncio.get_running_loop().create_future()
    waiting.append((body["input"], future))
    wake.set()
    vector = await future
    data = base64.b64encode(vector.astype("<f4").tobytes()).decode()
    return {{"data": [{{"index": 0, "embedding": data}}], "usage": {{"total_tokens": 1}}}}
uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), log_level="error")
"""


def peer_embedding(directory: Path, texts: list[str], port: int) -> float:
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "server.py"
        script.write_text(sentence_transformers_server(directory))
        command = [sys.executable, str(script), str(port)]

        async def all_texts(server: Server) -> float:
            queue = list(texts)

            async def client() -> None:
                while queue:
                    body = {"model": "m", "input": queue.pop(), "encoding_format": "base64"}
                    status, content = await request(server.port, "/v1/embeddings", body)
                    assert status == 200, content

            started = time.perf_counter()
            await asyncio.gather(*(client() for _ in range(CLIENTS)))
            return len(texts) / (time.perf_counter() - started)

        with running(command, port, "m", "/v1/embeddings") as server:
            asyncio.run(all_texts(server))
            return statistics.median(asyncio.run(all_texts(server)) for _ in range(3))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("decoder", type=Path)
    parser.add_argument("encoder", type=Path)
    parser.add_argument("--captions", type=Path, help="one text a line")
    parser.add_argument("--requests", type=int, default=192)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--gguf", type=Path, help="the decoder for llama_cpp.server")
    parser.add_argument("--only", action="append", default=[])
    options = parser.parse_args()
    texts = [f"{PROMPT}, number {i}, a dog ran over the hill." for i in range(1000)]
    if options.captions is not None:
        texts = options.captions.read_text("utf-8").split("\n")[:1000]
    result: dict[str, Any] = {"bench": "serve_load"}

    def wanted(name: str) -> bool:
        return not options.only or name in options.only

    if wanted("generation"):
        result["generation"] = generation(options.decoder, options.requests)
    if wanted("transformers"):
        command = transformers_serve(options.decoder, 18291)
        result["transformers_serve"] = peer_generation(
            command, 18291, str(options.decoder), options.requests // 4
        )
    if wanted("llama") and options.gguf and importlib.util.find_spec("llama_cpp"):
        command = llama_server(options.gguf, 18292)
        result["llama_cpp_server"] = peer_generation(command, 18292, "m", options.requests // 4)
    if wanted("embedding"):
        result["embedding"] = embedding(options.encoder, texts)
        result["sentence_transformers"] = peer_embedding(options.encoder, texts, 18293)
        result["embedding_int8"] = embedding(options.encoder, texts, "--int8")
    if wanted("overhead"):
        result["overhead"] = overhead(options.decoder, 200)
    if wanted("gaps"):
        result["gaps"] = gaps_while_explaining(options.decoder)
    if wanted("overload"):
        result["overload"] = overload(options.decoder, options.seconds)
    if wanted("start"):
        result["start"] = start_up(options.decoder)
    result |= machine()
    for name, value in result.items():
        print(f"{name:<22} {value}")
    print(json.dumps(result))


if __name__ == "__main__":
    main()
