"""Every number in an explanation over HTTP is the one that the command line prints."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from openai import OpenAI
from safetensors.numpy import load
from tests.serve.running_server import RunningServer
from tests.serve.tiny_bundles import WORDS

import qkv

TEXT = "the dog ran over a hill"


def command_json(*arguments: str) -> Any:
    """What `qkv explain` prints as JSON."""
    command = [sys.executable, "-m", "qkv", "explain", *arguments, "--json", "--threads", "1"]
    result = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    return json.loads(result.stdout)


def assert_same(a: Any, b: Any, path: str = "") -> None:
    """Equal, numbers to 1e-5."""
    if isinstance(a, dict):
        assert a.keys() == b.keys(), path
        for key in a:
            assert_same(a[key], b[key], f"{path}.{key}")
    elif isinstance(a, list):
        assert len(a) == len(b), path
        for index, (x, y) in enumerate(zip(a, b, strict=True)):
            assert_same(x, y, f"{path}[{index}]")
    elif isinstance(a, float) and not isinstance(a, bool):
        assert b == pytest.approx(a, abs=1e-5), path
    else:
        assert a == b, path


def without(answer: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in answer.items() if name not in names}


SLOW = pytest.mark.slow  # each starts the command, which imports torch


@pytest.mark.parametrize(
    "name",
    ["labels", *(pytest.param(name, marks=SLOW) for name in ("writer", "vectors", "translator"))],
)
def test_an_attribution_is_the_commands(
    server: RunningServer, bundles: dict[str, Path], name: str
) -> None:
    answer = server.post("/v1/explain", {"model": name, "input": TEXT})
    expected = command_json(TEXT, "--model", str(bundles[name]), "--why")
    assert answer["cost_ms"] > 0
    assert_same(expected, without(answer, "model", "method", "cost_ms"))


@pytest.mark.parametrize(
    "name", ["writer", *(pytest.param(name, marks=SLOW) for name in ("labels", "translator"))]
)
def test_a_walk_through_a_head_is_the_commands(
    server: RunningServer, bundles: dict[str, Path], name: str
) -> None:
    body = {"model": name, "input": TEXT, "method": "walk", "layer": 1, "head": 2}
    answer = server.post("/v1/explain", body)
    options = ["--layer", "1", "--head", "2"]
    expected = command_json(TEXT, "--model", str(bundles[name]), *options)
    assert all(check["ok"] for check in answer["checks"])
    assert_same(expected["steps"], answer["steps"])
    assert_same(expected["answer"], answer["answer"])


@SLOW
def test_what_if_shows_what_an_edit_changes(
    server: RunningServer, bundles: dict[str, Path]
) -> None:
    edits = [{"kind": "ablate_head", "layer": 0, "head": 1}, {"kind": "no_mask"}]
    answer = server.post(
        "/v1/explain", {"model": "writer", "input": TEXT, "method": "what_if", "edits": edits}
    )
    expected = command_json(
        TEXT, "--model", str(bundles["writer"]), "--head-off", "0.1", "--no-mask"
    )
    changed = expected["changed"]
    assert answer["first"] == changed["first"]
    assert sorted(answer["edits"]) == sorted(changed["edits"])


@SLOW
def test_a_label_is_explained_next_to_its_answer(
    server: RunningServer, bundles: dict[str, Path]
) -> None:
    body = {"model": "labels", "input": [TEXT], "explain": True}
    (entry,) = server.post("/v1/classify", body)["data"]
    expected = command_json(TEXT, "--model", str(bundles["labels"]), "--why")
    assert_same(expected, without(entry["explain"], "cost_ms"))


def test_a_completion_is_explained_inside_its_choice(server: RunningServer) -> None:
    with OpenAI(base_url=f"{server.url}/v1", api_key="none") as client:
        completion = client.completions.create(
            model="writer", prompt=TEXT, max_tokens=6, temperature=0, extra_body={"explain": True}
        )
    explanation = completion.choices[0].explain  # type: ignore[attr-defined]
    assert explanation["answer"] == completion.choices[0].text
    assert [word["word"] for word in explanation["words"]] == TEXT.split()
    assert explanation["faithfulness"]["verdict"]


def test_each_chunk_carries_what_is_said_of_its_token(
    server: RunningServer, bundles: dict[str, Path]
) -> None:
    writer = qkv.load(bundles["writer"])
    wanted = {"stream": ["alternatives", "lens", "attention"], "top": 3}
    with OpenAI(base_url=f"{server.url}/v1", api_key="none") as client:
        stream = client.completions.create(
            model="writer",
            prompt=TEXT,
            max_tokens=5,
            temperature=0,
            stream=True,
            extra_body={"explain": wanted},
        )
        chunks = [chunk.choices[0] for chunk in stream]
    completion = writer.generate(TEXT, max_tokens=5, temperature=0).finish()
    ids = writer.tokenizer.encode(TEXT)
    assert len(chunks) == len(completion.tokens)
    for chunk, token in zip(chunks, completion.tokens, strict=True):
        explanation = chunk.explain  # type: ignore[attr-defined]
        assert explanation["alternatives"][0]["id"] == token
        assert explanation["lens"][-1]["best"] == writer.tokenizer.token(token)
        text = writer.tokenizer.decode(ids)
        if writer.tokenizer.encode(text) == ids:  # a trace reads a text, not ids
            trace = writer.trace(text, keep=["*.weights"])
            for row in explanation["attention"]:
                weights = trace[f"decoder.{row['layer']}.attention.weights"][0]
                mean = weights.mean(dim=0)[-1]
                for key, weight in row["keys"]:
                    assert weight == pytest.approx(float(mean[key]), abs=1e-5)
        ids.append(token)


def test_tensors_are_those_of_a_trace(server: RunningServer, bundles: dict[str, Path]) -> None:
    name = "encoder.1.attention.weights"
    body = {"model": "labels", "input": TEXT, "names": [name]}
    expected = qkv.load(bundles["labels"]).trace(TEXT, keep=[name])[name].numpy()
    (tensor,) = server.post("/v1/trace", body)["tensors"]
    assert tensor["name"] == name
    assert tensor["value"] == pytest.approx(expected, abs=1e-5)
    headers = {"accept": "application/x-safetensors"}
    status, answer_headers, raw = server.request("/v1/trace", body, headers=headers)
    assert status == 200
    assert answer_headers["content-type"] == "application/x-safetensors"
    assert load(raw)[name] == pytest.approx(expected, abs=1e-5)
    listing = server.post("/v1/trace", {"model": "labels", "input": TEXT})
    assert name in [each["name"] for each in listing["tensors"]]
    assert all("value" not in each for each in listing["tensors"])
    assert all(check["ok"] for check in listing["checks"])


def test_too_many_numbers_for_json_are_refused(server: RunningServer) -> None:
    body = {"model": "labels", "input": WORDS, "names": ["*"]}
    status, _, raw = server.request("/v1/trace", body)
    assert status == 400
    assert "application/x-safetensors" in json.loads(raw)["error"]["message"]


def test_attention_is_that_of_transformers(
    tmp_path: Path, server: RunningServer, bundles: dict[str, Path]
) -> None:
    import torch
    from transformers import AutoModelForCausalLM

    from qkv.bundle import export_checkpoint

    name = "decoder.0.attention.weights"
    answer = server.post("/v1/trace", {"model": "writer", "input": "the dog", "names": [name]})
    ids = server.post("/tokenize", {"model": "writer", "prompt": "the dog"})["tokens"]
    writer = qkv.load(bundles["writer"])
    export_checkpoint(writer.bundle, tmp_path / "hf")
    peer = AutoModelForCausalLM.from_pretrained(tmp_path / "hf", attn_implementation="eager")
    with torch.no_grad():
        attentions = peer(torch.tensor([ids]), output_attentions=True).attentions
    assert answer["tensors"][0]["value"] == pytest.approx(attentions[0].numpy(), abs=1e-4)
