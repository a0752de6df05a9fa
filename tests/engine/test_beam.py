"""Beam search equals its slow twin, whatever is decoded together; one beam is greedy."""

import math
import random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.engine.tiny_translators import (
    END,
    LENGTH,
    POSITIONS,
    START,
    assert_alike,
    every_target,
    forced_score,
    greedy,
    slow_beam_search,
    translator,
)

from qkv.engine.beam.hypotheses import Hypothesis
from qkv.engine.beam.search import beam_search, default_max_length
from qkv.errors import QkvError, ShapeError, UsageError
from qkv.model import Learned, Rope, Translator

# Drawn alike every time: two targets within rounding of each other may change places.
SEEDS = st.integers(0, 10_000)


def some_sources(seed: int, count: int, vocabulary: int = 13) -> list[list[int]]:
    draws = random.Random(seed)
    return [[draws.randrange(vocabulary) for _ in range(draws.randint(1, 7))] for _ in range(count)]


def search(model: Translator, sources: list[list[int]], **asked: object) -> list[list[Hypothesis]]:
    return beam_search(model, sources, bos=START, eos=END, **asked)  # type: ignore[arg-type]


@settings(max_examples=40, deadline=None, derandomize=True)
@given(seed=SEEDS, ending=st.sampled_from([0.0, 2.0, 5.0]), position=st.sampled_from(POSITIONS))
def test_one_beam_is_greedy(seed: int, ending: float, position: object) -> None:
    model = translator(seed, ending=ending, position=position)  # type: ignore[arg-type]
    sources = some_sources(seed, 5)
    for source, found in zip(sources, search(model, sources, max_length=7), strict=True):
        assert_alike(found, [greedy(model, source, 7)])


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    seed=SEEDS,
    ending=st.sampled_from([0.0, 2.0, 5.0]),
    position=st.sampled_from(POSITIONS),
    beams=st.integers(2, 5),
    length_penalty=st.sampled_from([0.0, 0.6, 1.0, 2.0]),
    longest=st.integers(1, 7),
    forbidden=st.sampled_from([(), (0, START), (START, 5, 12)]),
)
def test_it_equals_its_slow_twin(
    seed: int,
    ending: float,
    position: object,
    beams: int,
    length_penalty: float,
    longest: int,
    forbidden: tuple[int, ...],
) -> None:
    model = translator(seed, ending=ending, position=position)  # type: ignore[arg-type]
    sources = some_sources(seed, 3)
    answers = search(
        model,
        sources,
        beams=beams,
        best=beams,
        max_length=longest,
        length_penalty=length_penalty,
        forbidden=forbidden,
    )
    for source, found in zip(sources, answers, strict=True):
        slow = slow_beam_search(model, source, beams, longest, length_penalty, forbidden)
        assert_alike(found, slow[:beams])


@pytest.mark.slow
@pytest.mark.parametrize("length_penalty", [0.0, 1.0, 3.0])
@pytest.mark.parametrize("vocabulary", [5, 7])
def test_with_room_for_the_whole_tree_it_finds_the_best_of_all(
    vocabulary: int, length_penalty: float
) -> None:
    longest = 3
    for seed in range(3):
        model = translator(seed, vocabulary, ending=2.0)
        source = [3, 4, 0, 3]
        found = search(
            model,
            [source],
            beams=vocabulary**longest,
            best=11,
            max_length=longest,
            length_penalty=length_penalty,
        )
        assert_alike(found[0], every_target(model, source, longest, length_penalty)[:11])


@pytest.mark.slow
@settings(max_examples=20, deadline=None, derandomize=True)
@given(seed=SEEDS, beams=st.integers(1, 4), batch_tokens=st.integers(1, 200))
def test_an_answer_does_not_depend_on_its_neighbours(
    seed: int, beams: int, batch_tokens: int
) -> None:
    model, sources = translator(seed, ending=3.0), some_sources(seed, 11)
    together = search(model, sources, beams=beams, best=beams)
    order = random.Random(seed).sample(range(len(sources)), len(sources))
    mixed = search(
        model, [sources[i] for i in order], beams=beams, best=beams, batch_tokens=batch_tokens
    )
    for i, answer in zip(order, mixed, strict=True):
        assert_alike(answer, together[i])
    for source, answer in zip(sources[:3], together[:3], strict=True):
        assert_alike(search(model, [source], beams=beams, best=beams)[0], answer)


