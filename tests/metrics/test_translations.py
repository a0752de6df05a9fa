"""Scores of translations: fixed points, by hand, and what cannot be scored."""

import math
from pathlib import Path

import pytest
import sacrebleu

from qkv.errors import DataError
from qkv.metrics import score_translations

REFERENCES = ["Two dogs run through the snow .", "A man sleeps on a green bench ."]


def test_the_references_themselves_score_a_hundred() -> None:
    scores = score_translations(REFERENCES, REFERENCES)
    assert scores.bleu == pytest.approx(100)
    assert scores.chrf == pytest.approx(100)


def test_bleu_is_the_one_worked_out_by_hand() -> None:
    # 5 of 6 words, 4 of 5 pairs, 3 of 4 triples, 2 of 3 fours; as long as the reference
    guessed, reference = "the cat sat on the rug", "the cat sat on the mat"
    by_hand = 100 * (5 / 6 * 4 / 5 * 3 / 4 * 2 / 3) ** (1 / 4)
    assert score_translations([guessed], [reference]).bleu == pytest.approx(by_hand)


def test_a_short_translation_pays_for_its_length() -> None:
    guessed, reference = "the cat sat on", "the cat sat on the mat"
    assert score_translations([guessed], [reference]).bleu == pytest.approx(100 * math.exp(-0.5))


def test_capitals_count() -> None:
    scores = score_translations([text.lower() for text in REFERENCES], REFERENCES)
    assert scores.bleu < 100
    assert scores.chrf < 100


def test_the_signatures_name_tokenizer_case_and_version() -> None:
    scores = score_translations(REFERENCES, REFERENCES)
    assert "case:mixed" in scores.bleu_signature
    assert "tok:13a" in scores.bleu_signature
    assert "nc:6" in scores.chrf_signature
    assert f"version:{sacrebleu.__version__}" in scores.chrf_signature


def test_empty_translations_score_nothing() -> None:
    scores = score_translations(["", ""], REFERENCES)
    assert (scores.bleu, scores.chrf) == (0, 0)


def test_copying_german_captions_is_a_weak_translation(shared: Path) -> None:
    folder = shared / "data" / "multi30k"
    german, english = (
        (folder / f"test_2016.{language}").read_text("utf-8").split("\n")[:-1]
        for language in ("de", "en")
    )
    assert len(german) == 1000
    assert 0 < score_translations(german, english).bleu < 6


def test_unequal_lengths_and_no_translations_say_so() -> None:
    with pytest.raises(DataError, match="1 translations but 2 references; give one for each"):
        score_translations(REFERENCES[:1], REFERENCES)
    with pytest.raises(DataError, match="no translations to score"):
        score_translations([], [])
