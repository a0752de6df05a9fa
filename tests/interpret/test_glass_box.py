"""A loaded model that can be opened: texts as it reads them, with its marks and its own answer."""

from pathlib import Path

import numpy as np
import pytest
import torch

import qkv
from qkv.errors import UsageError
from qkv.interpret.glass_box import GlassBox, fingerprint, prediction_of
from qkv.interpret.trace import NoPosition, ReplaceToken, check_recompute, compare_traces
from qkv.model import (
    Classify,
    DecoderOnly,
    Embedding,
    EncoderDecoder,
    EncoderOnly,
    Learned,
    MultiHead,
    ReLU,
    Rope,
    Stack,
    TextVector,
    build,
)
from qkv.text import Tokenizer

TEXTS = ["the dog runs home", "a cat sleeps all day", "ein Hund läuft nach Hause"]
STACK = Stack(
    layers=2,
    width=28,
    attention=MultiHead(heads=2),
    feed_forward=ReLU(width=37),
    position=Learned(),
)


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.train("bpe", TEXTS, 290)


def box(config: object, tokenizer: Tokenizer) -> GlassBox:
    return GlassBox(qkv.Bundle(build(config, seed=3), tokenizer))  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def writer(tokenizer: Tokenizer) -> GlassBox:
    table = Embedding(vocabulary=tokenizer.vocab_size)
    rotary = STACK.model_copy(update={"position": Rope()})
    return box(DecoderOnly(length=23, embedding=table, decoder=rotary), tokenizer)


@pytest.fixture(scope="module")
def judge(tokenizer: Tokenizer) -> GlassBox:
    table = Embedding(vocabulary=tokenizer.vocab_size)
    labels = Classify(labels=("bad", "good", "odd"))
    return box(EncoderOnly(length=23, embedding=table, encoder=STACK, output=labels), tokenizer)


@pytest.fixture(scope="module")
def translator(tokenizer: Tokenizer) -> GlassBox:
    table = Embedding(vocabulary=tokenizer.vocab_size)
    config = EncoderDecoder(length=23, embedding=table, encoder=STACK, decoder=STACK)
    return box(config, tokenizer)


@pytest.mark.parametrize("family", ["writer", "judge"])
def test_positions_go_by_the_text_they_cover(family: str, request: pytest.FixtureRequest) -> None:
    trace = request.getfixturevalue(family).trace("the dog runs")
    assert "".join(trace.tokens["text"]).replace("␣", "") == "thedogruns"
    assert max(trace.word_ids["text"]) == 2
    assert check_recompute(trace).ok
    assert all(proof.ok for proof in trace.checks)
    assert len(trace.checks) == 3


def test_a_translators_target_is_what_it_writes_itself(translator: GlassBox) -> None:
    own = translator.translate(["the dog"])[0].text
    trace = translator.trace("the dog")
    given = translator.trace("the dog", target=own)
    assert trace.tokens == given.tokens
    assert torch.equal(trace["output"], given["output"])
    assert trace.metadata["target"] == own
    assert list(trace.tokens) == ["source", "target"]
    assert check_recompute(trace).ok


def test_the_answer_goes_by_names(writer: GlassBox, judge: GlassBox) -> None:
    written, judged = prediction_of(writer.trace("the dog")), prediction_of(judge.trace("the dog"))
    assert written is not None
    assert judged is not None
    assert {each.name for each in judged.positions[0].best} == {"bad", "good", "odd"}
    shares = judge.classify(["the dog"])[0].probabilities
    best = judged.positions[0].best[0]
    assert best.probability == pytest.approx(shares[best.name], abs=1e-6)
    last = writer.trace("the dog").tokens["text"][-1]
    assert written.positions[-1].token == last
    assert len(written.positions[-1].best) == 8
    assert written.title == f"What comes after “{last}”"


def test_the_answer_of_an_encoder_of_texts_is_its_vector(tokenizer: Tokenizer) -> None:
    table = Embedding(vocabulary=tokenizer.vocab_size)
    vectors = box(
        EncoderOnly(length=23, embedding=table, encoder=STACK, output=TextVector()), tokenizer
    )
    trace = vectors.trace("the dog")
    answer = prediction_of(trace)
    assert answer is not None
    np.testing.assert_allclose(answer.vector, vectors.embed(["the dog"])[0], atol=1e-6)
    assert "probabilities" not in trace
    changed = compare_traces(trace, vectors.trace("the dog", edits=[NoPosition()]))
    assert changed.cosine is not None
    assert changed.cosine < 1.0
    assert changed.first == "encoder.position"


def test_a_difference_names_the_first_value_and_moves_the_answer(writer: GlassBox) -> None:
    before = writer.trace("the dog runs")
    same = compare_traces(before, writer.trace("the dog runs"))
    assert (same.first, set(same.layers.values())) == (None, {0.0})
    id = writer.tokenizer.encode("cat")[0]
    changed = compare_traces(before, writer.trace("the dog runs", edits=[ReplaceToken(1, id)]))
    assert changed.first == "ids"
    assert changed.layers["decoder.1"] > 0
    assert any(moved.before != moved.after for moved in changed.answers)
    assert changed.json()["edits"] == [f"{id} at position 1 of the text"]


def test_a_hash_tells_models_apart(writer: GlassBox, judge: GlassBox) -> None:
    same = build(writer.model.config, seed=3)
    other = build(writer.model.config, seed=4)
    assert fingerprint(same) == fingerprint(writer.model) == writer.about["sha256"]
    assert len({fingerprint(m) for m in (same, other, judge.model)}) == 3


def test_what_cannot_be_opened_says_why(writer: GlassBox, tokenizer: Tokenizer) -> None:
    with pytest.raises(UsageError, match="the text has 29 tokens but the model reads at most 23"):
        writer.trace("x" * 29)
    with pytest.raises(UsageError, match="only an encoder–decoder has a target"):
        writer.trace("a", target="b")
    eight = GlassBox(qkv.Bundle(writer.model, tokenizer), int8=True)
    if eight.warnings:
        pytest.skip("torch does not multiply in 8 bits on this CPU")
    with pytest.raises(UsageError, match="not one quantized to int8"):
        eight.trace("the dog")


def test_loading_gives_a_model_that_opens(writer: GlassBox, tmp_path: Path) -> None:
    writer.bundle.save(tmp_path / "m")
    loaded = qkv.load(tmp_path / "m")
    assert isinstance(loaded, qkv.GlassBox)
    assert loaded.about["sha256"] == writer.about["sha256"]
    # The same weights; how they lie in memory decides the last digits of a product on some CPUs.
    torch.testing.assert_close(
        loaded.trace("the")["output"], writer.trace("the")["output"], rtol=1e-6, atol=1e-6
    )
