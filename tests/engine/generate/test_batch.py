"""Many sequences at once write what each would write alone, and no one disturbs another."""

from dataclasses import dataclass

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.engine.generate.tiny_writers import (
    KINDS,
    LENGTH,
    VOCABULARY,
    slow_greedy,
    slow_scores,
    watched,
    writer,
)
from tests.kernels.native import needs_compiler
from torch import Tensor

from qkv.attention import LayerCache, RaggedCache, RaggedLayerCache
from qkv.engine.generate import (
    GREEDY,
    LogitsProcessor,
    Request,
    Sampling,
    Scheduler,
    Sequence,
    score_prompts,
)
from qkv.engine.generate.decode import decode_one
from qkv.engine.optimized import optimize
from qkv.engine.optimized.decode_step import DecodeStepLayers
from qkv.errors import CacheError, QkvError, UsageError
from qkv.model import Decoder
from qkv.model.stack import Block

MODELS = {kind: writer(kind) for kind in KINDS}
MODEL = MODELS["rotary"]
EVERY_KIND = pytest.mark.parametrize("kind", KINDS)


def run(batch: Scheduler, *requests: Request) -> list[list[int] | Exception]:
    """What comes of each request, all of them added at once."""
    return finish(batch, [batch.add(request) for request in requests])


def finish(batch: Scheduler, members: list[Sequence]) -> list[list[int] | Exception]:
    found: dict[Sequence, list[int] | Exception] = {member: [] for member in members}
    for _ in range(2000):
        if batch.idle:
            return list(found.values())
        for event in batch.step():
            if event.error is not None:
                found[event.sequence] = event.error
            else:
                written = found[event.sequence]
                assert isinstance(written, list)
                assert event.token is not None
                written.append(event.token.id)
    raise AssertionError("the batch did not come to an end")


def alone(model, request: Request) -> list[int]:
    return [choice.id for choice in decode_one(model, request, VOCABULARY)]


def ids(seed: int, count: int) -> tuple[int, ...]:
    draws = torch.Generator().manual_seed(seed)
    return tuple(torch.randint(VOCABULARY, (count,), generator=draws).tolist())


prompts = st.lists(
    st.lists(st.integers(0, VOCABULARY - 1), min_size=1, max_size=23), min_size=1, max_size=6
)


@EVERY_KIND
@settings(max_examples=12, deadline=None)
@given(prompts=prompts, counts=st.lists(st.integers(1, 13), min_size=6, max_size=6))
def test_cached_and_batched_scores_equal_those_computed_from_nothing(
    kind: str, prompts: list[list[int]], counts: list[int]
) -> None:
    """Every row of scores, of every sequence, whatever its neighbours' lengths are."""
    model, batch = MODELS[kind], Scheduler(MODELS[kind], VOCABULARY)
    rows = []
    for prompt, count in zip(prompts, counts, strict=False):
        sampling, seen = watched()
        rows.append((prompt, seen, batch.add(Request(tuple(prompt), count, sampling))))
        if len(rows) % 2:
            batch.step()  # some join while others are at work
    for _ in range(100):
        batch.step()
    assert batch.idle
    for prompt, seen, running in rows:
        text = list(prompt)
        assert len(seen) == running.request.max_tokens
        for scores in seen:
            torch.testing.assert_close(scores, slow_scores(model, text), rtol=0, atol=1e-4)
            text.append(int(scores.argmax()))


@EVERY_KIND
def test_one_sequence_equals_the_slow_way(kind: str) -> None:
    sampling, seen = watched()
    request = Request(ids(3, 7), 19, sampling)
    written = alone(MODELS[kind], request)
    assert written == slow_greedy(MODELS[kind], request.ids, 19)
    text = list(request.ids)
    for scores, id in zip(seen, written, strict=True):
        torch.testing.assert_close(scores, slow_scores(MODELS[kind], text), rtol=0, atol=1e-4)
        text.append(id)


