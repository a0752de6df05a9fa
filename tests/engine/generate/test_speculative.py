"""A draft changes how soon an answer comes, never which one, nor how likely each is."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.engine.generate.tiny_writers import KINDS, VOCABULARY, slow_greedy, slow_scores, writer

from qkv.engine.generate import (
    GREEDY,
    Acceptance,
    Drafter,
    DraftModel,
    NGram,
    Request,
    Sampling,
    generate,
)
from qkv.engine.generate.sampling import Sampler, multinomial
from qkv.engine.generate.speculative import DraftToken, decode_speculative, verify
from qkv.errors import UsageError
from qkv.text import Tokenizer

DRAFTS = {
    "itself": lambda: DraftModel(writer(), draft_tokens=4),
    "another": lambda: DraftModel(writer(seed=9), draft_tokens=3),
    "shorter": lambda: DraftModel(writer(seed=9, length=17)),
    "ngram": lambda: NGram(),
    "hasty": lambda: NGram(max_size=2, min_size=1, draft_tokens=5),
}


def written(
    model, request: Request, draft: Drafter, vocabulary: int = VOCABULARY
) -> tuple[list[int], Acceptance]:
    tally = Acceptance()
    ids = [choice.id for choice in decode_speculative(model, request, vocabulary, draft, tally)]
    return ids, tally


@pytest.mark.parametrize("draft", DRAFTS)
@settings(max_examples=8, deadline=None)
@given(
    prompt=st.lists(st.integers(0, VOCABULARY - 1), min_size=1, max_size=20),
    count=st.integers(1, 31),
)
def test_greedy_tokens_are_those_of_plain_decoding(
    draft: str, prompt: list[int], count: int
) -> None:
    model = writer()
    ids, tally = written(model, Request(tuple(prompt), count, GREEDY), DRAFTS[draft]())
    assert ids == slow_greedy(model, prompt, count)
    assert 0 <= tally.accepted <= tally.drafted
    if draft == "itself":
        assert tally.accepted == tally.drafted


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_model_can_be_the_target(kind: str) -> None:
    model = writer(kind)
    request = Request((3, 1, 4, 1, 5), 23, GREEDY)
    ids, _ = written(model, request, DraftModel(writer(kind, seed=1)))
    assert ids == slow_greedy(model, request.ids, 23)


def test_a_repetition_penalty_sees_the_accepted_guesses() -> None:
    model, sampling = writer(), Sampling.of(temperature=0, repetition_penalty=1.7)
    request = Request((3, 1, 4), 30, sampling)
    text = [3, 1, 4]
    for _ in range(30):
        scores = slow_scores(model, text)
        text.append(sampling.sample(scores, torch.tensor(text), torch.Generator()))
    for draft in (DraftModel(writer()), NGram(min_size=1)):
        assert written(model, request, draft)[0] == text[3:]


def test_an_end_token_among_the_guesses_ends_the_answer() -> None:
    model = writer()
    plain = slow_greedy(model, (2, 7), 30)
    for end in set(plain):
        request = Request((2, 7), 30, GREEDY, eos_ids=frozenset({end}))
        ids, _ = written(model, request, DraftModel(model))
        assert ids == plain[: plain.index(end) + 1]


TINY = 5  # tokens of the distributions that are counted


def assert_drawn_from(shares: list[float], drawn: list[int]) -> None:
    """Counts that a chi-square test would doubt once in many thousand times."""
    total, degrees = sum(drawn), sum(share > 0 for share in shares) - 1
    assert all(count == 0 for share, count in zip(shares, drawn, strict=True) if share == 0)
    chi_square = sum(
        (count - total * share) ** 2 / (total * share)
        for share, count in zip(shares, drawn, strict=True)
        if share > 0
    )
    assert chi_square < degrees + 4 * math.sqrt(2 * degrees) + 4


@pytest.mark.parametrize("certain", [True, False])
@pytest.mark.parametrize("sampling", [Sampling.of(temperature=1.3), Sampling.of(1.3, top_k=3)])
def test_checked_guesses_are_distributed_as_the_model_is(certain: bool, sampling: Sampling) -> None:
    """The first token, and the second where the first guess was kept, of 3,000 passes."""
    scores = torch.randn(3, TINY, generator=torch.Generator().manual_seed(1)) * 1.5
    guessing = torch.randn(2, TINY, generator=torch.Generator().manual_seed(2)).softmax(dim=1)
    if certain:
        second_best = scores[:2].topk(2).indices[:, 1:]
        guessing = torch.zeros(2, TINY).scatter(1, second_best, 1.0)
    counts = [[0] * TINY, [0] * TINY]
    for seed in range(3000):
        chooser = Sampler(Request((1,), 9, sampling, seed=seed))
        guesses = [
            DraftToken(multinomial(row, chooser.random), None if certain else row.double())
            for row in guessing
        ]
        for row, choice in enumerate(verify(chooser, guesses, scores)[:2]):
            counts[row][choice.id] += 1
    for row in range(2):
        shares = sampling.probs(scores[row], torch.tensor([1]))
        assert_drawn_from(shares.tolist(), counts[row])
    assert 150 < sum(counts[1]) < 2850


@pytest.mark.parametrize("draft", ["another", "ngram"])
def test_sampled_answers_are_as_frequent_as_without_a_draft(draft: str) -> None:
    """All answers of two tokens by their exact probability, against 350 that were drawn."""
    model, prompt, sampling = writer(seed=2), (1, 2, 1, 2), Sampling.of(temperature=9.0)
    guesser: Drafter = DraftModel(writer(seed=5), draft_tokens=2)
    if draft == "ngram":
        guesser = NGram(max_size=2, min_size=1, draft_tokens=2)
    first = sampling.probs(slow_scores(model, prompt)[:TINY], torch.tensor(prompt)).tolist()
    exact, drawn, total = [], [0] * TINY**2, Acceptance()
    for a in range(TINY):
        scores = slow_scores(model, [*prompt, a])[:TINY]
        exact += [first[a] * float(share) for share in sampling.probs(scores, torch.tensor([1]))]
    for seed in range(350):
        ids, tally = written(model, Request(prompt, 2, sampling, seed=seed), guesser, TINY)
        drawn[ids[0] * TINY + ids[1]] += 1
        total.drafted += tally.drafted
        total.accepted += tally.accepted
    assert 0 < total.accepted < total.drafted
    assert_drawn_from(exact, drawn)


def test_what_the_text_repeats_is_guessed() -> None:
    letters = "abcdefghijklmnopqrstuvwx"
    tokenizer = Tokenizer.train("characters", [letters], 29)
    answer = generate(
        writer("no positions"), tokenizer, "abc" * 9, max_tokens=30, sampling=GREEDY, draft=NGram()
    )
    plain = generate(writer("no positions"), tokenizer, "abc" * 9, max_tokens=30, sampling=GREEDY)
    assert answer.finish().tokens == plain.finish().tokens
    assert answer.acceptance.drafted > 0
    assert answer.acceptance.rate == answer.acceptance.accepted / answer.acceptance.drafted


def test_a_wrong_draft_is_refused() -> None:
    with pytest.raises(UsageError, match="1 ≤ min_size ≤ max_size"):
        NGram(max_size=1, min_size=2)
    with pytest.raises(UsageError, match="draft_tokens=0 must be 1 or more"):
        DraftModel(writer(), draft_tokens=0)
    with pytest.raises(UsageError, match="the draft model has 29 tokens but the model has 31"):
        written(writer(), Request((1,), 3), DraftModel(writer()), vocabulary=31)
