"""OpenAI's own client, unmodified, gets what the library gives."""

import asyncio
import base64
import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from openai import APIStatusError, AsyncOpenAI, OpenAI
from tests.serve.running_server import RunningServer
from tests.serve.tiny_bundles import WORDS

import qkv
from qkv.engine.generate import score_prompts

PROMPT = "the dog ran"


@pytest.fixture(scope="module")
def client(server: RunningServer) -> Iterator[OpenAI]:
    with OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as openai:
        yield openai


@pytest.fixture(scope="module")
def writer(bundles: dict[str, Path]) -> qkv.GlassBox:
    return qkv.load(bundles["writer"])


def test_models_are_listed_with_what_they_are(client: OpenAI) -> None:
    models = {model.id: model for model in client.models.list()}
    assert set(models) == {"writer", "labels", "vectors", "translator"}
    writer = client.models.retrieve("writer")
    assert writer.task == "generate"  # type: ignore[attr-defined]
    assert writer.max_model_len == 256  # type: ignore[attr-defined]


def test_a_completion_is_the_librarys(client: OpenAI, writer: qkv.GlassBox) -> None:
    completion = client.completions.create(
        model="writer", prompt=PROMPT, max_tokens=20, temperature=0, logprobs=3
    )
    expected = writer.generate(PROMPT, max_tokens=20, temperature=0, top_logprobs=3).finish()
    (choice,) = completion.choices
    assert choice.text == expected.text
    assert choice.logprobs is not None
    assert choice.logprobs.token_logprobs == pytest.approx(list(expected.logprobs), abs=1e-4)
    for own, top in zip(
        choice.logprobs.token_logprobs or [], choice.logprobs.top_logprobs or [], strict=True
    ):
        assert own == max(top.values())  # exactly: lm-eval compares these floats
    usage = completion.usage
    assert usage is not None
    assert (usage.prompt_tokens, usage.completion_tokens) == (
        expected.prompt_tokens,
        len(expected.tokens),
    )


def test_sampling_with_a_seed_is_the_librarys(client: OpenAI, writer: qkv.GlassBox) -> None:
    options = {"max_tokens": 24, "temperature": 0.9, "top_p": 0.9, "seed": 5}
    completion = client.completions.create(model="writer", prompt=PROMPT, n=3, **options)  # type: ignore[call-overload]
    for index, choice in enumerate(completion.choices):
        assert choice.index == index
        expected = writer.generate(PROMPT, sample_index=index, **options).finish()  # type: ignore[arg-type]
        assert choice.text == expected.text


def test_a_stream_joined_is_the_whole_answer(client: OpenAI) -> None:
    options = {
        "model": "writer",
        "prompt": [PROMPT, WORDS],
        "max_tokens": 30,
        "seed": 3,
        "n": 2,
        "logprobs": 1,
    }
    whole = client.completions.create(**options)  # type: ignore[call-overload]
    texts = ["", "", "", ""]
    finish: list[str | None] = [None] * 4
    usage = None
    stream = client.completions.create(
        **options, stream=True, stream_options={"include_usage": True}
    )  # type: ignore[call-overload]
    for chunk in stream:
        usage = chunk.usage or usage
        for choice in chunk.choices:
            texts[choice.index] += choice.text
            finish[choice.index] = choice.finish_reason or finish[choice.index]
    assert texts == [choice.text for choice in whole.choices]
    assert finish == [choice.finish_reason for choice in whole.choices]
    assert usage is not None
    assert usage.total_tokens == whole.usage.total_tokens


