"""Labels: exact under padding and in parts, weighted as asked, and calm under dropout if asked."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from qkv.engine.batching import PaddedBatch
from qkv.errors import ConfigError
from qkv.model import Classify, Encoder, build, preset
from qkv.training.tasks.classify import (
    ClassifyTask,
    LabelledBatch,
    VectorBatch,
    classification_head,
)

LENGTHS = (5, 3, 11, 1, 7)
LABELS = ("red", "green", "blue")


def model(dropout: float = 0.0) -> Encoder:
    config = preset("classify-tiny")
    encoder = config.encoder.model_copy(update={"dropout": dropout})  # type: ignore[union-attr]
    changes = {"encoder": encoder, "output": Classify(labels=LABELS)}
    return build(config.model_copy(update=changes), seed=1)  # type: ignore[return-value]


def batch(rows: slice = slice(None), pad: int = 0) -> LabelledBatch:
    draws = torch.Generator().manual_seed(0)
    texts = [torch.randint(5, 97, (n,), generator=draws).numpy() for n in LENGTHS]
    labels = torch.randint(len(LABELS), (len(LENGTHS),), generator=draws)
    weights = torch.rand(len(LENGTHS), generator=draws) + 0.5
    return LabelledBatch(PaddedBatch.of(texts[rows], pad), labels[rows], weights[rows])


def gradients(network: Encoder) -> dict[str, Tensor]:
    found = {n: p.grad.clone() for n, p in network.named_parameters() if p.grad is not None}
    network.zero_grad(set_to_none=True)
    return found


@pytest.mark.parametrize("task", [ClassifyTask(label_smoothing=0.1), ClassifyTask(r_drop=0.7)])
def test_padded_equals_unpadded(task: ClassifyTask) -> None:
    network = model().eval()
    with torch.no_grad():
        together = task.loss(network, batch())
        apart = sum(task.loss(network, batch(slice(i, i + 1))) for i in range(len(LENGTHS)))
    assert float(together) == pytest.approx(float(apart), rel=1e-5)


def test_what_stands_in_the_padding_does_not_matter() -> None:
    network, task = model().eval(), ClassifyTask()
    with torch.no_grad():
        losses = [float(task.loss(network, batch(pad=pad))) for pad in (0, 41)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-6)


def test_a_batch_counts_its_real_tokens_and_a_target_each_text() -> None:
    assert batch().num_tokens == sum(LENGTHS)
    assert batch().num_targets == len(LENGTHS)


@pytest.mark.parametrize("task", [ClassifyTask(), ClassifyTask(label_smoothing=0.1, r_drop=0.7)])
def test_the_gradients_of_parts_add_up_to_those_of_the_batch(task: ClassifyTask) -> None:
    network = model()
    task.loss(network, batch()).backward()
    whole = gradients(network)
    for part in (slice(0, 2), slice(2, 5)):
        task.loss(network, batch(part)).backward()
    parts = gradients(network)
    assert whole.keys() == parts.keys()
    for name, gradient in whole.items():
        torch.testing.assert_close(parts[name], gradient, rtol=1e-4, atol=1e-5)


def test_a_weight_is_how_often_a_text_counts() -> None:
    network, task, one = model().eval(), ClassifyTask(), batch(slice(2, 3))
    doubled = LabelledBatch(one.texts, one.labels, one.weights * 2)
    with torch.no_grad():
        assert float(task.loss(network, doubled)) == pytest.approx(
            2 * float(task.loss(network, one))
        )


def test_the_loss_is_minus_the_logarithm_of_the_labels_share() -> None:
    network, said = model().eval(), batch()
    with torch.no_grad():
        shares = network(said.texts.ids, said.texts.lengths).softmax(dim=-1)
        loss = float(ClassifyTask().loss(network, said))
    expected = 0.0
    for row, label, weight in zip(shares, said.labels.tolist(), said.weights, strict=True):
        expected -= float(weight * row[label].log())
    assert loss == pytest.approx(expected, rel=1e-5)


def test_vectors_of_a_frozen_encoder_cost_what_their_texts_cost() -> None:
    network, said = model().eval(), batch()
    with torch.no_grad():
        lengths = torch.tensor(LENGTHS)
        vectors = classification_head(network).pooling.pool(
            network.encode(said.texts.ids, lengths), lengths
        )
        frozen = VectorBatch(vectors, said.labels, said.weights)
        losses = [float(ClassifyTask().loss(network, some)) for some in (said, frozen)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)


def test_shares_stand_in_place_of_the_labels() -> None:
    network, said, task = model().eval(), batch(), ClassifyTask()
    sure = torch.nn.functional.one_hot(said.labels, len(LABELS)).float()
    others = [replace(said, labels=(said.labels + i) % len(LABELS)) for i in range(len(LABELS))]
    with torch.no_grad():
        plain = [float(task.loss(network, other)) for other in others]
        same = float(task.loss(network, replace(others[1], probs=sure)))
        spread = float(task.loss(network, replace(said, probs=torch.full_like(sure, 1 / 3))))
    assert same == pytest.approx(plain[0], rel=1e-5)
    assert spread == pytest.approx(sum(plain) / 3, rel=1e-5)


def test_a_model_without_labels_is_refused() -> None:
    with pytest.raises(ConfigError, match="needs the output Classify"):
        classification_head(build(preset("masked-tiny")))  # type: ignore[arg-type]
