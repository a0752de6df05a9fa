"""Packed windows: every token judged once, documents apart, the order a function of the seed."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from qkv.data import TokenizedTexts, encode
from qkv.errors import ConfigError, DataError
from qkv.model import Decoder, build, preset
from qkv.text import Tokenizer
from qkv.training.loss import IGNORED
from qkv.training.tasks.language import LanguageTask
from qkv.training.tasks.text_stream import window_starts, windows, windows_in_order

END, VOCABULARY = 3, 97


def packed_of(*documents: list[int]) -> TokenizedTexts:
    return TokenizedTexts.of([[*document, END] for document in documents], VOCABULARY)


def stream(*lengths: int, seed: int = 0) -> TokenizedTexts:
    draws = np.random.default_rng(seed)
    return packed_of(*(draws.integers(5, VOCABULARY, length).tolist() for length in lengths))


def model(name: str = "language-tiny") -> Decoder:
    return build(preset(name), seed=1).eval()  # type: ignore[return-value]


def test_documents_are_closed_by_an_end_and_their_places_known() -> None:
    letters = Tokenizer.train("characters", ["abc"], 11)
    a, b, c = letters.encode("abc")
    packed = encode(["ab", "c"], letters, "two documents", eos=letters.eos_id)
    assert packed.ids.tolist() == [a, b, letters.eos_id, c, letters.eos_id]
    assert packed.starts.tolist() == [0, 3, 5]


def test_a_window_as_a_literal() -> None:
    packed = packed_of([7, 8], [9, 10, 11])
    batch = windows(packed, np.array([1]), 4)
    assert batch.ids.tolist() == [[8, END, 9, 10]]
    assert batch.targets.tolist() == [[END, IGNORED, 10, 11]]
    assert batch.documents is not None
    assert batch.positions is not None
    assert batch.documents.tolist() == [[0, 0, 1, 1]]
    assert batch.positions.tolist() == [[0, 1, 0, 1]]
    assert (batch.num_tokens, batch.num_targets) == (4, 3)


def test_a_window_of_one_document_needs_no_mask() -> None:
    batch = windows(stream(50), np.array([3, 20]), 7)
    assert batch.documents is None
    assert batch.positions is None


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(0, 20), min_size=1, max_size=6), st.integers(1, 9), st.integers(1, 5))
def test_in_order_every_token_is_judged_once(lengths: list[int], length: int, batch: int) -> None:
    packed = stream(*lengths)
    judged = [b.targets[b.targets != IGNORED] for b in windows_in_order(packed, length, batch)]
    expected = [
        packed.ids[begin + 1 : stop]
        for begin, stop in zip(packed.starts, packed.starts[1:], strict=False)
    ]
    found = torch.cat(judged).tolist() if judged else []
    assert found == np.concatenate(expected).tolist()


def test_an_epoch_has_every_window_once_and_the_order_depends_on_seed_and_epoch() -> None:
    packed = stream(1000)

    def order(seed: int, epoch: int) -> list[int]:
        return window_starts(packed, 10, seed, epoch).tolist()

    assert order(0, 0) == order(0, 0)
    assert order(0, 0) != order(0, 1)
    assert order(0, 0) != order(1, 0)
    rows = windows(packed, window_starts(packed, 10, 0, 0), 10).ids
    assert len(rows) == 100
    assert len({tuple(row) for row in rows.tolist()}) == 100


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 300), st.integers(1, 23), st.integers(0, 5), st.integers(0, 5))
def test_windows_lie_side_by_side_inside_the_stream(
    size: int, length: int, seed: int, epoch: int
) -> None:
    packed = stream(max(size, length))
    starts = np.sort(window_starts(packed, length, seed, epoch))
    assert (np.diff(starts) == length).all()
    assert 0 <= starts[0] < length
    assert starts[-1] + length < len(packed.ids)  # and the token that follows is there
    assert len(starts) == (len(packed.ids) - 1) // length


def test_windows_are_cut_elsewhere_in_another_epoch() -> None:
    packed = stream(1030)
    places = {int(window_starts(packed, 53, 0, epoch).min()) for epoch in range(9)}
    assert len(places) > 1


@pytest.mark.parametrize("name", ["language-tiny"])
def test_packed_equals_unpacked(name: str) -> None:
    """Documents in one window give the loss of each document in a window of its own."""
    network, task = model(name), LanguageTask()
    lengths = (5, 1, 9, 3)
    packed = stream(*lengths)
    with torch.no_grad():
        together = task.loss(network, windows(packed, np.array([0]), len(packed.ids) - 1))
        apart = torch.zeros(())
        for begin, stop in zip(packed.starts, packed.starts[1:], strict=False):
            alone = TokenizedTexts(packed.ids[begin:stop], np.array([0, stop - begin]))
            if stop - begin > 1:
                apart += task.loss(network, windows(alone, np.array([0]), len(alone.ids) - 1))
    assert together.item() == pytest.approx(apart.item(), rel=1e-6)


def test_parts_of_a_batch_are_the_same_windows() -> None:
    packed, starts = stream(30, 4, 40), np.array([0, 20, 31, 40, 50])
    whole = windows(packed, starts, 9)
    pieces = [windows(packed, part, 9) for part in np.array_split(starts, 3)]
    assert [len(piece.ids) for piece in pieces] == [2, 2, 1]
    assert torch.equal(torch.cat([piece.ids for piece in pieces]), whole.ids)
    assert torch.equal(torch.cat([piece.targets for piece in pieces]), whole.targets)
    assert sum(piece.num_targets for piece in pieces) == whole.num_targets
    assert sum(piece.num_tokens for piece in pieces) == whole.num_tokens


@pytest.mark.parametrize(("documents", "tokens"), [([5], 6), ([], 0), ([0], 1)])
def test_too_little_text_is_said_with_both_numbers(documents: list[int], tokens: int) -> None:
    with pytest.raises(DataError, match=f"has {tokens} tokens, but one window needs 65"):
        window_starts(stream(*documents), 64, 0, 0)


def test_a_model_with_another_output_is_refused() -> None:
    from qkv.model import TextVector

    config = preset("language-tiny").model_copy(update={"output": TextVector()})
    with pytest.raises(ConfigError, match="needs the output NextToken"):
        LanguageTask().loss(build(config), windows(stream(9), np.array([0]), 5))
