"""A worksheet that cannot be computed is refused in one line that names the field and the sizes."""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from qkv.errors import WorksheetError
from qkv.interpret.attention_walk import check_answers, walk
from qkv.interpret.examples import EXAMPLES, POEM, notes_worksheet
from qkv.interpret.render import answers_summary, plain_text
from qkv.interpret.render.sections import WalkView, cell_lines
from qkv.interpret.render.terminal_text import render_text
from qkv.interpret.worksheet import TEMPLATE, parse_worksheet, read_worksheet

WORDS = 'tokens = ["p", "q"]\n'
X = "x = [[1, 2, 3], [4, 5, 6]]\n"
W = "w_q = [[1, 0], [0, 1], [1, 1]]\nw_k = [[1, 0], [0, 1], [1, 1]]\nw_v = [[1], [2], [3]]\n"

MALFORMED = {
    "ragged rows": (WORDS + "x = [[1, 2], [3]]\n" + W, "x has rows of 2 and 1 numbers"),
    "empty row": (WORDS + "x = [[], []]\n" + W, "x has a row without numbers"),
    "not a matrix": (WORDS + "x = [1, 2]\n" + W, "x must be a list of rows"),
    "missing weights": (WORDS + X + W.replace("w_k", "# w_k"), "w_k is missing; k is computed"),
    "missing input": (WORDS + W, "x is missing; q is computed from x and w_q"),
    "missing words": (X + W, "tokens is missing"),
    "words that are none": ("tokens = 3\n" + X + W, "tokens must be a list of words"),
    "shapes that do not multiply": (
        WORDS + X + W.replace("w_q = [[1, 0], [0, 1], [1, 1]]", "w_q = [[1, 0], [0, 1]]"),
        "x is 2×3 and w_q is 2×2; to multiply them, w_q needs 3 rows",
    ),
    "a row too few": (WORDS + "x = [[1, 2, 3]]\n" + W, "x is 1×3 but tokens has 2 words"),
    "queries and keys of different width": (
        WORDS + "q = [[1, 2], [3, 4]]\nk = [[1], [2]]\nv = [[1], [2]]\n",
        "queries have 2 columns and keys 1",
    ),
    "text for a number": (WORDS + X.replace("5", '"five"') + W, "x row 2, column 2 is 'five'"),
    "true for a number": (WORDS + X.replace("5", "true") + W, "x row 2, column 2 is true"),
    "NaN": (WORDS + X.replace("5", "nan") + W, "x row 2, column 2 is NaN; a finite number"),
    "infinity": (WORDS + X.replace("5", "-inf") + W, "x row 2, column 2 is -Infinity"),
    "too large for a float": (WORDS + X.replace("5", "1e999") + W, "x row 2, column 2 is 1E+999"),
    "a number of 400 digits": (WORDS + X.replace("5", "5" * 400) + W, "a number of 400 digits"),
    "queries given twice": (WORDS + X + W + "q = [[1, 2], [3, 4]]\n", "q and w_q are both given"),
    "values given twice": (WORDS + X + W + "v_up = [[1]]\n", "w_v and v_up are both given"),
    "an input nothing reads": (
        WORDS + X + "q = [[1], [2]]\nk = [[1], [2]]\nv = [[1], [2]]\n",
        "x is given, but q, k, v are given directly",
    ),
    "unknown field": (WORDS + X + W + "wq = 3\n", 'unknown field "wq"; did you mean "w_q"?'),
    "unknown mask": (WORDS + X + W + 'mask = "casual"\n', 'mask must be "causal" or "none"'),
    "no heads": (WORDS + X + W + "heads = 0\n", "heads must be a whole number of 1 or more"),
    "heads that do not divide": (
        WORDS + X + W + "heads = 2\n", "heads = 2 must divide d_v = 1",
    ),
    "scale that is not yes or no": (WORDS + X + W + "scale = 2\n", "scale must be true or false"),
    "source without its numbers": (WORDS + X + W + 'source = ["r"]\n', "source_x is missing"),
    "numbers without a source": (WORDS + X + W + "source_x = [[1, 2, 3]]\n", "source is missing"),
    "not TOML": ("tokens = [", "not valid TOML"),
    "answers that are no table": (WORDS + X + W + "answers = 3\n", "answers must be a table"),
}  # fmt: skip


@pytest.mark.parametrize("case", MALFORMED)
def test_a_malformed_worksheet_is_one_clear_line(case: str, tmp_path: Path) -> None:
    content, message = MALFORMED[case]
    path = tmp_path / "sheet.toml"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(WorksheetError, match=re.escape(message)) as caught:
        read_worksheet(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value).replace(str(path), "")


