"""What is counted of heads equals what one counts by hand, query by query."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from qkv.interpret.head_stats.head_statistics import Tally
from qkv.interpret.head_stats.patterns import INDUCTION, SAME, Score, Sight, in_repeats, in_texts

H = 3


def sight(ids: list[int], causal: bool, marks: tuple[int, ...] = ()) -> Sight:
    n = len(ids)
    seen = torch.ones(n, n, dtype=torch.bool)
    keys = torch.tensor(ids)
    marked = torch.tensor([id in marks for id in ids])
    return Sight(keys, keys, marked, seen.tril() if causal else seen, cross=False)


def weights(sight: Sight, seed: int) -> torch.Tensor:
    scores = torch.randn(H, *sight.seen.shape, generator=torch.Generator().manual_seed(seed))
    return scores.masked_fill(~sight.seen, -torch.inf).softmax(dim=-1)


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
    where = sight(ids, causal)
    looks, tally = weights(where, seed), Tally(H)
    tally.count(looks, where, in_texts(where) | in_repeats(where))
    for name, mass in tally.patterns.items():
        if name == "marks":
            assert mass.queries == 0
            continue
        expected, chance, queries = 0.0, 0.0, 0
        for i in range(len(ids)):
            visible = [j for j in range(len(ids)) if where.seen[i, j]]
            hits = [j for j in visible if by_hand(name, ids, i, j)]
            if len(visible) > 1 and hits:
                expected += float(looks[0, i, hits].sum())
                chance += len(hits) / len(visible)
                queries += 1
        assert mass.queries == queries
        assert float(mass.mass[0]) == pytest.approx(expected, abs=1e-5)
        assert mass.chance == pytest.approx(chance, abs=1e-5)


@settings(max_examples=40, deadline=None)
@given(ids=texts, causal=st.booleans())
def test_a_head_that_looks_everywhere_alike_scores_as_chance_does(ids, causal) -> None:
    where, tally = sight(ids, causal), Tally(H)
    looks = where.chance.expand(H, -1, -1)
    tally.count(looks, where, in_texts(where) | in_repeats(where))
    tally.count_distances(looks, where)
    tally.count_spread(looks, where)
    tally.count_apart(looks, where)
    for mass in (*tally.patterns.values(), *tally.distances.values()):
        assert float(mass.mass[1]) == pytest.approx(mass.chance, abs=1e-5)
    assert tally.evenness[2].item() / tally.queries == pytest.approx(1.0, abs=1e-6)
    assert tally.apart.max() < 1e-4


@settings(max_examples=40, deadline=None)
@given(ids=texts, causal=st.booleans(), seed=st.integers(0, 99))
def test_distances_share_out_all_the_weight(ids, causal, seed) -> None:
    where, tally = sight(ids, causal), Tally(H)
    looks = weights(where, seed)
    tally.count_distances(looks, where)
    total = sum(float(mass.mass[0]) for mass in tally.distances.values())
    assert total == pytest.approx(int(where.chosen.sum()), abs=1e-4)


def test_heads_that_share_no_key_are_one_apart_and_entropy_is_in_bits() -> None:
    where, tally = sight([0, 1, 2, 3], causal=False), Tally(2)
    looks = torch.zeros(2, 4, 4)
    looks[0, :, :2], looks[1, :, 2:] = 0.5, 0.5
    tally.count_spread(looks, where)
    tally.count_apart(looks, where)
    assert tally.apart[0, 1].item() / 4 == pytest.approx(1.0)
    assert (tally.entropy / 4).tolist() == pytest.approx([1.0, 1.0])
    assert (tally.evenness / 4).tolist() == pytest.approx([1 / math.log2(4)] * 2)


def test_marks_are_neither_the_same_token_nor_what_follows_one() -> None:
    where = sight([9, 1, 9, 1, 9], causal=True, marks=(9,))
    grids = in_repeats(where)
    assert (grids[SAME] & where.seen).nonzero().tolist() == [[3, 1]]
    assert grids[INDUCTION].nonzero().tolist() == [[3, 2]]
    assert in_texts(where)["marks"][1].tolist() == [False, False, True, False, True]


def test_excess_is_0_as_by_chance_and_1_if_all_weight_is_there() -> None:
    assert Score(0.25, 0.25, 5).excess == 0.0
    assert Score(1.0, 0.25, 5).excess == 1.0
    assert Score(0.0, 0.5, 5).excess == -1.0
    assert Score(1.0, 1.0, 5).excess == 0.0
