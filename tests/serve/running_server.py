"""A real `qkv serve` in processes of its own, on a free port of loopback."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

START_SECONDS = 120


@dataclass
class RunningServer:
    """The front's process and address."""

    process: subprocess.Popen[str]
    url: str
    key: str | None = None
    log: list[str] = field(default_factory=list)

    def request(
        self,
        path: str,
        body: Any = None,
        *,
        method: str | None = None,
        headers: dict[str, str] | None = None,
        timeout: float = 60,
    ) -> tuple[int, dict[str, str], bytes]:
        """Status, headers and body of an answer, whatever the status."""
        data = body
        if body is not None and not isinstance(body, bytes):
            data = json.dumps(body).encode()
        all_headers = {"content-type": "application/json"}
        if self.key is not None:
            all_headers["authorization"] = f"Bearer {self.key}"
        all_headers |= headers or {}
        request = urllib.request.Request(self.url + path, data, all_headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=timeout) as answer:
                return answer.status, dict(answer.headers), answer.read()
        except urllib.error.HTTPError as error:
            return error.code, dict(error.headers), error.read()

    def get(self, path: str) -> Any:
        status, _, body = self.request(path)
        assert status == 200, body
        return json.loads(body)

    def post(self, path: str, body: Any, timeout: float = 60) -> Any:
        status, _, answer = self.request(path, body, timeout=timeout)
        assert status == 200, answer
        return json.loads(answer)

    def metrics(self) -> dict[str, float]:
        """The gauges and counters without labels."""
        status, _, body = self.request("/metrics")
        assert status == 200
        pairs = (line.rsplit(" ", 1) for line in body.decode().split("\n") if line[:4] == "qkv_")
        return {name: float(value) for name, value in pairs if "{" not in name}

    def messages(self) -> str:
        """What the server wrote besides its log of requests, such as a traceback."""
        return "".join(line for line in self.log if not line.startswith('{"time"'))

    def is_ready(self) -> bool:
        return self.request("/readyz")[0] == 200

    def wait_until(self, condition: Any, seconds: float, what: str) -> float:
        """How long it took until the condition held."""
        started = time.monotonic()
        while not condition():
            assert time.monotonic() - started < seconds, f"not within {seconds} s: {what}"
            time.sleep(0.02)
        return time.monotonic() - started

    def wait_until_ready(self, seconds: float = START_SECONDS) -> float:
        return self.wait_until(self.is_ready, seconds, "ready")

    def engine_pid(self) -> int:
        """The engine process: the front's only child."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text()
        (pid,) = children.split()
        return int(pid)

    def stop(self, number: int = signal.SIGTERM, seconds: float = 45) -> int:
        """End the server with a signal; its exit code."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        return self.process.wait(seconds)


@contextmanager
def serving(
    *models: str | Path, options: tuple[str, ...] = (), key: str | None = None, ready: bool = True
) -> Iterator[RunningServer]:
    """A server of these models; ended at the end."""
    command = [sys.executable, "-m", "qkv", "serve", *map(str, models), "--port", "0", *options]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    if key is not None:
        environment["QKV_API_KEY"] = key
    process = subprocess.Popen(
        command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True, env=environment
    )
    assert process.stderr is not None
    first = process.stderr.readline()
    match = re.search(r"http://\S+", first)
    if match is None:
        process.kill()
        raise AssertionError(first + process.stderr.read())
    server = RunningServer(process, match[0], key)

    def read_log() -> None:
        assert process.stderr is not None
        for line in process.stderr:
            server.log.append(line)

    reader = threading.Thread(target=read_log, daemon=True)
    reader.start()
    try:
        if ready:
            server.wait_until_ready()
        yield server
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
        reader.join(5)
        process.stderr.close()
