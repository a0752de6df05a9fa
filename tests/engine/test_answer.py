"""Texts answered together, without padding and on all cores, are answered as if alone."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.model.odd_models import ENCODERS, LENGTH, VOCABULARY

from qkv.engine.batching import batched_outputs, parallel_map, pooled_states
from qkv.engine.optimized import optimize
from qkv.errors import ShapeError, UsageError
from qkv.machine import cores, set_threads
from qkv.model import Learned, build
from qkv.model.output import Classify, TextVector

POOLED = {
    name: config
    for name, config in ENCODERS.items()
    if isinstance(config.output, Classify | TextVector)
}


@pytest.mark.parametrize("name", POOLED)
@settings(max_examples=12, deadline=None)
@given(lengths=st.lists(st.integers(0, LENGTH), min_size=1, max_size=9), budget=st.integers(1, 60))
def test_together_equals_alone(name: str, lengths: list[int], budget: int) -> None:
    model = build(POOLED[name], seed=1).eval()
    draws = torch.Generator().manual_seed(sum(lengths))
    texts = [torch.randint(VOCABULARY, (n,), generator=draws).tolist() for n in lengths]
    together = batched_outputs(model, texts, batch_tokens=budget)
    with torch.inference_mode():
        for text, answer in zip(texts, together, strict=True):
            ids = torch.tensor([text or [0]])
            alone = model(ids, torch.tensor([len(text)]))[0]
            torch.testing.assert_close(answer, alone, rtol=1e-5, atol=1e-5)


def test_no_texts_have_no_answers() -> None:
    assert len(batched_outputs(build(POOLED["mean vector"]), [])) == 0


@pytest.mark.parametrize("name", POOLED)
def test_texts_of_nothing_are_answered_also_in_8_bits_and_before_the_answer(name: str) -> None:
    model = build(POOLED[name], seed=1).eval()
    plain, small = (
        batched_outputs(model, [[], []]),
        batched_outputs(optimize(model, int8=True), [[], []]),
    )
    assert plain.shape == small.shape
    torch.testing.assert_close(plain[0], plain[1])
    assert pooled_states(model, [[]]).equal(torch.zeros(1, model.config.encoder.width))


def test_the_pooled_states_are_those_the_answer_is_made_of() -> None:
    model = build(POOLED["mean vector"], seed=1).eval()
    texts = [[3, 1, 4], [1, 5]]
    vectors = pooled_states(model, texts)
    torch.testing.assert_close(
        torch.nn.functional.normalize(vectors), batched_outputs(model, texts)
    )


def test_an_encoder_that_answers_for_each_token_has_no_pooled_states() -> None:
    with pytest.raises(UsageError, match="an output for each token"):
        pooled_states(build(ENCODERS["bert"]), [[1]])


def test_a_text_longer_than_the_table_of_positions_is_refused_with_both_numbers() -> None:
    config = POOLED["mean vector"]
    learned = config.encoder.model_copy(update={"position": Learned()})
    model, most = build(config.model_copy(update={"encoder": learned})), LENGTH
    with pytest.raises(ShapeError, match=f"text 1 has {most + 1} tokens .* at most {most}"):
        batched_outputs(model, [[1], [1] * (most + 1)])


TWO_CORES = pytest.mark.skipif(cores().usable < 2, reason="two threads need two cores")


@TWO_CORES
@pytest.mark.parametrize("count", [0, 1, 2, 4, 5, 11, 40])
def test_work_is_spread_in_order_and_the_threads_are_given_back(count: int) -> None:
    before = torch.get_num_threads()
    set_threads(2)
    try:
        seen = parallel_map(
            lambda piece: (piece * 7, torch.get_num_threads() <= 2), list(range(count))
        )
        assert seen == [(piece * 7, True) for piece in range(count)]
        assert torch.get_num_threads() == 2
    finally:
        set_threads(before)


@TWO_CORES
def test_what_goes_wrong_in_a_piece_is_told_and_the_threads_are_given_back() -> None:
    before = torch.get_num_threads()
    set_threads(2)
    try:
        with pytest.raises(ZeroDivisionError):
            parallel_map(lambda piece: 1 / (piece - 7), list(range(11)))
        assert torch.get_num_threads() == 2
    finally:
        set_threads(before)
