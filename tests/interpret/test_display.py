"""Models, traces and attributions show themselves: short in a terminal, readable in a notebook."""

import pytest
from tests.interpret.test_patch_sweep import CLEAN, CORRUPTED, box

from qkv.interpret.attribution import why_answer, why_similar
from qkv.interpret.attribution.display import word_effects
from qkv.interpret.trace import AblateHead

MAX_LINES = 6
MAX_LENGTH = 600  # characters


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("decoder", ["a decoder", "decoder: 2 layers × 3 heads, width 12", ".chat()"]),
        ("classifier", ["a classifier", "labels: a, b, c", ".classify()"]),
        ("embedder", ["embeds text", "encoder: 2 layers", ".similar()"]),
        ("translator", ["encoder: 2 layers", "decoder: 2 layers", ".translate()"]),
    ],
)
def test_a_model_shows_what_it_is_and_what_it_can(name: str, words: list[str]) -> None:
    model = box(name)
    shown = repr(model)
    html = model._repr_html_()
    parameters = sum(each.numel() for each in model.model.parameters())
    for word in (*words, f"{parameters:,} parameters", "context of 23 tokens", ".patch_sweep()"):
        assert word in shown
        assert word in html
    assert shown.count("\n") < MAX_LINES
    for method in model.methods:
        assert callable(getattr(model, method))


def test_a_trace_shows_its_text_its_size_and_how_to_go_on() -> None:
    model = box("decoder")
    trace = model.trace(CLEAN)
    shown = repr(trace)
    assert "t h e" in shown
    assert f"11 tokens, {len(trace)} values" in shown
    assert "trace['decoder.1.attention.weights'] is (1, 3, 11, 11)" in shown
    edited = model.trace(CLEAN, edits=[AblateHead("decoder", 1, 2)])
    assert "edited: decoder.1.attention without head 2" in repr(edited)
    few = model.trace(CLEAN, keep=["output"])
    assert "1 values" in repr(few) or "trace['output']" in repr(few)
    assert len(repr(model.trace("a big blue cat ran"))) < MAX_LENGTH


@pytest.mark.parametrize("name", ["decoder", "classifier", "embedder", "translator"])
def test_a_why_shows_the_strongest_words_and_its_trust(name: str) -> None:
    model = box(name)
    target = "a big" if name == "translator" else None
    attribution = model.why("the cat ran", target=target)
    shown = repr(attribution)
    effects = word_effects(attribution)
    strongest = max(effects, key=lambda word: abs(word.effect))
    assert f"“{strongest.text}”" in shown
    assert "chance" in shown
    assert len(shown) < MAX_LENGTH
    assert "\n" not in shown
    html = attribution._repr_html_()
    for word in effects:
        assert f">{word.text}</span>" in html
    assert len(str(attribution).splitlines()) > 3  # the table
    assert "trust" in str(attribution)


def test_similarities_and_answers_show_themselves_too() -> None:
    model = box("embedder")
    similarity = why_similar(model.model, model.tokenizer, CLEAN, CORRUPTED)
    assert f"cosine of {similarity.cosine:.4f}" in repr(similarity)
    writer = box("decoder")
    chat = writer.chat(temperature=0.0, max_tokens=3)
    list(chat.ask("the cat ran"))
    turn = chat.turns[0]
    answer = why_answer(writer.model, writer.tokenizer, turn.prompt_ids, turn.answer_ids)
    assert repr(answer).startswith("<AnswerAttribution: why “")
    assert "less without" in str(answer)


def test_words_are_escaped_in_html() -> None:
    model = box("classifier")
    attribution = model.why("the <b>cat</b> ran")
    assert "<b>cat" not in attribution._repr_html_()
    assert "&lt;" in attribution._repr_html_()
