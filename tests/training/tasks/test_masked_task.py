"""MaskedBatch tokens: as many as asked, never a mark, the same for the same draws."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from qkv.data import TokenizedTexts
from qkv.errors import ConfigError
from qkv.model import Encoder, build, preset
from qkv.training.tasks.masked import MaskedBatch, MaskedTask
from qkv.training.tasks.text_stream import Windows, windows

END, MASK, SPECIAL, VOCABULARY = 3, 4, 5, 97


def stream(*lengths: int, seed: int = 0) -> TokenizedTexts:
    draws = np.random.default_rng(seed)
    documents = [draws.integers(SPECIAL, VOCABULARY, n).tolist() for n in lengths]
    return TokenizedTexts.of([[*document, END] for document in documents], VOCABULARY)


def window(*lengths: int) -> Windows:
    packed = stream(*lengths)
    return windows(packed, np.array([0]), len(packed.ids) - 1)


def hide(text: Windows, task: MaskedTask | None = None, seed: int = 0) -> MaskedBatch:
    words = np.arange(VOCABULARY) >= SPECIAL
    return (task or MaskedTask()).mask(text, MASK, words, np.random.default_rng(seed))


def model() -> Encoder:
    return build(preset("masked-tiny"), seed=1).eval()  # type: ignore[return-value]


def test_the_asked_share_is_hidden_and_of_it_most_is_covered() -> None:
    text = window(20_011)
    found = hide(text, MaskedTask(mask_prob=0.3, mask_replace_prob=0.7, random_replace_prob=0.2))
    before, after = (
        text.ids[0][found.masked_positions],
        found.windows.ids[0][found.masked_positions],
    )
    assert found.num_targets / text.ids.numel() == pytest.approx(0.3, abs=0.02)
    assert float((after == MASK).float().mean()) == pytest.approx(0.7, abs=0.02)
    assert float((after == before).float().mean()) == pytest.approx(0.1, abs=0.02)
    changed = after[(after != MASK) & (after != before)]
    assert len(changed.unique()) > 80  # any token of the vocabulary
    assert (changed >= SPECIAL).all()


def test_what_is_wanted_stood_there_and_all_else_still_stands() -> None:
    text = window(47, 5, 31)
    found = hide(text)
    assert torch.equal(text.ids.flatten()[found.masked_positions], found.targets)
    rest = torch.ones(text.ids.numel(), dtype=torch.bool)
    rest[found.masked_positions] = False
    assert torch.equal(text.ids.flatten()[rest], found.windows.ids.flatten()[rest])
    assert found.windows.documents is text.documents
    assert found.num_tokens == text.num_tokens


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.integers(1, 9), min_size=1, max_size=5),
    st.sampled_from([0.0, 0.1, 0.9]),
    st.integers(0, 50),
)
def test_marks_are_never_hidden_and_something_always_is(
    lengths: list[int], share: float, seed: int
) -> None:
    found = hide(window(*lengths), MaskedTask(mask_prob=share), seed)
    assert found.num_targets > 0
    assert (found.targets >= SPECIAL).all()


def test_the_same_draws_hide_the_same() -> None:
    text = window(101)
    one, same, other = (hide(text, seed=seed) for seed in (0, 0, 1))
    assert torch.equal(one.windows.ids, same.windows.ids)
    assert torch.equal(one.masked_positions, same.masked_positions)
    assert not torch.equal(one.masked_positions, other.masked_positions)


def test_the_text_itself_is_left_alone() -> None:
    text = window(101)
    before = text.ids.clone()
    hide(text)
    assert torch.equal(text.ids, before)


def test_packed_equals_unpacked() -> None:
    """Documents in one window give the loss of each document in a window of its own."""
    network, task, lengths = model(), MaskedTask(mask_prob=0.5), (7, 13, 5)
    packed = stream(*lengths)
    together = hide(windows(packed, np.array([0]), len(packed.ids) - 1), task)
    ids, begin, apart = together.windows.ids[0], 0, 0.0
    with torch.no_grad():
        for length in lengths:
            stop = begin + length + 1
            inside = (together.masked_positions >= begin) & (together.masked_positions < stop)
            alone = Windows(ids[None, begin:stop], ids[None, begin:stop], None, None)
            part = MaskedBatch(
                alone, together.masked_positions[inside] - begin, together.targets[inside]
            )
            apart += float(task.loss(network, part))
            begin = stop
        assert float(task.loss(network, together)) == pytest.approx(apart, rel=1e-5)


def test_loss_and_hits_are_those_of_the_scores_the_model_gives() -> None:
    network, batch = model(), hide(window(61))
    with torch.no_grad():
        scores = network(batch.windows.ids)[0][batch.masked_positions]
        expected = torch.nn.functional.cross_entropy(scores, batch.targets, reduction="sum")
        assert float(MaskedTask().loss(network, batch)) == pytest.approx(float(expected), rel=1e-5)
        right = int((scores.argmax(dim=-1) == batch.targets).sum())
        assert MaskedTask().loss_and_hits(network, batch)[1] == right
        knowing = MaskedBatch(batch.windows, batch.masked_positions, scores.argmax(dim=-1))
        assert MaskedTask().loss_and_hits(network, knowing)[1] == batch.num_targets


def test_a_model_with_another_output_is_refused() -> None:
    with pytest.raises(ConfigError, match="needs the output MaskedToken"):
        MaskedTask().loss(build(preset("embed-tiny")), hide(window(9)))  # type: ignore[arg-type]
