"""The training loop, a generator of steps: its consumer prints, saves, evaluates or stops."""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from qkv.errors import TrainingError
from qkv.task.task import Batch
from qkv.train.average import Average
from qkv.train.schedule import Schedule

PATIENCE = 3  # steps in a row that may be lost before training ends


@dataclass(frozen=True)
class Step:
    """What one step did; `taken` is False if it was not finite and the weights were left alone."""

    number: int  # of steps done, this one included
    loss: float  # nats a target
    gradient: float  # its length before clipping
    rate: float  # the share of the full rate
    tokens: int  # real tokens read
    seconds: float
    taken: bool


class Trainer:
    """A model, its optimisers and where they are; `steps()` goes on from there."""

    def __init__(
        self,
        model: nn.Module,
        loss: Callable[[Any, Any], Tensor],
        optimisers: list[torch.optim.Optimizer],
        schedule: Schedule,
        total: int,
        clip: float = 1.0,
        average: Average | None = None,
    ) -> None:
        self.model, self.loss, self.optimisers = model, loss, optimisers
        self.schedule, self.total, self.clip, self.average = schedule, total, clip, average
        self.done = 0
        self.full = [group["lr"] for o in optimisers for group in o.param_groups]

    def steps(self, batches: Iterable[Sequence[Batch]]) -> Iterator[Step]:
        """One step for each list of batches, whose gradients are added up before it is taken."""
        lost = 0
        for parts in batches:
            if self.done >= self.total:
                return
            step = self._step(parts)
            lost = 0 if step.taken else lost + 1
            yield step
            if lost >= PATIENCE:
                raise TrainingError(
                    f"the loss was not finite for {PATIENCE} steps in a row, up to step "
                    f"{step.number}; the weights are those before; try a lower rate"
                )

    def _step(self, parts: Sequence[Batch]) -> Step:
        start = time.perf_counter()
        self.model.train()
        share = self.schedule.share(self.done, self.total)
        self._set_rates(share)
        targets = sum(part.targets for part in parts)
        total = 0.0
        for part in parts:
            with self._precision():
                loss = self.loss(self.model, part) / max(1, targets)
            loss.backward()  # type: ignore[no-untyped-call]
            total += loss.item()
        length = float(nn.utils.clip_grad_norm_(self.model.parameters(), self.clip))
        taken = all(map(_finite, (total, length)))
        if taken:
            for optimiser in self.optimisers:
                optimiser.step()
            if self.average is not None:
                self.average.update(self.model, self.done + 1)
        for optimiser in self.optimisers:
            optimiser.zero_grad(set_to_none=True)
        self.done += 1
        tokens = sum(part.tokens for part in parts)
        seconds = time.perf_counter() - start
        return Step(self.done, total, length, share, tokens, seconds, taken)

    def _precision(self) -> AbstractContextManager[object]:
        """Graphics cards multiply in half precision; on CPUs everything is float32."""
        device = next(self.model.parameters()).device
        if device.type != "cuda":
            return nullcontext()
        return torch.autocast("cuda", torch.bfloat16)

    def _set_rates(self, share: float) -> None:
        groups = (group for optimiser in self.optimisers for group in optimiser.param_groups)
        for group, full in zip(groups, self.full, strict=True):
            group["lr"] = full * share


def _finite(number: float) -> bool:
    return number - number == 0.0
