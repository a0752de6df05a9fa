"""Routes of encoders and translators, tokenizers and explanations."""

import base64
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError
from starlette.requests import Request
from starlette.responses import Response

from qkv.serve.completion_job import explain_options
from qkv.serve.completions import chat_messages
from qkv.serve.gateway import Gateway
from qkv.serve.link import ModelInfo
from qkv.serve.responses import ApiError, json_response
from qkv.serve.schemas import (
    ClassifyBody,
    ClusterBody,
    DetokenizeBody,
    EmbeddingBody,
    ExplainBody,
    RerankBody,
    SimilarityBody,
    TokenizeBody,
    TraceBody,
    TranslateBody,
)

SAFETENSORS = "application/x-safetensors"


async def embeddings(gateway: Gateway, request: Request, body: EmbeddingBody) -> Response:
    """POST /v1/embeddings"""
    info = gateway.model(request, body.model, "embed", "classify")
    check_dimensions(info, body.dimensions)
    rows, texts = await _embedding_rows(gateway, info, body)
    vectors = await gateway.encode_texts(request, info, rows, "vector")
    data: list[dict[str, Any]] = []
    for index, vector in enumerate(vectors):
        entry = {"object": "embedding", "index": index, "embedding": _vector(vector, body)}
        data.append(entry)
    explain = explain_options(body.explain)
    if explain is not None:
        if texts is None:
            raise ApiError(400, "only texts can be explained, not token ids", param="explain")
        for entry, text in zip(data, texts, strict=True):
            entry["explain"] = await _why(gateway, request, info, {"text": text}, explain.budget_ms)
    tokens = sum(map(len, rows))
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    answer = {"object": "list", "data": data, "model": info.name, "usage": usage}
    headers = {} if texts is not None else {"x-qkv-input": "token-ids"}
    return json_response(answer, headers=headers)


def check_dimensions(info: ModelInfo, dimensions: int | None) -> None:
    """Only the whole vector means anything, unless a model was trained for shorter ones."""
    if dimensions not in (None, info.width):
        raise ApiError(
            400,
            f"{info.name} was not trained for vectors that are cut off: dimensions must be "
            f"{info.width} or left out",
            code="dimensions_not_supported",
            param="dimensions",
        )


async def _embedding_rows(
    gateway: Gateway, info: ModelInfo, body: EmbeddingBody
) -> tuple[list[list[int]], Sequence[str] | None]:
    """The ids of each text with special tokens; the texts, unless ids were sent."""
    given: Any = body.input
    if isinstance(given, str) or isinstance(given[0], int):
        given = [given]
    if isinstance(given[0], str):
        return await gateway.text_ids(info, given, body.truncate), given
    tokenizer = gateway.tokenizer(info)
    rows = []
    for index, ids in enumerate(given):
        gateway.check_ids(info, ids, "input")
        limit = info.context_length if body.truncate else None
        row = tokenizer.add_special_tokens(ids, limit)
        gateway.check_length(info, len(row), f"input {index + 1}")
        rows.append(row)
    return rows, None


def _vector(vector: NDArray[np.float32], body: EmbeddingBody) -> str | list[float]:
    if body.encoding_format == "base64":
        return base64.b64encode(vector.tobytes()).decode()
    return [float(value) for value in vector]


async def classify(gateway: Gateway, request: Request, body: ClassifyBody) -> Response:
    """POST /v1/classify"""
    info = gateway.model(request, body.model, "classify")
    texts = [body.input] if isinstance(body.input, str) else body.input
    rows = await gateway.text_ids(info, texts, body.truncate)
    probabilities = await gateway.encode_texts(request, info, rows, "probabilities")
    explain = explain_options(body.explain)
    data = []
    for index, (text, row) in enumerate(zip(texts, probabilities, strict=True)):
        order = np.argsort(-row, kind="stable")
        entry: dict[str, Any] = {
            "index": index,
            "label": info.labels[order[0]],
            "probabilities": {info.labels[i]: float(row[i]) for i in order},
        }
        if explain is not None:
            entry["explain"] = await _why(gateway, request, info, {"text": text}, explain.budget_ms)
        if body.edits:
            arguments = {"text": text, "edits": [edit.model_dump() for edit in body.edits]}
            entry["edited"] = await gateway.call(request, info, "what_if", arguments)
        data.append(entry)
    tokens = sum(map(len, rows))
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    return json_response({"object": "list", "data": data, "model": info.name, "usage": usage})


