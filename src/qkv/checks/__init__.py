"""Invariants of every model, checked on the user's own, with the location of the first failure."""

from qkv.checks.model_under_test import MAX_TEXTS, ModelUnderTest
from qkv.checks.result import Check, CheckReport, CheckResult, Finding
from qkv.checks.runner import CHECKS, check

__all__ = [
    "CHECKS",
    "MAX_TEXTS",
    "Check",
    "CheckReport",
    "CheckResult",
    "Finding",
    "ModelUnderTest",
    "check",
]
