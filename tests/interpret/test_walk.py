"""The worked example equals the notes' table, and every step follows from the ones it names."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from qkv.attention import Mask, reference, split_heads
from qkv.errors import UsageError
from qkv.interpret.attention_walk import walk
from qkv.interpret.examples import EXAMPLES, POEM
from qkv.interpret.render.terminal_text import plain_text
from qkv.interpret.worksheet import Worksheet

# Recomputed in float64 from the notes' X and weights, one row a word.
TABLE = {
    "q": [[0.7621, -0.0477], [1.1102, 0.7871], [1.1070, -2.1537]],
    "k": [[-0.1418, -0.2978], [0.1049, 0.3774], [-0.9639, -2.4066]],
    "v": [[0.5996, 0.7375], [-0.3538, 0.5245], [3.8574, 2.4093]],
    "scores": [[-0.0939, 0.0619, -0.6198], [-0.3918, 0.4135, -2.9644], [0.4844, -0.6967, 4.1161]],
    "scaled": [[-0.0664, 0.0438, -0.4383], [-0.2771, 0.2924, -2.0961], [0.3425, -0.4926, 2.9105]],
    "weights": [[0.3564, 0.3979, 0.2457], [0.3414, 0.6033, 0.0554], [0.0691, 0.0300, 0.9009]],
    "output": [[1.0207, 1.0635], [0.2048, 0.7016], [3.5061, 2.2373]],
}
CAUSAL = {
    "weights": [[1, 0, 0], [0.3614, 0.6386, 0], [0.0691, 0.0300, 0.9009]],
    "output": [[0.5996, 0.7375], [-0.0093, 0.6015], [3.5061, 2.2373]],
}


@pytest.mark.parametrize("name", TABLE)
def test_the_poem_equals_the_table(name: str) -> None:
    np.testing.assert_allclose(walk(POEM)[name].value, TABLE[name], atol=1e-4)


@pytest.mark.parametrize("name", CAUSAL)
def test_the_masked_poem_equals_the_table(name: str) -> None:
    masked = walk(replace(POEM, causal=True))
    np.testing.assert_allclose(masked[name].value, CAUSAL[name], atol=1e-4)


def test_the_steps_come_in_the_order_of_the_notes() -> None:
    names = [step.name for step in walk(replace(POEM, causal=True))]
    assert names == (
        [
            "x",
            "w_q",
            "w_k",
            "w_v",
            "q",
            "k",
            "v",
            "scores",
            "scaled",
            "mask",
            "masked",
            "weights",
            "output",
        ]
    )


def test_the_mask_is_zero_or_minus_infinity() -> None:
    masked = walk(replace(POEM, causal=True))
    inf = -np.inf
    np.testing.assert_array_equal(masked["mask"].value, [[0, inf, inf], [0, 0, inf], [0, 0, 0]])
    assert np.isneginf(masked["masked"].value[0, 1:]).all()


def test_write_gives_36_percent_to_itself() -> None:
    assert plain_text(walk(POEM)["weights"].sentence).startswith(
        "*write* gives 36 % of its attention to itself"
    )


def test_without_the_scale_there_is_no_scaled_step_and_the_softmax_is_sharper() -> None:
    plain, unscaled = walk(POEM), walk(replace(POEM, scaled=False))
    assert "scaled" not in [step.name for step in unscaled]
    assert unscaled["weights"].value[2, 2] > plain["weights"].value[2, 2]
    powers = np.exp(np.array(TABLE["scores"]))
    expected = powers / powers.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(unscaled["weights"].value, expected, atol=1e-4)


def test_two_heads_use_their_own_columns_and_are_joined() -> None:
    split = walk(replace(POEM, heads=2))
    q, k = np.array(TABLE["q"]), np.array(TABLE["k"])
    for head in range(2):
        scores = np.outer(q[:, head], k[:, head])
        np.testing.assert_allclose(split[f"head{head + 1}.scores"].value, scores, atol=2e-4)
    parts = [split["head1.output"].value, split["head2.output"].value]
    np.testing.assert_array_equal(split["output"].value, np.hstack(parts))


def test_cross_attention_has_queries_as_rows_and_source_words_as_columns() -> None:
    weights = walk(EXAMPLES["cross"])["weights"]
    assert weights.rows == ("ein", "Gedicht")
    assert weights.columns == ("write", "a", "poem")


def test_the_same_example_is_the_table_of_all_similarities() -> None:
    column = np.array([1.0, 0.5, -2.0])
    np.testing.assert_array_equal(walk(EXAMPLES["same"])["scores"].value, np.outer(column, column))


def test_the_first_head_of_the_heads_example_is_the_poem() -> None:
    heads, poem = walk(EXAMPLES["heads"]), walk(POEM)
    np.testing.assert_allclose(heads["head1.output"].value, poem["output"].value, atol=1e-12)


def test_the_factored_example_counts_its_parameters() -> None:
    assert "24 numbers" in plain_text(walk(EXAMPLES["factored"])["v_up"].sentence)
    assert "= 36" in plain_text(walk(EXAMPLES["factored"])["v_up"].sentence)


@pytest.mark.parametrize("name", EXAMPLES)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("scaled", [False, True])
def test_every_step_follows_from_the_steps_it_names(name: str, causal: bool, scaled: bool) -> None:
    sheet = replace(EXAMPLES[name], causal=causal, scaled=scaled)
    _check_by_hand(sheet)
    _check_reference(sheet)


sizes = st.integers(1, 5)


@settings(max_examples=30, deadline=None)
@given(st.data(), sizes, sizes, sizes, sizes, st.integers(1, 3), st.booleans())
def test_any_sizes_can_be_walked(
    data: st.DataObject, n: int, d_model: int, d_k: int, d_v: int, heads: int, causal: bool
) -> None:
    def matrix(rows: int, columns: int) -> np.ndarray:
        numbers = st.floats(-9, 9, allow_nan=False)
        cells = data.draw(st.lists(numbers, min_size=rows * columns, max_size=rows * columns))
        return np.array(cells).reshape(rows, columns)

    sheet = Worksheet(
        tokens=tuple(f"t{i}" for i in range(n)),
        matrices={
            "x": matrix(n, d_model),
            "w_q": matrix(d_model, d_k * heads),
            "w_k": matrix(d_model, d_k * heads),
            "w_v": matrix(d_model, d_v * heads),
        },
        heads=heads,
        causal=causal,
    )
    _check_by_hand(sheet)
    _check_reference(sheet)
    assert walk(sheet)["output"].value.shape == (n, d_v * heads)


def _check_by_hand(sheet: Worksheet) -> None:
    steps = walk(sheet)
    for step in steps:
        assert step.value.shape == (len(step.rows), len(step.columns))
        if not step.is_input:
            by_hand = step.operation.compute(*steps.inputs(step))
            np.testing.assert_allclose(step.value, by_hand, rtol=1e-9, atol=1e-12)


def _check_reference(sheet: Worksheet) -> None:
    """Every step of every head equals the reference kernel's, which shares no code with it."""
    steps = walk(sheet)
    q, k, v = (
        split_heads(torch.from_numpy(steps[name].value)[None], sheet.heads) for name in "qkv"
    )
    mask = Mask.causal() if sheet.causal else Mask.full()
    attention = reference(q, k, v, mask, None if sheet.scaled else 1.0)
    names = [step.name for step in steps]
    for head in range(sheet.heads):
        prefix = f"head{head + 1}." if sheet.heads > 1 else ""
        for name in ("scores", "scaled", "masked", "weights", "output"):
            if prefix + name in names:
                expected = getattr(attention, name)[0, head].numpy()
                value = steps[prefix + name].value
                np.testing.assert_allclose(value, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("queries", [1, 2, 3, 5])
def test_a_causal_mask_of_cross_attention_is_the_one_of_the_reference(queries: int) -> None:
    rows = np.linspace(-1, 2, 2 * queries).reshape(queries, 2)
    words = tuple(f"w{i}" for i in range(queries))
    matrices = {**EXAMPLES["cross"].matrices, "x": rows}
    _check_reference(replace(EXAMPLES["cross"], tokens=words, matrices=matrices, causal=True))


@pytest.mark.parametrize(
    ("tokens", "labels"),
    [
        (("the", "cat", "the"), ("the", "cat", "the(2)")),
        (("a", "a(2)", "a"), ("a", "a(2)", "a(3)")),
        (("a\nb", "", "\t"), (r"a\nb", '""', r"\t")),
    ],
)
def test_every_word_has_a_label_of_its_own_on_one_line(
    tokens: tuple[str, ...], labels: tuple[str, ...]
) -> None:
    assert walk(replace(POEM, tokens=tokens))["weights"].columns == labels


def test_a_cell_is_found_by_words_by_column_names_and_by_numbers() -> None:
    poem = walk(POEM)
    by_words = {step.name for step, _, _ in poem.cells("poem", "write")}
    assert by_words == {"scores", "scaled", "weights"}
    assert [(s.name, i, j) for s, i, j in poem.cells("poem", "q2")] == [("q", 2, 1)]
    assert {(i, j) for _, i, j in poem.cells("3", "1")} == {(2, 0)}


def test_a_cell_that_is_not_there_is_an_error_that_lists_what_is() -> None:
    with pytest.raises(UsageError, match=r"no step has a cell poem,dog; rows: write, a, poem"):
        walk(POEM).cells("poem", "dog")
