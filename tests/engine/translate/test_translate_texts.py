"""Translations are those the beam search finds, in order, whatever stands beside them."""

import random
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.engine.translate.letter_models import LETTERS, ROOM, Arabic, arabic, letters, speller

from qkv.engine.beam.search import beam_search
from qkv.engine.translate import Alternative, Translation, TranslationTemplate, translate
from qkv.errors import DataError, UsageError
from qkv.model import Translator
from qkv.training.tasks.translate_data import translate_texts

SEEDS = st.integers(0, 10_000)


def some_texts(seed: int, count: int) -> list[str]:
    draws = random.Random(seed)
    return ["".join(draws.choices("abcdefgh", k=draws.randint(1, 7))) for _ in range(count)]


def translated(model: Translator, texts: list[str], **asked: object) -> list[Translation]:
    return translate(model, letters(), texts, **asked)  # type: ignore[arg-type]


@settings(max_examples=20, deadline=None, derandomize=True)
@given(seed=SEEDS, beams=st.integers(1, 4), length_penalty=st.sampled_from([0.0, 1.0, 1.7]))
def test_the_n_best_are_those_of_the_beam_search(
    seed: int, beams: int, length_penalty: float
) -> None:
    model, texts, t = speller(seed), some_texts(seed, 5), letters()
    marks = TranslationTemplate.of(t, model.config)
    searched = beam_search(
        model, [[*t.encode(text), t.eos_id] for text in texts],
        bos=t.bos_id, eos=t.eos_id, beams=beams, best=beams, length_penalty=length_penalty,
        forbidden=marks.suppressed_ids,
    )  # fmt: skip
    found = translated(model, texts, beams=beams, best=beams, length_penalty=length_penalty)
    for text, translation, hypotheses in zip(texts, found, searched, strict=True):
        ways = tuple(Alternative(t.decode(h.ids), h.rank, h.stop_reason) for h in hypotheses)
        assert translation == Translation(
            text, ways[0].text, ways[0].score, ways[0].stop_reason, ways
        )


@pytest.mark.parametrize("beams", [1, 5])
def test_texts_are_marked_as_they_are_in_training_and_evaluation(beams: int) -> None:
    model, texts = speller(3), [*some_texts(3, 11), " a b "]
    assert [found.text for found in translated(model, texts, beams=beams)] == translate_texts(
        model, letters(), texts, beams
    )


@settings(max_examples=8, deadline=None, derandomize=True)
@given(seed=SEEDS, batch_tokens=st.integers(1, 200), beams=st.integers(1, 4))
def test_a_translation_does_not_depend_on_its_neighbours(
    seed: int, batch_tokens: int, beams: int
) -> None:
    model, texts = speller(seed), some_texts(seed, 5)
    order = random.Random(seed).sample(range(5), 5)
    together = translated(model, texts, beams=beams, best=beams)
    mixed = translated(
        model, [texts[i] for i in order], beams=beams, best=beams, batch_tokens=batch_tokens
    )
    alone = [translated(model, [text], beams=beams, best=beams)[0] for text in texts]
    for i, found in zip(order, mixed, strict=True):
        for other in (together[i], alone[i]):
            assert [way.text for way in found.alternatives] == [
                way.text for way in other.alternatives
            ]
            assert [way.score for way in found.alternatives] == pytest.approx(
                [way.score for way in other.alternatives], abs=1e-4
            )


@pytest.mark.parametrize("text", ["", " ", "\n", " \n\n "])
def test_an_empty_text_has_an_empty_translation(text: str) -> None:
    said = Alternative("", 0.0, "end")
    first, empty, last = translated(speller(), ["abc", text, "def"])
    assert empty == Translation(text, "", 0.0, "end", (said,))
    assert [first.source, last.source] == ["abc", "def"]
    assert first.text


def test_no_texts_have_no_translations() -> None:
    assert translated(speller(), []) == []


