"""What a training would cost here, before it starts: its speed measured, the rest counted."""

import os
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from qkv.errors import TrainingError
from qkv.model import EncoderDecoder, cost
from qkv.training.jobs.base import DataModule
from qkv.training.plan import Prepared
from qkv.training.recipe import Recipe
from qkv.training.run import Run

FLOAT = 4  # bytes
FEW = 200  # training examples
OFTEN = 30  # epochs over running text


@dataclass(frozen=True)
class Forecast:
    """Counts, a measured speed and the time that follows from them, with advice."""

    parameters: int
    memory_bytes: int  # weights, gradients, optimizer and one step's activations
    tokens_a_second: float
    seconds_a_step: float
    steps: int
    steps_an_epoch: int
    minutes: float
    tokens_per_parameter: float  # read in the whole run
    lengths: tuple[tuple[str, int], ...]  # tokens from–to, and how many examples have as many
    facts: tuple[tuple[str, str], ...]
    remarks: tuple[str, ...]
    advice: tuple[str, ...]

    def in_minutes(self, minutes: float) -> "Forecast":
        """The same with as many steps as fit into that time."""
        steps = max(1, int(minutes * 60 / self.seconds_a_step))
        more = self.tokens_per_parameter * steps / self.steps
        return replace(self, steps=steps, minutes=minutes, tokens_per_parameter=more)


def forecast(prepared: Prepared, device: torch.device, seconds: float = 5.0) -> Forecast:
    """Take a few steps for `seconds`, throw them away, and reckon."""
    recipe, data_module = prepared.recipe, prepared.data_module
    needed = memory_needed(recipe)
    refuse_too_large(recipe)
    a_step, speed = Run(prepared, Path(), device).speed(seconds)
    steps, an_epoch = recipe.steps, len(data_module.order(0))
    parameters = recipe.model.parameters()
    per_parameter = recipe.batch * steps / parameters
    return Forecast(
        parameters=parameters,
        memory_bytes=needed,
        tokens_a_second=speed,
        seconds_a_step=a_step,
        steps=steps,
        steps_an_epoch=an_epoch,
        minutes=steps * a_step / 60,
        tokens_per_parameter=per_parameter,
        lengths=histogram(data_module.lengths),
        facts=tuple(data_module.facts),
        remarks=tuple(data_module.remarks),
        advice=tuple(_advice(recipe, data_module, steps / an_epoch)),
    )


def memory_needed(recipe: Recipe) -> int:
    """Bytes at the height of one step; what Python and torch take by themselves is not in it."""
    config = recipe.model
    copies = 2 + recipe.optimizer.copies + (recipe.ema > 0)  # weights and gradients
    tokens = recipe.batch // recipe.accumulate
    if isinstance(config, EncoderDecoder):
        tokens //= 2  # half of a batch are sources, which a target token carries
    each = cost(config, config.length)
    kept = each.activation_bytes * tokens
    if recipe.activation_checkpointing:
        layers = config.decoder.layers if not hasattr(config, "encoder") else config.encoder.layers
        kept /= layers
    return int(copies * FLOAT * each.parameters + kept)


def refuse_too_large(recipe: Recipe) -> None:
    """What can never fit is said at once, not after an hour of swapping."""
    needed, there = memory_needed(recipe), memory_there()
    if there is not None and needed > there:
        raise TrainingError(
            f"this needs about {needed / 1e9:.1f} GB of memory but the machine has "
            f"{there / 1e9:.1f} GB; take a smaller --size or --batch, or --set accumulate=8"
        )


def memory_there() -> int | None:
    """Bytes of memory this machine has, if it says so."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None


def histogram(lengths: np.ndarray, bars: int = 8) -> tuple[tuple[str, int], ...]:
    """How many examples have how many tokens, in ranges that grow with the length."""
    top = max(1, int(lengths.max(initial=1)))
    edges = np.unique(np.geomspace(1, top + 1, bars + 1).round().astype(np.int64))
    counts, _ = np.histogram(lengths, edges)
    ranges = zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True)
    named = (f"{low}" if high - low == 1 else f"{low}–{high - 1}" for low, high in ranges)
    return tuple(zip(named, counts.tolist(), strict=True))


def _advice(recipe: Recipe, data_module: DataModule, epochs: float) -> list[str]:
    said = []
    tokens, parameters = int(data_module.lengths.sum()), recipe.model.parameters()
    if recipe.origin is None and tokens < parameters / 4:
        said.append(
            f"the model has {parameters / tokens:.0f} parameters for each token of the data and "
            "will learn it by heart; take a smaller --size, or start --from a trained model"
        )
    if recipe.origin is None and len(data_module.lengths) < FEW and recipe.task.kind == "classify":
        said.append(f"{len(data_module.lengths)} examples are few; start --from a trained encoder")
    if epochs < 1:
        said.append(
            f"only {epochs:.0%} of the data will be read; give it more --minutes or --epochs"
        )
    if epochs > OFTEN and recipe.task.kind in ("language", "masked"):
        said.append(
            f"the text is read {epochs:.0f} times; more text would help more than more time"
        )
    if (data_module.lengths > recipe.model.length).mean() > 0.05 and recipe.task.kind in (
        "classify",
        "embed",
    ):
        said.append("more than 5 % of the texts are cut; a longer --context would read them whole")
    return said or ["nothing speaks against it"]
