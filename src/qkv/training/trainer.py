"""The training loop, a generator of steps: its consumer prints, saves, evaluates or stops."""

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
from qkv.model.stack import Layers
from qkv.tasks.token_tasks import Batch
from qkv.training.optimizer import Schedule

# FOLDED train/average: A running mean of the weights, which often does better than the last of
#   them (Polyak 1992).
# FOLDED train/recompute: Less memory for more time: a layer's inner values are computed again
#   in the backward pass.


class EMA:
    """The mean of a model's weights so far, the newest counting most.

    With decay d, the weights before count d of the mean; at the start less, so that the fresh
    weights are soon forgotten.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.decay = decay
        self.weights = {name: t.detach().clone() for name, t in _learned(model).items()}

    @torch.no_grad()
    def update(self, model: nn.Module, step: int) -> None:
        """Take in the weights after `step`, counted from 1."""
        share = 1.0 - min(self.decay, (1 + step) / (10 + step))
        means, newest = list(self.weights.values()), list(_learned(model).values())
        torch._foreach_lerp_(means, newest, share)

    @contextmanager
    def inside(self, model: nn.Module) -> Iterator[None]:
        """The model has the mean as its weights for a while."""
        newest = {name: t.detach().clone() for name, t in _learned(model).items()}
        _put(model, self.weights)
        try:
            yield
        finally:
            _put(model, newest)


def _learned(model: nn.Module) -> dict[str, Tensor]:
    return dict(model.named_parameters())


@torch.no_grad()
def _put(model: nn.Module, weights: dict[str, Tensor]) -> None:
    for name, parameter in model.named_parameters():
        parameter.copy_(weights[name])


PATIENCE = 3  # steps in a row that may be lost before training ends


@dataclass(frozen=True)
class Step:
    """What one step did; `finite` is False if it was not finite and the weights were left alone."""

    number: int  # of steps done, this one included
    loss: float  # nats a target
    grad_norm: float  # its length before clipping
    lr_scale: float  # the share of the full rate
    tokens: int  # real tokens read
    seconds: float
    finite: bool


class Trainer:
    """A model, its optimizers and where they are; `steps()` goes on from there."""

    def __init__(
        self,
        model: nn.Module,
        loss: Callable[[Any, Any], Tensor],
        optimizers: list[torch.optim.Optimizer],
        schedule: Schedule,
        total: int,
        clip: float = 1.0,
        ema: EMA | None = None,
    ) -> None:
        self.model, self.loss, self.optimizers = model, loss, optimizers
        self.schedule, self.total, self.clip, self.ema = schedule, total, clip, ema
        self.step = 0
        self.full = [group["lr"] for o in optimizers for group in o.param_groups]

    def steps(self, batches: Iterable[Sequence[Batch]]) -> Iterator[Step]:
        """One step for each list of batches, whose gradients are added up before it is taken."""
        lost = 0
        for parts in batches:
            if self.step >= self.total:
                return
            step = self._step(parts)
            lost = 0 if step.finite else lost + 1
            yield step
            if lost >= PATIENCE:
                raise TrainingError(
                    f"the loss was not finite for {PATIENCE} steps in a row, up to step "
                    f"{step.number}; the weights are those before; try a lower rate"
                )

    def _step(self, parts: Sequence[Batch]) -> Step:
        start = time.perf_counter()
        self.model.train()
        share = self.schedule.share(self.step, self.total)
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
            for optimizer in self.optimizers:
                optimizer.step()
            if self.ema is not None:
                self.ema.update(self.model, self.step + 1)
        for optimizer in self.optimizers:
            optimizer.zero_grad(set_to_none=True)
        self.step += 1
        tokens = sum(part.tokens for part in parts)
        seconds = time.perf_counter() - start
        return Step(self.step, total, length, share, tokens, seconds, taken)

    def _precision(self) -> AbstractContextManager[object]:
        """Graphics cards multiply in half precision; on CPUs everything is float32."""
        device = next(self.model.parameters()).device
        if device.type != "cuda":
            return nullcontext()
        return torch.autocast("cuda", torch.bfloat16)

    def _set_rates(self, share: float) -> None:
        groups = (group for optimizer in self.optimizers for group in optimizer.param_groups)
        for group, full in zip(groups, self.full, strict=True):
            group["lr"] = full * share


def _finite(number: float) -> bool:
    return number - number == 0.0


def checkpoint_activations(model: nn.Module) -> None:
    """Keep only what goes into each layer (Chen et al. 2016); the numbers stay the same."""
    for layers in (module for module in model.modules() if isinstance(module, Layers)):
        for block in layers.blocks():
            if "forward" in vars(block):  # layers may share one, and a copy has it already
                continue
            # A partial is copied along with its block; a closure would go on calling this one.
            again = partial(checkpoint, block.forward, use_reentrant=False)
            block.forward = again  # type: ignore[method-assign]
