"""Beams as a tree give what beams as rows give, whoever survives; and they copy far less."""

import random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.engine.tiny_translators import POSITIONS, START, translator
from torch import Tensor

from qkv.engine.batching import inference
from qkv.engine.beam import decoder_states as beam_tree
from qkv.engine.beam.decoder_states import RowStates, TreeStates
from qkv.engine.beam.search import beam_search
from qkv.model import Alibi, Learned, LocalAttention, RelativeBuckets, Rope, Translator

V = 13


def some_sources(draws: random.Random, count: int) -> list[list[int]]:
    return [[draws.randrange(V) for _ in range(draws.randint(1, 7))] for _ in range(count)]


def walk(model: Translator, draws: random.Random, beams: int, steps: int, leaving: int) -> None:
    """Both kinds through the same random survivors, with sentences leaving on the way."""
    sources, forbidden = some_sources(draws, 5), (0, 4)
    tree, rows = (
        TreeStates(model, sources, beams, forbidden),
        RowStates(model, sources, beams, forbidden, 99),
    )
    tokens, left = torch.full((5, 1), START), 5
    for step in range(steps):
        one, other = tree.log_probs(tokens), rows.log_probs(tokens)
        assert one.shape == (left, tokens.shape[1], V)
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)
        if step == leaving:
            staying = sorted(draws.sample(range(left), 3))
            left = 3
            for kind in (tree, rows):
                kind.select(torch.tensor(staying))
        parents = torch.tensor(
            [[draws.randrange(beams) for _ in range(beams)] for _ in range(left)]
        )
        for kind in (tree, rows):
            kind.reorder(parents)
        tokens = torch.tensor([[draws.randrange(V) for _ in range(beams)] for _ in range(left)])


@settings(max_examples=40, deadline=None, derandomize=True)
@given(
    seed=st.integers(0, 10_000),
    position=st.sampled_from([p for p in POSITIONS if p != Alibi()]),
    beams=st.integers(1, 4),
    steps=st.integers(1, 12),
    room=st.sampled_from([1, 2, 3, 16]),
)
def test_a_tree_equals_rows(seed: int, position: object, beams: int, steps: int, room: int) -> None:
    draws = random.Random(seed)
    model = translator(seed, position=position)  # type: ignore[arg-type]
    with pytest.MonkeyPatch.context() as patch, inference(model):
        patch.setattr(beam_tree, "TREE_STEPS", room)  # keys are sorted out that often
        walk(model, draws, beams, steps, leaving=draws.randrange(12))


def test_only_models_that_count_positions_have_their_beams_in_a_tree() -> None:
    stack = translator().config.decoder
    near = stack.model_copy(update={"local": LocalAttention(before=2)})
    assert TreeStates.supports(translator())
    assert TreeStates.supports(translator(position=Learned()))
    assert TreeStates.supports(translator(position=Rope()))
    assert not TreeStates.supports(translator(position=Alibi()))
    assert not TreeStates.supports(translator(position=RelativeBuckets()))
    assert not TreeStates.supports(translator(decoder=near))


def shapes_of_cross_attention(model: Translator, beams: int) -> set[tuple[int, int, int]]:
    """Rows, queries a row and rows of keys, of every call while beams are followed."""
    seen = set()

    def keep(mix: object, given: tuple[Tensor, ...]) -> None:
        q, k = given[:2]
        seen.add((len(q), q.shape[2], len(k)))

    model.get_submodule("decoder.1.cross.core").register_forward_pre_hook(keep)
    beam_search(model, [[3, 4], [5], [6]], bos=1, eos=2, beams=beams, max_length=9)
    return seen


def test_beams_read_the_keys_of_their_source_together() -> None:
    assert shapes_of_cross_attention(translator(ending=-100.0), 4) == {(3, 1, 3), (3, 4, 3)}
    slopes = translator(position=Alibi(), ending=-100.0)
    assert shapes_of_cross_attention(slopes, 4) == {(3, 1, 3), (12, 1, 12)}


def test_keys_that_no_beam_sees_are_left_out() -> None:
    """Of beams that always follow the first one, one path is left and what is new."""
    model, beams = translator(position=Rope()), 5
    with inference(model):
        tree = TreeStates(model, [[3, 4]], beams, ())
        tree.log_probs(torch.tensor([[START]]))
        for _ in range(100):
            tree.reorder(torch.zeros(1, beams, dtype=torch.long))
            tree.log_probs(torch.full((1, beams), 3))
        kept = tree.cache.length
        assert 101 <= kept <= 101 + beams * beam_tree.TREE_STEPS + beams
        assert int(tree.visible[0, 0].sum()) == 101


def test_a_long_target_is_the_same_as_in_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    model = translator(3, position=Rope(), ending=-100.0)
    sources = [[3, 4, 5], [6], [7, 8]]
    asked = {"bos": 1, "eos": 2, "beams": 3, "best": 3, "max_length": 50}
    found = beam_search(model, sources, **asked)  # type: ignore[arg-type]
    monkeypatch.setattr(TreeStates, "supports", staticmethod(lambda model: False))
    other = beam_search(model, sources, **asked)  # type: ignore[arg-type]
    assert [[h.ids for h in three] for three in found] == [[h.ids for h in t] for t in other]
