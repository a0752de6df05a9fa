"""Where a token stands: waves that are added, rotations, slopes and buckets of distance."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from qkv.attention import (
    AlibiMask,
    Mask,
    NoRope,
    Tile,
    alibi_slopes,
    distance_buckets,
    frequencies,
    rope_rotation,
    sinusoids,
)
from qkv.attention.positions import ntk_base, scale_linear, scale_llama3

CPU = torch.device("cpu")
DOUBLE = torch.float64


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=DOUBLE)


def test_sinusoids_of_width_four_are_the_papers() -> None:
    waves = sinusoids(torch.arange(3), 4)
    expected = torch.tensor(
        [
            [0.0, 1.0, 0.0, 1.0],
            [math.sin(1), math.cos(1), math.sin(0.01), math.cos(0.01)],
            [math.sin(2), math.cos(2), math.sin(0.02), math.cos(0.02)],
        ]
    )
    torch.testing.assert_close(waves, expected)


def test_sinusoids_follow_the_papers_formula_feature_by_feature() -> None:
    positions = [0, 1, 7, 103]
    width = 10
    waves = sinusoids(torch.tensor(positions), width, dtype=DOUBLE)
    for row, position in enumerate(positions):
        for i in range(width // 2):
            angle = position / 10_000 ** (2 * i / width)
            assert waves[row, 2 * i].item() == pytest.approx(math.sin(angle), abs=1e-12)
            assert waves[row, 2 * i + 1].item() == pytest.approx(math.cos(angle), abs=1e-12)


def test_concatenated_sinusoids_have_all_sines_first() -> None:
    positions = torch.arange(7)
    waves = sinusoids(positions, 6, interleaved=False)
    neighbours = sinusoids(positions, 6)
    assert torch.equal(waves, neighbours[:, [0, 2, 4, 1, 3, 5]])


def test_with_endpoint_the_last_wavelength_is_exactly_the_base() -> None:
    base = 50.0
    width = 8
    waves = sinusoids(torch.tensor([1]), width, base=base, endpoint=True, dtype=DOUBLE)[0]
    rates = torch.tensor([1.0, base ** (-1 / 3), base ** (-2 / 3), 1 / base], dtype=DOUBLE)
    torch.testing.assert_close(waves[0::2], rates.sin())
    torch.testing.assert_close(waves[1::2], rates.cos())


def test_without_endpoint_the_last_wavelength_stays_below_the_base() -> None:
    waves = sinusoids(torch.tensor([1]), 8, base=50.0, dtype=DOUBLE)[0]
    assert waves[6].item() == pytest.approx(math.sin(50.0 ** (-3 / 4)))


def test_one_pair_with_endpoint_turns_once_in_two_pi() -> None:
    waves = sinusoids(torch.tensor([1]), 2, endpoint=True)
    torch.testing.assert_close(waves, torch.tensor([[math.sin(1), math.cos(1)]]))


def test_an_odd_width_drops_the_last_cosine() -> None:
    waves = sinusoids(torch.arange(5), 7, dtype=DOUBLE)
    assert waves.shape == (5, 7)
    last = [math.sin(t / 10_000 ** (6 / 7)) for t in range(5)]
    torch.testing.assert_close(waves[:, 6], torch.tensor(last, dtype=DOUBLE))


def test_sinusoids_from_an_offset_are_the_later_rows() -> None:
    assert torch.equal(sinusoids(torch.arange(3, 8), 6), sinusoids(torch.arange(8), 6)[3:])


def test_sinusoids_of_a_batch_of_positions_are_row_by_row() -> None:
    positions = torch.tensor([[0, 1, 2, 3, 4], [5, 0, 7, 1, 103]])
    waves = sinusoids(positions, 6)
    assert waves.shape == (2, 5, 6)
    for row, mine in zip(waves, positions, strict=True):
        assert torch.equal(row, sinusoids(mine, 6))


BOTH_PAIRINGS = pytest.mark.parametrize("interleaved", [True, False], ids=["neighbours", "halves"])


def test_frequencies_fall_from_one_towards_one_over_the_base() -> None:
    expected = torch.tensor([1.0, 0.1, 0.01, 0.001])
    torch.testing.assert_close(frequencies(8), expected)
    torch.testing.assert_close(frequencies(4, base=100.0), torch.tensor([1.0, 0.1]))


def test_a_quarter_turn_by_hand_with_neighbours_paired() -> None:
    rotation = rope_rotation(
        torch.tensor([0, 1]), torch.tensor([math.pi / 2, math.pi]), interleaved=True
    )
    x = torch.tensor([[[[1.0, 2.0, 3.0, 4.0], [1.0, 2.0, 3.0, 4.0]]]])
    expected = torch.tensor([[[[1.0, 2.0, 3.0, 4.0], [-2.0, 1.0, -3.0, -4.0]]]])
    torch.testing.assert_close(rotation.rotate(x), expected)


def test_a_quarter_turn_by_hand_with_halves_paired() -> None:
    rotation = rope_rotation(
        torch.tensor([0, 1]), torch.tensor([math.pi / 2, math.pi]), interleaved=False
    )
    x = torch.tensor([[[[1.0, 2.0, 3.0, 4.0], [1.0, 2.0, 3.0, 4.0]]]])
    expected = torch.tensor([[[[1.0, 2.0, 3.0, 4.0], [-3.0, -2.0, 1.0, -4.0]]]])
    torch.testing.assert_close(rotation.rotate(x), expected)


@BOTH_PAIRINGS
@settings(max_examples=40, deadline=None)
@given(
    first=st.integers(0, 500),
    distance=st.integers(-200, 200),
    shift=st.integers(-700, 700),
    seed=st.integers(0, 99),
)
def test_the_dot_product_depends_only_on_the_distance(
    interleaved: bool, first: int, distance: int, shift: int, seed: int
) -> None:
    q = normal(1, 1, 1, 10, seed=seed)
    k = normal(1, 1, 1, 10, seed=seed + 1000)
    rates = frequencies(10, dtype=DOUBLE)

    def product(at_q: int, at_k: int) -> torch.Tensor:
        rotation_q, rotation_k = (
            rope_rotation(torch.tensor([at]), rates, interleaved) for at in (at_q, at_k)
        )
        return (rotation_q.rotate(q) * rotation_k.rotate(k)).sum()

    here = product(first, first + distance)
    there = product(first + shift, first + distance + shift)
    torch.testing.assert_close(here, there, rtol=1e-9, atol=1e-9)


@BOTH_PAIRINGS
def test_a_rotation_keeps_the_length(interleaved: bool) -> None:
    x = normal(2, 3, 7, 10)
    rotated = rope_rotation(torch.arange(7), frequencies(10, dtype=DOUBLE), interleaved).rotate(x)
    torch.testing.assert_close(rotated.norm(dim=-1), x.norm(dim=-1))
    assert not torch.allclose(rotated[:, :, 1:], x[:, :, 1:])


@BOTH_PAIRINGS
def test_position_zero_is_not_turned(interleaved: bool) -> None:
    x = normal(2, 3, 1, 10)
    assert torch.equal(rope_rotation(torch.zeros(1), frequencies(10), interleaved).rotate(x), x)


def test_both_pairings_are_the_same_up_to_the_order_of_features() -> None:
    x = normal(2, 3, 7, 10)
    rates = frequencies(10, dtype=DOUBLE)
    order = torch.tensor([0, 2, 4, 6, 8, 1, 3, 5, 7, 9])  # first of each pair, then second
    neighbours = rope_rotation(torch.arange(7), rates, interleaved=True).rotate(x)
    halves = rope_rotation(torch.arange(7), rates, interleaved=False).rotate(x[..., order])
    torch.testing.assert_close(neighbours[..., order], halves)


@BOTH_PAIRINGS
def test_a_partial_rotation_leaves_the_rest_alone(interleaved: bool) -> None:
    x = normal(2, 3, 7, 11)
    rotation = rope_rotation(torch.arange(7), frequencies(6, dtype=DOUBLE), interleaved)
    rotated = rotation.rotate(x)
    assert torch.equal(rotated[..., 6:], x[..., 6:])
    torch.testing.assert_close(rotated[..., :6], rotation.rotate(x[..., :6]))


@BOTH_PAIRINGS
def test_a_batch_of_positions_equals_turning_row_by_row(interleaved: bool) -> None:
    x = normal(3, 2, 5, 6)
    rates = frequencies(6, dtype=DOUBLE)
    positions = torch.tensor([[0, 1, 2, 3, 4], [7, 8, 9, 10, 11], [0, 1, 0, 1, 2]])
    together = rope_rotation(positions, rates, interleaved).rotate(x)
    apart = [
        rope_rotation(mine, rates, interleaved).rotate(row[None])
        for mine, row in zip(positions, x, strict=True)
    ]
    torch.testing.assert_close(together, torch.cat(apart))


def test_half_precision_stays_half_precision_when_turned() -> None:
    x = normal(1, 2, 5, 6).bfloat16()
    assert rope_rotation(torch.arange(5), frequencies(6)).rotate(x).dtype == torch.bfloat16


def test_unturned_gives_back_what_it_got() -> None:
    x = normal(1, 2, 5, 6)
    assert NoRope().rotate(x) is x


def test_stretching_linearly_equals_dividing_the_positions() -> None:
    x = normal(1, 2, 9, 6)
    rates = frequencies(6, dtype=DOUBLE)
    squeezed = rope_rotation(torch.arange(9, dtype=DOUBLE) / 4, rates).rotate(x)
    torch.testing.assert_close(
        rope_rotation(torch.arange(9), scale_linear(rates, 4)).rotate(x), squeezed
    )


def test_stretching_the_base_slows_the_slowest_pair_by_the_factor_and_keeps_the_fastest() -> None:
    width = 10
    base = 10_000.0
    factor = 7.0
    before = frequencies(width, base, dtype=DOUBLE)
    after = frequencies(width, ntk_base(base, factor, width), dtype=DOUBLE)
    assert after[0] == before[0] == 1.0
    assert (before[-1] / after[-1]).item() == pytest.approx(factor)


def test_stretching_by_wavelength_keeps_fast_pairs_and_divides_slow_ones() -> None:
    trained = 1000
    factor = 8.0
    low = 1.0
    high = 4.0
    turns = torch.tensor([100.0, 4.0, 2.5, 1.0, 0.3], dtype=DOUBLE)  # within the trained length
    rates = turns * 2 * math.pi / trained
    ratio = scale_llama3(rates, factor, low, high, trained) / rates
    between = 0.5 * 1.0 + 0.5 / 8.0  # 2.5 turns lie halfway between 1 and 4
    expected = torch.tensor([1.0, 1.0, between, 1 / 8, 1 / 8], dtype=DOUBLE)
    torch.testing.assert_close(ratio, expected)


def test_slopes_of_eight_heads_are_the_papers() -> None:
    expected = [1 / 2, 1 / 4, 1 / 8, 1 / 16, 1 / 32, 1 / 64, 1 / 128, 1 / 256]
    assert alibi_slopes(8).tolist() == expected


def test_slopes_of_sixteen_heads_start_at_the_root_of_one_half() -> None:
    expected = [2 ** (-(i + 1) / 2) for i in range(16)]
    torch.testing.assert_close(alibi_slopes(16), torch.tensor(expected))


def test_slopes_of_twelve_heads_fill_up_with_every_other_slope_of_sixteen() -> None:
    eight = [0.5, 0.25, 0.125, 0.0625, 0.03125, 0.015625, 0.0078125, 0.00390625]
    published = [*eight, 0.7071067811865476, 0.35355339059327384, 0.17677669529663692]
    published.append(0.08838834764831849)
    torch.testing.assert_close(alibi_slopes(12), torch.tensor(published))


@pytest.mark.parametrize("heads", [1, 2, 3, 5, 7, 11, 12, 20, 32])
def test_there_is_one_slope_a_head_and_no_two_are_equal(heads: int) -> None:
    slopes = alibi_slopes(heads)
    assert slopes.shape == (heads,)
    assert len(set(slopes.tolist())) == heads
    assert ((slopes > 0) & (slopes < 1)).all()


def test_alibi_takes_its_slope_off_for_every_position_of_distance() -> None:
    mask = Mask((AlibiMask(torch.tensor([1.0, 0.5])),))
    expected = torch.tensor(  # the last of 2 queries stands at the last of 4 keys
        [
            [
                [[-2.0, -1.0, 0.0, -1.0], [-3.0, -2.0, -1.0, 0.0]],
                [[-1.0, -0.5, 0.0, -0.5], [-1.5, -1.0, -0.5, 0.0]],
            ]
        ]
    )
    assert torch.equal(mask.bias_in(Tile.full(2, 4, CPU)), expected)


def t5_bucket(distance: int, buckets: int, farthest: int, both_ways: bool) -> int:
    """One distance (key − query) at a time, from the description in the paper's section 2.1 and
    its code: exact buckets up to half, then logarithmic up to `farthest`, all beyond in the last.
    """
    first = 0
    if both_ways:
        buckets = buckets // 2
        first = buckets if distance > 0 else 0
        far = abs(distance)
    else:
        far = max(0, -distance)
    exact = buckets // 2
    if far < exact:
        return first + far
    # the largest step whose lower edge, exact·(farthest/exact)^(step/steps), is not beyond `far`
    steps = buckets - exact
    step = 0
    while step + 1 < steps and far**steps * exact ** (step + 1) >= exact**steps * farthest ** (
        step + 1
    ):
        step += 1
    return first + exact + step


def test_buckets_both_ways_by_hand() -> None:
    distances = [0, -1, -7, -8, -11, -12, -16, -23, -64, -90, -91, -128, -1000]
    expected = [0, 1, 7, 8, 8, 9, 10, 11, 14, 14, 15, 15, 15]
    got = distance_buckets(torch.tensor(distances), 32, 128, bidirectional=True)
    assert got.tolist() == expected
    mirrored = distance_buckets(-torch.tensor(distances[1:]), 32, 128, bidirectional=True)
    assert mirrored.tolist() == [bucket + 16 for bucket in expected[1:]]


def test_buckets_one_way_count_what_comes_after_as_distance_zero() -> None:
    distances = torch.tensor([5, 1, 0, -1, -15, -16, -127, -128, -5000])
    got = distance_buckets(distances, 32, 128, bidirectional=False)
    assert got.tolist() == [0, 0, 0, 1, 15, 16, 31, 31, 31]


@pytest.mark.parametrize("both_ways", [True, False])
@pytest.mark.parametrize(("buckets", "farthest"), [(32, 128), (8, 9), (12, 50), (64, 256)])
def test_buckets_equal_the_papers_description(buckets: int, farthest: int, both_ways: bool) -> None:
    distances = list(range(-2 * farthest, 2 * farthest))
    got = distance_buckets(torch.tensor(distances), buckets, farthest, both_ways)
    assert got.tolist() == [t5_bucket(d, buckets, farthest, both_ways) for d in distances]
