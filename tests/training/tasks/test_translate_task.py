"""Translations: every target token judged once, exact under padding and in parts."""

import numpy as np
import pytest
import torch
from torch import Tensor

from qkv.model import Translator, build, preset
from qkv.training.loss import IGNORED
from qkv.training.tasks.translate import TranslateTask, TranslationBatch

START, END, PAD = 2, 3, 0
SIZES = ((5, 7), (3, 11), (11, 2), (1, 1), (7, 5))  # of each source and target


def model(dropout: float = 0.0) -> Translator:
    config = preset("translate-tiny")
    stacks = {
        name: getattr(config, name).model_copy(update={"dropout": dropout})
        for name in ("encoder", "decoder")
    }
    return build(config.model_copy(update=stacks), seed=1)  # type: ignore[return-value]


def batch(rows: slice = slice(None), pad: int = PAD) -> TranslationBatch:
    draws = np.random.default_rng(0)
    sides = [[draws.integers(5, 97, n) for n in sizes] for sizes in zip(*SIZES, strict=True)]
    return TranslationBatch.of(sides[0][rows], sides[1][rows], [START], END, pad)


def gradients(network: Translator) -> dict[str, Tensor]:
    found = {n: p.grad.clone() for n, p in network.named_parameters() if p.grad is not None}
    network.zero_grad(set_to_none=True)
    return found


def test_a_pair_as_a_literal() -> None:
    made = TranslationBatch.of([[7, 8, END], [9, END]], [[10], [11, 12]], [START], END, PAD)
    assert made.source.ids.tolist() == [[7, 8, END], [9, END, PAD]]
    assert made.decoder_input.ids.tolist() == [[START, 10, PAD], [START, 11, 12]]
    assert made.targets.tolist() == [[10, END, IGNORED], [11, 12, END]]
    assert (made.num_tokens, made.num_targets) == (5 + 5, 5)


def test_of_two_start_marks_only_the_second_is_followed_by_what_is_learnt() -> None:
    made = TranslationBatch.of([[7, END]], [[10, 11]], [START, 4], END, PAD)
    assert made.decoder_input.ids.tolist() == [[START, 4, 10, 11]]
    assert made.targets.tolist() == [[IGNORED, 10, 11, END]]
    assert made.num_targets == 3


TASKS = [
    TranslateTask(label_smoothing=0.0),
    TranslateTask(label_smoothing=0.1),
    TranslateTask(r_drop=0.7),
]


@pytest.mark.parametrize("task", TASKS)
def test_padded_equals_unpadded(task: TranslateTask) -> None:
    network = model().eval()
    with torch.no_grad():
        together = task.loss(network, batch())
        apart = sum(task.loss(network, batch(slice(i, i + 1))) for i in range(len(SIZES)))
    assert float(together) == pytest.approx(float(apart), rel=1e-5)


def test_what_stands_in_the_padding_does_not_matter() -> None:
    network, task = model().eval(), TranslateTask()
    with torch.no_grad():
        losses = [float(task.loss(network, batch(pad=pad))) for pad in (PAD, 41)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-6)


@pytest.mark.parametrize("task", TASKS)
def test_the_gradients_of_parts_add_up_to_those_of_the_batch(task: TranslateTask) -> None:
    network = model()
    task.loss(network, batch()).backward()
    whole = gradients(network)
    for part in (slice(0, 2), slice(2, 5)):
        task.loss(network, batch(part)).backward()
    parts = gradients(network)
    assert whole.keys() == parts.keys()
    for name, gradient in whole.items():
        torch.testing.assert_close(parts[name], gradient, rtol=1e-4, atol=1e-5)


def test_the_loss_is_that_of_the_scores_the_model_gives() -> None:
    network, said = model().eval(), batch()
    with torch.no_grad():
        scores = network(said.source.ids, said.decoder_input.ids, said.source.lengths)
        expected = torch.nn.functional.cross_entropy(
            scores.flatten(0, 1), said.targets.flatten(), ignore_index=IGNORED, reduction="sum"
        )
        loss = TranslateTask(label_smoothing=0.0).loss(network, said)
    assert float(loss) == pytest.approx(float(expected), rel=1e-5)
