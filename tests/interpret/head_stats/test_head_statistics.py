"""What is counted of heads equals what one counts by hand, query by query."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from qkv.interpret.head_stats.head_statistics import HeadAccumulator
from qkv.interpret.head_stats.patterns import (
    INDUCTION,
    SAME,
    AttentionContext,
    PatternScore,
    repeat_patterns,
    text_patterns,
)

H = 3


def make_context(ids: list[int], causal: bool, special: tuple[int, ...] = ()) -> AttentionContext:
    n = len(ids)
    visible = torch.ones(n, n, dtype=torch.bool)
    keys = torch.tensor(ids)
    is_special = torch.tensor([id in special for id in ids])
    return AttentionContext(
        keys, keys, is_special, visible.tril() if causal else visible, cross=False
    )


def weights(context: AttentionContext, seed: int) -> torch.Tensor:
    scores = torch.randn(H, *context.visible.shape, generator=torch.Generator().manual_seed(seed))
    return scores.masked_fill(~context.visible, -torch.inf).softmax(dim=-1)


def by_hand(name: str, ids: list[int], i: int, j: int) -> bool:
    return {
        "previous token": j == i - 1,
        "next token": j == i + 1,
        "itself": j == i,
        "first token": j == 0 and i != 0,
        SAME: ids[j] == ids[i] and j != i,
        INDUCTION: 0 < j < i and ids[j - 1] == ids[i],
    }[name]


texts = st.lists(st.integers(0, 4), min_size=3, max_size=11)


@settings(max_examples=60, deadline=None)
@given(ids=texts, causal=st.booleans(), seed=st.integers(0, 99))
def test_masses_equal_a_count_by_hand(ids: list[int], causal: bool, seed: int) -> None:
    context = make_context(ids, causal)
    attention, accumulator = weights(context, seed), HeadAccumulator(H)
    accumulator.add_patterns(attention, context, text_patterns(context) | repeat_patterns(context))
    for name, mass in accumulator.patterns.items():
        if name == "special tokens":
            assert mass.queries == 0
            continue
        expected, chance, queries = 0.0, 0.0, 0
        for i in range(len(ids)):
            visible = [j for j in range(len(ids)) if context.visible[i, j]]
            hits = [j for j in visible if by_hand(name, ids, i, j)]
            if len(visible) > 1 and hits:
                expected += float(attention[0, i, hits].sum())
                chance += len(hits) / len(visible)
                queries += 1
        assert mass.queries == queries
        assert float(mass.mass[0]) == pytest.approx(expected, abs=1e-5)
        assert mass.uniform == pytest.approx(chance, abs=1e-5)


@settings(max_examples=40, deadline=None)
@given(ids=texts, causal=st.booleans())
def test_a_head_that_looks_everywhere_alike_scores_as_chance_does(ids, causal) -> None:
    context, accumulator = make_context(ids, causal), HeadAccumulator(H)
    attention = context.uniform.expand(H, -1, -1)
    accumulator.add_patterns(attention, context, text_patterns(context) | repeat_patterns(context))
    accumulator.add_distances(attention, context)
    accumulator.add_entropy(attention, context)
    accumulator.add_js_distance(attention, context)
    for mass in (*accumulator.patterns.values(), *accumulator.distances.values()):
        assert float(mass.mass[1]) == pytest.approx(mass.uniform, abs=1e-5)
    assert accumulator.evenness[2].item() / accumulator.queries == pytest.approx(1.0, abs=1e-6)
    assert accumulator.js_distance.max() < 1e-4


@settings(max_examples=40, deadline=None)
@given(ids=texts, causal=st.booleans(), seed=st.integers(0, 99))
def test_distances_share_out_all_the_weight(ids, causal, seed) -> None:
    context, accumulator = make_context(ids, causal), HeadAccumulator(H)
    attention = weights(context, seed)
    accumulator.add_distances(attention, context)
    total = sum(float(mass.mass[0]) for mass in accumulator.distances.values())
    assert total == pytest.approx(int(context.has_choice.sum()), abs=1e-4)


def test_heads_that_share_no_key_are_one_apart_and_entropy_is_in_bits() -> None:
    context, accumulator = make_context([0, 1, 2, 3], causal=False), HeadAccumulator(2)
    attention = torch.zeros(2, 4, 4)
    attention[0, :, :2], attention[1, :, 2:] = 0.5, 0.5
    accumulator.add_entropy(attention, context)
    accumulator.add_js_distance(attention, context)
    assert accumulator.js_distance[0, 1].item() / 4 == pytest.approx(1.0)
    assert (accumulator.entropy / 4).tolist() == pytest.approx([1.0, 1.0])
    assert (accumulator.evenness / 4).tolist() == pytest.approx([1 / math.log2(4)] * 2)


def test_marks_are_neither_the_same_token_nor_what_follows_one() -> None:
    context = make_context([9, 1, 9, 1, 9], causal=True, special=(9,))
    grids = repeat_patterns(context)
    assert (grids[SAME] & context.visible).nonzero().tolist() == [[3, 1]]
    assert grids[INDUCTION].nonzero().tolist() == [[3, 2]]
    assert text_patterns(context)["special tokens"][1].tolist() == [False, False, True, False, True]


def test_excess_is_0_as_by_chance_and_1_if_all_weight_is_there() -> None:
    assert PatternScore(0.25, 0.25, 5).excess == 0.0
    assert PatternScore(1.0, 0.25, 5).excess == 1.0
    assert PatternScore(0.0, 0.5, 5).excess == -1.0
    assert PatternScore(1.0, 1.0, 5).excess == 0.0