def test_a_prompt_is_scored_by_echo(client: OpenAI, writer: qkv.GlassBox) -> None:
    ids = writer.tokenizer.encode(WORDS)
    completion = client.completions.create(
        model="writer", prompt=ids, max_tokens=0, echo=True, logprobs=2
    )
    (choice,) = completion.choices
    assert choice.text == WORDS
    assert choice.logprobs is not None
    (scored,) = score_prompts(writer.model, [ids], writer.tokenizer.vocab_size)
    values = choice.logprobs.token_logprobs
    assert values is not None
    assert values[0] is None
    assert values[1:] == pytest.approx([token.logprob for token in scored.tokens], abs=1e-4)
    assert "".join(choice.logprobs.tokens or []) == WORDS
    assert completion.usage is not None
    assert completion.usage.completion_tokens == 0


def test_echo_and_generation_score_alike(client: OpenAI) -> None:
    completion = client.completions.create(
        model="writer", prompt=PROMPT, max_tokens=6, temperature=0, echo=True, logprobs=1
    )
    logprobs = completion.choices[0].logprobs
    assert logprobs is not None
    again = client.completions.create(
        model="writer", prompt=completion.choices[0].text, max_tokens=0, echo=True, logprobs=1
    )
    other = again.choices[0].logprobs
    assert other is not None
    if logprobs.tokens == other.tokens:
        assert (logprobs.token_logprobs or [])[1:] == pytest.approx(
            (other.token_logprobs or [])[1:], abs=1e-4
        )


def test_a_chat_follows_the_template(client: OpenAI, writer: qkv.GlassBox) -> None:
    messages = [{"role": "system", "content": "short"}, {"role": "user", "content": "the dog"}]
    answer = client.chat.completions.create(
        model="writer",
        messages=messages,
        max_tokens=12,
        temperature=0,
        logprobs=True,
        top_logprobs=2,
    )  # type: ignore[arg-type]
    expected = writer.generate(messages, max_tokens=12, temperature=0).finish()
    (choice,) = answer.choices
    assert choice.message.content == expected.text
    assert choice.logprobs is not None
    content = choice.logprobs.content or []
    joined = b"".join(bytes(token.bytes or ()) for token in content)
    assert joined.decode("utf-8", "replace") == expected.text
    stream = client.chat.completions.create(
        model="writer", messages=messages, max_tokens=12, temperature=0, stream=True
    )  # type: ignore[arg-type]
    pieces = [chunk.choices[0].delta.content or "" for chunk in stream]
    assert "".join(pieces) == expected.text


def test_stop_strings_penalties_and_biases(client: OpenAI, writer: qkv.GlassBox) -> None:
    plain = client.completions.create(model="writer", prompt=PROMPT, max_tokens=20, temperature=0)
    text = plain.choices[0].text
    stopped = client.completions.create(
        model="writer", prompt=PROMPT, max_tokens=20, temperature=0, stop=[text[3:6]]
    )
    assert stopped.choices[0].text == text[: text.index(text[3:6])]
    assert stopped.choices[0].finish_reason == "stop"
    forced = client.completions.create(
        model="writer", prompt=PROMPT, max_tokens=3, temperature=0, logit_bias={"70": 100}
    )
    assert forced.choices[0].text == writer.tokenizer.decode([70, 70, 70])
    penalized = client.completions.create(
        model="writer",
        prompt=PROMPT,
        max_tokens=3,
        temperature=0,
        logit_bias={"70": 100},
        frequency_penalty=2,
        presence_penalty=2,
        logprobs=0,
    )
    expected = writer.generate(
        PROMPT,
        max_tokens=3,
        temperature=0,
        logit_bias={70: 100},
        frequency_penalty=2,
        presence_penalty=2,
    ).finish()
    assert penalized.choices[0].text == expected.text


def test_vectors_in_every_form_are_the_librarys(client: OpenAI, bundles: dict[str, Path]) -> None:
    model = qkv.load(bundles["vectors"])
    texts = [WORDS[:n] for n in (3, 40, 11, 25)]
    expected = model.embed(texts)
    default = client.embeddings.create(model="vectors", input=texts)  # asks for base64
    floats = client.embeddings.create(model="vectors", input=texts, encoding_format="float")
    ids = [model.tokenizer.encode(text) for text in texts]
    by_ids = client.embeddings.create(model="vectors", input=ids)
    for answer in (default, floats, by_ids):
        assert [entry.index for entry in answer.data] == [0, 1, 2, 3]
        vectors = np.array([entry.embedding for entry in answer.data])
        assert np.abs(vectors - expected).max() < 1e-6
    single = client.embeddings.create(model="vectors", input=texts[1])
    assert np.abs(np.array(single.data[0].embedding) - expected[1]).max() < 1e-6
    assert default.usage.prompt_tokens == sum(map(len, ids))