def test_lines_of_a_text_are_translated_one_by_one() -> None:
    model = speller(5)
    whole, *parts = translated(model, ["ab\n\n  cde\r\nfg\n", "ab", "cde", "fg"], beams=3)
    a, b, c = (part.text for part in parts)
    assert whole.text == f"{a}\n\n  {b}\r\n{c}\n"
    assert whole.remark is None


def test_a_text_too_long_is_refused_with_both_numbers() -> None:
    text = "abcd efgh, ijkl. mn" * 2
    with pytest.raises(DataError) as refused:
        translated(speller(), ["ab", text])
    assert f"has {len(text)} tokens but the model reads at most {ROOM}" in str(refused.value)
    assert 'long="sentences"' in str(refused.value)
    assert len(translated(speller(), ["a" * ROOM])) == 1


def test_a_text_too_long_is_translated_by_its_sentences_if_asked() -> None:
    model, sentences = speller(7), ["Abcd efg.", "Bij?klm.", "A b c d."]
    whole, *parts = translated(model, ["  ".join(sentences), *sentences], long="sentences")
    assert whole.text == "  ".join(part.text for part in parts)
    assert whole.remark is not None
    assert f"{len(whole.source)} tokens but the model reads at most {ROOM}" in whole.remark
    assert "in 3 parts" in whole.remark
    assert all(part.remark is None for part in parts)


def test_the_score_of_a_text_in_parts_is_that_of_all_its_tokens() -> None:
    model = speller(11)
    for penalty in (0.0, 1.0):
        found = translated(model, ["abc\nde", "abc", "de"], beams=3, best=3, length_penalty=penalty)
        whole, a, b = found
        counts = [len(part.text) + (part.stop_reason == "end") for part in (a, b)]
        sums = [part.score * n**penalty for part, n in zip((a, b), counts, strict=True)]
        assert whole.score == pytest.approx(sum(sums) / sum(counts) ** penalty)
        scores = [way.score for way in whole.alternatives]
        assert scores == sorted(scores, reverse=True)
        assert len({way.text for way in whole.alternatives}) == 3


def test_a_translation_that_does_not_end_says_so() -> None:
    model = speller(ending=-100.0)
    assert [t.stop_reason for t in translated(model, ["ab", "cd\nef"], max_length=5)] == [
        "length"
    ] * 2
    assert [len(t.text) for t in translated(model, ["ab", "cd"], max_length=5)] == [5, 5]


def test_an_unknown_treatment_of_long_texts_is_refused() -> None:
    with pytest.raises(UsageError, match='"sentence"; did you mean "sentences"'):
        translated(speller(), ["ab"], long="sentence")


def test_texts_a_tokenizer_does_not_know_are_translated_all_the_same() -> None:
    (found,) = translated(speller(), ["Ω☃"])
    assert set(found.text) <= set(LETTERS)


@pytest.fixture(scope="module")
def public(shared: Path) -> Arabic:
    return arabic(shared)


def test_a_public_model_writes_the_expected_letters(public: Arabic) -> None:
    found = translate(public.model, public.tokenizer, public.sources, beams=1, length_penalty=0.0)
    for translation, case in zip(found, public.expected, strict=True):
        assert translation.text == case["greedy"].replace(" ", "")
        assert translation.score == pytest.approx(case["greedy_logprob_sum"], abs=1e-3)


def test_a_public_model_finds_the_expected_four(public: Arabic) -> None:
    found = translate(public.model, public.tokenizer, public.sources, beams=4, best=4)
    for translation, case in zip(found, public.expected, strict=True):
        ways = translation.alternatives
        assert [way.text for way in ways] == [text.replace(" ", "") for text in case["beam4"]]
        assert [way.score for way in ways] == pytest.approx(case["beam4_scores"], abs=1e-3)


def test_a_marking_without_room_is_refused() -> None:
    config = speller().config.model_copy(update={"length": 1})
    with pytest.raises(
        DataError, match="length=1 leaves no position for a source next to its 1 special tokens"
    ):
        TranslationTemplate.of(letters(), config)
    assert replace(TranslationTemplate.of(letters(), speller().config)).max_source_tokens == ROOM