@settings(max_examples=15, deadline=None)
@given(prompts=prompts, seed=st.integers(0, 99), place=st.integers(0, 5))
def test_the_same_seed_gives_the_same_tokens_whatever_else_is_in_the_batch(
    prompts: list[list[int]], seed: int, place: int
) -> None:
    sampling = Sampling.of(temperature=1.3, top_k=11, repetition_penalty=1.2)
    asked = Request(ids(seed, 5), 17, sampling, seed=seed)
    others = [Request(tuple(p), 9, sampling, seed=i) for i, p in enumerate(prompts)]
    others.insert(place, asked)
    found = run(Scheduler(MODEL, VOCABULARY), *others)
    assert found[others.index(asked)] == alone(MODEL, asked)


def test_answers_of_one_seed_differ_by_their_number() -> None:
    sampling = Sampling.of(temperature=2.0)
    found = run(
        Scheduler(MODEL, VOCABULARY),
        *(Request(ids(1, 4), 20, sampling, seed=5, sample_index=n) for n in range(3)),
    )
    assert len({tuple(f) for f in found}) == 3
    assert found[1] == alone(MODEL, Request(ids(1, 4), 20, sampling, seed=5, sample_index=1))


def test_an_end_token_ends_a_sequence_and_is_its_last() -> None:
    expected = slow_greedy(MODEL, ids(2, 6), 25)
    end = expected[11]
    found = run(
        Scheduler(MODEL, VOCABULARY), Request(ids(2, 6), 25, GREEDY, eos_ids=frozenset({end}))
    )
    assert found == [expected[: expected.index(end) + 1]]


def test_no_more_is_admitted_than_the_budget_and_the_rest_come_in_order() -> None:
    batch = Scheduler(MODEL, VOCABULARY, cache_tokens=40)
    members = [batch.add(Request(ids(i, 7 + i % 3), 9, GREEDY)) for i in range(7)]
    first: list[Sequence] = []
    while not batch.idle:
        for event in batch.step():
            if event.sequence not in first:
                first.append(event.sequence)
        at_work = batch.running + batch.prefill_queue.active
        assert sum(member.request.max_length for member in at_work) <= 40
    assert first == members


def test_a_request_larger_than_the_budget_is_answered_when_it_is_alone() -> None:
    batch = Scheduler(MODEL, VOCABULARY, cache_tokens=10)
    request = Request(ids(1, 8), 7, GREEDY)
    assert run(batch, request, request) == [slow_greedy(MODEL, request.ids, 7)] * 2


def test_what_prompts_have_in_common_is_computed_once() -> None:
    beginning, batch = ids(1, 31), Scheduler(MODEL, VOCABULARY)
    asked = [Request((*beginning, *ids(i, 3)), 5, GREEDY) for i in range(2, 9)]
    found = run(batch, *asked)
    assert found == [slow_greedy(MODEL, request.ids, 5) for request in asked]
    assert batch.prefill_queue.computed == 34 + 6 * 3
    assert run(batch, asked[3]) == [found[3]]
    assert batch.prefill_queue.computed == 34 + 6 * 3 + 1  # the last token, for its scores


def test_without_room_for_prefixes_everything_is_computed() -> None:
    batch = Scheduler(MODEL, VOCABULARY, prefix_cache_tokens=0)
    request = Request(ids(1, 20), 3, GREEDY)
    assert run(batch, request) == run(batch, request)
    assert batch.prefill_queue.computed == 40


def test_only_so_many_tokens_of_old_prompts_are_kept() -> None:
    batch = Scheduler(MODEL, VOCABULARY, prefix_cache_tokens=70)
    for seed in range(9):
        run(batch, Request(ids(seed, 30), 2, GREEDY))
        assert batch.prefill_queue.prefix_cache.tokens <= 70
    assert batch.prefill_queue.prefix_cache.tokens == 60


