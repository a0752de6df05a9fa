"""Proofs on a user's own model: what must hold for every model, and where it first does not."""

from qkv.checks.model_under_test import ModelUnderTest
from qkv.checks.result import Check, CheckReport, CheckResult, Finding
from qkv.checks.runner import CHECKS, check

__all__ = ["CHECKS", "Check", "CheckReport", "CheckResult", "Finding", "ModelUnderTest", "check"]