def test_base64_is_little_endian_float32(server: RunningServer) -> None:
    body = {"model": "vectors", "input": "the dog", "encoding_format": "base64"}
    (entry,) = server.post("/v1/embeddings", body)["data"]
    floats = server.post("/v1/embeddings", body | {"encoding_format": "float"})
    vector = np.frombuffer(base64.b64decode(entry["embedding"]), "<f4")
    assert vector.tolist() == pytest.approx(floats["data"][0]["embedding"], abs=0)


def test_many_at_once_get_what_each_gets_alone(server: RunningServer) -> None:
    prompts = [WORDS[i : i + 9 + i] for i in range(16)]
    options = {"model": "writer", "max_tokens": 24, "temperature": 0.8, "seed": 11}

    async def all_at_once() -> list[str]:
        async with AsyncOpenAI(base_url=f"{server.url}/v1", api_key="none") as client:
            calls = [client.completions.create(prompt=each, **options) for each in prompts]  # type: ignore[call-overload]
            return [answer.choices[0].text for answer in await asyncio.gather(*calls)]

    together = asyncio.run(all_at_once())
    alone = [
        server.post("/v1/completions", {"prompt": each, **options})["choices"][0]["text"]
        for each in prompts
    ]
    assert together == alone


@pytest.mark.parametrize(
    ("path", "body", "status", "code", "words"),
    [
        ("/v1/completions", {"model": "nobody", "prompt": "x"}, 404, "model_not_found", "unknown"),
        ("/v1/completions", {"model": "vectors", "prompt": "x"}, 400, "model_not_suitable", "embe"),
        (
            "/v1/completions",
            {"model": "writer", "prompt": "x", "max_token": 3},
            400,
            "unknown_field",
            'did you mean "max_tokens"',
        ),
        (
            "/v1/completions",
            {"model": "writer", "prompt": "x", "max_tokens": 10_000},
            400,
            "context_length_exceeded",
            "reads at most 256",
        ),
        (
            "/v1/completions",
            {"model": "writer", "prompt": [5, 99_999]},
            400,
            "invalid_token",
            "check_embedding_ctx_length",
        ),
        (
            "/v1/completions",
            {"model": "writer", "prompt": "x", "temperature": "hot"},
            400,
            "invalid_value",
            "temperature",
        ),
        (
            "/v1/embeddings",
            {"model": "vectors", "input": "x", "dimensions": 7},
            400,
            "dimensions_not_supported",
            "24",
        ),
        (
            "/v1/embeddings",
            {"model": "vectors", "input": "the dog " * 60},
            400,
            "context_length_exceeded",
            "reads at most 64",
        ),
        ("/v1/nothing", {}, 404, "route_not_found", "no route"),
    ],
)
def test_mistakes_are_openai_errors(
    server: RunningServer, path: str, body: dict[str, object], status: int, code: str, words: str
) -> None:
    answer_status, headers, raw = server.request(path, body)
    error = json.loads(raw)["error"]
    assert (answer_status, error["code"]) == (status, code), error
    assert words in error["message"]
    assert set(error) == {"message", "type", "param", "code"}
    assert headers["x-should-retry"] == "false"
    assert headers["x-request-id"]


def test_the_client_raises_the_error_at_once(client: OpenAI) -> None:
    with pytest.raises(APIStatusError, match="unknown model") as caught:
        client.completions.create(model="nobody", prompt="x")
    assert caught.value.status_code == 404
