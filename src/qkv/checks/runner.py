"""All checks on one model, one after the other."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch

from qkv.bundle import Bundle
from qkv.checks.attention_checks import FUSED, SOFTMAX
from qkv.checks.batching import BATCH, CACHED
from qkv.checks.gradients import ACCUMULATED, GRADIENTS
from qkv.checks.masking import CAUSAL, PACKED, PADDING
from qkv.checks.model_under_test import ModelUnderTest
from qkv.checks.optimized import INT8, TWIN
from qkv.checks.result import Check, CheckReport, CheckResult
from qkv.checks.storage import ROUND_TRIP, SAVED
from qkv.engine.engine import Engine
from qkv.errors import QkvError
from qkv.files import one_line
from qkv.model import Model

SMALL = 50_000_000  # parameters

CHECKS = (
    CAUSAL, PADDING, BATCH, CACHED, PACKED, FUSED, ACCUMULATED, SAVED, ROUND_TRIP, SOFTMAX,
    GRADIENTS, TWIN, INT8,
)  # fmt: skip


def check(
    model: Engine | Bundle | Model,
    texts: Sequence[str] = (),
    *,
    quick: bool = False,
    checks: Sequence[Check] = CHECKS,
    on_result: Callable[[CheckResult], None] | None = None,
) -> CheckReport:
    """What each check found on this model.

    texts: tried instead of the built-in ones. quick: a few short texts, for the end of another
    work. tell: is told each result as it comes.
    """
    subject = ModelUnderTest.of(model, texts, quick)
    found = list[CheckResult]()
    with _few_threads(subject):
        for result in results(subject, checks):
            found.append(result)
            if on_result is not None:
                on_result(result)
    return CheckReport(tuple(found), subject.remarks)


def results(subject: ModelUnderTest, checks: Sequence[Check] = CHECKS) -> Iterator[CheckResult]:
    """One result after the other, in the order of the checks."""
    for each in checks:
        yield _result(each, subject)


@contextmanager
def _few_threads(subject: ModelUnderTest) -> Iterator[None]:
    """Inside, a small model computes on one core: its texts are too short to share them out."""
    before = torch.get_num_threads()
    if subject.parameters < SMALL:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _result(each: Check, subject: ModelUnderTest) -> CheckResult:
    """A model that cannot even be asked fails the check, and the place says why."""
    why_not = each.skip_reason(subject)
    if why_not:
        return CheckResult(each.name, None, each.tolerance, remark=why_not)
    try:
        found = each.measure(subject, each.tolerance)
    except (QkvError, RuntimeError) as error:
        return CheckResult(
            each.name, float("inf"), each.tolerance, one_line(error), "it cannot be run"
        )
    return CheckResult(each.name, found.worst, each.tolerance, found.location, found.remark)
