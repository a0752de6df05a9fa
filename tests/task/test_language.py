"""Packed windows: every token judged once, documents apart, the order a function of the seed."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from qkv.errors import ConfigError, DataError
from qkv.model import Decoder, build, preset
from qkv.task.language import LanguageTask, Stream, in_order, shuffled, windows
from qkv.task.loss import IGNORED

END = 3


def stream(*lengths: int, seed: int = 0) -> Stream:
    draws = np.random.default_rng(seed)
    return Stream.of([draws.integers(5, 97, length).tolist() for length in lengths], END)


def model(name: str = "language-tiny") -> Decoder:
    return build(preset(name), seed=1).eval()  # type: ignore[return-value]


def test_documents_are_closed_by_an_end_and_their_places_known() -> None:
    packed = Stream.of([[7, 8], [9]], END)
    assert packed.ids.tolist() == [7, 8, END, 9, END]
    assert packed.starts.tolist() == [0, 3, 5]


def test_a_window_as_a_literal() -> None:
    packed = Stream.of([[7, 8], [9, 10, 11]], END)
    batch = windows(packed, np.array([1]), 4)
    assert batch.ids.tolist() == [[8, END, 9, 10]]
    assert batch.following.tolist() == [[END, IGNORED, 10, 11]]
    assert batch.documents is not None
    assert batch.positions is not None
    assert batch.documents.tolist() == [[0, 0, 1, 1]]
    assert batch.positions.tolist() == [[0, 1, 0, 1]]
    assert (batch.tokens, batch.targets) == (4, 3)


def test_a_window_of_one_document_needs_no_mask() -> None:
    batch = windows(stream(50), np.array([3, 20]), 7)
    assert batch.documents is None
    assert batch.positions is None


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(0, 20), min_size=1, max_size=6), st.integers(1, 9), st.integers(1, 5))
def test_in_order_every_token_is_judged_once(lengths: list[int], length: int, batch: int) -> None:
    packed = stream(*lengths)
    judged = [b.following[b.following != IGNORED] for b in in_order(packed, length, batch)]
    expected = [
        packed.ids[begin + 1 : stop]
        for begin, stop in zip(packed.starts, packed.starts[1:], strict=False)
    ]
    found = torch.cat(judged).tolist() if judged else []
    assert found == np.concatenate(expected).tolist()


def test_an_epoch_has_every_window_once_and_the_order_depends_on_seed_and_epoch() -> None:
    packed = stream(1000)

    def order(seed: int, epoch: int) -> list[int]:
        return [row[0].item() for b in shuffled(packed, 10, 7, seed, epoch) for row in b.ids]

    assert order(0, 0) == order(0, 0)
    assert order(0, 0) != order(0, 1)
    assert order(0, 0) != order(1, 0)
    rows = torch.cat([b.ids for b in shuffled(packed, 10, 7, 0, 0)])
    assert len(rows) == 100 - 100 % 7
    assert len({tuple(row) for row in rows.tolist()}) == len(rows)


@pytest.mark.parametrize("name", ["language-tiny"])
def test_packed_equals_unpacked(name: str) -> None:
    """Documents in one window give the loss of each document in a window of its own."""
    network, task = model(name), LanguageTask()
    lengths = (5, 1, 9, 3)
    packed = stream(*lengths)
    with torch.no_grad():
        together = task.loss(network, windows(packed, np.array([0]), len(packed) - 1))
        apart = torch.zeros(())
        for begin, stop in zip(packed.starts, packed.starts[1:], strict=False):
            alone = Stream(packed.ids[begin:stop], np.array([0, stop - begin]))
            if len(alone) > 1:
                apart += task.loss(network, windows(alone, np.array([0]), len(alone) - 1))
    assert together.item() == pytest.approx(apart.item(), rel=1e-6)


def test_parts_are_the_same_windows() -> None:
    batch = windows(stream(30, 4, 40), np.array([0, 20, 31, 40, 50]), 9)
    pieces = list(batch.parts(2))
    assert [len(piece.ids) for piece in pieces] == [2, 2, 1]
    assert torch.equal(torch.cat([piece.ids for piece in pieces]), batch.ids)
    assert sum(piece.targets for piece in pieces) == batch.targets


def test_too_little_text_is_said_with_both_numbers() -> None:
    with pytest.raises(DataError, match="has 6 tokens, but one window needs 65"):
        list(shuffled(stream(5), 64, 2, 0, 0))
    with pytest.raises(DataError, match="no text"):
        Stream.of([], END)


def test_a_model_with_another_output_is_refused() -> None:
    from qkv.model import TextVector

    config = preset("language-tiny").model_copy(update={"output": TextVector()})
    with pytest.raises(ConfigError, match="needs the output NextToken"):
        LanguageTask().loss(build(config), windows(stream(9), np.array([0]), 5))
