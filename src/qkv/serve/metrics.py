"""What the server counts, in Prometheus' format; the names follow vLLM's where it has them."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

if TYPE_CHECKING:
    from qkv.serve.access import RequestRecord
    from qkv.serve.engine_client import EngineClient

BUCKETS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)
FIRST_TOKENS_PER_SECOND = 1000.0


class ServerMetrics:
    """A registry of our own: nothing of the process or the interpreter leaks into it."""

    def __init__(self) -> None:
        registry = CollectorRegistry()
        self.registry = registry
        self.requests = Counter(
            "qkv_requests", "Requests by route and status", ["route", "status"], registry=registry
        )
        self.prompt_tokens = Counter("qkv_prompt_tokens", "Prompt tokens", registry=registry)
        self.cached_tokens = Counter(
            "qkv_prefix_cache_hit_tokens", "Prompt tokens from the prefix cache", registry=registry
        )
        self.generation_tokens = Counter(
            "qkv_generation_tokens", "Generated tokens", registry=registry
        )
        self.latency = Histogram(
            "qkv_e2e_request_latency_seconds",
            "From the request line to the last byte",
            ["route"],
            buckets=BUCKETS,
            registry=registry,
        )
        self.first_token = Histogram(
            "qkv_time_to_first_token_seconds",
            "From the request line to the first token",
            buckets=BUCKETS,
            registry=registry,
        )
        self._gauges = {
            name: Gauge(f"qkv_{name}", text, registry=registry)
            for name, text in (
                ("num_requests_running", "Sequences in the batch"),
                ("num_requests_waiting", "Sequences that wait for the batch"),
                ("engine_pending", "Requests in the engine, of every kind"),
                ("front_pending", "Requests the front waits for"),
                ("queue_tokens", "Tokens of requests that were not answered yet"),
                ("kv_cache_bytes", "Keys and values of running sequences"),
                ("prefix_cache_bytes", "Keys and values of recent prompts"),
                ("engine_up", "1 if the engine's heartbeat is recent"),
                ("engine_restarts", "Times the engine was started again"),
                ("open_connections", "Connections of clients"),
                ("front_tasks", "asyncio tasks of the front"),
                ("open_descriptors", "Files and sockets the front has open"),
            )
        }
        self.connections: Callable[[], int] = lambda: 0
        self._rate = FIRST_TOKENS_PER_SECOND

    def observe(self, record: "RequestRecord") -> None:
        """Count a finished request."""
        self.requests.labels(record.route, str(record.status)).inc()
        self.latency.labels(record.route).observe(record.seconds)
        self.prompt_tokens.inc(record.prompt_tokens)
        self.cached_tokens.inc(record.cached_tokens)
        self.generation_tokens.inc(record.completion_tokens)
        if record.first_token is not None:
            self.first_token.observe(record.first_token - record.started)
        tokens = record.prompt_tokens + record.completion_tokens
        if tokens and record.seconds > 0:
            self._rate += 0.05 * (tokens / record.seconds - self._rate)

    def retry_after(self, queue_tokens: int) -> float:
        """Seconds until the tokens in the queue are likely to be done."""
        return min(60.0, queue_tokens / max(self._rate, 1.0))

    def render(self, engine: "EngineClient") -> bytes:
        """The text that Prometheus reads."""
        stats = engine.stats
        values = {
            "num_requests_running": stats.get("running", 0),
            "num_requests_waiting": stats.get("waiting", 0),
            "engine_pending": max(stats.get("pending", 0), stats.get("owners", 0)),
            "front_pending": engine.pending,
            "queue_tokens": engine.queue_tokens,
            "kv_cache_bytes": stats.get("cache_bytes", 0),
            "prefix_cache_bytes": stats.get("prefix_cache_bytes", 0),
            "engine_up": float(engine.alive),
            "engine_restarts": engine.restarts,
            "open_connections": self.connections(),
            "front_tasks": len(asyncio.all_tasks()),
            "open_descriptors": _count_descriptors(),
        }
        for name, value in values.items():
            self._gauges[name].set(value)
        return generate_latest(self.registry)


def _count_descriptors() -> int:
    """How many files and sockets are open; 0 where the system does not say."""
    try:
        return len(list(Path("/proc/self/fd").iterdir()))
    except OSError:
        return 0
