"""Clients that others wrote, unmodified: each gets what the library gives."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anthropic
import numpy as np
import ollama
import openai
import pytest
from langchain_openai import ChatOpenAI, OpenAIEmbeddings
from libretranslatepy import LibreTranslateAPI
from llama_index.core.llms import ChatMessage as LlamaIndexMessage
from llama_index.embeddings.openai_like import OpenAILikeEmbedding
from llama_index.llms.openai_like import OpenAILike
from pydantic import BaseModel, ConfigDict, Field
from tests.serve.running_server import RunningServer

import qkv

MESSAGES: Any = [{"role": "user", "content": "the dog ran"}]
SYSTEM: Any = {"role": "system", "content": "a cat"}


class Pet(BaseModel):
    model_config = ConfigDict(extra="forbid")

    name: str = Field(max_length=8)
    age: int = Field(ge=0, le=99)


@pytest.fixture(scope="module")
def writer(bundles: dict[str, Path]) -> qkv.GlassBox:
    return qkv.load(bundles["writer"])


@pytest.fixture(scope="module")
def expected(writer: qkv.GlassBox) -> str:
    """The answer that every chat API has to give."""
    return writer.generate([SYSTEM, *MESSAGES], max_tokens=20, temperature=0).finish().text


@pytest.fixture(scope="module")
def anthropic_client(server: RunningServer) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(base_url=server.url, api_key="none", max_retries=0) as client:
        yield client


class TestAnthropic:
    def test_a_message_is_the_librarys(
        self, anthropic_client: anthropic.Anthropic, expected: str
    ) -> None:
        message = anthropic_client.messages.create(
            model="writer",
            max_tokens=20,
            extra_body={"temperature": 0},
            system=SYSTEM["content"],
            messages=[{"role": "user", "content": [{"type": "text", "text": "the dog ran"}]}],
        )
        assert message.content[0].text == expected  # type: ignore[union-attr]
        assert message.stop_reason == "max_tokens"
        assert message.usage.output_tokens == 20
        count = anthropic_client.messages.count_tokens(
            model="writer", system=SYSTEM["content"], messages=MESSAGES
        )
        usage = message.usage
        assert count.input_tokens == usage.input_tokens + (usage.cache_read_input_tokens or 0)

    def test_a_stream_joined_is_the_message(
        self, anthropic_client: anthropic.Anthropic, expected: str
    ) -> None:
        with anthropic_client.messages.stream(
            model="writer",
            max_tokens=20,
            extra_body={"temperature": 0},
            system=SYSTEM["content"],
            messages=MESSAGES,
        ) as stream:
            text = "".join(stream.text_stream)
            message = stream.get_final_message()
        assert text == message.content[0].text == expected  # type: ignore[union-attr]
        assert (message.stop_reason, message.usage.output_tokens) == ("max_tokens", 20)

    def test_a_stop_sequence_is_named(
        self, anthropic_client: anthropic.Anthropic, expected: str
    ) -> None:
        stop = expected[8:11]
        message = anthropic_client.messages.create(
            model="writer",
            max_tokens=20,
            extra_body={"temperature": 0},
            system=SYSTEM["content"],
            messages=MESSAGES,
            stop_sequences=["never to be seen", stop],
        )
        assert (message.stop_reason, message.stop_sequence) == ("stop_sequence", stop)
        text = message.content[0].text  # type: ignore[union-attr]
        assert text == expected[: expected.index(stop)]

    def test_mistakes_are_anthropics_errors(self, anthropic_client: anthropic.Anthropic) -> None:
        with pytest.raises(anthropic.NotFoundError, match="writter"):
            anthropic_client.messages.create(model="writter", max_tokens=5, messages=MESSAGES)
        image: Any = {"type": "image", "source": {"type": "url", "url": "x"}}
        with pytest.raises(anthropic.BadRequestError, match="image") as error:
            anthropic_client.messages.create(
                model="writer", max_tokens=5, messages=[{"role": "user", "content": [image]}]
            )
        body: Any = error.value.body
        assert body["type"] == "error"
        assert body["error"]["type"] == "invalid_request_error"


@pytest.fixture(scope="module")
def ollama_client(server: RunningServer) -> Iterator[ollama.Client]:
    with ollama.Client(host=server.url) as client:
        yield client


class TestOllama:
    def test_a_chat_is_the_librarys(self, ollama_client: ollama.Client, expected: str) -> None:
        options = {"temperature": 0, "num_predict": 20}
        messages = [SYSTEM, *MESSAGES]
        answer = ollama_client.chat("writer:latest", messages=messages, options=options)
        assert answer.message.content == expected
        assert (answer.done_reason, answer.eval_count) == ("length", 20)
        chunks = list(ollama_client.chat("writer", messages=messages, options=options, stream=True))
        assert "".join(chunk.message.content or "" for chunk in chunks) == expected
        assert [chunk.done for chunk in chunks] == [False] * 20 + [True]

    def test_generation_with_and_without_the_template(
        self, ollama_client: ollama.Client, writer: qkv.GlassBox, expected: str
    ) -> None:
        options = {"temperature": 0, "num_predict": 20}
        answer = ollama_client.generate("writer", "the dog ran", system="a cat", options=options)
        assert answer.response == expected
        raw = ollama_client.generate("writer", "the dog ran", raw=True, options=options)
        assert (
            raw.response
            == writer.generate("the dog ran", max_tokens=20, temperature=0).finish().text
        )
        assert ollama_client.generate("writer").done_reason == "load"

    def test_vectors_are_the_librarys(
        self, ollama_client: ollama.Client, bundles: dict[str, Path]
    ) -> None:
        texts = ["the dog", "two cats sleeping"]
        answer = ollama_client.embed("vectors", texts)
        want = qkv.load(bundles["vectors"]).embed(texts)
        np.testing.assert_allclose(np.array(answer.embeddings), want, atol=1e-6)
        single = ollama_client.embeddings("vectors", "the dog")
        np.testing.assert_allclose(np.array(single.embedding), want[0], atol=1e-6)

    def test_models_are_listed_and_described(self, ollama_client: ollama.Client) -> None:
        assert {model.model for model in ollama_client.list().models} >= {"writer", "vectors"}
        shown = ollama_client.show("writer")
        assert shown.capabilities == ["completion"]
        assert (shown.modelinfo or {})["generate.context_length"] == 256

    def test_an_answer_in_a_schema(self, ollama_client: ollama.Client) -> None:
        options = {"temperature": 2, "num_predict": 200, "seed": 5}
        answer = ollama_client.chat(
            "writer", messages=MESSAGES, format=Pet.model_json_schema(), options=options
        )
        assert answer.done_reason == "stop"
        Pet.model_validate_json(answer.message.content or "")

    def test_mistakes_are_ollamas_errors(self, ollama_client: ollama.Client) -> None:
        with pytest.raises(ollama.ResponseError, match="unknown model") as error:
            ollama_client.chat("writter", messages=MESSAGES)
        assert error.value.status_code == 404
        with pytest.raises(ollama.ResponseError, match="mirostat"):
            ollama_client.chat("writer", messages=MESSAGES, options={"mirostat": 2})


@pytest.fixture(scope="module")
def openai_client(server: RunningServer) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as client:
        yield client


class TestResponses:
    def test_a_response_is_the_librarys(self, openai_client: openai.OpenAI, expected: str) -> None:
        response = openai_client.responses.create(
            model="writer",
            instructions=SYSTEM["content"],
            input="the dog ran",
            max_output_tokens=20,
            temperature=0,
        )
        assert response.output_text == expected
        assert response.status == "incomplete"
        assert response.usage is not None
        assert response.usage.output_tokens == 20

    def test_a_stream_ends_with_the_whole_response(
        self, openai_client: openai.OpenAI, expected: str
    ) -> None:
        deltas = []
        with openai_client.responses.stream(
            model="writer", input=[SYSTEM, *MESSAGES], max_output_tokens=20, temperature=0
        ) as stream:
            for event in stream:
                if event.type == "response.output_text.delta":
                    deltas.append(event.delta)
                if event.type == "response.incomplete":
                    assert event.response.output_text == expected
        assert "".join(deltas) == expected

    def test_what_must_be_remembered_is_refused(self, openai_client: openai.OpenAI) -> None:
        with pytest.raises(openai.BadRequestError, match="stores nothing"):
            openai_client.responses.create(model="writer", input="a", previous_response_id="resp_1")
        with pytest.raises(openai.BadRequestError, match="tools"):
            openai_client.responses.create(
                model="writer", input="a", tools=[{"type": "web_search_preview"}]
            )

    def test_an_answer_is_parsed(self, openai_client: openai.OpenAI) -> None:
        for seed in range(5):
            chat = openai_client.chat.completions.parse(
                model="writer", messages=MESSAGES, response_format=Pet, seed=seed, temperature=2
            )
            assert isinstance(chat.choices[0].message.parsed, Pet)
        response = openai_client.responses.parse(model="writer", input="a", text_format=Pet)
        assert isinstance(response.output_parsed, Pet)


def test_langchain_chats_streams_and_embeds(
    server: RunningServer, bundles: dict[str, Path], expected: str
) -> None:
    base_url: Any = f"{server.url}/v1"
    key: Any = "none"
    chat = ChatOpenAI(
        model="writer", base_url=base_url, api_key=key, temperature=0, max_completion_tokens=20
    )
    messages = [("system", SYSTEM["content"]), ("user", "the dog ran")]
    assert chat.invoke(messages).content == expected
    assert "".join(str(chunk.content) for chunk in chat.stream(messages)) == expected
    embeddings = OpenAIEmbeddings(
        model="vectors", base_url=base_url, api_key=key, check_embedding_ctx_length=False
    )
    texts = ["the dog", "two cats sleeping"]
    want = qkv.load(bundles["vectors"]).embed(texts)
    np.testing.assert_allclose(np.array(embeddings.embed_documents(texts)), want, atol=1e-6)


def test_llama_index_completes_chats_and_embeds(
    server: RunningServer, bundles: dict[str, Path], writer: qkv.GlassBox, expected: str
) -> None:
    options: dict[str, Any] = {"api_base": f"{server.url}/v1", "api_key": "none"}
    llm = OpenAILike(
        model="writer",
        temperature=0,
        max_tokens=20,
        context_window=256,
        is_chat_model=True,
        **options,
    )
    messages = [
        LlamaIndexMessage(role="system", content=SYSTEM["content"]),
        LlamaIndexMessage(role="user", content="the dog ran"),
    ]
    assert llm.chat(messages).message.content == expected
    assert [chunk.message.content for chunk in llm.stream_chat(messages)][-1] == expected
    completer = OpenAILike(
        model="writer", temperature=0, max_tokens=20, context_window=256, **options
    )
    want = writer.generate("the dog ran", max_tokens=20, temperature=0).finish().text
    assert completer.complete("the dog ran").text == want
    embedder = OpenAILikeEmbedding(model_name="vectors", **options)
    vectors = embedder.get_text_embedding_batch(["the dog", "two cats sleeping"])
    want_vectors = qkv.load(bundles["vectors"]).embed(["the dog", "two cats sleeping"])
    np.testing.assert_allclose(np.array(vectors), want_vectors, atol=1e-6)


def test_libretranslates_client_translates(server: RunningServer, bundles: dict[str, Path]) -> None:
    client = LibreTranslateAPI(server.url)
    text = "the old red barn"
    want = qkv.load(bundles["translator"]).translate([text])[0].text
    assert client.translate(text, "en", "de") == want
    assert [language["code"] for language in client.languages()] == ["translator"]
