"""How many clusters there are, when nobody says."""

import numpy as np
import pytest
from tests.engine.cluster.planted import planted

from qkv.engine.cluster.choose_k import candidates, choose_k, largest_stable, stability


def test_candidates_go_from_2_to_the_root_ever_further_apart() -> None:
    assert candidates(4) == [2]
    assert candidates(30) == [2, 3, 4, 5]
    many = candidates(10**6)
    assert many[-1] == 100
    assert many == sorted(set(many))
    assert len(many) < 30


@pytest.mark.parametrize("groups", [2, 3, 5])
def test_the_planted_number_is_chosen_and_every_stability_is_told(
    groups: int,
) -> None:
    _, vectors, _ = planted(groups, each=37, seed=groups)
    by_k: dict[int, float] = {}
    selection = choose_k(vectors, seed=0, on_candidate=by_k.__setitem__)
    assert selection.k == groups
    assert selection.warning == ""
    assert selection.stability == by_k


@pytest.mark.parametrize(
    ("stability_by_k", "k"),
    [
        ({2: 0.99, 3: 0.5, 4: 0.4}, 2),
        ({2: 0.97, 3: 0.98, 4: 0.96, 5: 0.7}, 4),  # as good as the best: the largest
        ({2: 0.1, 4: 0.87, 18: 0.74, 21: 0.79, 25: 0.78, 30: 0.69}, 25),
        ({35: 0.8, 41: 0.97, 48: 0.9, 57: 0.81}, 41),  # the next smaller is clearly better
        ({7: 0.4}, 7),
    ],
)
def test_of_those_close_to_the_best_the_largest_is_taken(
    stability_by_k: dict[int, float], k: int
) -> None:
    assert largest_stable(stability_by_k) == k


def test_stability_is_1_for_real_groups_and_near_0_for_none() -> None:
    _, vectors, _ = planted(groups=3, each=31, noise=0.2)
    assert stability(vectors, 3, seed=0) == pytest.approx(1)
    nothing = np.random.default_rng(0).normal(size=(499, 89)).astype(np.float32)
    nothing /= np.linalg.norm(nothing, axis=1, keepdims=True)
    assert abs(stability(nothing, 7, seed=0)) < 0.15