def test_a_long_prompt_is_read_in_chunks_while_others_go_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("qkv.engine.generate.prefill.PREFILL_CHUNK", 8)
    batch = Scheduler(MODEL, VOCABULARY)
    short = batch.add(Request(ids(1, 3), 30, GREEDY))
    batch.step()
    long = batch.add(Request(ids(2, 43), 6, GREEDY))
    for _ in range(5):
        assert [event.sequence for event in batch.step()] == [short]
    assert [event.sequence for event in batch.step()] == [short, long]
    rest = finish(batch, [short, long])
    assert rest[1] == slow_greedy(MODEL, long.request.ids, 6)[1:]


def test_prompts_of_near_length_are_read_together() -> None:
    batch = Scheduler(MODEL, VOCABULARY)
    asked = [Request(ids(i, n), 1, GREEDY) for i, n in enumerate((20, 19, 22, 3, 21))]
    for request in asked:
        batch.add(request)
    assert [len(batch.step()) for _ in range(3)] == [4, 1, 0]


def test_a_cancelled_sequence_frees_its_row_at_once() -> None:
    batch = Scheduler(MODEL, VOCABULARY)
    asked = [Request(ids(i, 5 + 4 * i), 20, GREEDY) for i in range(5)]
    members = [batch.add(request) for request in asked]
    while len(batch.running) < 4:
        batch.step()
    waiting = next(member for member in members if member not in batch.running)
    gone = batch.running[1]
    for member in (gone, waiting):
        batch.cancel(member)
        assert member not in batch.running
    assert len(batch.cache) == 3
    staying = [m for m in members if m not in (gone, waiting)]
    written = {m: len(m.tokens) for m in staying}
    for member, found in zip(staying, finish(batch, staying), strict=True):
        expected = slow_greedy(MODEL, member.request.ids, 20)
        assert found == expected[written[member] :]
    batch.cancel(gone)  # once more does no harm
    assert batch.idle


def test_one_that_is_cancelled_while_it_is_read_is_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("qkv.engine.generate.prefill.PREFILL_CHUNK", 8)
    batch = Scheduler(MODEL, VOCABULARY)
    long, other = (batch.add(Request(ids(i, n), 4, GREEDY)) for i, n in ((1, 40), (2, 7)))
    batch.step()
    assert batch.prefill_queue.active == [other, long]
    batch.cancel(long)
    assert finish(batch, [long, other]) == [[], slow_greedy(MODEL, ids(2, 7), 4)]
    assert batch.prefill_queue.computed == 8 + 7


def test_memory_shrinks_when_rows_leave() -> None:
    batch = Scheduler(MODEL, VOCABULARY)
    members = [batch.add(Request(ids(i, 5 + i), 30, GREEDY)) for i in range(16)]
    while len(batch.running) < 16:
        batch.step()
    full = batch.cache.cache.bytes
    for member in members[2:]:
        batch.cancel(member)
    assert batch.cache.cache.bytes <= full / 4
    for member in members[:2]:
        batch.cancel(member)
    assert batch.cache.cache.bytes == 0


@dataclass(frozen=True)
class Raises(LogitsProcessor):
    """Goes wrong after some tokens."""

    after: int

    def apply(self, scores: Tensor, ids: Tensor) -> Tensor:
        if len(ids) > self.after:
            raise ZeroDivisionError("a strategy of somebody's own")
        return scores


def test_a_strategy_that_raises_ends_only_its_own_sequence() -> None:
    good = [Request(ids(i, 6), 12, GREEDY) for i in range(4)]
    bad = Request(ids(7, 6), 12, Sampling((Raises(9),)))
    found = run(Scheduler(MODEL, VOCABULARY), good[0], bad, *good[1:])
    assert isinstance(found.pop(1), ZeroDivisionError)
    assert found == [slow_greedy(MODEL, request.ids, 12) for request in good]


