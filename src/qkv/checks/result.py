"""What a check is, what it found, and what all of them say together."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from qkv.checks.model_under_test import ModelUnderTest


@dataclass(frozen=True)
class Finding:
    """The largest deviation, and where it is: the first place that is beyond what is allowed."""

    worst: float
    location: str = ""
    remark: str = ""


def always(subject: ModelUnderTest) -> str:
    """Nothing stands in the way of the check."""
    return ""


@dataclass(frozen=True)
class Check:
    """One thing that must be true of every model.

    find: measures the subject; it is told the tolerance to know which place is the first beyond it.
    lacks: why this subject cannot be asked, or nothing if it can.
    """

    name: str
    invariant: str
    tolerance: float
    measure: Callable[[ModelUnderTest, float], Finding]
    skip_reason: Callable[[ModelUnderTest], str] = always


@dataclass(frozen=True)
class CheckResult:
    """What came out of one check; `worst` is None where it does not apply, and `remark` says why.

    A check that does not apply is not violated, so it is `ok`, but it does not count as passed.
    """

    name: str
    worst: float | None
    tolerance: float
    location: str = ""
    remark: str = ""

    @property
    def applies(self) -> bool:
        return self.worst is not None

    @property
    def ok(self) -> bool:
        return self.worst is None or self.worst <= self.tolerance

    def fields(self) -> dict[str, Any]:
        """For JSON, which knows no infinity: a deviation that is no number becomes null."""
        known = self.worst is not None and math.isfinite(self.worst)
        return {
            "name": self.name,
            "ok": self.ok,
            "applies": self.applies,
            "worst": self.worst if known else None,
            "tolerance": self.tolerance,
            "place": self.location,
            "remark": self.remark,
        }


@dataclass(frozen=True)
class CheckReport:
    """All results in their order, and what a person should know of how they were found."""

    checks: tuple[CheckResult, ...]
    remarks: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        return self.first_failure is None

    @property
    def first_failure(self) -> CheckResult | None:
        """The first violation."""
        return next((result for result in self.checks if not result.ok), None)

    def fields(self) -> dict[str, Any]:
        checks = [result.fields() for result in self.checks]
        return {"ok": self.ok, "checks": checks, "remarks": list(self.remarks)}


@dataclass
class DeviationTracker:
    """Deviations as they come: the largest, and the place of the first beyond the tolerance."""

    tolerance: float
    worst: float = 0.0
    place: str = ""
    remark: str = ""
    failed: bool = field(default=False, init=False)

    def add(self, value: float, place: str, remark: str = "") -> None:
        value = math.inf if math.isnan(value) else value
        beyond = value > self.tolerance
        if not self.failed and (beyond or value > self.worst):
            self.place, self.remark = place, remark if beyond else ""
        self.failed = self.failed or beyond
        self.worst = max(self.worst, value)

    def finding(self, remark: str = "") -> Finding:
        """What was found; the remark is said where nothing is wrong."""
        return Finding(self.worst, self.place, self.remark if self.failed else remark)
