"""Of all ways to put the portions of a text together the best are found."""

import itertools

from hypothesis import given, settings
from hypothesis import strategies as st

from qkv.engine.beam.hypotheses import Hypothesis
from qkv.engine.translate.segments import best_combinations


def hypothesis(score: float, length: int) -> Hypothesis:
    return Hypothesis(tuple(range(length)), score, score / (length + 1), "end")


HYPOTHESES = st.builds(hypothesis, st.integers(-64, -1).map(lambda n: n / 8), st.integers(0, 5))
PORTIONS = st.lists(st.lists(HYPOTHESES, min_size=1, max_size=3), min_size=1, max_size=4)


@settings(max_examples=100, deadline=None)
@given(portions=PORTIONS, best=st.integers(1, 5))
def test_sums_are_compared_as_if_every_combination_had_been_tried(
    portions: list[list[Hypothesis]], best: int
) -> None:
    found = best_combinations(portions, best, length_penalty=0.0)
    every = sorted((sum(p.score for p in ps) for ps in itertools.product(*portions)), reverse=True)
    sums = [sum(part.score for part in way.parts) for way in found]
    assert sums == every[:best]


@given(portions=PORTIONS, penalty=st.sampled_from([0.0, 0.5, 1.0]))
def test_the_score_is_that_of_all_tokens(portions: list[list[Hypothesis]], penalty: float) -> None:
    for way in best_combinations(portions, 3, penalty):
        assert len(way.parts) == len(portions)
        assert way.logprob == sum(part.score for part in way.parts)
        assert way.tokens == sum(len(part.ids) + 1 for part in way.parts)
        assert way.score == way.logprob / way.tokens**penalty


@given(
    hypotheses=st.lists(HYPOTHESES, min_size=1, max_size=5),
    penalty=st.sampled_from([0.6, 1.0, 1.7]),
)
def test_a_single_portion_keeps_the_ranks_of_the_search(
    hypotheses: list[Hypothesis], penalty: float
) -> None:
    ranked = [
        Hypothesis.of([*h.ids, 9], h.score, eos=9, length_penalty=penalty) for h in hypotheses
    ]
    found = best_combinations([ranked], 5, penalty)
    assert [way.score for way in found] == sorted((h.rank for h in ranked), reverse=True)


def test_no_portions_are_one_empty_combination() -> None:
    (way,) = best_combinations([], 3, 1.0)
    assert (way.parts, way.score, way.complete) == ((), 0.0, True)
