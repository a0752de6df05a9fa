"""Vectors: twins near, others far, as a plain double loop says it."""

import math

import pytest
import torch
from torch import Tensor

from qkv.engine.batching import PaddedBatch
from qkv.model import Encoder, build, preset
from qkv.training.tasks.embed import (
    ContrastiveBatch,
    DistillationBatch,
    EmbedTask,
    contrastive_loss,
    distillation_loss,
    unit_vectors,
)
from qkv.training.tasks.embed_data import HALVES, advice

B, D = 5, 7
LENGTHS, OTHERS = (5, 3, 11, 1, 7), (2, 13, 3, 5, 1)


def model() -> Encoder:
    return build(preset("embed-tiny"), seed=1).eval()  # type: ignore[return-value]


def some(lengths: tuple[int, ...], seed: int, pad: int = 0) -> PaddedBatch:
    draws = torch.Generator().manual_seed(seed)
    return PaddedBatch.of(
        [torch.randint(5, 97, (n,), generator=draws).numpy() for n in lengths], pad
    )


def directions(seed: int) -> Tensor:
    draws = torch.Generator().manual_seed(seed)
    return torch.nn.functional.normalize(torch.randn(B, D, generator=draws), dim=-1)


def by_loop(one: Tensor, other: Tensor, temperature: float, labels: list[int] | None) -> float:
    """How surprising each row's twin is among the others, there and back, halved."""
    total = 0.0
    for left, right in ((one, other), (other, one)):
        for i in range(len(left)):
            rivals = [
                j for j in range(len(right)) if labels is None or j == i or labels[j] != labels[i]
            ]
            likeness = [float(left[i] @ right[j]) / temperature for j in rivals]
            own = float(left[i] @ right[i]) / temperature
            total += math.log(sum(math.exp(value) for value in likeness)) - own
    return total / 2


@pytest.mark.parametrize("labels", [None, [0, 1, 0, 2, 1], [3, 3, 3, 3, 3], [0, 1, 2, 3, 4]])
def test_contrast_is_what_a_plain_double_loop_says(labels: list[int] | None) -> None:
    one, other = directions(0), directions(1)
    given = None if labels is None else torch.tensor(labels)
    found = float(contrastive_loss(one, other, 0.5, given))
    assert found == pytest.approx(by_loop(one, other, 0.5, labels), rel=1e-5, abs=1e-5)


def test_texts_with_the_same_label_are_not_held_against_each_other() -> None:
    one, other = directions(0)[:2], directions(1)[:2]
    other[1] = one[0]  # a rival of row 0 that could not be nearer
    assert float(contrastive_loss(one, other, 0.5, torch.tensor([7, 7]))) == 0.0
    assert float(contrastive_loss(one, other, 0.5, torch.tensor([7, 8]))) > 0.5


def test_equal_twins_far_from_all_others_cost_next_to_nothing() -> None:
    axes = torch.eye(5)
    assert float(contrastive_loss(axes, axes, 0.05, None)) < 1e-6
    assert float(contrastive_loss(axes, axes.roll(1, 0), 0.05, None)) > 50


def test_scored_pairs_cost_the_square_of_what_their_cosine_is_wrong_by() -> None:
    network, one, other = model(), some(LENGTHS, 0), some(OTHERS, 1)
    scores = torch.tensor([0.0, 1.0, 0.5, 0.25, 0.9])
    with torch.no_grad():
        a, b = unit_vectors(network, one), unit_vectors(network, other)
        loss = float(
            EmbedTask(supervision="scores").loss(
                network, ContrastiveBatch(one, other, None, scores)
            )
        )
    expected = sum(
        (float(torch.cosine_similarity(x, y, dim=0)) - s) ** 2
        for x, y, s in zip(a, b, scores.tolist(), strict=True)
    )
    assert loss == pytest.approx(expected, rel=1e-5)


