"""Heads whose weights were set by hand are found to do what they were made for."""

import pytest
import torch
from tests.interpret.head_stats.made_heads import MADE, P, V, drawn, made_decoder, made_encoder
from tests.model.odd_models import ALL

from qkv.errors import UsageError
from qkv.interpret.head_stats import HeadReport, measure_heads_on_ids
from qkv.interpret.trace import TokenizedInput
from qkv.model import (
    Alibi,
    Embedding,
    EncoderDecoder,
    MultiHead,
    ReLU,
    Stack,
    Translator,
    build,
)
from qkv.text import Tokenizer


@pytest.fixture(scope="module")
def reports() -> dict[tuple[int, int], HeadReport]:
    measured = measure_heads_on_ids(made_decoder(), [drawn(29, 1), drawn(23, 2), drawn(31, 3)])
    assert len(measured) == 2 * len(MADE)
    return {(report.layer, report.head): report for report in measured}


@pytest.mark.parametrize(
    ("head", "kind"),
    [
        ("previous", "previous token"),
        ("first", "first token"),
        ("everywhere", "broad"),
        ("same", "same token"),
        ("itself", "itself"),
        ("two back", "position"),
        ("previous again", "previous token"),
    ],
)
def test_a_head_made_to_look_somewhere_is_called_by_it(reports, head: str, kind: str) -> None:
    report = reports[0, MADE.index(head)]
    assert report.kind == report.pattern == kind
    assert report.offset == (-2 if kind == "position" else None)
    if kind == "broad":
        assert report.evenness == pytest.approx(1.0)
    elif kind == "same token":  # it looks at itself just as much
        assert report.weight == pytest.approx(0.5, abs=0.01)
    else:
        assert report.weight > 0.99
        assert report.chance < 0.2
        assert report.entropy < 0.05  # the second token has none two back


def test_two_layers_made_for_it_are_an_induction_head(reports) -> None:
    report = reports[1, 0]
    assert report.kind == "induction"
    assert report.weight > 0.9
    assert report.chance < 0.1
    assert all(reports[1, head].kind == "broad" for head in range(1, len(MADE)))


def test_a_head_that_adds_nothing_is_dead_and_no_other(reports) -> None:
    dead = MADE.index("dead")
    assert reports[0, dead].adds == reports[0, dead].effect == 0.0
    assert [index for index, report in reports.items() if report.dead] == [(0, dead)]
    assert min(r.effect for index, r in reports.items() if index != (0, dead)) > 1e-4


def test_heads_that_look_at_the_same_are_told_of_each_other(reports) -> None:
    one = MADE.index("previous")
    other = MADE.index("previous again")
    assert [similar.head for similar in reports[0, one].duplicates] == [other]
    assert [similar.head for similar in reports[0, other].duplicates] == [one]
    assert reports[0, one].duplicates[0].distance < 1e-6
    assert reports[0, MADE.index("first")].duplicates == ()
    assert len(reports[1, 3].duplicates) == len(MADE) - 2  # all but itself and induction


def test_the_next_token_and_marks_are_found_in_an_encoder() -> None:
    tokenizer = Tokenizer.train("characters", ["abcdefghijklmnopqrstuvwxyz"], 40)
    mark = tokenizer.eos_id
    model = made_encoder([mark], tokenizer.vocab_size)
    letters = tokenizer.encode("thequickbrownfox")
    ahead, marks = measure_heads_on_ids(
        model, [TokenizedInput.from_ids(text=[*letters, mark])], tokenizer
    )
    assert (ahead.kind, marks.kind) == ("next token", "special tokens")
    assert ahead.weight > 0.99
    assert marks.weight > 0.99
    assert marks.scores["first token"].weight < 0.01


def test_every_attention_of_an_encoder_decoder_is_judged() -> None:
    stack = Stack(layers=2, width=12, attention=MultiHead(heads=3), feed_forward=ReLU(width=7),
                  position=Alibi())  # fmt: skip
    config = EncoderDecoder(
        length=47, embedding=Embedding(vocabulary=37), encoder=stack, decoder=stack
    )
    model = build(config, seed=2)
    with torch.no_grad():
        model.decoder.get_submodule("1.cross.query").weight.zero_()
        model.decoder.get_submodule("1.cross.query").bias.zero_()
    reports = measure_heads_on_ids(
        model, [TokenizedInput.from_ids(source=list(range(11)), target=[5, 3, 8, 13, 21])]
    )
    names = list(dict.fromkeys(report.name for report in reports))
    assert names == [
        "encoder.0.attention", "encoder.1.attention", "decoder.0.attention", "decoder.0.cross",
        "decoder.1.attention", "decoder.1.cross",
    ]  # fmt: skip
    across = [report for report in reports if report.part == "cross"]
    assert len(across) == 6
    assert all("previous token" not in report.scores for report in across)
    assert all("same token" in report.scores for report in across)  # one vocabulary
    assert all(r.kind == "broad" and r.evenness > 0.9999 for r in across if r.layer == 1)


def test_the_same_texts_give_the_same_reports() -> None:
    model, texts = made_decoder(), [drawn(17, 5)]
    assert measure_heads_on_ids(model, texts, seed=7) == measure_heads_on_ids(model, texts, seed=7)


def test_weights_too_large_for_one_pass_give_the_same_in_several(monkeypatch) -> None:
    model, texts = made_decoder(), [drawn(17, 5)]
    at_once = measure_heads_on_ids(model, texts)
    monkeypatch.setattr("qkv.interpret.head_stats.head_statistics.MAX_WEIGHT_BYTES", 1)
    assert measure_heads_on_ids(model, texts) == at_once


@pytest.mark.parametrize(
    "name",
    [
        "encoder: notes",  # no matrix behind the heads
        "encoder: albert",  # layers that share a block
        "decoder: gemma",  # windows, and fewer keys than queries
        "decoder: classifier",
        "translator: two vocabularies",
    ],
)
def test_heads_of_every_make_are_judged(name: str) -> None:
    model = build(ALL[name], seed=3)
    text = TokenizedInput.from_ids(text=[3, 1, 4, 1, 5, 9, 2, 6])
    if isinstance(model, Translator):
        text = TokenizedInput.from_ids(source=[3, 1, 4, 1, 5, 9, 2], target=[2, 7, 1, 8])
    for report in measure_heads_on_ids(model, [text]):
        assert 0.0 <= report.evenness <= 1.0 + 1e-6
        assert 0.0 < report.effect < 1.0
        assert report.adds > 0.0
        assert ("same token" in report.scores) <= (report.part == "attention")


def test_a_model_too_short_for_repeats_is_judged_without_them() -> None:
    config = made_decoder().config.model_copy(update={"length": 19})
    reports = measure_heads_on_ids(build(config), [drawn(13, 1)])
    assert "induction" not in reports[0].scores
    assert "previous token" in reports[0].scores


@pytest.mark.parametrize("inputs", [[], [TokenizedInput.from_ids(text=[4])]])
def test_without_a_choice_nothing_can_be_judged(inputs: list[TokenizedInput]) -> None:
    with pytest.raises(UsageError, match="3 tokens or more"):
        measure_heads_on_ids(made_decoder(), inputs)


def test_sizes_of_the_made_model_leave_room_for_every_repeat() -> None:
    assert P >= 2 * 23
    assert V >= 23
