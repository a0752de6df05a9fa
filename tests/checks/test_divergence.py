"""Two recorded forward passes compared: layers are numbered, the first divergence is located."""

from functools import partial

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.checks.sound_models import sound
from tests.model.odd_models import DECODERS, ENCODERS, TRANSLATORS

from qkv.checks.divergence import (
    align_ends,
    align_starts,
    concat_steps,
    first_divergence,
    record_forwards,
    select_row,
    slice_positions,
)
from qkv.checks.model_under_test import ProbeInput, forward
from qkv.checks.result import CheckReport, CheckResult, DeviationTracker, Finding
from qkv.model import build

TEXT = ProbeInput((5, 3, 8, 1, 13, 2, 7))
T = len(TEXT.ids)


def test_layers_that_share_a_block_are_numbered_as_they_are_computed() -> None:
    model = build(ENCODERS["albert"]).eval()
    (values,) = record_forwards(model, partial(forward, model, [TEXT]))
    layers = [location.split(".")[1] for location in values if location.endswith(".attention.core")]
    assert layers == ["0", "1", "2", "3", "4", "5"]
    assert not torch.equal(values["encoder.0.attention.core"], values["encoder.1.attention.core"])


@pytest.mark.parametrize(
    ("config", "stacks"),
    [
        (ENCODERS["modernbert"], ["encoder"]),
        (DECODERS["neox"], ["decoder"]),
        (TRANSLATORS["t5"], ["encoder", "decoder"]),
    ],
    ids=["modernbert", "neox", "t5"],
)
def test_places_come_in_the_order_of_computation(config: object, stacks: list[str]) -> None:
    model = build(config).eval()
    text = ProbeInput(TEXT.ids, TEXT.ids[:5])
    (values,) = record_forwards(model, partial(forward, model, [text]))
    locations = list(values)
    for stack in stacks:
        order = [
            f"{stack}.position",
            f"{stack}.0.attention.query",
            f"{stack}.0.attention.query_rotated",
            f"{stack}.0.attention.core",
            f"{stack}.0.attention",
            f"{stack}.0.feed_forward.up",
            f"{stack}.0",
            f"{stack}.1.attention.query",
        ]
        assert [location for location in locations if location in order] == order
    assert locations[-1] == "output"


def test_a_watched_pass_takes_the_kernel_that_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("qkv.model.attention.reference", None)  # calling it would be an error
    model = sound("llama")
    record_forwards(model, partial(forward, model, [TEXT]))


@settings(deadline=None, max_examples=25)
@given(
    layer=st.integers(0, 2),
    part=st.sampled_from(["attention.query", "attention.core", "attention", "feed_forward.up"]),
    position=st.integers(0, T - 1),
)
def test_a_change_in_any_part_at_any_position_is_found_there(
    layer: int, part: str, position: int
) -> None:
    model = SOUND
    (right,) = record_forwards(model, RUN)
    location = f"decoder.{layer}.{part}"
    axis = 2 if part in ("attention.query", "attention.core") else 1

    def touched(module: object, args: object, value: torch.Tensor) -> torch.Tensor:
        value = value.clone()
        value.select(axis, position).add_(0.5)
        return value

    hook = model.get_submodule(location).register_forward_hook(touched)
    try:
        (other,) = record_forwards(model, RUN)
    finally:
        hook.remove()
    divergence = first_divergence(right, other, 1e-4)
    assert (divergence.location, divergence.position) == (location, position)
    assert divergence.worst > 1e-4
    assert first_divergence(right, right, 1e-4).worst == 0.0


SOUND = sound("gpt")
RUN = partial(forward, SOUND, [TEXT])


def test_passes_are_cut_joined_and_aligned_by_their_positions() -> None:
    activations = {"a": torch.arange(2 * 5 * 3.0).view(2, 5, 3), "pooled": torch.ones(2, 3)}
    assert slice_positions(activations, 1, 4)["a"].equal(activations["a"][:, 1:4])
    assert "pooled" not in slice_positions(activations, 1, 4)
    assert select_row(activations, 1)["a"].equal(activations["a"][1:])
    parts = [
        {"a": activations["a"][:, :2]},
        {"a": activations["a"][:, 2:3]},
        {},
        {"a": activations["a"][:, 4:]},
    ]
    assert concat_steps(parts)["a"].equal(
        activations["a"][:, :3]
    )  # what is missing is not closed up
    longer = torch.zeros(2, 7, 3)
    assert [t.shape[1] for t in align_starts(activations["a"], longer)] == [5, 5]
    assert align_ends(activations["a"], longer)[0].equal(activations["a"][:, 4:])


def test_where_nothing_can_be_compared_nothing_is_proved() -> None:
    divergence = first_divergence({"a": torch.ones(1, 2, 3)}, {"b": torch.ones(1, 2, 3)}, 1.0)
    assert divergence.worst == float("inf")


def test_numbers_that_are_none_are_infinitely_far_apart() -> None:
    right, wrong = torch.ones(1, 4, 3), torch.ones(1, 4, 3)
    wrong[0, 2, 1] = torch.nan
    divergence = first_divergence({"a": right}, {"a": wrong}, 1e-4)
    assert (divergence.worst, divergence.position) == (float("inf"), 2)
    assert first_divergence({"a": wrong}, {"a": wrong}, 1e-4).worst == float("inf")


def test_a_tally_keeps_the_largest_and_the_first_beyond_the_tolerance() -> None:
    tracker = DeviationTracker(0.1)
    for value, location in ((0.01, "a"), (0.2, "b"), (0.7, "c"), (0.3, "d")):
        tracker.add(value, location, f"at {location}")
    assert tracker.finding("unsaid") == Finding(0.7, "b", "at b")
    quiet = DeviationTracker(0.1)
    quiet.add(0.05, "a", "at a")
    assert quiet.finding("said") == Finding(0.05, "a", "said")


def test_a_report_tells_what_does_not_apply_from_what_passed() -> None:
    passed_, absent = CheckResult("a", 0.0, 0.1), CheckResult("b", None, 0.1, remark="why")
    broken = CheckResult("c", float("inf"), 0.1, "there")
    assert CheckReport((passed_, absent)).ok
    assert CheckReport((passed_, absent)).first_failure is None
    report = CheckReport((passed_, absent, broken))
    assert report.first_failure == broken
    fields = report.fields()
    assert not fields["ok"]
    assert [each["applies"] for each in fields["checks"]] == [True, False, True]
    assert [each["worst"] for each in fields["checks"]] == [0.0, None, None]
