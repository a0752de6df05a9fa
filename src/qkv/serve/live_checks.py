"""What must hold for a running server, measured from outside: `qkv check http://…`.

Answers must not depend on who else is asking, on streaming, or on what is cached; and scoring a
text must give the numbers that generating it gave. Only the standard library is used, as any other
client would.
"""

import base64
import json
import random
import struct
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

from qkv.checks import CheckReport, CheckResult
from qkv.errors import UsageError

NEIGHBOURS = 8
MAX_TOKENS = 12
LOGPROB_TOLERANCE = 1e-4
VECTOR_TOLERANCE = 1e-5
TIMEOUT = 120  # seconds for one answer

TEXTS = (
    "Once upon a time there was a little house at the end of the road.",
    "The weather",
    "Three people asked the same question, and each of them got another answer.",
    "A dog",
    "What is the fastest way to get from the station to the museum on a Sunday morning?",
    "It was late.",
    "Numbers such as 3, 14 and 159 are read as they are written.",
    "She opened the letter, read it twice, and put it back into the drawer.",
)


@dataclass(frozen=True)
class LiveServer:
    """A server by its address, and the key it wants."""

    url: str
    key: str | None = None

    def get(self, path: str) -> Any:
        return json.loads(self._open(path, None))

    def post(self, path: str, body: dict[str, Any]) -> Any:
        return json.loads(self._open(path, body))

    def stream(self, path: str, body: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """The chunks of a stream."""
        for line in self._open(path, body | {"stream": True}).decode().split("\n"):
            if line.startswith("data: ") and line != "data: [DONE]":
                yield json.loads(line.removeprefix("data: "))

    def _open(self, path: str, body: dict[str, Any] | None) -> bytes:
        headers = {"content-type": "application/json"}
        if self.key is not None:
            headers["authorization"] = f"Bearer {self.key}"
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url.rstrip("/") + path, data, headers)
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT) as answer:
                content: bytes = answer.read()
                return content
        except urllib.error.HTTPError as error:
            raise UsageError(f"{path} answers {error.code}: {_message(error.read())}") from error
        except OSError as error:
            raise UsageError(f"cannot reach {self.url}: {error}; is the server up?") from error


