"""Proofs on a user's own model: what must hold for every model, and where it first does not."""

from qkv.check.model_under_test import Subject
from qkv.check.result import Check, Finding, Report, Result
from qkv.check.runner import CHECKS, check

__all__ = ["CHECKS", "Check", "Finding", "Report", "Result", "Subject", "check"]
