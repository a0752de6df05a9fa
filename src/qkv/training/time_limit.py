"""The minutes a run may take: how many steps and evaluations fit, and when it is time to stop.

A time becomes a number of steps, so that the learning rate decays to its end. The plan is made of
a measurement before the first step, and made again when steps or evaluations turn out slower.
"""

import math
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from torch.nn.modules.module import register_module_forward_pre_hook

from qkv.training.recipe import EVALUATIONS_PER_RUN
from qkv.training.tasks import DataModule
from qkv.training.trainer import Step

MAX_EVALUATION_FRACTION = 0.3  # of the time, for all evaluations
FINAL_EVALUATION_COST = 2  # in evaluations: it looks at more examples, with a baseline
REPORT_SECONDS = 3.0  # for the report, the bundle and its checks, on a machine that is quiet
MAX_REPORT_FRACTION = 0.25  # of the time, on any
MAX_SLOWDOWN = 6.0
MAX_MEASURING_FRACTION = 0.05  # for each of the two measurements before the first step
MAX_SINGLE_FRACTION = 0.1  # for one evaluation, unless they were measured to take longer
SLOW_FACTOR = 3  # times the expected seconds: an evaluation is given up
SAFETY_MARGIN = 0.95  # of the time left for steps
MIN_PLANNED_STEPS = 10
WARM_UP_STEPS = 3  # not timed
REPLAN_TOLERANCE = 0.05  # of the steps left, before their number is changed,
MIN_REPLAN = 0.01  # and of all planned steps
MUCH_SLOWER = 0.9  # of the planned steps: from here on a note is worth it
LAST_FRACTION = 0.6  # of the time left, for the last evaluation before the final one
SOFT_FRACTION = 0.8  # of an evaluation's time, after which it looks at no more examples
MIN_FINAL_FRACTION = 0.03  # for the final evaluation, even if the time is up


class OutOfTimeError(Exception):
    """An evaluation did not end in the time it has."""


class TimeLimit:
    """The time of one run; the clock starts at `start`, a value of `time.perf_counter`."""

    def __init__(self, minutes: float, start: float) -> None:
        self.minutes = minutes
        self.seconds = 60 * minutes
        self.end = start + self.seconds
        self.per_evaluation = 0.0  # seconds, of the most recent one
        self.planned_steps = 0  # at the start; never more than that
        self._noted = False
        self._wall_time = time.perf_counter()
        self._cpu_time = time.thread_time()

    def started_earlier(self, seconds: float) -> None:
        """The clock started so many seconds before; a replanning corrects the number of steps."""
        self.end -= seconds

    def left(self) -> float:
        return self.end - time.perf_counter()

    @property
    def measuring_seconds(self) -> float:
        return MAX_MEASURING_FRACTION * self.seconds

    @property
    def report_seconds(self) -> float:
        return min(REPORT_SECONDS * self.slowdown, MAX_REPORT_FRACTION * self.seconds)

    @property
    def slowdown(self) -> float:
        """By how much other work on the machine slows this thread down; 1 on a quiet one."""
        wall = time.perf_counter() - self._wall_time
        cpu = time.thread_time() - self._cpu_time
        return min(MAX_SLOWDOWN, max(1.0, wall / max(1e-3, cpu)))

    def affordable_evaluations(self) -> int:
        """How many more evaluations there may be, the final one not counted."""
        budget = MAX_EVALUATION_FRACTION * max(0.0, self.left())
        affordable = int(budget / max(1e-9, self.per_evaluation)) - FINAL_EVALUATION_COST
        return max(1, min(EVALUATIONS_PER_RUN, affordable))

    def seconds_for_steps(self, evaluations: int = 1) -> float:
        """The time left, without that of so many evaluations, the final one and the report."""
        evaluating = (evaluations + FINAL_EVALUATION_COST) * self.per_evaluation
        evaluating = min(evaluating, MAX_EVALUATION_FRACTION * self.seconds)
        return self.left() - evaluating - self.report_seconds

    def plan_steps(self, step: int, per_step: float, evaluations: int) -> int:
        """The number of steps of the run, of which `step` are done."""
        available = self.seconds_for_steps(evaluations)
        steps = max(MIN_PLANNED_STEPS, int(available / per_step * SAFETY_MARGIN))
        self.planned_steps = step + steps
        return self.planned_steps

    def replan_steps(self, step: int, steps: int, evaluate_every: int, timer: "StepTimer") -> int:
        """The number of steps that fits by the speed of the steps so far; `steps` if it still does.

        If the time is up, the steps that are done.
        """
        remaining = steps - step
        available = self.seconds_for_steps(max(1, math.ceil(remaining / evaluate_every)))
        if available <= 0:
            return step
        if timer.seconds < self.measuring_seconds:  # too few to know
            return steps
        fitting = step + int(available / timer.seconds_per_step)
        new = min(self.planned_steps, fitting)
        tolerance = max(REPLAN_TOLERANCE * remaining, MIN_REPLAN * self.planned_steps)
        if abs(new - steps) <= tolerance:
            return steps
        return new

    def is_much_slower(self, steps: int) -> bool:
        """Whether so many steps are worth a note: once, when they are far below the plan."""
        if self._noted or steps > MUCH_SLOWER * self.planned_steps:
            return False
        self._noted = True
        return True

    def seconds_for_evaluation(self, is_last: bool) -> float:
        """After which an evaluation is given up."""
        left = self.left() - self.report_seconds
        if is_last:
            return LAST_FRACTION * left
        expected = max(SLOW_FACTOR * self.per_evaluation, MAX_SINGLE_FRACTION * self.seconds)
        return min(expected, left)

    def seconds_for_final_evaluation(self) -> float:
        return max(self.left() - self.report_seconds, MIN_FINAL_FRACTION * self.seconds)