@pytest.mark.parametrize("beams", [1, 2, 3])
def test_asking_for_fewer_gives_the_first_of_more(beams: int) -> None:
    for seed in range(5):
        model, sources = translator(seed, ending=3.0), some_sources(seed, 7)
        for all_of, one in zip(
            search(model, sources, beams=beams, best=beams),
            search(model, sources, beams=beams),
            strict=True,
        ):
            assert_alike(one, all_of[:1])


@settings(max_examples=20, deadline=None, derandomize=True)
@given(seed=SEEDS, beams=st.integers(1, 4), length_penalty=st.sampled_from([0.0, 1.0]))
def test_a_score_is_the_log_probability_of_the_target(
    seed: int, beams: int, length_penalty: float
) -> None:
    model, sources = translator(seed, ending=3.0), some_sources(seed, 5)
    answers = search(model, sources, beams=beams, best=beams, length_penalty=length_penalty)
    for source, answer in zip(sources, answers, strict=True):
        assert [h.rank for h in answer] == sorted((h.rank for h in answer), reverse=True)
        for h in answer:
            assert math.isclose(h.score, forced_score(model, source, h), abs_tol=1e-3)
            scored = len(h.ids) + (h.stop_reason == "end")
            assert math.isclose(h.rank, h.score / scored**length_penalty)


@pytest.mark.parametrize("beams", [1, 3])
def test_a_target_that_never_ends_stops_at_its_length(beams: int) -> None:
    model = translator(ending=-100.0)
    sources = [[3], [4, 5, 6]]
    for source, (found,) in zip(sources, search(model, sources, beams=beams), strict=True):
        assert found.stop_reason == "length"
        assert len(found.ids) == default_max_length(len(source))


@pytest.mark.parametrize("beams", [1, 3])
def test_a_target_that_ends_at_once_is_empty(beams: int) -> None:
    (found,) = search(translator(ending=200.0), [[3, 4]], beams=beams)[0]
    assert (found.ids, found.stop_reason) == ((), "end")
    assert math.isclose(found.score, 0.0, abs_tol=1e-3)


@pytest.mark.parametrize("beams", [1, 4])
def test_each_source_has_a_length_of_its_own(beams: int) -> None:
    model = translator(ending=-100.0)
    sources = [[3] * n for n in (5, 6, 5, 7, 6)]
    found = search(model, sources, beams=beams, max_length=lambda n: n - 3)
    assert [len(answer[0].ids) for answer in found] == [2, 3, 2, 4, 3]


@pytest.mark.parametrize("beams", [1, 3])
def test_a_learned_table_limits_the_length(beams: int) -> None:
    model = translator(ending=-100.0, position=Learned())
    (found,) = search(model, [[3] * 9], beams=beams)[0]
    assert len(found.ids) == LENGTH < default_max_length(9)
    with pytest.raises(UsageError, match="max_length is 20 for a source of 9 tokens; it must be"):
        search(model, [[3] * 9], max_length=LENGTH + 1)


@pytest.mark.parametrize("beams", [1, 3])
def test_other_positions_go_past_the_length_of_the_model(beams: int) -> None:
    model = translator(ending=-100.0, position=Rope())
    (found,) = search(model, [[3] * 9], beams=beams)[0]
    assert len(found.ids) == default_max_length(9) > LENGTH


@pytest.mark.parametrize("beams", [1, 5])
def test_forbidden_tokens_are_never_written(beams: int) -> None:
    forbidden = (0, START, 4, 7)
    for seed in range(5):
        model = translator(seed)
        free = search(model, some_sources(seed, 7), beams=beams)
        assert any(set(answer[0].ids) & set(forbidden) for answer in free)
        for answer in search(model, some_sources(seed, 7), beams=beams, forbidden=forbidden):
            assert not set(answer[0].ids) & set(forbidden)