@pytest.mark.parametrize("poison", [0, 13])
@pytest.mark.parametrize("where", ["prompt", "middle"])
def test_scores_that_are_not_finite_end_only_their_own_sequence(poison: int, where: str) -> None:
    """A token whose embedding is NaN stands in one prompt, or is written by one sequence."""
    model = writer(seed=3)
    with torch.no_grad():
        model.output.bias[poison] = -1e4  # nobody writes it unless made to
    clean = [Request(tuple(i for i in ids(s, 11 + s) if i != poison), 8, GREEDY) for s in range(7)]
    expected = [slow_greedy(model, request.ids, 8) for request in clean]
    bad = Request((5, poison, 7), 8, GREEDY)
    if where == "middle":
        bad = Request((5, 6, 7), 8, Sampling((Only(poison, after=5),), GREEDY.strategy))
    with torch.no_grad():
        model.embedding.weight[poison] = torch.nan
    batch = Scheduler(model, VOCABULARY)
    found = run(batch, *clean[:2], bad, *clean[2:])
    error = found.pop(2)
    assert isinstance(error, QkvError)
    assert "not finite" in str(error)
    assert found == expected
    assert run(batch, *clean) == expected  # in the rows that the bad one has left, too


@dataclass(frozen=True)
class Only(LogitsProcessor):
    """One token and no other, once there are so many ids."""

    id: int
    after: int

    def apply(self, scores: Tensor, ids: Tensor) -> Tensor:
        if len(ids) < self.after:
            return scores
        return torch.full_like(scores, -torch.inf).index_fill_(0, torch.tensor([self.id]), 0.0)


class Refusing(Decoder):
    """A model that cannot read one token."""

    def states(self, ids, *given, **named):  # type: ignore[no-untyped-def]
        if (ids == 28).any():
            raise RuntimeError("a kernel refused")
        return super().states(ids, *given, **named)


def test_a_prompt_the_model_cannot_read_fails_alone() -> None:
    model = writer(seed=5)
    model.__class__ = Refusing
    good = [Request(tuple(i % 28 for i in ids(s, 9)), 1, GREEDY) for s in range(3)]
    bad = Request((28, *ids(4, 8)), 4, GREEDY)
    found = run(Scheduler(model, VOCABULARY), good[0], bad, good[1], good[2])
    assert isinstance(found.pop(1), RuntimeError)
    assert found == [slow_greedy(writer(seed=5), request.ids, 1) for request in good]


IMPOSSIBLE = {
    "no tokens": (lambda: Request((), 3), "has no tokens"),
    "no answer": (lambda: Request((1,), 0), "max_tokens=0 must be 1 or more"),
    "no such token": (lambda: Request((1, VOCABULARY), 3), "token 29 does not exist"),
    "too long": (lambda: Request((1,) * 62, 3), "prompt has 62 tokens but the model reads at mo"),
    "no room": (lambda: Request((1,) * 60, 3), "60 tokens and max_tokens=3, but the model reads"),
    "full": (lambda: Request((1,) * 61, 3), "all that the model reads"),
}  # fmt: skip


@pytest.mark.parametrize("case", IMPOSSIBLE)
def test_an_impossible_request_is_refused_and_the_others_are_answered(case: str) -> None:
    make, message = IMPOSSIBLE[case]
    batch = Scheduler(MODEL, VOCABULARY)
    good = batch.add(Request(ids(1, 5), 4, GREEDY))
    with pytest.raises(UsageError, match=message):
        batch.add(make())
    assert finish(batch, [good]) == [slow_greedy(MODEL, ids(1, 5), 4)]


def test_a_model_in_training_is_left_in_training() -> None:
    model = writer(seed=1)
    model.train()
    found = run(Scheduler(model, VOCABULARY), Request(ids(1, 5), 6, GREEDY))
    assert all(part.training for part in model.modules())
    assert found == [slow_greedy(model.eval(), ids(1, 5), 6)]


