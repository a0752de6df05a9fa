"""Strategies give the distributions of transformers, and draws follow them."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import (
    LogitsProcessorList,
    MinPLogitsWarper,
    RepetitionPenaltyLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from qkv.engine.generate import (
    GREEDY,
    MinP,
    RepetitionPenalty,
    Sampling,
    Temperature,
    TopK,
    TopP,
)
from qkv.engine.generate.sampling import (
    FrequencyPenalty,
    Greedy,
    LogitBias,
    multinomial,
    seeded_generator,
)
from qkv.errors import QkvError, UsageError

V = 307
IDS = torch.tensor([3, 5, 3, 300, 17])


def row(seed: int, spread: float = 3.0) -> torch.Tensor:
    return torch.randn(V, generator=torch.Generator().manual_seed(seed)) * spread


def theirs(scores: torch.Tensor, *processors: object) -> torch.Tensor:
    return LogitsProcessorList(processors)(IDS[None], scores[None].clone())[0].softmax(dim=0)


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    spread=st.sampled_from([0.3, 3.0, 9.0]),
    temperature=st.sampled_from([0.3, 0.8, 1.7]),
    k=st.integers(1, V),
    p=st.sampled_from([0.05, 0.5, 0.9, 0.999]),
    low=st.sampled_from([0.01, 0.2, 0.9]),
    penalty=st.sampled_from([0.7, 1.3]),
)
def test_all_steps_together_and_each_alone_equal_transformers(
    seed: int, spread: float, temperature: float, k: int, p: float, low: float, penalty: float
) -> None:
    pairs = [
        (RepetitionPenalty(penalty), RepetitionPenaltyLogitsProcessor(penalty)),
        (Temperature(temperature), TemperatureLogitsWarper(temperature)),
        (TopK(k), TopKLogitsWarper(k)),
        (TopP(p), TopPLogitsWarper(p)),
        (MinP(low), MinPLogitsWarper(low)),
    ]
    scores = row(seed, spread)
    kept = scores.clone()
    for chosen in ([pair] for pair in pairs), [pairs]:
        for some in chosen:
            ours = Sampling(tuple(step for step, _ in some)).probs(scores, IDS)
            expected = theirs(scores, *(processor for _, processor in some))
            torch.testing.assert_close(ours.float(), expected, rtol=1e-4, atol=1e-6)
    assert torch.equal(scores, kept)  # what is given is not written to


def test_the_usual_steps_come_in_the_usual_order() -> None:
    made = Sampling.of(0.7, top_k=40, top_p=0.9, min_p=0.05, repetition_penalty=1.1)
    steps = (RepetitionPenalty(1.1), Temperature(0.7), TopK(40), TopP(0.9), MinP(0.05))
    assert made == Sampling(steps)


def test_top_p_looks_beyond_the_first_few_where_it_must() -> None:
    flat = torch.zeros(1009)
    assert int((TopP(0.9).apply(flat, IDS) > -torch.inf).sum()) == math.ceil(0.9 * 1009)
    assert int((TopP(0.0001).apply(flat, IDS) > -torch.inf).sum()) == 1


def test_temperature_0_is_greedy_and_keeps_the_other_steps() -> None:
    assert Sampling.of(temperature=0) == GREEDY
    penalised = Sampling.of(temperature=0, repetition_penalty=50.0)
    scores = torch.tensor([1.0, 5.0, 4.0])
    assert GREEDY.sample(scores, torch.tensor([1]), seeded_generator(0)) == 1
    assert penalised.sample(scores, torch.tensor([1]), seeded_generator(0)) == 2
    assert GREEDY.is_argmax
    assert not penalised.is_argmax
    assert Greedy().probs(scores).tolist() == [0, 1, 0]


def test_draws_follow_the_shares() -> None:
    shares = torch.tensor([0.0, 0.5, 0.0, 0.2, 0.3, 0.0])
    random, count = seeded_generator(11), 4000
    drawn = torch.bincount(
        torch.tensor([multinomial(shares, random) for _ in range(count)]), minlength=6
    )
    assert drawn[shares == 0].sum() == 0
    expected = shares[shares > 0] * count
    chi_square = ((drawn[shares > 0] - expected) ** 2 / expected).sum()
    assert chi_square < 13.8  # 1 in 1000 for two degrees of freedom


def test_streams_depend_on_seed_and_number() -> None:
    first = {
        (seed, number): torch.rand(3, generator=seeded_generator(seed, number)).tolist()[0]
        for seed in range(3)
        for number in range(3)
    }
    assert len(set(first.values())) == 9
    assert torch.rand(1, generator=seeded_generator(2, 1)).item() == pytest.approx(first[2, 1])


def test_nothing_left_to_draw_is_an_error() -> None:
    with pytest.raises(QkvError, match="no token is left"):
        Sampling().sample(torch.full((5,), -torch.inf), IDS, seeded_generator(0))


WRONG = {
    "temperature=-1 must be 0": lambda: Temperature(-1),
    "temperature=nan must be": lambda: Sampling.of(temperature=math.nan),
    "temperature=0 would divide": lambda: Temperature(0),
    "top_k=0 must be an integer": lambda: TopK(0),
    "top_k=2.5 must be": lambda: TopK(2.5),  # type: ignore[arg-type]
    "top_p=0 must be above 0": lambda: TopP(0.0),
    "top_p=1.2 must be": lambda: TopP(1.2),
    "min_p=-0.1 must be between": lambda: MinP(-0.1),
    "repetition_penalty=0 must be above 0": lambda: RepetitionPenalty(0),
    "repetition_penalty=inf": lambda: RepetitionPenalty(math.inf),
}


@pytest.mark.parametrize("message", WRONG)
def test_a_wrong_number_is_refused_when_it_is_given(message: str) -> None:
    with pytest.raises(UsageError, match=message):
        WRONG[message]()


def test_the_likeliest_token_needs_no_strategy_that_only_leaves_fewer() -> None:
    assert Sampling.of(temperature=0, top_k=5, top_p=0.9, min_p=0.1).is_argmax
    assert not Sampling.of(temperature=0, repetition_penalty=1.2).is_argmax
    with pytest.raises(UsageError):
        Sampling.of(temperature=0, top_p=1.5)


def test_penalties_lower_only_what_the_completion_has() -> None:
    logits = torch.zeros(5)
    ids = torch.tensor([0, 1, 1, 3, 3, 3, 4])
    penalized = FrequencyPenalty(0.5, 0.25, prompt_tokens=3).apply(logits, ids)
    assert penalized.tolist() == [0.0, 0.0, 0.0, -1.75, -0.75]
    assert FrequencyPenalty(0.5, 0.25, 7).apply(logits, ids).equal(logits)


def test_a_logit_bias_is_added_and_an_unknown_token_is_an_error() -> None:
    logits = torch.zeros(4)
    assert LogitBias(((1, 2.5), (3, -100.0))).apply(logits, logits).tolist() == [0, 2.5, 0, -100]
    with pytest.raises(UsageError, match="names token 4, but there are only 0 to 3"):
        LogitBias(((4, 1.0),)).apply(logits, logits)
    with pytest.raises(UsageError, match="not within -100 to 100"):
        LogitBias(((1, 101.0),))
