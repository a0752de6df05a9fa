"""Proofs on a user's own model: what must hold for every model, and where it first does not."""

from qkv.checks.model_under_test import Subject
from qkv.checks.result import Check, Finding, Report, Result
from qkv.checks.runner import CHECKS, check

__all__ = ["CHECKS", "Check", "Finding", "Report", "Result", "Subject", "check"]
