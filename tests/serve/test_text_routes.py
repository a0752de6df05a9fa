"""Labels, ranks, clusters, translations and tokens over HTTP are those of the library."""

import json
import urllib.parse
from pathlib import Path

import numpy as np
import pytest
from tests.serve.running_server import RunningServer
from tests.serve.tiny_bundles import LABELS, WORDS

import qkv

TEXTS = [WORDS[:n] for n in (7, 31, 52)]


def test_labels_are_the_librarys(server: RunningServer, bundles: dict[str, Path]) -> None:
    expected = qkv.load(bundles["labels"]).classify(TEXTS)
    answer = server.post("/v1/classify", {"model": "labels", "input": TEXTS})
    for entry, classification in zip(answer["data"], expected, strict=True):
        assert entry["label"] == classification.label
        assert list(entry["probabilities"]) == list(classification.probabilities)
        assert entry["probabilities"] == pytest.approx(classification.probabilities, abs=1e-6)
    single = server.post("/v1/classify", {"model": "labels", "input": TEXTS[0]})
    assert single["data"][0]["probabilities"] == pytest.approx(
        answer["data"][0]["probabilities"], abs=1e-6
    )
    assert set(answer["data"][0]["probabilities"]) == set(LABELS)


def test_edits_come_next_to_the_plain_answer(
    server: RunningServer, bundles: dict[str, Path]
) -> None:
    edit = {"kind": "ablate_head", "layer": 1, "head": 2}
    body = {"model": "labels", "input": TEXTS[1], "edits": [edit]}
    (entry,) = server.post("/v1/classify", body)["data"]
    changes = {change["name"]: change for change in entry["edited"]["answers"]}
    assert changes
    for label, change in changes.items():
        assert change["before"] == pytest.approx(entry["probabilities"][label], abs=1e-5)
    status, _, raw = server.request("/v1/classify", body | {"edits": [edit | {"head": 9}]})
    assert status == 400
    assert "heads 0 to 2" in json.loads(raw)["error"]["message"]


def test_ranks_follow_the_cosine(server: RunningServer, bundles: dict[str, Path]) -> None:
    model = qkv.load(bundles["vectors"])
    body = {
        "model": "vectors",
        "query": "the dog",
        "documents": TEXTS,
        "top_n": 2,
        "return_documents": True,
    }
    results = server.post("/v1/rerank", body)["results"]
    vectors = model.embed(["the dog", *TEXTS])
    scores = vectors[1:] @ vectors[0]
    assert [result["index"] for result in results] == np.argsort(-scores)[:2].tolist()
    for result in results:
        assert result["relevance_score"] == pytest.approx(scores[result["index"]], abs=1e-6)
        assert result["document"]["text"] == TEXTS[result["index"]]


def test_similarity_is_explained_by_pairs_that_add_up(server: RunningServer) -> None:
    body = {"model": "vectors", "a": "the dog ran", "b": "two cats", "explain": True}
    answer = server.post("/v1/similarity", body)
    pairs = sum(pair["contribution"] for pair in answer["explain"]["pairs"])
    assert pairs == pytest.approx(answer["cosine"], abs=1e-5)
    assert answer["explain"]["faithfulness"] is not None


def test_clusters_are_the_librarys(server: RunningServer, bundles: dict[str, Path]) -> None:
    texts = [f"{word} {word} {other}" for word in WORDS.split()[:6] for other in ("a", "the")]
    expected = qkv.load(bundles["vectors"]).cluster(texts, 3)
    answer = server.post("/v1/cluster", {"model": "vectors", "input": texts, "k": 3})
    assert [row["cluster"] for row in answer["data"]] == expected.labels.tolist()
    assert [each["name"] for each in answer["clusters"]] == [
        each.name for each in expected.clusters
    ]


def test_translations_are_the_librarys(server: RunningServer, bundles: dict[str, Path]) -> None:
    expected = qkv.load(bundles["translator"]).translate(TEXTS, beams=4, best=2)
    body = {"q": TEXTS, "source": "en", "target": "de", "alternatives": 1}
    answer = server.post("/translate", body)
    assert answer["translatedText"] == [each.text for each in expected]
    assert answer["scores"] == pytest.approx([each.score for each in expected], abs=1e-4)
    assert answer["alternatives"] == [[each.alternatives[1].text] for each in expected]
    single = server.post("/translate", {"q": TEXTS[0], "source": "en", "target": "de"})
    assert single["translatedText"] == expected[0].text


def test_a_form_is_translated_too(server: RunningServer) -> None:
    body = {"q": TEXTS[0], "source": "en", "target": "de"}
    form = urllib.parse.urlencode(body).encode()
    headers = {"content-type": "application/x-www-form-urlencoded"}
    status, _, raw = server.request("/translate", form, headers=headers)
    assert status == 200
    assert json.loads(raw) == server.post("/translate", body)


def test_alignment_has_spans_of_both_texts(server: RunningServer) -> None:
    answer = server.post("/translate", {"q": TEXTS[1], "alignment": True})
    for link in answer["alignment"]:
        start, end = link["source_span"]
        assert TEXTS[1][start:end] == link["source"]
        start, end = link["target_span"]
        assert answer["translatedText"][start:end] == link["target"]


def test_tokens_there_and_back(server: RunningServer, bundles: dict[str, Path]) -> None:
    tokenizer = qkv.load(bundles["writer"]).tokenizer
    answer = server.post("/tokenize", {"model": "writer", "prompt": WORDS})
    assert answer["tokens"] == tokenizer.encode(WORDS)
    assert answer["count"] == len(answer["tokens"])
    assert answer["max_model_len"] == 256
    back = server.post("/detokenize", {"model": "writer", "tokens": answer["tokens"]})
    assert back["prompt"] == WORDS
    info = server.get("/tokenizer_info?model=writer")
    assert info["eos_token"] == tokenizer.special_tokens.eos
    messages = [{"role": "user", "content": "hi"}]
    chat = server.post("/tokenize", {"model": "writer", "messages": messages})
    text = tokenizer.apply_chat_template(messages)
    assert chat["tokens"] == tokenizer.encode(text, parse_special=True)


def test_without_a_name_the_only_model_of_the_task_is_taken(server: RunningServer) -> None:
    assert server.post("/translate", {"q": "the dog"})["translatedText"]
    status, _, raw = server.request("/tokenize", {"prompt": "x"})
    assert status == 400
    assert "name the model" in json.loads(raw)["error"]["message"]
