"""Where the words of a translation come from: a translator that was taught what to drop."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.engine.translate.letter_models import aligned, arabic, letters
from tests.interpret.attribution.known_attributions import (
    ALWAYS,
    UNSAID,
    ideographs,
    sorted_target,
    sorter,
)
from tests.model.odd_models import TRANSLATORS

from qkv.engine.translate import TranslationTemplate, forced_log_probs, translate
from qkv.errors import DataError
from qkv.interpret.attribution import why_translation
from qkv.interpret.attribution.attribution_text import attribution_lines
from qkv.model import Translator, build
from qkv.text import Tokenizer

SMALL = Tokenizer.train("characters", ["abcdefg ,"], 19)
SOURCES = ["水日口山", "月土火口木", "口金月"]


@pytest.mark.slow
@pytest.mark.parametrize("source", SOURCES)
def test_each_word_goes_back_to_its_own_character(source: str) -> None:
    attribution = why_translation(sorter(), ideographs(), source)
    assert attribution.target == sorted_target(source)
    assert [word.word.text for word in attribution.sources] == list(source)
    for word in attribution.targets[1:]:
        assert word.depends_on is not None
        assert attribution.sources[word.depends_on].word.text == word.word.text
        assert max(word.ablation) > 1
        assert word.probability > 0.5


@pytest.mark.parametrize("source", SOURCES)
def test_what_was_dropped_and_what_was_invented_is_flagged(source: str) -> None:
    attribution = why_translation(sorter(), ideographs(), source)
    assert [word.word.text for word in attribution.omitted] == [UNSAID]
    assert attribution.omitted[0].max_effect < attribution.threshold
    assert [word.word.text for word in attribution.hallucinated] == [ALWAYS]
    assert max(map(abs, attribution.hallucinated[0].ablation)) < attribution.threshold
    page = "\n".join(attribution_lines(attribution, width=70))
    assert f"omitted? “{UNSAID}”" in page
    assert f"hallucinated? “{ALWAYS}”" in page


def test_the_alignment_by_hiding_passes_its_test_and_agreement_is_counted() -> None:
    attribution = why_translation(sorter(), ideographs(), "月土火口木")
    agree = [
        word.most_attended == word.depends_on
        for word in attribution.targets
        if not word.hallucinated
    ]
    assert attribution.agreement == pytest.approx(np.mean(agree))
    test = attribution.faithfulness["ablation"]
    moved = np.array([word.ablation for word in attribution.targets])
    assert test.deletions[0].drop == pytest.approx(moved.max(axis=1).mean())
    assert test.deletions[0].random_drop == pytest.approx(moved.mean(), abs=0.5)
    assert test.trust.better is True
    looks = [word.ablation[word.most_attended] for word in attribution.targets]
    assert attribution.faithfulness["attention"].deletions[0].drop == pytest.approx(np.mean(looks))
    assert any("looked, not why" in remark for remark in attribution.remarks)


def test_looks_alone_are_not_taken_for_a_reason() -> None:
    """It looks straight across, but what it writes has nothing to do with what it sees there."""
    attribution = why_translation(aligned(), letters(), "ab cd", "aaa aa")
    assert [word.most_attended for word in attribution.targets] == [0, 1]
    assert len(attribution.hallucinated) == 2
    assert attribution.agreement is None
    assert attribution.faithfulness["attention"].trust.better is not True


def test_a_wrong_target_is_explained_as_it_stands() -> None:
    model, t = sorter(), ideographs()
    right, wrong = (why_translation(model, t, "日月", f"{ALWAYS}日{last}") for last in "月山")
    assert wrong.target.endswith("山")
    assert wrong.targets[-1].probability < 0.05 < right.targets[-1].probability


def test_forced_probabilities_are_the_models_own() -> None:
    model, t = sorter(), ideographs()
    marks = TranslationTemplate.of(t, model.config)
    sources = [marks.wrap_source(t.encode(text)) for text in ("日月火", "火", "")]
    target = t.encode("了日月")
    logs = forced_log_probs(model, marks, sources, target)
    for row, source in zip(logs, sources, strict=True):
        with torch.no_grad():
            scores = model(torch.tensor([source]), torch.tensor([[t.bos_id, *target[:-1]]]))
        own = scores[0].double().log_softmax(dim=-1)
        expected = [float(own[at, token]) for at, token in enumerate(target)]
        assert row.tolist() == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("name", TRANSLATORS)
@pytest.mark.parametrize("target", [None, "ab, c"])
def test_every_kind_of_translator_is_explained(name: str, target: str | None) -> None:
    model = build(TRANSLATORS[name], seed=3)
    assert isinstance(model, Translator)
    attribution = why_translation(model.eval(), SMALL, "abc de, f", target or "ab, c", beams=2)
    assert [word.word.text for word in attribution.sources] == ["abc", "de", ",", "f"]
    assert all(len(word.ablation) == len(word.attention) == 4 for word in attribution.targets)
    assert attribution_lines(attribution, width=60)
    json.dumps(attribution.json(), allow_nan=False)


def test_the_models_own_translation_is_the_one_translate_gives() -> None:
    model, t = sorter(), ideographs()
    (found,) = translate(model, t, ["土日口火"])
    assert why_translation(model, t, "土日口火").target == found.text


def test_a_public_transliterator_is_aligned_letter_by_letter(shared: Path) -> None:
    public = arabic(shared)
    agreed, better = [], []
    for source in public.sources:
        attribution = why_translation(public.model, public.tokenizer, source, beams=1)
        assert len(attribution.sources) == len(source)  # a single word is taken by its letters
        agreed.append(attribution.agreement)
        better.append(attribution.faithfulness["attention"].trust.better)
    assert np.mean(agreed) > 0.6
    assert better == [True] * len(public.sources)


def test_what_cannot_be_explained_is_refused() -> None:
    model, t = sorter(), ideographs()
    with pytest.raises(DataError, match="the source has 2 lines of text"):
        why_translation(model, t, "日\n月")
    with pytest.raises(DataError, match="the source has 0 lines of text"):
        why_translation(model, t, " ")
    with pytest.raises(DataError, match="the target has no words"):
        why_translation(model, t, "日", "")
    with pytest.raises(DataError, match="the target has 24 tokens but the model reads at most 23"):
        why_translation(model, t, "日", "月" * 24)
