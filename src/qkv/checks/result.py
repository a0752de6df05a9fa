"""What a check is, what it measures, and the report on all of them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from qkv.checks.model_under_test import ModelUnderTest


@dataclass(frozen=True)
class Finding:
    """The largest deviation, and the first location beyond the tolerance (or of the largest)."""

    worst: float
    location: str = ""
    remark: str = ""


def never_skip(subject: ModelUnderTest) -> str:
    """The check applies to every model."""
    return ""


@dataclass(frozen=True)
class Check:
    """An invariant that must hold for every model.

    invariant: what must hold, and violation: what is wrong if it does not, as sentences. measure:
    returns the deviation; it needs the tolerance to find the first location beyond it.
    skip_reason: why the check does not apply to this model, empty if it does.
    """

    name: str
    invariant: str
    violation: str
    tolerance: float
    measure: Callable[[ModelUnderTest, float], Finding]
    skip_reason: Callable[[ModelUnderTest], str] = never_skip


@dataclass(frozen=True)
class CheckResult:
    """The result of one check; `worst` is None where it does not apply, and `remark` says why.

    A check that does not apply is `ok`, since nothing is violated, but does not count as passed.
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
        """For JSON, which has no infinity: a deviation that is not finite becomes null."""
        worst = self.worst
        if worst is not None and not math.isfinite(worst):
            worst = None
        return {
            "name": self.name,
            "ok": self.ok,
            "applies": self.applies,
            "worst": worst,
            "tolerance": self.tolerance,
            "place": self.location,
            "remark": self.remark,
        }


@dataclass(frozen=True)
class CheckReport:
    """All results in order, and remarks on how they were obtained."""

    checks: tuple[CheckResult, ...]
    remarks: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        return self.first_failure is None

    @property
    def first_failure(self) -> CheckResult | None:
        return next((result for result in self.checks if not result.ok), None)

    def fields(self) -> dict[str, Any]:
        checks = [result.fields() for result in self.checks]
        return {"ok": self.ok, "checks": checks, "remarks": list(self.remarks)}


@dataclass
class DeviationTracker:
    """The largest deviation so far, and the location of the first beyond the tolerance."""

    tolerance: float
    worst: float = 0.0
    location: str = ""
    remark: str = ""
    failed: bool = field(default=False, init=False)

    def add(self, deviation: float, location: str, remark: str = "") -> None:
        # NaN compares false with everything, so it would pass unnoticed.
        if math.isnan(deviation):
            deviation = math.inf
        beyond = deviation > self.tolerance
        if not self.failed and (beyond or deviation > self.worst):
            self.location = location
            self.remark = remark if beyond else ""
        self.failed = self.failed or beyond
        self.worst = max(self.worst, deviation)

    def finding(self, remark: str = "") -> Finding:
        """The result; `remark` is used if nothing failed."""
        if self.failed:
            remark = self.remark
        return Finding(self.worst, self.location, remark)


def first_or_empty(locations: list[str]) -> str:
    """The first location, or an empty one if there is none."""
    return locations[0] if locations else ""