def _message(raw: bytes) -> str:
    try:
        return str(json.loads(raw)["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return raw.decode("utf-8", "replace")[:200]


def check_server(
    server: LiveServer, on_result: Callable[[CheckResult], None] = lambda result: None
) -> CheckReport:
    """The results for every model of the server."""
    results: list[CheckResult] = []
    for model in server.get("/v1/models")["data"]:
        if not model["ready"]:
            raise UsageError(f"the model {model['id']} is not ready; try again later")
        for name, tolerance, measure in CHECKS.get(model["task"], ()):
            worst = measure(server, model["id"])
            result = CheckResult(f"{model['id']}: {name}", worst, tolerance, model["id"])
            results.append(result)
            on_result(result)
    if not results:
        raise UsageError("the server has no model that can be checked")
    return CheckReport(tuple(results))


def _all_at_once(calls: Sequence[Callable[[], Any]]) -> list[Any]:
    with ThreadPoolExecutor(len(calls)) as pool:
        return [future.result() for future in [pool.submit(call) for call in calls]]


def _complete(server: LiveServer, model: str, prompt: Any, **options: Any) -> dict[str, Any]:
    body = {
        "model": model,
        "prompt": prompt,
        "max_tokens": MAX_TOKENS,
        "logprobs": 0,
        "truncate": "left",
        **options,
    }
    choice: dict[str, Any] = server.post("/v1/completions", body)["choices"][0]
    return choice


def _difference(a: dict[str, Any], b: dict[str, Any]) -> float:
    """The largest difference of log-probabilities; infinite if the tokens differ."""
    if a["logprobs"]["tokens"] != b["logprobs"]["tokens"]:
        return float("inf")
    pairs = zip(a["logprobs"]["token_logprobs"], b["logprobs"]["token_logprobs"], strict=True)
    return float(max(abs(x - y) for x, y in pairs if x is not None and y is not None))


def batch_equals_single(server: LiveServer, model: str) -> float:
    calls = [partial(_complete, server, model, text, temperature=0) for text in TEXTS]
    together = _all_at_once(calls)
    return max(_difference(answer, call()) for answer, call in zip(together, calls, strict=True))


def seed_ignores_neighbours(server: LiveServer, model: str) -> float:
    """The same seed next to others, who use other seeds, and alone."""

    def sample(seed: int) -> dict[str, Any]:
        return _complete(server, model, TEXTS[0], temperature=1, seed=seed)

    together = _all_at_once([partial(sample, seed) for seed in range(NEIGHBOURS)])
    return max(_difference(answer, sample(seed)) for seed, answer in enumerate(together))


def stream_equals_whole(server: LiveServer, model: str) -> float:
    """The number of texts that differ."""
    wrong = 0
    for text in TEXTS[:4]:
        body = {
            "model": model,
            "prompt": text,
            "max_tokens": MAX_TOKENS,
            "seed": 1,
            "truncate": "left",
        }
        chunks = server.stream("/v1/completions", body)
        pieces = [choice["text"] for chunk in chunks for choice in chunk["choices"]]
        whole = server.post("/v1/completions", body)["choices"][0]["text"]
        wrong += "".join(pieces) != whole
    return float(wrong)


def echo_equals_generation(server: LiveServer, model: str) -> float:
    """Scoring a text, next to generating each of its tokens after those before it."""
    body = {"model": model, "prompt": TEXTS[2]}
    ids = server.post("/tokenize", body)["tokens"][:MAX_TOKENS]
    scored = _complete(server, model, ids, max_tokens=0, echo=True)
    worst = 0.0
    for position in range(1, len(ids)):
        # A bias forces the token; the log-probability is the model's own all the same.
        forced = {str(ids[position]): 100}
        answer = _complete(
            server, model, ids[:position], max_tokens=1, temperature=0, logit_bias=forced
        )
        if answer["logprobs"]["tokens"] != [scored["logprobs"]["tokens"][position]]:
            continue  # a hundred was not enough to force it
        expected = scored["logprobs"]["token_logprobs"][position]
        worst = max(worst, abs(answer["logprobs"]["token_logprobs"][0] - expected))
    return worst


def cached_equals_uncached(server: LiveServer, model: str) -> float:
    """A prompt nobody has sent before, and again when its keys and values are cached."""
    vocabulary = server.get(f"/tokenizer_info?model={model}")["vocab_size"]
    ids = [random.SystemRandom().randrange(vocabulary) for _ in range(24)]
    first = _complete(server, model, ids, temperature=0)
    return max(_difference(first, _complete(server, model, ids, temperature=0)) for _ in range(3))


def _vectors(server: LiveServer, model: str, texts: Sequence[str]) -> list[tuple[float, ...]]:
    body = {"model": model, "input": list(texts), "encoding_format": "base64", "truncate": True}
    rows = []
    for entry in server.post("/v1/embeddings", body)["data"]:
        raw = base64.b64decode(entry["embedding"])
        rows.append(struct.unpack(f"<{len(raw) // 4}f", raw))
    return rows


def _largest_gap(a: Sequence[Sequence[float]], b: Sequence[Sequence[float]]) -> float:
    return max(abs(x - y) for p, q in zip(a, b, strict=True) for x, y in zip(p, q, strict=True))


def vectors_batch_equals_single(server: LiveServer, model: str) -> float:
    batch = _vectors(server, model, TEXTS)
    calls = [partial(_vectors, server, model, [text]) for text in TEXTS]
    together = [rows[0] for rows in _all_at_once(calls)]
    alone = [call()[0] for call in calls]
    return max(_largest_gap(batch, together), _largest_gap(batch, alone))


def labels_batch_equals_single(server: LiveServer, model: str) -> float:
    def classify(texts: Sequence[str]) -> list[list[float]]:
        answer = server.post(
            "/v1/classify", {"model": model, "input": list(texts), "truncate": True}
        )
        rows = [entry["probabilities"] for entry in answer["data"]]
        return [[row[label] for label in sorted(row)] for row in rows]

    singles = _all_at_once([partial(classify, [text]) for text in TEXTS])
    return _largest_gap(classify(TEXTS), [rows[0] for rows in singles])


def translations_batch_equals_single(server: LiveServer, model: str) -> float:
    """The number of translations that differ."""

    def translate(texts: Any) -> Any:
        body = {"model": model, "q": texts, "source": "auto", "target": ""}
        return server.post("/translate", body)["translatedText"]

    calls = [partial(translate, text) for text in TEXTS[:4]]
    pairs = zip(_all_at_once(calls), [call() for call in calls], strict=True)
    return float(sum(a != b for a, b in pairs))


Measure = Callable[[LiveServer, str], float]

CHECKS: dict[str, tuple[tuple[str, float, Measure], ...]] = {
    "generate": (
        ("batch = single", LOGPROB_TOLERANCE, batch_equals_single),
        ("seed ignores neighbours", LOGPROB_TOLERANCE, seed_ignores_neighbours),
        ("stream = whole", 0.0, stream_equals_whole),
        ("echo = generation", LOGPROB_TOLERANCE, echo_equals_generation),
        ("cached = uncached", LOGPROB_TOLERANCE, cached_equals_uncached),
    ),
    "embed": (("batch = single", VECTOR_TOLERANCE, vectors_batch_equals_single),),
    "classify": (
        ("batch = single", VECTOR_TOLERANCE, labels_batch_equals_single),
        ("vectors batch = single", VECTOR_TOLERANCE, vectors_batch_equals_single),
    ),
    "translate": (("batch = single", 0.0, translations_batch_equals_single),),
}