async def rerank(gateway: Gateway, request: Request, body: RerankBody) -> Response:
    """POST /v1/rerank: documents by the cosine of their vectors to the query's."""
    info = gateway.model(request, body.model, "embed")
    rows = await gateway.text_ids(info, [body.query, *body.documents], body.truncate)
    vectors = await gateway.encode_texts(request, info, rows, "vector")
    scores = (vectors[1:].astype(np.float64) @ vectors[0].astype(np.float64)).tolist()
    order = sorted(range(len(scores)), key=lambda index: -scores[index])[: body.top_n]
    explain = explain_options(body.explain)
    results = []
    for index in order:
        result: dict[str, Any] = {"index": index, "relevance_score": scores[index]}
        document = body.documents[index]
        if body.return_documents:
            result["document"] = {"text": document}
        if explain is not None:
            arguments = {"a": body.query, "b": document, "explain": True}
            result["explain"] = await gateway.call(
                request, info, "similarity", arguments, budget_ms=explain.budget_ms
            )
        results.append(result)
    tokens = sum(map(len, rows))
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    return json_response({"model": info.name, "results": results, "usage": usage})


async def similarity(gateway: Gateway, request: Request, body: SimilarityBody) -> Response:
    """POST /v1/similarity"""
    info = gateway.model(request, body.model, "embed", "classify")
    explain = explain_options(body.explain)
    rows = await gateway.text_ids(info, [body.a, body.b])
    tokens = sum(map(len, rows))
    arguments = {"a": body.a, "b": body.b, "explain": explain is not None}
    budget = explain.budget_ms if explain is not None else None
    result = await gateway.call(request, info, "similarity", arguments, tokens, budget)
    answer: dict[str, Any] = {"model": info.name, "cosine": result["cosine"]}
    if explain is not None:
        answer["explain"] = result
    return json_response(answer)


async def cluster(gateway: Gateway, request: Request, body: ClusterBody) -> Response:
    """POST /v1/cluster"""
    info = gateway.model(request, body.model, "embed")
    rows = await gateway.encode(info, body.input)
    arguments = {"texts": body.input, "k": body.k, "method": body.method, "seed": body.seed}
    result = await gateway.call(request, info, "cluster", arguments, sum(map(len, rows)))
    return json_response({"model": info.name, **result})


