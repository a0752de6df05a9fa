"""What if: each edit does what it says, shows in a second trace, and leaves the model as it was."""

from dataclasses import dataclass

import pytest
import torch
from tests.model.odd_models import DECODERS, ENCODERS

from qkv.errors import UsageError
from qkv.interpret.trace import (
    AblateHead,
    Edit,
    NoMask,
    NoPosition,
    NoScale,
    ReplaceToken,
    SetValue,
    TokenizedInput,
    Trace,
    build_graph,
    capture_trace,
    check_recompute,
)
from qkv.model import Model, build

IDS = [3, 7, 1, 14, 12, 5, 9]


@dataclass
class Case:
    model: Model

    def trace(self, *edits: Edit) -> Trace:
        return capture_trace(self.model, TokenizedInput.from_ids(text=IDS), edits=edits)


def case(name: str) -> Case:
    return Case(build((ENCODERS | DECODERS)[name], seed=5))


@pytest.mark.parametrize("name", ["gpt", "llama", "alibi", "relative", "gemma", "albert", "bert"])
@pytest.mark.parametrize(
    "edit",
    [
        NoScale(),
        NoMask(),
        NoPosition(),
        ReplaceToken(2, 5),
        AblateHead("{}", 1, 2),
        SetValue("{}.1.attention.scores", (0, 1, 4, 2), 3.0),
        SetValue("{}.1.attention.weights", (0, 1, 4, 2), 0.5),
        SetValue("{}.0.feed_forward.up", (0, 3, 4), 2.5),
    ],
    ids=str,
)
def test_what_follows_an_edit_is_computed_from_it_and_all_is_put_back(
    name: str, edit: Edit
) -> None:
    one = case(name)
    stack = "encoder" if hasattr(one.model, "encoder") else "decoder"
    if isinstance(edit, SetValue):
        edit = SetValue(edit.name.format(stack), edit.index, edit.value)
    if isinstance(edit, AblateHead):
        edit = AblateHead(stack, edit.layer, edit.head)
    before, after, again = one.trace(), one.trace(edit), one.trace()
    check = check_recompute(after)
    assert check.ok, check
    assert after.edits == (str(edit),)
    for key in before:
        assert torch.equal(before[key], again[key])
    hides = name in ("gpt", "llama", "alibi", "relative", "gemma")
    moved = not torch.equal(before["output"], after["output"])
    assert moved == (hides or not isinstance(edit, NoMask))


def test_without_a_mask_the_first_word_sees_the_last() -> None:
    trace = case("gpt").trace(NoMask())
    assert float(trace["decoder.0.attention.weights"][0, :, 0, -1].min()) > 0
    assert bool(trace["decoder.0.attention.seen"].all())


def test_without_scale_scores_go_into_the_softmax_as_they_are() -> None:
    trace = case("gpt").trace(NoScale())
    assert torch.equal(trace["decoder.0.attention.scaled"], trace["decoder.0.attention.scores"])


@pytest.mark.parametrize("name", ["gpt", "llama", "waves of odd width"])
def test_without_positions_and_mask_the_order_of_words_is_not_seen(name: str) -> None:
    """The last word's answer is then the same however the words before it are ordered."""
    model, edits = case(name).model, [NoPosition(), NoMask()]
    answers = [
        capture_trace(model, TokenizedInput.from_ids(text=ids), edits=edits)["output"][0, -1]
        for ids in (IDS, [*IDS[2:6], *IDS[:2], IDS[6]])
    ]
    torch.testing.assert_close(*answers, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", sorted(ENCODERS | DECODERS))
def test_without_scale_the_graph_is_the_one_of_the_edited_model(name: str) -> None:
    """The graph is revised, not built again; both must say the same of the model."""
    model = case(name).model
    graph = build_graph(model)
    with NoScale().applied(model, graph):
        assert NoScale().revise(graph) == build_graph(model)


def test_a_head_that_is_off_adds_nothing() -> None:
    trace = case("gpt").trace(AblateHead("decoder", 0, 3))
    assert not trace["decoder.0.attention.mixed"][0, 3].any()
    assert trace["decoder.0.attention.mixed"][0, 2].any()


def test_a_changed_weight_is_shown_and_used() -> None:
    name = "decoder.1.attention.weights"
    trace = case("llama").trace(SetValue(name, (0, 0, 3, 1), 1.0))
    assert float(trace[name][0, 0, 3, 1]) == 1.0
    assert trace.overrides == {name}


def test_two_edits_hold_at_once() -> None:
    one = case("gpt")
    both = one.trace(NoMask(), AblateHead("decoder", 0, 1))
    assert both.edits == ("no mask", "decoder.0.attention without head 1")
    assert not torch.equal(both["output"], one.trace(NoMask())["output"])


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        (AblateHead("decoder", 0, 17), "head 17 does not exist; layer 0 has heads 0 to 5"),
        (SetValue("decoder.0.attention.scores", (0, 0), 1.0), "so there is no index"),
        (SetValue("ids", (0, 0), 1.0), "cannot be changed; change a value"),
        (SetValue("decoder.0.attention.score", (0,), 1.0), "decoder.0.attention.scores"),
        (ReplaceToken(9, 1), "position 9 does not exist; the text has positions 0 to 6"),
        (AblateHead("decoder", 7, 0), "layer 7 does not exist; the decoder has layers 0 to 1"),
    ],
    ids=str,
)
def test_an_edit_that_cannot_be_made_says_why(edit: Edit, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        case("gpt").trace(edit)
