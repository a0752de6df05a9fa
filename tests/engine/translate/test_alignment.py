"""Words are linked to those they looked at: a model that looks straight across proves it."""

from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.engine.translate.letter_models import aligned, arabic, letters

from qkv.engine.beam.hypotheses import Hypothesis
from qkv.engine.translate import Link, TranslationTemplate, Word, translate
from qkv.engine.translate.alignment import (
    Aligner,
    cross_attention,
    decoded_spans,
    heads_of_layer,
    split_words,
    tokens_by_word,
    word_links,
)
from qkv.engine.translate.segments import segment_texts
from qkv.errors import UsageError
from qkv.text import Tokenizer


def written(text: str) -> Hypothesis:
    return Hypothesis(tuple(letters().encode(text)), 0.0, 0.0, "end")


def test_a_model_that_looks_straight_across_links_words_in_their_order() -> None:
    model, t = aligned(), letters()
    template = TranslationTemplate.of(t, model.config)
    aligner = Aligner(model, t, template, heads_of_layer(model, 0))
    (plan,) = segment_texts(["ab cde"], t, aligner.template, "error")
    links = aligner.links(plan, [written("fgh ij")])
    # Token by token: fgh looks at "ab" and the space, " i" at c, d and j at e.
    assert [(link.target.text, link.source.text) for link in links] == [
        ("fgh", "ab"),
        ("ij", "cde"),
    ]
    assert links[0].weight == pytest.approx(2 / 3, abs=0.02)
    assert links[1].weight == pytest.approx(1.0, abs=0.02)
    assert [link.target for link in links] == [Word("fgh", 0, 3), Word("ij", 4, 6)]
    assert [link.source for link in links] == [Word("ab", 0, 2), Word("cde", 3, 6)]


def test_a_layer_is_counted_from_either_end() -> None:
    model, t = aligned(decoder_layers=3), letters()
    marks, source, target = (
        TranslationTemplate.of(t, model.config),
        t.encode("abcdefg"),
        t.encode("hijklmn"),
    )
    straight = torch.eye(7)
    for layer, expected in ((1, straight), (0, straight), (2, straight.flip(0))):
        weights = cross_attention(model, marks, source, target, heads_of_layer(model, layer))
        torch.testing.assert_close(weights, expected, rtol=0, atol=0.02)
    assert [heads_of_layer(model, n).layer for n in (-1, -3, 1)] == [2, 0, 1]
    with pytest.raises(UsageError, match="layer=3 does not exist; the decoder has 0 to 2"):
        heads_of_layer(model, 3)


def test_nothing_watches_the_model_afterwards() -> None:
    model, t = aligned(), letters()
    translate(model, t, ["abc"], alignment=True)
    assert not any(tap._forward_hooks for tap in model.modules())


def test_parts_of_a_text_keep_their_places_in_the_whole() -> None:
    model, t = aligned(), letters()
    (found,) = translate(model, t, ["ab\n\ncd ef"], alignment=True, max_length=9)
    assert found.alignment
    for link in found.alignment:
        for word, text in ((link.source, found.source), (link.target, found.text)):
            assert text[word.start : word.end] == word.text
    assert found.text == "a" * 9 + "\n\n" + "a" * 9
    assert [link.target.start for link in found.alignment] == [0, 11, 11]
    assert {link.source.text for link in found.alignment} == {"ab", "cd", "ef"}


def test_a_public_model_looks_at_the_source_as_expected(shared: Path) -> None:
    """`greedy_avg_attention` is the first head of the last layer; with one head left it is ours."""
    public = arabic(shared)
    t, marks = public.tokenizer, public.template
    heads: list[torch.Tensor] = []
    tap = public.model.get_submodule("decoder.5.cross.core.hook_point")
    tap.register_forward_hook(lambda _, __, steps: heads.append(steps.weights[0]))
    for source, case in zip(public.sources, public.expected, strict=True):
        ids, target = t.encode(source), t.encode(case["greedy"].replace(" ", ""))
        heads.clear()
        mean = cross_attention(public.model, marks, ids, target, heads_of_layer(public.model, 5))
        (all_heads,) = heads
        expected = torch.tensor(case["greedy_avg_attention"])
        torch.testing.assert_close(all_heads[0, : len(target)], expected, rtol=0, atol=1e-3)
        torch.testing.assert_close(mean, all_heads.mean(dim=0)[: len(target)])


def test_a_word_adds_up_its_source_tokens_and_is_the_mean_of_its_own() -> None:
    weights = torch.tensor([[0.5, 0.25, 0.25, 0.0], [0.1, 0.1, 0.7, 0.1], [0.0, 0.0, 0.4, 0.6]])
    spans = [(0, 1), (1, 2), (2, 4), (4, 5)]  # "a", "b", " c", "d"
    found = word_links("ab cd", spans, "xy z", [(0, 1), (1, 2), (2, 4)], weights)
    assert [(link.target.text, link.source.text) for link in found] == [
        ("xy", "cd"), ("xy", "ab"), ("z", "cd"),
    ]  # fmt: skip
    assert [link.weight for link in found] == pytest.approx([0.525, 0.475, 1.0])
    assert word_links("", [], "x", [(0, 1)], torch.zeros(1, 0)) == []


def test_links_move_with_their_texts() -> None:
    link = Link(Word("a", 0, 1), Word("b", 2, 3), 0.5)
    assert link.shifted(10, 20) == Link(Word("a", 10, 11), Word("b", 22, 23), 0.5)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Don't stop, naïve l’été!", ["Don't", "stop", ",", "naïve", "l’été", "!"]),
        ("3,141.5 km", ["3,141.5", "km"]),
        ("हिन्दी में।", ["हिन्दी", "में", "।"]),
        ("你好か 한국어", ["你", "好", "か", "한국어"]),
        ("«a-b» x’", ["«", "a-b", "»", "x", "’"]),
        (" \n", []),
    ],
)
def test_words_are_what_people_call_words(text: str, expected: list[str]) -> None:
    found = split_words(text)
    assert [word.text for word in found] == expected
    assert [text[word.start : word.end] for word in found] == expected


def test_a_token_of_two_words_is_shared_out() -> None:
    assert tokens_by_word(split_words("a b"), [(0, 3)]) == [[(0, 0.5)], [(0, 0.5)]]


@settings(max_examples=60, deadline=None)
@given(text=st.text(alphabet="ab é日😀.", max_size=12))
def test_tokens_of_bytes_cover_every_character_they_wrote(text: str) -> None:
    t = Tokenizer.train("bytes", ["x"], 300)
    ids = t.encode(text)
    spans = decoded_spans(t, ids, text)
    assert spans == t.offsets(text)


def test_the_alignment_costs_nothing_of_the_translation() -> None:
    model, t = aligned(), letters()
    plain = translate(model, t, ["abc", "de"])
    for one, other in zip(plain, translate(model, t, ["abc", "de"], alignment=True), strict=True):
        assert one.alignment is None
        assert (one.text, one.score) == (other.text, other.score)
