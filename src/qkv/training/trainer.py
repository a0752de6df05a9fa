"""The training loop, a generator of steps: its consumer prints, saves, evaluates or stops."""

import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from qkv.errors import TrainingError
from qkv.machine import adapt_threads
from qkv.model import Layers
from qkv.training.optimizer import Schedule
from qkv.training.tasks.task import Batch

MAX_SKIPPED_STEPS = 3  # in a row, before training ends


@dataclass(frozen=True)
class Step:
    """What one step did; if it was not `finite`, the weights were left as they were."""

    number: int  # of steps so far, this one included
    loss: float  # nats per target
    grad_norm: float  # before clipping
    lr_scale: float  # the schedule's factor of the learning rates
    tokens: int  # read by the model, padding excluded
    seconds: float
    finite: bool


class Trainer:
    """A model, its optimizers and the number of steps so far; `steps()` continues from there."""

    def __init__(
        self,
        model: nn.Module,
        loss: Callable[[Any, Any], Tensor],
        optimizers: list[torch.optim.Optimizer],
        schedule: Schedule,
        total: int,
        clip: float = 1.0,
        ema: "EMA | None" = None,
    ) -> None:
        self.model = model
        self.loss = loss
        self.optimizers = optimizers
        self.schedule = schedule
        self.total = total
        self.clip = clip
        self.ema = ema
        self.step = 0
        self.base_lrs = [group["lr"] for group in self._param_groups()]

    def steps(self, batches: Iterable[Sequence[Batch]]) -> Iterator[Step]:
        """One step for each list of micro-batches, whose gradients are accumulated."""
        skipped = 0
        for micro_batches in batches:
            if self.step >= self.total:
                return
            step = self._take_step(micro_batches)
            skipped = 0 if step.finite else skipped + 1
            yield step
            if skipped >= MAX_SKIPPED_STEPS:
                raise TrainingError(
                    f"the loss was not finite for {MAX_SKIPPED_STEPS} steps in a row, up to step "
                    f"{step.number}; the weights are those before; try a lower learning rate"
                )

    def _take_step(self, micro_batches: Sequence[Batch]) -> Step:
        start = time.perf_counter()
        adapt_threads()
        self.model.train()
        lr_scale = self.schedule.scale(self.step, self.total)
        for group, lr in zip(self._param_groups(), self.base_lrs, strict=True):
            group["lr"] = lr * lr_scale

        # Each loss is a sum, divided by the targets of the whole step: exact under accumulation.
        targets = sum(batch.num_targets for batch in micro_batches)
        total_loss = 0.0
        for batch in micro_batches:
            with self._autocast():
                loss = self.loss(self.model, batch) / max(1, targets)
            loss.backward()  # type: ignore[no-untyped-call]
            total_loss += loss.item()
        grad_norm = float(nn.utils.clip_grad_norm_(self.model.parameters(), self.clip))

        finite = math.isfinite(total_loss) and math.isfinite(grad_norm)
        self.step += 1
        if finite:
            for optimizer in self.optimizers:
                optimizer.step()
            if self.ema is not None:
                self.ema.update(self.model, self.step)
        for optimizer in self.optimizers:
            optimizer.zero_grad(set_to_none=True)
        return Step(
            number=self.step,
            loss=total_loss,
            grad_norm=grad_norm,
            lr_scale=lr_scale,
            tokens=sum(batch.num_tokens for batch in micro_batches),
            seconds=time.perf_counter() - start,
            finite=finite,
        )

    def _autocast(self) -> AbstractContextManager[object]:
        """bfloat16 matrix products on CUDA; float32 everywhere else."""
        device = next(self.model.parameters()).device
        if device.type != "cuda":
            return nullcontext()
        return torch.autocast("cuda", torch.bfloat16)

    def _param_groups(self) -> Iterator[dict[str, Any]]:
        for optimizer in self.optimizers:
            yield from optimizer.param_groups


class EMA:
    """An exponential moving average of a model's weights (Polyak 1992), often better than they.

    The decay is smaller during the first steps, so that the initial weights are soon forgotten.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.decay = decay
        self.weights = _copy_of_weights(model)

    @torch.no_grad()
    def update(self, model: nn.Module, step: int) -> None:
        """Adds the weights after `step`, counted from 1."""
        decay = min(self.decay, (1 + step) / (10 + step))
        averages = list(self.weights.values())
        weights: list[Tensor] = [weight for _, weight in model.named_parameters()]
        torch._foreach_lerp_(averages, weights, 1.0 - decay)

    @contextmanager
    def applied_to(self, model: nn.Module) -> Iterator[None]:
        """Inside, the model has the averaged weights."""
        weights = _copy_of_weights(model)
        _set_weights(model, self.weights)
        try:
            yield
        finally:
            _set_weights(model, weights)


def _copy_of_weights(model: nn.Module) -> dict[str, Tensor]:
    return {name: weight.detach().clone() for name, weight in model.named_parameters()}


@torch.no_grad()
def _set_weights(model: nn.Module, weights: dict[str, Tensor]) -> None:
    for name, parameter in model.named_parameters():
        parameter.copy_(weights[name])


def checkpoint_activations(model: nn.Module) -> None:
    """Keep only the input of each layer and recompute the rest in backward (Chen et al. 2016).

    Less memory for more time; the gradients stay the same.
    """
    for layers in model.modules():
        if not isinstance(layers, Layers):
            continue
        for block in layers.blocks():
            if "forward" in vars(block):  # shared by several layers, or copied with it
                continue
            # A partial is copied along with its block; a closure would keep calling this one.
            recompute = partial(checkpoint, block.forward, use_reentrant=False)
            block.forward = recompute  # type: ignore[method-assign]
