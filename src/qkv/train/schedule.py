"""How large a step is, as a share of the full rate, at each step of a run of known length."""

import math
from typing import Annotated, Literal

from pydantic import Field

from qkv.model.choice import Choice, Count

Part = Annotated[float, Field(ge=0.0, le=1.0)]


class Schedule(Choice):
    """Up from 0 in `warmup` steps, then as each kind says."""

    warmup: Count = 50

    def share(self, step: int, steps: int) -> float:
        """The share of the full rate at `step`, counted from 0, of `steps`."""
        warmup = min(self.warmup, steps // 10)
        if step < warmup:
            return (step + 1) / (warmup + 1)
        return self.after((step - warmup) / max(1, steps - warmup), step + 1, warmup)

    def after(self, progress: float, step: int, warmup: int) -> float:
        raise NotImplementedError


class Cosine(Schedule):
    """Down along half a cosine to `floor`."""

    kind: Literal["cosine"] = "cosine"
    floor: Part = 0.1

    def after(self, progress: float, step: int, warmup: int) -> float:
        return self.floor + (1.0 - self.floor) * 0.5 * (1.0 + math.cos(math.pi * progress))


class Linear(Schedule):
    """Full until `hold` of the run is over, then straight down to 0.

    With hold = 0 it falls from the start; in between it is also called warm-up–stable–decay.
    """

    kind: Literal["linear"] = "linear"
    hold: Part = 0.4

    def after(self, progress: float, step: int, warmup: int) -> float:
        return min(1.0, (1.0 - progress) / max(1e-9, 1.0 - self.hold))


class InverseRoot(Schedule):
    """Down with one over the root of the step, as in the paper."""

    kind: Literal["inverse_root"] = "inverse_root"

    def after(self, progress: float, step: int, warmup: int) -> float:
        return math.sqrt(max(1, warmup) / max(1, step))


class Constant(Schedule):
    """Full to the end."""

    kind: Literal["constant"] = "constant"

    def after(self, progress: float, step: int, warmup: int) -> float:
        return 1.0


ScheduleChoice = Annotated[Cosine | Linear | InverseRoot | Constant, Field(discriminator="kind")]
