"""R-Drop: nothing without dropout, and a weighted symmetric KL divergence with it."""

import pytest
import torch
import torch.nn.functional as F
from tests.training.tasks import test_classify_task, test_translate_task

from qkv.training.loss import cross_entropy, duplicate, interleave, r_drop_loss, symmetric_kl
from qkv.training.tasks.classify import ClassifyTask
from qkv.training.tasks.translate import TranslateTask

TASKS = [(test_classify_task, ClassifyTask), (test_translate_task, TranslateTask)]


def scores(seed: int) -> torch.Tensor:
    return torch.randn(5, 7, generator=torch.Generator().manual_seed(seed))


def test_it_is_the_mean_of_both_divergences() -> None:
    p, q = scores(0).log_softmax(dim=-1), scores(1).log_softmax(dim=-1)
    there = F.kl_div(q, p, reduction="none", log_target=True).sum(dim=-1)
    back = F.kl_div(p, q, reduction="none", log_target=True).sum(dim=-1)
    torch.testing.assert_close(symmetric_kl(scores(0), scores(1)), (there + back) / 2)


def test_it_is_symmetric_positive_and_zero_only_between_equals() -> None:
    one, other = scores(0), scores(1)
    apart = symmetric_kl(one, other)
    torch.testing.assert_close(apart, symmetric_kl(other, one))
    assert (apart > 0).all()
    assert (symmetric_kl(one, one + 3.0) < 1e-6).all()  # the same shares


def test_twice_is_the_same_rows_below() -> None:
    rows = torch.arange(6).view(3, 2)
    assert duplicate(rows).tolist() == [[0, 1], [2, 3], [4, 5], [0, 1], [2, 3], [4, 5]]
    assert duplicate(None) is None


def test_two_answers_to_each_question_become_neighbours() -> None:
    assert interleave(torch.tensor([1, 2, 3, 10, 20, 30])).tolist() == [1, 10, 2, 20, 3, 30]


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("price", [0.3, 4.0])
def test_loss_and_slope_are_those_of_the_plain_way(smoothing: float, price: float) -> None:
    one, other = scores(0).requires_grad_(), scores(1).requires_grad_()
    targets = torch.tensor([0, 6, 3, 3, 1])
    mean = (cross_entropy(one, targets, smoothing) + cross_entropy(other, targets, smoothing)) / 2
    want = mean + price * symmetric_kl(one, other).sum()
    want.backward()
    answers = interleave(torch.cat((one, other))).detach()
    got, slope = r_drop_loss(price)(answers, targets.repeat_interleave(2), smoothing)
    torch.testing.assert_close(got, want.detach())
    assert one.grad is not None
    assert other.grad is not None
    torch.testing.assert_close(slope, interleave(torch.cat((one.grad, other.grad))))


@pytest.mark.parametrize(("case", "task"), TASKS)
def test_without_dropout_it_costs_nothing(case, task) -> None:  # type: ignore[no-untyped-def]
    network = case.model(dropout=0.0).train()
    plain, calm = (task(r_drop=a).loss(network, case.batch()).item() for a in (0.0, 3.0))
    assert calm == pytest.approx(plain, rel=1e-5)


@pytest.mark.parametrize(("case", "task"), TASKS)
def test_with_dropout_it_costs_in_proportion(case, task) -> None:  # type: ignore[no-untyped-def]
    network = case.model(dropout=0.3).train()
    losses = []
    for agreement in (1e-9, 1.0, 2.0):
        torch.manual_seed(3)
        losses.append(task(r_drop=agreement).loss(network, case.batch()).item())
    free, once, double = losses
    assert once > free + 1e-3
    assert double - free == pytest.approx(2 * (once - free), rel=1e-3)