def test_a_file_that_is_not_there_or_not_text_is_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(WorksheetError, match="cannot read"):
        read_worksheet(tmp_path / "nowhere.toml")
    binary = tmp_path / "binary.toml"
    binary.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(WorksheetError, match="cannot read"):
        read_worksheet(binary)


@pytest.mark.parametrize(
    ("answers", "message"),
    [
        (
            "weigths = [[1, 2], [3, 4]]",
            'unknown step in answers "weigths"; did you mean "weights"? '
            "The tables of this worksheet: x, w_q, w_k, w_v, q, k, v, scores, scaled, weights, ",
        ),
        ("scores = [[1, 2, 3], [4, 5, 6]]", "answers.scores is 2×3 but scores is 2×2"),
    ],
)
def test_answers_that_fit_no_step_are_refused(answers: str, message: str) -> None:
    sheet = parse_worksheet(WORDS + X + W + f"[answers]\n{answers}\n")
    with pytest.raises(WorksheetError, match=re.escape(message)):
        check_answers(walk(sheet), sheet.answers)


def test_the_template_is_the_poem_and_its_answers_are_right() -> None:
    sheet = parse_worksheet(TEMPLATE)
    assert sheet.tokens == POEM.tokens
    for name, matrix in POEM.matrices.items():
        np.testing.assert_array_equal(sheet.matrices[name], matrix)
    assert sheet.answers
    assert check_answers(walk(sheet), sheet.answers) == []


def test_the_notes_have_exactly_three_slips() -> None:
    sheet = notes_worksheet()
    mistakes = check_answers(walk(sheet), sheet.answers)
    assert [(mistake.cell_name, mistake.answer) for mistake in mistakes] == [
        ("q(poem, q1)", 0.11),
        ("k(write, k2)", -0.36),
        ("k(a, k1)", -0.1),
    ]
    assert [round(mistake.expected, 2) for mistake in mistakes] == [1.11, -0.30, 0.10]


@pytest.mark.parametrize(
    ("answer", "correct"),
    [
        ("[[0.3564, 0.40, 0.25]", True),  # each number is held to its own decimals
        ("[[0.3564, 0.4000, 0.25]", False),
        ("[[0.36, 0.40, 0.25]", True),
        ("[[0.36, 0.41, 0.25]", False),
        ("[[0, 0, 0]", False),  # whole numbers are held to two decimals
        ("[[0.4, 0.4, 0.2]", False),
    ],
)
def test_answers_are_held_to_the_decimals_they_are_written_with(answer: str, correct: bool) -> None:
    rest = ", [0.34, 0.60, 0.06], [0.07, 0.03, 0.90]]"
    sheet = parse_worksheet(
        TEMPLATE.partition("[answers]")[0] + f"[answers]\nweights = {answer}{rest}"
    )
    mistakes = [
        mistake for mistake in check_answers(walk(sheet), sheet.answers) if mistake.row == 0
    ]
    assert (not mistakes) == correct


def test_minus_infinity_is_a_right_answer_where_a_word_is_hidden() -> None:
    start = TEMPLATE.partition("[answers]")[0].replace("# mask", "mask")
    grid = "[[0, -inf, -inf], [0, 0, -inf], [0, 0, 0]]"
    sheet = parse_worksheet(f"{start}[answers]\nmask = {grid}")
    assert check_answers(walk(sheet), sheet.answers) == []
    wrong = parse_worksheet(f"{start}[answers]\nmask = {grid.replace('[0, 0, 0]', '[0, 0, -inf]')}")
    assert [s.cell_name for s in check_answers(walk(wrong), wrong.answers)] == ["mask(poem, poem)"]


def test_given_queries_keys_and_values_need_no_weights() -> None:
    sheet = parse_worksheet(WORDS + "q = [[1], [2]]\nk = [[1], [0]]\nv = [[3, 4], [5, 6]]\n")
    assert [step.name for step in walk(sheet)] == [
        "q",
        "k",
        "v",
        "scores",
        "scaled",
        "weights",
        "output",
    ]


def test_cross_attention_from_a_file() -> None:
    sheet = parse_worksheet(
        WORDS + X + W + 'source = ["r", "s", "t"]\nsource_x = [[1, 0, 0], [0, 1, 0], [0, 0, 1]]\n'
    )
    assert walk(sheet)["weights"].value.shape == (2, 3)


def test_an_output_matrix_brings_the_heads_back_to_the_model_width() -> None:
    sheet = parse_worksheet(WORDS + X + W + "w_o = [[1, 2, 3]]\n")
    steps = walk(sheet)
    np.testing.assert_allclose(
        steps["projected"].value, steps["output"].value @ np.array([[1.0, 2.0, 3.0]])
    )