@contextmanager
def interruptible(seconds: float | None, should_stop: Callable[[], bool]) -> Iterator[None]:
    """Inside, models raise OutOfTimeError after `seconds`, KeyboardInterrupt on `should_stop`.

    They do so before one of their modules runs, where an exception leaves nothing half done.
    """
    deadline = None
    if seconds is not None:
        deadline = time.perf_counter() + seconds

    def check(*_: object) -> None:
        if should_stop():
            raise KeyboardInterrupt
        if deadline is not None and time.perf_counter() > deadline:
            raise OutOfTimeError

    handle = register_module_forward_pre_hook(check)
    try:
        yield
    finally:
        handle.remove()


@contextmanager
def evaluation_limit(
    data_module: DataModule, seconds: float | None, should_stop: Callable[[], bool]
) -> Iterator[None]:
    """Inside, an evaluation knows when it has to end, and is interrupted if it does not."""
    if seconds is not None:
        data_module.deadline = time.perf_counter() + SOFT_FRACTION * seconds
    try:
        with interruptible(seconds, should_stop):
            yield
    finally:
        data_module.deadline = None


class StepTimer:
    """The wall-clock time of the steps of one loop, evaluations left out."""

    def __init__(self) -> None:
        self.steps = 0
        self.seconds = 0.0  # of all but the first steps, which warm up
        self.last_time = time.perf_counter()

    def count_step(self) -> None:
        now = time.perf_counter()
        self.steps += 1
        if self.steps > WARM_UP_STEPS:
            self.seconds += now - self.last_time
        self.last_time = now

    def leave_out(self, seconds: float) -> None:
        self.last_time += seconds

    @property
    def seconds_per_step(self) -> float:
        return self.seconds / max(1, self.steps - WARM_UP_STEPS)


def time_steps(steps: Iterable[Step], seconds: float) -> tuple[float, float]:
    """Seconds per step and tokens per second of these steps, of which it takes `seconds` worth.

    The time between two steps counts too; the first ones, which warm up, do not.
    """
    begin = time.perf_counter()
    start = begin
    tokens = 0
    count = 0
    for step in steps:
        now = time.perf_counter()
        is_cold = step.number <= WARM_UP_STEPS and now - begin < seconds
        if step.number == 1 or is_cold:
            start = now
            continue
        tokens += step.tokens
        count += 1
        if now - start > seconds:
            break
    elapsed = time.perf_counter() - start
    return elapsed / count, tokens / elapsed