def test_a_vector_has_length_one_and_does_not_depend_on_what_stands_beside_it() -> None:
    network = model()
    with torch.no_grad():
        together = unit_vectors(network, some(LENGTHS, 0))
        torch.testing.assert_close(together.norm(dim=-1), torch.ones(B))
        ids = some(LENGTHS, 0).ids
        for row, length in enumerate(LENGTHS):
            alone = unit_vectors(network, PaddedBatch.of([ids[row, :length].numpy()], 0))
            torch.testing.assert_close(alone[0], together[row], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("known", ["pairs", "labels", "scores"])
def test_padded_equals_unpadded(known: str) -> None:
    """Each text alone, and all in one tensor with something else in the padding."""
    network = model()
    labels = torch.tensor([0, 1, 0, 2, 1]) if known == "labels" else None
    scores = (
        torch.rand(B, generator=torch.Generator().manual_seed(2)) if known == "scores" else None
    )
    task = EmbedTask(supervision=known)  # type: ignore[arg-type]
    batch = ContrastiveBatch(some(LENGTHS, 0, pad=41), some(OTHERS, 1, pad=43), labels, scores)
    with torch.no_grad():
        padded = float(task.loss(network, batch))
        sides = []
        for lengths, seed in ((LENGTHS, 0), (OTHERS, 1)):
            ids = some(lengths, seed).ids
            alone = [PaddedBatch.of([ids[i, :n].numpy()], 0) for i, n in enumerate(lengths)]
            sides.append(torch.cat([unit_vectors(network, text) for text in alone]))
        one, other = sides
        if scores is not None:
            unpadded = float(((one * other).sum(dim=-1) - scores).square().sum())
        else:
            unpadded = float(contrastive_loss(one, other, task.temperature, labels))
    assert padded == pytest.approx(unpadded, rel=1e-5)


def test_a_batch_counts_the_real_tokens_of_both_sides() -> None:
    twins = ContrastiveBatch(some(LENGTHS, 0), some(OTHERS, 1))
    assert twins.num_tokens == sum(LENGTHS) + sum(OTHERS)
    assert twins.num_targets == B


def test_a_texts_twin_is_itself_with_other_dropout() -> None:
    network = model().train()
    text = some(LENGTHS, 0)
    torch.manual_seed(3)
    noisy = EmbedTask(supervision="texts").loss(network, ContrastiveBatch(text, text)).item()
    network.eval()
    calm = EmbedTask(supervision="texts").loss(network, ContrastiveBatch(text, text)).item()
    assert noisy != pytest.approx(calm, rel=1e-3)


def test_distillation_costs_the_angle_to_the_teacher_and_nothing_where_it_has_no_vector() -> None:
    vectors = directions(0)
    teacher = directions(1)[:, :3]
    teacher /= teacher.norm(dim=-1, keepdim=True)
    teacher[2] = 0.0
    expected = sum(
        1 - sum(float(vectors[i, c] * teacher[i, c]) for c in range(3)) for i in (0, 1, 3, 4)
    )
    vectors[2] = 0.0
    assert float(distillation_loss(vectors, teacher)) == pytest.approx(expected, rel=1e-5)
    padded = torch.nn.functional.pad(teacher, (0, D - 3))
    assert float(distillation_loss(padded, teacher)) == pytest.approx(0, abs=1e-6)


def test_a_distillation_batch_counts_each_text_once() -> None:
    batch = DistillationBatch(some(LENGTHS, 0), torch.eye(B))
    assert batch.num_tokens == sum(LENGTHS)
    assert batch.num_targets == B


def test_vectors_worse_than_the_best_baseline_come_with_advice() -> None:
    baselines = {"TF-IDF": {"halves": 0.6}, "LSA": {"halves": 0.7}}
    assert advice(HALVES, {"halves": 0.75}, baselines) == []
    (sentence,) = advice(HALVES, {"halves": 0.65}, baselines)
    assert sentence.startswith("LSA is better than these vectors: halves 0.700 against 0.650")
    assert "--from DIR" in sentence
