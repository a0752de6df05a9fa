"""Proofs on a user's own model: what must hold for every model, and where it first does not."""

from qkv.check.check import CHECKS, check
from qkv.check.report import Check, Finding, Report, Result
from qkv.check.subject import Subject

__all__ = ["CHECKS", "Check", "Finding", "Report", "Result", "Subject", "check"]