@EVERY_KIND
def test_one_by_itself_stands_in_a_plain_cache_until_another_joins(kind: str) -> None:
    model, batch = MODELS[kind], Scheduler(MODELS[kind], VOCABULARY)
    first, second = Request(ids(1, 7), 40, GREEDY), Request(ids(2, 5), 9, GREEDY)
    members, kinds = [batch.add(first)], list[type]()
    written: dict[Sequence, list[int]] = {members[0]: []}
    while not batch.idle:
        if len(written[members[0]]) == 11 and len(members) == 1:
            members.append(batch.add(second))
            written[members[1]] = []
        for event in batch.step():
            assert event.token is not None
            written[event.sequence].append(event.token.id)
        if batch.running:
            kinds.append(type(batch.cache.cache.layers[0]))
    assert list(written.values()) == [
        slow_greedy(model, request.ids, request.max_tokens) for request in (first, second)
    ]
    turns = [kind for kind, before in zip(kinds, [None, *kinds], strict=False) if kind != before]
    assert turns == [RaggedLayerCache, LayerCache, RaggedLayerCache, LayerCache]


def test_one_that_is_seldom_by_itself_stays_where_it_is() -> None:
    batch = Scheduler(MODEL, VOCABULARY)
    batch.add(Request(ids(1, 7), 40, GREEDY))
    others = (Request(ids(s, 5), 3, GREEDY) for s in range(2, 9))
    while not batch.idle:
        if len(batch.running) == 1 and (other := next(others, None)) is not None:
            batch.add(other)
        elif len(batch.running) == 1:
            return
        batch.step()
        assert type(batch.cache.cache.layers[0]) is RaggedLayerCache


@pytest.mark.parametrize(
    ("int8", "compiled"),
    [
        (False, False),
        pytest.param(False, True, marks=needs_compiler),
        pytest.param(True, True, marks=needs_compiler),
    ],
)
def test_one_by_itself_takes_the_short_way_of_one_sequence(int8: bool, compiled: bool) -> None:
    """Beyond the room it began with, after one that was cancelled, and one that failed."""
    model = optimize(MODELS["llama"], int8, compiled)
    assert isinstance(model.decoder, DecodeStepLayers)
    short, taken = model.decoder._decode, list[int]()
    model.decoder._decode = lambda x, cache: (taken.append(cache.length), short(x, cache))[1]
    batch, request = Scheduler(model, VOCABULARY), Request(ids(1, 1), 50, GREEDY)
    for bad in (Request(ids(2, 9), 30, GREEDY), Request(ids(3, 9), 30, Sampling((Raises(25),)))):
        running = batch.add(bad)
        for _ in range(12):
            batch.step()
        if bad.sampling.is_argmax:
            batch.cancel(running)
        else:
            (failed,) = [event for _ in range(12) for event in batch.step() if event.error]
            assert isinstance(failed.error, ZeroDivisionError)
        assert batch.idle
    taken.clear()
    (found,) = run(batch, request)
    assert len(taken) > 30
    assert found == alone(model, request)
    if not int8:
        assert found == slow_greedy(MODELS["llama"], request.ids, 50)


def test_rows_are_shown_in_multiples_so_that_kernels_meet_few_shapes() -> None:
    rows = RaggedCache(MODEL.empty_cache(1, 0))
    with torch.inference_mode():
        cache = MODEL.empty_cache(2, 9)
        MODEL.states(torch.tensor([ids(1, 9), ids(2, 9)]), cache=cache)
        rows.add(cache, {1: 9, 0: 5})
        shapes = set()
        for _ in range(40):
            positions, mask = rows.prepare()
            keys = mask.dense(1, rows.lengths[0] + -rows.lengths[0] % 16)
            shapes.add(keys.shape[-1])
            assert keys.sum(dim=-1).flatten().tolist() == rows.lengths
            assert (positions.flatten() + 1).tolist() == rows.lengths
            MODEL.states(torch.tensor([[1], [2]]), mask=mask, positions=positions, cache=rows.cache)
        with pytest.raises(CacheError, match=r"call prepare\(\) before each pass"):
            MODEL.states(torch.tensor([[1]]), cache=rows.cache)
        with pytest.raises(CacheError, match="a row of 99 keys cannot come from a cache of 9"):
            rows.add(cache, {0: 99})
    assert shapes == {16, 32, 48, 64}
    assert rows.lengths == [49, 45]
    assert LENGTH > 49


