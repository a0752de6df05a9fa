"""How much each position adds to a score, by the slope of the score along a path.

Integrated gradients (Sundararajan et al. 2017, "Axiomatic Attribution for Deep Networks"): on the
straight way from a baseline to the embeddings of the text, the slope in each position is summed up
and multiplied by how far the position went. Of the whole way the parts add up to the difference of
the two scores; what is missing is the error of the sum, and it is said. The points of the way are
those of Gauss and Legendre, which need far fewer than equal steps do.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from qkv.engine.optimized.quantized import QuantizedEmbedding
from qkv.errors import UsageError
from qkv.text import Tokenizer
from qkv.text.special_tokens import DEFAULT_SPECIAL_TOKENS

# FOLDED explain/why/baseline: Where the path of integrated gradients begins: a text whose every
#   word is one empty token.
#
#   Not zeros: a norm that divides by the size of a vector jumps there, and no sum of slopes
#   can follow.

FIRST, MOST = 32, 256  # steps: doubled until the error is small

SMALL = 0.01

TOKENS = 2048  # that are computed at a time

LEAST = 1e-3  # a difference of scores below which an error is not compared with it

Numbers = NDArray[np.float64]

Score = Callable[[Tensor], Tensor]  # embeddings (B, T, D) -> a score each (B,)


@dataclass(frozen=True)
class Completeness:
    """The parts should add up to the difference; error: how far they miss it, relative to it."""

    sum: float
    difference: float
    error: float
    steps: int

    def json(self) -> dict[str, object]:
        return asdict(self)


def integrated_gradients(
    score: Score, x: Tensor, baseline: Tensor, steps: int | None = None
) -> tuple[Numbers, Completeness]:
    """What each position of x (T, D) adds to score(x) − score(baseline), (T,).

    steps: of the path; if not given, as many as make the error small, up to a limit.
    """
    if steps is not None and steps < 1:
        raise UsageError(f"steps={steps} must be 1 or more")
    with torch.no_grad():
        ends = score(torch.stack([x, baseline])).double()
    difference, count = float(ends[0] - ends[1]), steps or FIRST
    while True:
        parts = _along(score, x, baseline, count)
        gap = abs(float(parts.sum()) - difference)
        error = gap / max(abs(difference), LEAST)
        if steps is not None or error <= SMALL or count >= MOST:
            return parts, Completeness(float(parts.sum()), difference, error, count)
        count *= 2


def gradient_times_input(score: Score, x: Tensor) -> Numbers:
    """The slope of the score in each position of x (T, D) times the position itself, (T,)."""
    (slope,) = _slopes(score, x[None])
    return np.asarray((slope.double() * x.double()).sum(dim=-1).cpu().numpy())


@contextmanager
def gradients_enabled(model: nn.Module) -> Iterator[None]:
    """Inside, nothing is dropped at random, as when the model answers, but slopes can be taken."""
    if any(isinstance(part, QuantizedEmbedding) for part in model.modules()):
        raise UsageError("no slope goes through weights in 8 bits; open the model without --int8")
    learning = [part for part in model.modules() if part.training]
    model.eval()
    try:
        with torch.enable_grad():
            yield
    finally:
        for part in learning:
            part.training = True


def _along(score: Score, x: Tensor, baseline: Tensor, steps: int) -> Numbers:
    points, weights = np.polynomial.legendre.leggauss(steps)
    way, total = x - baseline, torch.zeros_like(x, dtype=torch.float64)
    at_once = max(1, TOKENS // max(1, len(x)))
    for i in range(0, steps, at_once):
        places = torch.from_numpy((points[i : i + at_once] + 1) / 2).to(x)[:, None, None]
        shares = torch.from_numpy(weights[i : i + at_once] / 2).to(x.device)[:, None, None]
        total += (_slopes(score, baseline + places * way).double() * shares).sum(dim=0)
    return np.asarray((total * way.double()).sum(dim=-1).cpu().numpy())


def _slopes(score: Score, x: Tensor) -> Tensor:
    """The slope of each score in each number of x (B, T, D)."""
    x = x.detach().requires_grad_()
    (slopes,) = torch.autograd.grad(score(x).sum(), x)
    return slopes


ROLES = ("pad", "unk", "mask", "eos", "bos")  # the first there is


@dataclass(frozen=True)
class Baseline:
    """This token in the place of every token of a word; marks stay."""

    id: int
    name: str

    def ids(self, ids: Sequence[int], marks: Collection[int]) -> list[int]:
        """The baseline of a text whose marks stand at these positions."""
        return [id if at in marks else self.id for at, id in enumerate(ids)]

    @property
    def said(self) -> str:
        return f"every token of the text is {self.name}"


def default_baseline(tokenizer: Tokenizer) -> Baseline:
    """The mask of a published vocabulary, or padding, which no model learnt anything of.

    A vocabulary made here has a mask too, but few models met it.
    """
    roles = ROLES if tokenizer.special_tokens == DEFAULT_SPECIAL_TOKENS else ("mask", *ROLES)
    for role in roles:
        name = getattr(tokenizer.special_tokens, role)
        if name is not None:
            return Baseline(tokenizer.token_to_id(name), name)
    return Baseline(0, tokenizer.token(0))
