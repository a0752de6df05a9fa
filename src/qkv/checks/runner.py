"""Runs all checks on one model, one after the other."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch

from qkv.bundle import Bundle
from qkv.checks.attention_checks import FUSED, SOFTMAX
from qkv.checks.batch_checks import BATCH, CACHED
from qkv.checks.gradient_checks import ACCUMULATED, GRADIENTS
from qkv.checks.masking import CAUSAL, PACKED, PADDING
from qkv.checks.model_under_test import ModelUnderTest
from qkv.checks.optimized import INT8, OPTIMIZED
from qkv.checks.result import Check, CheckReport, CheckResult
from qkv.checks.storage import ROUND_TRIP, SAVED
from qkv.engine import Engine
from qkv.errors import QkvError
from qkv.files import one_line
from qkv.model import Model

SMALL_MODEL_PARAMETERS = 50_000_000  # below, several threads cost more than they gain

CHECKS = (
    CAUSAL,
    PADDING,
    BATCH,
    CACHED,
    PACKED,
    FUSED,
    ACCUMULATED,
    SAVED,
    ROUND_TRIP,
    SOFTMAX,
    GRADIENTS,
    OPTIMIZED,
    INT8,
)


def check(
    model: Engine | Bundle | Model,
    texts: Sequence[str] = (),
    *,
    quick: bool = False,
    checks: Sequence[Check] = CHECKS,
    on_result: Callable[[CheckResult], None] | None = None,
) -> CheckReport:
    """The results of all checks on this model.

    texts: used instead of the built-in ones. quick: only a few short texts, as after training.
    on_result: called with each result as soon as it is there.
    """
    subject = ModelUnderTest.of(model, texts, quick)
    results = []
    with _thread_count(subject):
        for each in checks:
            result = _run(each, subject)
            results.append(result)
            if on_result is not None:
                on_result(result)
    return CheckReport(tuple(results), subject.remarks)


@contextmanager
def _thread_count(subject: ModelUnderTest) -> Iterator[None]:
    """Inside, a small model runs on one thread: the inputs are too short to split."""
    before = torch.get_num_threads()
    if subject.parameters < SMALL_MODEL_PARAMETERS:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _run(each: Check, subject: ModelUnderTest) -> CheckResult:
    """A model that raises an error fails the check, with the error as its location."""
    skip_reason = each.skip_reason(subject)
    if skip_reason:
        return CheckResult(each.name, None, each.tolerance, remark=skip_reason)
    try:
        finding = each.measure(subject, each.tolerance)
    except (QkvError, RuntimeError) as error:
        return CheckResult(
            each.name, float("inf"), each.tolerance, one_line(error), "it cannot be run"
        )
    return CheckResult(each.name, finding.worst, each.tolerance, finding.location, finding.remark)