def test_numbers_too_large_to_compute_name_the_step() -> None:
    sheet = parse_worksheet(WORDS + "q = [[1e200], [1]]\nk = [[1e200], [1]]\nv = [[1], [1]]\n")
    with pytest.raises(WorksheetError, match="scores is too large to compute"):
        walk(sheet)


def test_a_query_that_sees_no_key_gets_zeros_and_no_nonsense() -> None:
    """Three causal queries on two keys: the first stands before them all."""
    sheet = parse_worksheet(
        'tokens = ["p", "q", "r"]\nsource = ["s", "t"]\nmask = "causal"\n'
        "q = [[1], [2], [3]]\nk = [[1], [2]]\nv = [[5], [7]]\n"
    )
    steps = walk(sheet)
    np.testing.assert_array_equal(steps["weights"].value[0], [0, 0])
    np.testing.assert_array_equal(steps["output"].value[0], [0])
    page = render_text(WalkView(steps), 80)
    assert "nan" not in page
    assert "*q* gives 100 % of its attention to *s*; every row that sees a key sums to 1." in page
    assert "weights(p, s) = nothing is seen = 0.0000" in cell_lines(WalkView(steps), "p", "s")


START = TEMPLATE.partition("[answers]")[0]


@pytest.mark.parametrize("blank", ['"?"', '""', '"__"', "nan"])
def test_a_blank_cell_is_allowed_and_neither_right_nor_wrong(blank: str) -> None:
    sheet = parse_worksheet(
        f"{START}[answers]\nq = [[{blank}, -0.05], [1.11, 5.00], [{blank}, -2.15]]"
    )
    steps = walk(sheet)
    mistakes = check_answers(steps, sheet.answers)
    assert [mistake.cell_name for mistake in mistakes] == ["q(a, q2)"]
    view = WalkView(steps, mistakes=tuple(mistakes))
    assert answers_summary(view, sheet) == "3 of 4 written cells are right, 2 are blank (q)."


def test_a_blank_is_refused_where_a_number_is_computed_with() -> None:
    with pytest.raises(WorksheetError, match=r"x row 1, column 1 is '\?', which is not a number"):
        parse_worksheet(WORDS + X.replace("1", '"?"', 1) + W)


def test_answers_for_heads_are_written_with_or_without_quotes() -> None:
    grid = "[[1, 0, 0], [0.5, 0.5, 0], [0, 0, 1]]"
    for name in ("head1.weights", '"head1.weights"'):
        sheet = parse_worksheet(f"{START.replace('# heads', 'heads')}[answers]\n{name} = {grid}")
        assert list(sheet.answers) == ["head1.weights"]
        assert check_answers(walk(sheet), sheet.answers)


def test_an_unknown_table_of_heads_lists_the_tables() -> None:
    sheet = parse_worksheet(f"{START.replace('# heads', 'heads')}[answers]\nhead3.weights = [[1]]")
    with pytest.raises(WorksheetError, match=r"head1\.weights, head1\.output, head2\.scores"):
        check_answers(walk(sheet), sheet.answers)


def test_what_a_calculator_gives_for_the_printed_figures_is_right() -> None:
    # From all digits scaled(a, write) is −0.2771; the printed score gives −0.2770.
    rows = "[[-0.0664, 0.0438, -0.4383], [{}, 0.2924, -2.0961], [0.3425, -0.4926, 2.9105]]"
    for answer, correct in (("-0.2771", True), ("-0.2770", True), ("-0.2769", False)):
        sheet = parse_worksheet(f"{START}[answers]\nscaled = {rows.format(answer)}")
        assert (check_answers(walk(sheet), sheet.answers) == []) == correct


@pytest.mark.parametrize(
    ("queries", "words"),
    [
        (1, "with 1 query and 3 keys, query i sees keys 1 to i + 2."),
        (2, "with 2 queries and 3 keys, query i sees keys 1 to i + 1."),
        (3, "the last query stands at the last key, so query i sees keys 1 to i."),
        (4, "query i sees keys 1 to i − 1, and the first query sees none."),
        (5, "query i sees keys 1 to i − 2, and the first 2 queries see none."),
    ],
)
def test_a_causal_mask_tells_how_queries_and_keys_are_aligned(queries: int, words: str) -> None:
    cross = EXAMPLES["cross"]
    matrices = {**cross.matrices, "x": np.ones((queries, 2))}
    tokens = tuple("abcde"[:queries])
    steps = walk(replace(cross, tokens=tokens, matrices=matrices, causal=True))
    assert plain_text(steps["mask"].sentence).endswith(words)
    for i, row in enumerate(steps["mask"].value):
        assert (row == 0).sum() == max(0, i + 1 + 3 - queries)