async def translate(gateway: Gateway, request: Request) -> Response:
    """POST /translate, as JSON or as a form"""
    body = await _translate_body(request)
    info = gateway.model(request, body.model, "translate")
    _check_languages(info, body)
    texts = [body.q] if isinstance(body.q, str) else body.q
    best = body.alternatives + 1
    arguments = {
        "texts": texts,
        "beams": max(body.beams, best),
        "best": best,
        "alignment": body.alignment,
        "long": "sentences",
    }
    tokens = sum(1 + len(text) // 4 for text in texts)
    results = await gateway.call(request, info, "translate", arguments, tokens)
    record = request.state.record
    record.prompt_tokens = sum(result["source_tokens"] for result in results)
    record.completion_tokens = sum(result["target_tokens"] for result in results)
    explain = explain_options(body.explain)
    if explain is not None:
        for text, result in zip(texts, results, strict=True):
            arguments = {"text": text, "target": result["text"]}
            result["explain"] = await _why(gateway, request, info, arguments, explain.budget_ms)
    return json_response(_translation_answer(body, results))


def _translation_answer(body: TranslateBody, results: list[dict[str, Any]]) -> dict[str, Any]:
    """LibreTranslate's shape: one text for one, lists for a list."""
    several = not isinstance(body.q, str)

    def value(values: list[Any]) -> Any:
        return values if several else values[0]

    answer: dict[str, Any] = {
        "translatedText": value([result["text"] for result in results]),
        "scores": value([result["score"] for result in results]),
    }
    if body.alternatives:
        others = [
            [each["text"] for each in result.get("alternatives", [])[1:]] for result in results
        ]
        answer["alternatives"] = value(others)
    if body.alignment:
        answer["alignment"] = value([result["alignment"] for result in results])
    if body.explain:
        answer["explain"] = value([result["explain"] for result in results])
    return answer


async def _translate_body(request: Request) -> TranslateBody:
    """The body as JSON, or as the form that LibreTranslate's older clients send."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind == "application/x-www-form-urlencoded":
        from urllib.parse import parse_qs

        raw = (await request.body()).decode("utf-8", "strict")
        fields: dict[str, Any] = {
            name: values[-1] for name, values in parse_qs(raw, max_num_fields=64).items()
        }
        for name in ("alternatives", "beams"):
            if fields.get(name, "").isdecimal():
                fields[name] = int(fields[name])
        for name in ("alignment", "explain"):
            if fields.get(name) in ("true", "false"):
                fields[name] = fields[name] == "true"
    else:
        fields = await request.json()
    try:
        return TranslateBody.model_validate(fields)
    except ValidationError as error:
        from qkv.serve.app import validation_error

        raise validation_error(error.errors()) from error


def _check_languages(info: ModelInfo, body: TranslateBody) -> None:
    """A model knows one pair of languages, and not their names; it translates any request."""
    if body.source and body.target and body.source == body.target:
        raise ApiError(400, "source and target are the same language", param="target")


async def languages(gateway: Gateway, request: Request) -> Response:
    """GET /languages: each translator as a pair of its own."""
    pairs = []
    for name, state in gateway.engine.models.items():
        if state.info is not None and state.info.task == "translate":
            pairs.append({"code": name, "name": name, "targets": [name]})
    return json_response(pairs)


async def tokenize(gateway: Gateway, request: Request, body: TokenizeBody) -> Response:
    """POST /tokenize"""
    info = gateway.model(request, body.model)
    tokenizer = gateway.tokenizer(info)
    if (body.prompt is None) == (body.messages is None):
        raise ApiError(400, "give either prompt or messages", param="prompt")
    if body.messages is not None:
        ids = await gateway.prompt_ids(info, chat_messages(body.messages))
    else:
        assert body.prompt is not None
        (ids,) = await gateway.encode(info, [body.prompt])
        if body.add_special_tokens:
            ids = tokenizer.add_special_tokens(ids)
    answer: dict[str, Any] = {
        "count": len(ids),
        "max_model_len": info.context_length,
        "tokens": ids,
    }
    if body.return_token_strs:
        answer["token_strs"] = [tokenizer.token(id) for id in ids]
    return json_response(answer)


async def detokenize(gateway: Gateway, request: Request, body: DetokenizeBody) -> Response:
    """POST /detokenize"""
    info = gateway.model(request, body.model)
    gateway.check_ids(info, body.tokens, "tokens")
    return json_response({"prompt": gateway.tokenizer(info).decode(body.tokens)})


async def tokenizer_info(gateway: Gateway, request: Request) -> Response:
    """GET /tokenizer_info"""
    info = gateway.model(request, request.query_params.get("model"))
    tokenizer = gateway.tokenizer(info)
    special = tokenizer.special_tokens
    return json_response(
        {
            "tokenizer_class": tokenizer.kind,
            "vocab_size": tokenizer.vocab_size,
            "model_max_length": info.context_length,
            "bos_token": special.bos,
            "eos_token": special.eos,
            "pad_token": special.pad,
            "unk_token": special.unk,
            "chat_template": special.chat_template,
        }
    )


async def explain(gateway: Gateway, request: Request, body: ExplainBody) -> Response:
    """POST /v1/explain"""
    info = gateway.model(request, body.model)
    edits = [edit.model_dump() for edit in body.edits]
    if body.method == "attribution":
        options = {
            name: getattr(body, name)
            for name in ("label", "token", "against", "target")
            if getattr(body, name) is not None
        }
        result = await _why(gateway, request, info, {"text": body.input, **options}, body.budget_ms)
    elif body.method == "walk":
        arguments = {
            "text": body.input,
            "layer": body.layer,
            "head": body.head,
            "cross": body.cross,
            "side": body.side or "",
            "target": body.target,
            "edits": edits,
        }
        result = await gateway.call(request, info, "walk", arguments, budget_ms=body.budget_ms)
    else:
        if not edits:
            raise ApiError(400, "what_if needs edits", param="edits")
        arguments = {"text": body.input, "edits": edits, "target": body.target}
        result = await gateway.call(request, info, "what_if", arguments, budget_ms=body.budget_ms)
    return json_response({"model": info.name, "method": body.method, **result})


async def trace(gateway: Gateway, request: Request, body: TraceBody) -> Response:
    """POST /v1/trace"""
    info = gateway.model(request, body.model)
    binary = SAFETENSORS in request.headers.get("accept", "")
    if binary and not body.names:
        raise ApiError(400, "name the tensors to get", param="names")
    arguments = {
        "text": body.input,
        "names": body.names,
        "target": body.target,
        "edits": [edit.model_dump() for edit in body.edits],
        "tensors": "safetensors" if binary else "json",
    }
    result = await gateway.call(request, info, "trace", arguments, budget_ms=body.budget_ms)
    if binary:
        return Response(result["data"], media_type=SAFETENSORS)
    return json_response({"model": info.name, **result})


async def _why(
    gateway: Gateway,
    request: Request,
    info: ModelInfo,
    arguments: dict[str, Any],
    budget_ms: float | None,
) -> dict[str, Any]:
    result: dict[str, Any] = await gateway.call(
        request, info, "why", arguments, budget_ms=budget_ms
    )
    return result