@EVERY_KIND
def test_prompts_are_scored_as_by_one_forward_pass(kind: str) -> None:
    model = MODELS[kind]
    prompts = [ids(1, 23), ids(2, 1), ids(3, 7)]
    for prompt, scored in zip(prompts, score_prompts(model, prompts, VOCABULARY, 3), strict=True):
        with torch.no_grad():
            expected = model(torch.tensor([prompt]))[0].log_softmax(dim=-1)
        assert scored.ids == prompt
        assert [token.id for token in scored.tokens] == list(prompt[1:])
        for row, token in zip(expected, scored.tokens, strict=False):
            assert token.logprob == pytest.approx(float(row[token.id]), abs=1e-4)
            assert [each for each, _ in token.alternatives] == row.topk(3).indices.tolist()
            # Whoever asks whether a token was the most probable compares these two floats.
            own = dict(token.alternatives).get(token.id, token.logprob)
            assert own == token.logprob


@EVERY_KIND
def test_alternatives_are_the_most_probable_tokens_alone_and_in_a_batch(kind: str) -> None:
    model = MODELS[kind]
    request = Request(ids(4, 9), 5, GREEDY, top_logprobs=4)
    (single, *_) = decode_one(model, request, VOCABULARY)
    batch = Scheduler(model, VOCABULARY)
    sequences = [batch.add(request), batch.add(Request(ids(5, 9), 5, GREEDY))]
    expected = slow_scores(model, request.ids).log_softmax(dim=-1).topk(4)
    for event in batch.step():
        assert event.token is not None
        if event.sequence is sequences[1]:
            assert event.token.alternatives == ()
            continue
        for alternatives in (event.token.alternatives, single.alternatives):
            assert [id for id, _ in alternatives] == expected.indices.tolist()
            logprobs = [logprob for _, logprob in alternatives]
            assert logprobs == pytest.approx(expected.values.tolist(), abs=1e-4)
        assert event.token.alternatives[0] == (event.token.id, event.token.logprob)


@pytest.mark.parametrize("layer", [0, 1])
def test_a_decoding_step_that_fails_ends_only_the_sequence_at_fault(layer: int) -> None:
    requests = [Request(ids(seed, 5 + seed), 12, Sampling(), seed) for seed in range(5)]
    texts = [alone(MODEL, request) for request in requests]
    poison = next(
        token for token in texts[2][2:-1] if sum(token in text[:-1] for text in texts) == 1
    )
    model = writer("rotary")
    latest: list[Tensor] = []
    model.embedding.register_forward_hook(lambda module, inputs, out: latest.append(inputs[0]))

    def refuse(module: torch.nn.Module, inputs: object) -> None:
        """Fails the whole pass of a batch after the layers before have appended to the cache."""
        if latest[-1].shape[1] == 1 and (latest[-1] == poison).any():
            raise RuntimeError("a kernel refused")

    blocks = [module for module in model.modules() if isinstance(module, Block)]
    blocks[layer].register_forward_pre_hook(refuse)
    results = run(Scheduler(model, VOCABULARY), *requests)
    assert isinstance(results.pop(2), RuntimeError)
    del texts[2]
    assert results == texts


def test_prompts_share_prefixes_only_with_the_same_salt() -> None:
    prompt = ids(7, 20)
    batch = Scheduler(MODEL, VOCABULARY)
    cached = []
    for salt in ("ann", "bob", "ann"):
        sequence = batch.add(Request(prompt, 2, GREEDY, cache_salt=salt))
        finish(batch, [sequence])
        cached.append(sequence.cached_tokens)
    assert cached == [0, 0, 19]
    assert batch.prefill_queue.prefix_cache.bytes > 0
