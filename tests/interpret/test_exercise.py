"""Exercises: the same seed leaves the same cells blank, and the file to fill in reads back."""

from dataclasses import replace

import numpy as np
import pytest

from qkv.errors import UsageError, WorksheetError
from qkv.interpret import (
    all_blanks,
    check_answers,
    choose_blanks,
    exercise_toml,
    random_worksheet,
    walk,
)
from qkv.interpret.examples import EXAMPLES, POEM
from qkv.interpret.render import BLANK, WalkView, render_latex, render_markdown, render_text
from qkv.interpret.worksheet import parse_worksheet

MASKED = walk(replace(POEM, causal=True))


def test_the_same_seed_leaves_the_same_cells_blank() -> None:
    assert choose_blanks(MASKED, 6, seed=3) == choose_blanks(MASKED, 6, seed=3)
    assert len({choose_blanks(MASKED, 6, seed=seed) for seed in range(9)}) == 9


@pytest.mark.parametrize("seed", range(5))
def test_a_quiz_is_spread_over_the_steps_and_asks_for_nothing_hidden(seed: int) -> None:
    blanks = choose_blanks(MASKED, 8, seed)
    assert len(blanks) == 8
    assert {name for name, _, _ in blanks} == {
        "q", "k", "v", "scores", "scaled", "masked", "weights", "output",
    }  # fmt: skip
    for name, i, j in choose_blanks(MASKED, 18, seed, ["masked", "weights", "output"]):
        assert name == "output" or i >= j


def test_blanks_can_be_kept_to_some_steps() -> None:
    blanks = choose_blanks(MASKED, 4, 0, ["scores"])
    assert {name for name, _, _ in blanks} == {"scores"}
    assert len(all_blanks(MASKED, ["q", "k"])) == 12


def test_more_blanks_than_cells_are_refused() -> None:
    with pytest.raises(UsageError, match="blank=7 must be between 1 and 6"):
        choose_blanks(MASKED, 7, 0, ["q"])
    with pytest.raises(UsageError, match="x is not computed but given"):
        all_blanks(MASKED, ["x"])


@pytest.mark.parametrize("name", EXAMPLES)
@pytest.mark.parametrize("causal", [False, True])
def test_the_file_to_fill_in_reads_back_as_the_same_worksheet(name: str, causal: bool) -> None:
    sheet = replace(EXAMPLES[name], causal=causal)
    steps = walk(sheet)
    blanks = choose_blanks(steps, 5, 0)
    again = parse_worksheet(exercise_toml(sheet, steps, blanks, 4))
    assert (again.tokens, again.source, again.title) == (sheet.tokens, sheet.source, sheet.title)
    assert (again.causal, again.heads, again.scaled) == (sheet.causal, sheet.heads, sheet.scaled)
    for matrix in sheet.matrices:
        np.testing.assert_array_equal(again.matrices[matrix], sheet.matrices[matrix])
    left = {
        (step, int(i), int(j))
        for step, answer in again.answers.items()
        for i, j in np.argwhere(np.isnan(answer.value))
    }
    assert left == blanks
    assert check_answers(walk(again), again.answers) == []


def test_hostile_words_survive_the_file() -> None:
    words = ('"]\nheads = 9', "\\", "\x7f\t", "詩")
    sheet = random_worksheet(words, 2, 0)
    steps = walk(sheet)
    assert parse_worksheet(exercise_toml(sheet, steps, all_blanks(steps), 4)).tokens == words


def test_a_random_worksheet_has_numbers_for_a_calculator() -> None:
    sheet = random_worksheet(["the", "cat"], 3, seed=5)
    for matrix in sheet.matrices.values():
        assert matrix.shape[1] == 3
        np.testing.assert_array_equal(matrix, np.round(matrix, 1))
        assert np.abs(matrix).max() <= 2
    assert walk(sheet)["output"].value.shape == (2, 3)
    with pytest.raises(WorksheetError, match="at least one word"):
        random_worksheet([], 2, 0)


def test_a_blank_cell_is_given_away_by_no_format() -> None:
    steps = walk(POEM)
    view = WalkView(steps, blanks=frozenset({("weights", 0, 0), ("scaled", 1, 0)}))
    for page in (render_text(view, 80), render_markdown(view), render_latex(view)):
        assert "0.3564" not in page
        assert "36 %" not in page
        assert "0.2771" not in page
        assert "0.2770" not in page
    assert render_text(view, 80).count(BLANK) == 2
    assert r"\underline{\hspace{3em}}" in render_latex(view)
