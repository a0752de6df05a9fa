"""The heads that align words are those that agree with occlusion, and they stay with the model."""

from pathlib import Path

import pytest
import torch
from tests.engine.translate.letter_models import letters, speller
from tests.training.tiny_runs import data_for

import qkv
from qkv.bundle import AlignmentHeads, Bundle
from qkv.engine import Engine
from qkv.engine.translate import Sentence, TranslationTemplate, choose_alignment, forced_log_probs
from qkv.engine.translate.alignment import cross_attentions
from qkv.engine.translate.alignment_choice import MIN_EFFECT, occlusion_effects
from qkv.errors import BundleError
from qkv.model import Rope, Translator

TEXTS = ["abc de", "gfe dcb", "ABCD"]


def opinionated(seed: int) -> Translator:
    """A translator that depends on its source, and does not end before it has written."""
    model = speller(seed=seed, ending=-5.0, position=Rope())
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if not name.startswith("output"):
                parameter.mul_(2.0)
    return model


def sentences() -> list[Sentence]:
    t = letters()
    return [Sentence(t.encode(text), t.encode(text[::-1])) for text in TEXTS]


def test_the_effect_of_a_source_token_is_what_is_lost_without_it() -> None:
    model = speller(seed=3, position=Rope())
    template = TranslationTemplate.of(letters(), model.config)
    (sentence, *_) = sentences()
    effects = occlusion_effects(model, template, sentence)
    assert effects.shape == (len(sentence.target), len(sentence.source))
    full = forced_log_probs(
        model, template, [template.wrap_source(sentence.source)], sentence.target
    )
    without = [*sentence.source[:2], *sentence.source[3:]]
    third = forced_log_probs(model, template, [template.wrap_source(without)], sentence.target)
    assert effects[:, 2] == pytest.approx((full - third)[0], abs=1e-5)


@pytest.mark.parametrize("seed", range(4))
def test_no_other_layer_agrees_better_with_occlusion(seed: int) -> None:
    model = opinionated(seed)
    template = TranslationTemplate.of(letters(), model.config)
    choice = choose_alignment(model, template, sentences())
    hits = torch.zeros(2, 4)  # by layer: each head, and all of them
    tokens = 0
    for sentence in sentences():
        weights = cross_attentions(model, template, sentence.source, sentence.target)
        all_heads = weights.mean(dim=1, keepdim=True)
        named = torch.cat((weights, all_heads), dim=1).argmax(dim=-1)  # (L, H + 1, T)
        for token, row in enumerate(occlusion_effects(model, template, sentence)):
            if row.max() >= MIN_EFFECT:
                tokens += 1
                hits += named[:, :, token] == int(row.argmax())
    assert choice.tokens == tokens > 5
    assert choice.agreement >= float(hits.max()) / tokens
    single = len(choice.heads) == 1
    if single or len(choice.heads) == 3:
        column = choice.heads[0] if single else 3
        assert choice.agreement == pytest.approx(float(hits[choice.layer, column]) / tokens)


def test_a_model_without_a_measurement_is_measured_once_and_says_so() -> None:
    engine = Engine(Bundle(opinionated(3), letters()))
    engine.translate(TEXTS, alignment=True)
    heads = engine.bundle.alignment
    assert heads is not None
    (warning,) = engine.warnings
    assert f"layer {heads.layer}, heads {', '.join(map(str, heads.heads))}" in warning
    engine.translate(["ABC"], alignment=True)
    assert engine.bundle.alignment is heads
    assert len(engine.warnings) == 1


def test_a_layer_that_is_asked_for_is_not_measured() -> None:
    engine = Engine(Bundle(speller(), letters()))
    (first,) = engine.translate(["abc de"], alignment=True, layer=0)
    (last,) = engine.translate(["abc de"], alignment=True, layer=-1)
    assert first.alignment != last.alignment
    assert engine.bundle.alignment is None


def test_training_measures_the_heads_and_the_bundle_keeps_them(tmp_path: Path) -> None:
    data = data_for("translate", tmp_path / "data").files
    run = qkv.train("translate", data, output=tmp_path / "run", size="tiny", steps=3)
    run.finish()
    heads = Bundle.load(tmp_path / "run").alignment
    assert heads is not None
    assert heads.layer in (0, 1)
    model = qkv.load(tmp_path / "run")
    model.translate(["the cat sat"], alignment=True)
    assert model.bundle.alignment == heads
    assert not model.warnings


def test_a_damaged_measurement_is_named(tmp_path: Path) -> None:
    heads = AlignmentHeads(layer=1, heads=(0, 2), agreement=0.5, tokens=8)
    bundle = Bundle(speller(), letters(), alignment=heads)
    bundle.save(tmp_path / "one")
    assert Bundle.load(tmp_path / "one").alignment == heads
    (tmp_path / "one" / "alignment.json").write_text('{"layer": "x"}')
    with pytest.raises(BundleError, match=r"alignment\.json"):
        Bundle.load(tmp_path / "one")


@pytest.mark.slow
def test_a_trained_translator_is_aligned_by_the_layer_that_reads_the_word(tmp_path: Path) -> None:
    """The second-to-last of two layers is the first, which names the right token less often."""
    run = qkv.train("translate", output=tmp_path / "run", size="tiny", steps=500)
    run.finish()
    heads = Bundle.load(tmp_path / "run").alignment
    assert heads is not None
    assert heads.layer == 1
    assert heads.agreement > 0.8
