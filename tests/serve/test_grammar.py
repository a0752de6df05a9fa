"""Answers that are held to a grammar: always valid, and scored by the model itself."""

import json
import re
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from openai import BadRequestError, OpenAI
from tests.serve.running_server import RunningServer

import qkv
from qkv.errors import UsageError
from qkv.serve.grammar import compile_grammar
from qkv.serve.grammar_mask import grammar_tokenizer
from qkv.text import Tokenizer

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "label": {"enum": ["good", "bad"]},
        "score": {"type": "integer", "minimum": -5, "maximum": 99},
        "words": {"type": "array", "items": {"type": "string", "maxLength": 6}, "maxItems": 3},
        "note": {"anyOf": [{"type": "null"}, {"type": "string", "pattern": "^[a-c]{2,4}$"}]},
    },
    "required": ["label", "score", "words", "note"],
    "additionalProperties": False,
}


@pytest.fixture(scope="module")
def client(server: RunningServer) -> Iterator[OpenAI]:
    with OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as openai:
        yield openai


def valid_answers(client: OpenAI, count: int) -> int:
    """How many of so many answers at temperature 2 ended and hold to the schema."""
    response_format: Any = {
        "type": "json_schema",
        "json_schema": {"name": "answer", "schema": SCHEMA},
    }

    def is_valid(seed: int) -> bool:
        chat = client.chat.completions.create(
            model="writer",
            messages=[{"role": "user", "content": f"number {seed}"}],
            response_format=response_format,
            temperature=2,
            seed=seed,
        )
        assert chat.choices[0].finish_reason == "stop"
        jsonschema.validate(json.loads(chat.choices[0].message.content or ""), SCHEMA)
        return True

    with ThreadPoolExecutor(16) as pool:
        return sum(pool.map(is_valid, range(count)))


def test_every_answer_holds_to_its_schema(client: OpenAI) -> None:
    assert valid_answers(client, 40) == 40


@pytest.mark.slow
def test_a_thousand_of_a_thousand_answers_hold_to_their_schema(client: OpenAI) -> None:
    assert valid_answers(client, 1000) == 1000


@pytest.mark.parametrize(
    ("field", "source", "pattern"),
    [
        ("regex", r"(dog|cat)s? [0-9]{3}", r"(dog|cat)s? [0-9]{3}"),
        ("grammar", 'start: ("ha" | "hi")~3 "!"', r"(ha|hi){3}!"),
    ],
)
def test_regexes_and_grammars(client: OpenAI, field: str, source: str, pattern: str) -> None:
    for seed in range(5):
        completion = client.completions.create(
            model="writer",
            prompt="the",
            max_tokens=60,
            temperature=2,
            seed=seed,
            extra_body={field: source},
        )
        assert re.fullmatch(pattern, completion.choices[0].text)


def test_any_json_object(client: OpenAI) -> None:
    chat = client.chat.completions.create(
        model="writer",
        messages=[{"role": "user", "content": "a"}],
        response_format={"type": "json_object"},
        temperature=0.5,
        seed=3,
    )
    assert (chat.choices[0].message.content or "").lstrip().startswith("{")


def test_log_probabilities_stay_the_models_own(client: OpenAI, bundles: dict[str, Path]) -> None:
    tokenizer = qkv.load(bundles["writer"]).tokenizer
    assert isinstance(tokenizer, Tokenizer)
    prompt = [*tokenizer.prefix_ids, *tokenizer.encode("the dog")]
    digits = client.completions.create(
        model="writer", prompt=prompt, max_tokens=4, logprobs=0, extra_body={"regex": "[0-9]{4}"}
    ).choices[0]
    assert digits.logprobs is not None
    answer = [tokenizer.token_to_id(digit) for digit in digits.text]
    scored = client.completions.create(
        model="writer", prompt=[*prompt, *answer], max_tokens=0, echo=True, logprobs=0
    ).choices[0]
    assert scored.logprobs is not None
    own = digits.logprobs.token_logprobs
    assert own == pytest.approx((scored.logprobs.token_logprobs or [])[-4:], abs=1e-4)
    assert sum(own or []) < -1  # it would not have written digits by itself


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "array", "uniqueItems": True},
        {"not": {"type": "string"}},
        {"type": "string", "pattern": "(?=a)b"},
        {"type": "string", "format": "no-such-format"},
        {"$ref": "http://127.0.0.1:9/schema"},
        {"oneOf": [{"type": "integer"}, {"type": "number"}]},
        {"type": "integer", "minimum": 5, "maximum": 4},
    ],
)
def test_a_schema_that_cannot_be_held_to_is_refused(client: OpenAI, schema: Any) -> None:
    with pytest.raises(BadRequestError) as error:
        client.chat.completions.create(
            model="writer",
            messages=[{"role": "user", "content": "a"}],
            response_format={
                "type": "json_schema",
                "json_schema": {"name": "answer", "schema": schema},
            },
        )
    assert error.value.code == "invalid_grammar"


@pytest.mark.parametrize(
    ("kind", "source"),
    [
        ("regex", "(a{1,1000}){1,1000}{1,1000}"),
        ("regex", "(" * 2000 + "a" + ")" * 2000),
        ("grammar", "start: start start"),
        ("json_schema", {"allOf": [{"$ref": "#"}]}),
        ("json_schema", {"type": "string", "minLength": 10**9}),
    ],
)
def test_a_grammar_made_to_be_costly_ends_soon(kind: str, source: Any) -> None:
    started = time.perf_counter()
    with suppress(UsageError):
        compile_grammar(kind, source)
    assert time.perf_counter() - started < 5


def test_a_tokenizer_that_puts_spaces_between_words_is_refused() -> None:
    tokenizer = Tokenizer.train("wordpiece", ["the dog ran over a hill"] * 3, 60)
    assert not tokenizer.joins_token_bytes
    with pytest.raises(UsageError, match="grammar"):
        grammar_tokenizer(tokenizer)
