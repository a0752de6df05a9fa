"""`qkv classify` as a person runs it: lines, JSON, and what is said of other models."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from qkv.bundle import Bundle
from qkv.engine.engine import Engine
from qkv.model import (
    Classify,
    Embedding,
    EncoderOnly,
    MultiHead,
    ReLU,
    Rope,
    Stack,
    TextVector,
    build,
)
from qkv.text import Tokenizer

Qkv = Callable[..., tuple[int, str, str]]
LABELS = ("bad", "splendid", "none of these")
TOKENIZER = Tokenizer.train("bytes", ["a"], 300)
TEXTS = [
    "what a film",
    "",
    "tab\tand \u2028 line",
    "\0 nul",
    "🐕‍🦺 שלום",
    "\x1b[31mred\x07",
    "film",
]
LONG = "many more letters than thirty-one, which is too long"


def bundle(path: Path, output: object) -> Path:
    stack = Stack(
        layers=1,
        width=12,
        attention=MultiHead(heads=3),
        feed_forward=ReLU(width=17),
        position=Rope(),
    )
    table = Embedding(vocabulary=TOKENIZER.vocab_size)
    model = build(EncoderOnly(length=31, embedding=table, encoder=stack, output=output))
    with torch.no_grad():
        model.embedding.weight.mul_(90.0)  # opinions
    Bundle(model, TOKENIZER).save(path)
    return path


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return bundle(tmp_path_factory.mktemp("models") / "labels", Classify(labels=LABELS))


def test_people_see_label_probability_and_text(qkv: Qkv, model: Path) -> None:
    code, out, err = qkv("classify", model, "what a film", "\x1b[31mred\x07")
    assert (code, err) == (0, "")
    results = Engine.load(model).classify(["what a film", "\x1b[31mred\x07"])
    first, second = out.split("\n")[:-1]
    probability = results[0].probabilities[results[0].label]
    assert first == f"{results[0].label:<13} {probability:.3f}  what a film"
    assert second.endswith(r"  \x1b[31mred\x07")


@pytest.mark.parametrize("top", [None, 1, 2, 99])
def test_json_gives_the_labels_by_probability(qkv: Qkv, model: Path, top: int | None) -> None:
    texts = [text for text in TEXTS if "\0" not in text]  # which no argument can hold
    option = [] if top is None else ["--top", top]
    code, out, err = qkv("classify", model, "--json", *texts, *option)
    assert (code, err) == (0, "")
    rows = [json.loads(line) for line in out.split("\n")[:-1]]
    for row, result in zip(rows, Engine.load(model).classify(texts), strict=True):
        assert row.keys() == {"text", "label", "probabilities"}
        assert (row["text"], row["label"]) == (result.text, result.label)
        probabilities = list(result.probabilities.items())[:top]
        assert list(row["probabilities"].items()) == probabilities


def test_a_file_is_answered_in_portions_and_in_order(
    qkv: Qkv, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("qkv.engine.embed.embedder.BATCH_TEXTS", 3)
    (tmp_path / "a.txt").write_bytes("".join(f"{text}\n" for text in TEXTS).encode())
    code, out, err = qkv("classify", model, "--json", "--file", tmp_path / "a.txt")
    assert (code, err) == (0, "")
    assert [json.loads(line)["text"] for line in out.split("\n")[:-1]] == TEXTS


def test_the_top_labels_stand_side_by_side(qkv: Qkv, model: Path) -> None:
    code, out, _ = qkv("classify", model, "what a film", "--top", 2)
    assert code == 0
    (result,) = Engine.load(model).classify(["what a film"])
    names = list(result.probabilities)
    assert out.index(names[0]) < out.index(names[1]) < out.index("what a film")
    assert names[2] not in out


def test_long_texts_are_refused_or_told_of(qkv: Qkv, model: Path) -> None:
    code, out, err = qkv("classify", model, "short", LONG)
    assert (code, out) == (2, "")
    assert err.startswith("qkv: text 2 has 52 tokens but the model reads at most 31;")
    for mode in ("truncate", "average"):
        code, out, err = qkv("classify", model, "short", LONG, "--long", mode)
        assert (code, out.count("\n")) == (0, 2)
        assert err.startswith("note: 1 of 2 texts exceed the model's context; ")


MISTAKES = {
    ("a", "--top", "0"): "--top",
    ("a", "--long", "avrage"): 'did you mean "average"?',
    ("--file", "nowhere.txt"): "there is no file nowhere.txt",
    ("a\udcff",): "text 1: text holds half a character (U+DCFF) at position 1",
}


@pytest.mark.parametrize("arguments", MISTAKES, ids=" ".join)
def test_a_mistake_is_one_line(
    qkv: Qkv, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, err = qkv("classify", model, *arguments)
    assert (code, out) == (2, "")
    assert MISTAKES[arguments] in err
    assert err.startswith("qkv: ")
    assert err.count("\n") == 1


def test_a_model_without_labels_is_told_for_what_it_is(qkv: Qkv, tmp_path: Path) -> None:
    code, out, err = qkv("classify", bundle(tmp_path / "vectors", TextVector()), "a")
    assert (code, out) == (2, "")
    assert err == (
        "qkv: this model is an encoder that embeds text, so it gives no labels; use qkv embed, "
        "or make a classifier with qkv train classify\n"
    )