def test_where_few_targets_can_be_written_few_are_given() -> None:
    model = translator(vocabulary=5)
    found = search(model, [[3]], beams=4, best=4, max_length=2, forbidden=(0, 1, 3))
    assert sorted(h.ids for h in found[0]) == [(), (4,), (4, 4)]


@pytest.mark.parametrize("beams", [1, 3])
def test_of_equally_probable_tokens_the_lowest_is_written(beams: int) -> None:
    model = translator()
    with torch.no_grad():
        model.output.weight.zero_()
        model.output.bias.copy_(torch.tensor([0.0, 0, -9, 0, 0, 4, 0, 0, 4, 0, 4, 0, 0]))
    found = search(model, [[3, 4]], beams=beams, best=beams, max_length=2)[0]
    assert [h.ids for h in found] == [(5, 5), (5, 8), (5, 10)][:beams]


def test_the_same_search_gives_the_same_bits() -> None:
    model, sources = translator(ending=3.0), some_sources(0, 11)
    assert search(model, sources, beams=3) == search(model, sources, beams=3)


def test_the_encoder_reads_each_source_once() -> None:
    model, rows = translator(), list[int]()
    model.encoder.register_forward_hook(lambda _, __, out: rows.append(out.shape[0]))
    search(model, some_sources(0, 11), beams=3, batch_tokens=40)
    assert sum(rows) == 11
    assert len(rows) > 1


def test_finished_sentences_are_no_longer_computed() -> None:
    model, rows = translator(ending=-100.0), list[int]()
    model.decoder.register_forward_hook(lambda _, __, out: rows.append(out[..., 0].numel()))
    search(model, [[3], [4, 5]], beams=3, max_length=lambda n: 3 * n)
    assert rows == [2, 6, 6, 3, 3, 3]


def test_the_model_is_left_in_the_mode_it_was_in() -> None:
    model = translator().train()
    model.encoder.eval()
    dropped = search(model, [[3, 4]])
    assert model.training
    assert model.decoder.training
    assert not model.encoder.training
    assert dropped == search(model.eval(), [[3, 4]])
    assert not model.training


def test_no_sources_have_no_targets() -> None:
    assert search(translator(), []) == []


def test_an_empty_source_is_refused() -> None:
    with pytest.raises(ShapeError, match="source 1 is empty; a translation needs one token"):
        search(translator(), [[3], [], [4]])


def test_a_source_beyond_a_learned_table_is_refused() -> None:
    with pytest.raises(ShapeError, match="source 1 has 20 tokens but the model reads at most 19"):
        search(translator(position=Learned()), [[3], [4] * 20])


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"beams": 0}, "beams=0 must be 1 or more"),
        ({"beams": 2, "best": 3}, "best=3 of beams=2: ask for 1 to 2 targets, or for more beams"),
        ({"best": 0}, "best=0 of beams=1"),
        ({"max_length": 0}, "max_length is 0 for a source of 2 tokens; it must be 1 or more"),
        ({"length_penalty": -1.0}, "length_penalty=-1.0 must be 0"),
        ({"length_penalty": math.nan}, "length_penalty=nan must be 0"),
        ({"bos": 13}, "bos=13 is not a token; the model's targets have 0 to 12"),
        ({"eos": -1}, "eos=-1 is not a token"),
        ({"forbidden": (4, 99)}, "forbidden=99 is not a token"),
        ({"forbidden": (END,)}, "eos=2 is forbidden, so no target could end; allow it"),
        ({"batch_tokens": 0}, "batch_tokens=0 must be 1 or more"),
    ],
)
def test_impossible_searches_are_refused(asked: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError) as refused:
        beam_search(translator(), [[3, 4]], **{"bos": START, "eos": END, **asked})  # type: ignore[arg-type]
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("beams", [1, 3])
def test_a_model_that_gives_no_numbers_is_refused(beams: int) -> None:
    model = translator()
    with torch.no_grad():
        model.output.bias[5] = torch.nan
    with pytest.raises(QkvError, match="the score nan, but log-probabilities are finite"):
        search(model, [[3, 4]], beams=beams)
