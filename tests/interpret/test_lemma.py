"""q·k has mean 0 and variance d_k, measured; the interval holds for many seeds, not a lucky one."""

import math
from dataclasses import replace
from pathlib import Path

import pytest

from qkv.errors import UsageError
from qkv.interpret.lemma import KEYS, WIDTHS, Lemma, lemma_text, measure_lemma, plot_lemma


@pytest.fixture(scope="module")
def lemma() -> Lemma:
    return measure_lemma(seed=0, samples=20_000)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
def test_every_row_lies_inside_its_joint_interval(seed: int) -> None:
    for row in measure_lemma(seed, samples=5_000).rows:
        assert row.low <= row.variance / row.d_k <= row.high, row
        assert row.mean_low <= 0 <= row.mean_high, row
        assert row.variance_low <= row.d_k <= row.variance_high, row


def test_the_intervals_are_narrow_enough_to_mean_something(lemma: Lemma) -> None:
    for row in lemma.rows:
        assert row.high - row.low < 0.2
        assert (row.low + row.high) / 2 == pytest.approx(1.0)


def test_the_widths_go_from_1_to_1024() -> None:
    assert WIDTHS[0] == 1
    assert WIDTHS[-1] == 1024
    assert list(WIDTHS) == sorted(set(WIDTHS))


def test_a_sum_has_the_mean_of_its_terms_means(lemma: Lemma) -> None:
    for row in lemma.rows:
        assert row.mean == pytest.approx(row.sum_of_means, abs=1e-12)


def test_the_scaled_variance_is_measured_to_be_one(lemma: Lemma) -> None:
    for row in lemma.rows:
        assert row.scaled_variance == pytest.approx(row.variance / row.d_k, rel=1e-9)
        assert row.scaled_variance == pytest.approx(1.0, abs=0.1)


def test_without_the_division_softmax_hardens_and_its_gradient_fades(lemma: Lemma) -> None:
    first, last = lemma.rows[0], lemma.rows[-1]
    assert first.unscaled == first.scaled  # √1 = 1
    assert last.unscaled.largest > 0.9
    assert last.unscaled.gradient < 0.25 * last.scaled.gradient
    assert last.unscaled.entropy < 0.2 < 2 < last.scaled.entropy < math.log(KEYS)
    entropies = [row.unscaled.entropy for row in lemma.rows]
    assert entropies == sorted(entropies, reverse=True)


def test_the_same_seed_gives_the_same_table_and_another_seed_another(lemma: Lemma) -> None:
    assert measure_lemma(seed=0, samples=20_000) == lemma
    assert measure_lemma(seed=1, samples=20_000).rows != lemma.rows


def test_too_few_samples_are_refused() -> None:
    with pytest.raises(UsageError, match="samples=10 is too few"):
        measure_lemma(samples=10)


def test_the_table_shows_each_width_beside_its_theory(lemma: Lemma) -> None:
    page = lemma_text(lemma)
    for row in lemma.rows:
        assert f"{row.variance:.2f}" in page
        assert f"{row.ratio:.3f}!" not in page
    assert "linearity of expectation" in page
    assert max(len(line) for line in page.split("\n")) <= 80


def test_a_ratio_outside_its_interval_is_marked(lemma: Lemma) -> None:
    wrong = replace(lemma.rows[3], ratio=1.5)
    assert "1.500!" in lemma_text(replace(lemma, rows=(wrong,)))


@pytest.mark.parametrize(
    ("ending", "magic"), [("png", b"\x89PNG"), ("svg", b"<?xml"), ("pdf", b"%PDF")]
)
def test_the_picture_is_written_in_the_format_of_its_name(
    lemma: Lemma, tmp_path: Path, ending: str, magic: bytes
) -> None:
    path = tmp_path / f"lemma.{ending}"
    plot_lemma(lemma, path)
    assert path.read_bytes().startswith(magic)


def test_a_picture_that_cannot_be_drawn_is_one_clear_line(lemma: Lemma, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"end it with one of \.png, \.svg, \.pdf"):
        plot_lemma(lemma, tmp_path / "lemma.bmp")
    with pytest.raises(UsageError, match="is not a folder"):
        plot_lemma(lemma, tmp_path / "nowhere" / "lemma.png")
