"""What a training run would cost on this machine: its speed measured, the rest counted."""

import os
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from qkv.errors import TrainingError
from qkv.model import EncoderDecoder, cost
from qkv.training.prepare import Prepared
from qkv.training.recipe import Recipe
from qkv.training.run import Run
from qkv.training.tasks import DataModule

FLOAT32_BYTES = 4
FEW_EXAMPLES = 200
MANY_EPOCHS = 30  # over running text
MANY_TRUNCATED = 0.05  # of the texts
HISTOGRAM_BARS = 8


@dataclass(frozen=True)
class Forecast:
    """Counts, a measured speed and the time that follows from them, with advice."""

    parameters: int
    memory_bytes: int  # weights, gradients, optimizer state and the activations of one step
    tokens_a_second: float
    seconds_a_step: float
    steps: int
    steps_an_epoch: int
    minutes: float
    tokens_per_parameter: float  # read in the whole run
    data_tokens_per_parameter: float  # different ones: those of the training data
    lengths: tuple[tuple[str, int], ...]  # range of tokens, and how many examples are in it
    facts: tuple[tuple[str, str], ...]
    remarks: tuple[str, ...]
    advice: tuple[str, ...]

    def in_minutes(self, minutes: float) -> "Forecast":
        """The same with as many steps as fit into that time."""
        steps = max(1, int(minutes * 60 / self.seconds_a_step))
        per_parameter = self.tokens_per_parameter * steps / self.steps
        return replace(self, steps=steps, minutes=minutes, tokens_per_parameter=per_parameter)


def forecast(prepared: Prepared, device: torch.device, seconds: float = 5.0) -> Forecast:
    """Trains for `seconds`, throws the result away, and extrapolates."""
    recipe = prepared.recipe
    data = prepared.data_module
    check_memory(recipe)
    seconds_per_step, tokens_per_second = Run(prepared, Path(), device).measure_speed(seconds)
    steps_per_epoch = len(data.batch_indices(0))
    parameters = recipe.model.parameters()
    return Forecast(
        parameters=parameters,
        memory_bytes=memory_needed(recipe),
        tokens_a_second=tokens_per_second,
        seconds_a_step=seconds_per_step,
        steps=recipe.steps,
        steps_an_epoch=steps_per_epoch,
        minutes=recipe.steps * seconds_per_step / 60,
        tokens_per_parameter=recipe.batch * recipe.steps / parameters,
        data_tokens_per_parameter=int(data.lengths.sum()) / parameters,
        lengths=histogram(data.lengths),
        facts=tuple(data.facts),
        remarks=tuple(data.remarks),
        advice=tuple(_advice(recipe, data, recipe.steps / steps_per_epoch)),
    )


def memory_needed(recipe: Recipe) -> int:
    """Bytes at the peak of one step, without what Python and torch take by themselves."""
    config = recipe.model
    per_token = cost(config, config.length)
    copies = 2 + recipe.optimizer.states_per_weight  # weights and gradients
    if recipe.ema:
        copies += 1
    tokens = recipe.batch // recipe.accumulate
    if isinstance(config, EncoderDecoder):
        tokens //= 2  # half of a batch are source tokens, counted with their target tokens
    activations = per_token.activation_bytes * tokens
    if recipe.activation_checkpointing:
        stack = config.encoder if hasattr(config, "encoder") else config.decoder
        activations /= stack.layers
    return int(copies * FLOAT32_BYTES * per_token.parameters + activations)


def check_memory(recipe: Recipe) -> None:
    """Raises a TrainingError if the run cannot fit, rather than after an hour of swapping."""
    needed = memory_needed(recipe)
    available = machine_memory()
    if available is not None and needed > available:
        raise TrainingError(
            f"this needs about {needed / 1e9:.1f} GB of memory but the machine has "
            f"{available / 1e9:.1f} GB; choose a smaller size or batch, or set accumulate=8"
        )


def machine_memory() -> int | None:
    """Bytes of memory this machine has, where the system tells."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None


def histogram(lengths: np.ndarray, bars: int = HISTOGRAM_BARS) -> tuple[tuple[str, int], ...]:
    """How many examples have how many tokens, in ranges that grow with the length."""
    longest = max(1, int(lengths.max(initial=1)))
    edges = np.unique(np.geomspace(1, longest + 1, bars + 1).round().astype(np.int64))
    counts, _ = np.histogram(lengths, edges)
    result = []
    for low, high, count in zip(edges[:-1], edges[1:], counts.tolist(), strict=True):
        name = f"{low}" if high - low == 1 else f"{low}–{high - 1}"
        result.append((name, count))
    return tuple(result)


def _advice(recipe: Recipe, data: DataModule, epochs: float) -> list[str]:
    advice = []
    kind = recipe.task.kind
    tokens = int(data.lengths.sum())
    parameters = recipe.model.parameters()
    if recipe.origin is None and tokens < parameters / 4:
        advice.append(
            f"with {tokens / parameters:.2g} tokens of data per parameter the model will memorize "
            "them; take a smaller --size, or start --from a trained model"
        )
    if recipe.origin is None and len(data.lengths) < FEW_EXAMPLES and kind == "classify":
        advice.append(f"{len(data.lengths)} examples are few; start --from a trained encoder")
    if epochs < 1:
        advice.append(
            f"only {epochs:.0%} of the data will be read; give it more --minutes or --epochs"
        )
    if epochs > MANY_EPOCHS and kind in ("language", "masked"):
        advice.append(
            f"the text is read {epochs:.0f} times; more text would help more than more time"
        )
    truncated = (data.lengths > recipe.model.length).mean()
    if truncated > MANY_TRUNCATED and kind in ("classify", "embed"):
        advice.append(
            "more than 5 % of the texts are truncated; a longer --context would read all of them"
        )
    return advice or ["none: these settings suit the data"]
