"""Gradient attributions: what each position adds to a scalar output.

Integrated gradients (Sundararajan et al. 2017, "Axiomatic Attribution for Deep Networks"): the
gradient is integrated along the straight path from a baseline to the embeddings of the text and
multiplied by the distance travelled. The attributions add up to the difference of the two outputs
(completeness); the quadrature error is reported. Gauss–Legendre points need far fewer steps than
equidistant ones.

The baseline is a text in which every token of a word is the same empty token. Zeros would not do: a
norm that divides by the length of a vector is discontinuous there, so no quadrature converges.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from qkv.engine.optimized import QuantizedEmbedding
from qkv.errors import UsageError
from qkv.text import DEFAULT_SPECIAL_TOKENS, Tokenizer

INITIAL_STEPS = 32  # doubled until the error is small enough
MAX_STEPS = 256
MAX_ERROR = 0.01  # relative
MIN_DIFFERENCE = 1e-3  # the relative error is measured against at least this much
MAX_BATCH_TOKENS = 2048
BASELINE_ROLES = ("pad", "unk", "mask", "eos", "bos")  # the first that the tokenizer has

FloatArray = NDArray[np.float64]
Objective = Callable[[Tensor], Tensor]  # embeddings (B, T, D) -> scalars (B,)


@dataclass(frozen=True)
class Completeness:
    """The attributions should sum to the difference; error: how far they miss it, relative."""

    sum: float
    difference: float
    error: float
    steps: int

    def json(self) -> dict[str, object]:
        return asdict(self)


def integrated_gradients(
    objective: Objective, x: Tensor, baseline: Tensor, steps: int | None = None
) -> tuple[FloatArray, Completeness]:
    """What each position of x (T, D) adds to objective(x) − objective(baseline): (T,).

    steps: of the path; if None, as many as make the error small, up to a limit.
    """
    if steps is not None and steps < 1:
        raise UsageError(f"steps={steps} must be 1 or more")
    with torch.no_grad():
        ends = objective(torch.stack([x, baseline])).double()
    difference = float(ends[0] - ends[1])
    count = steps or INITIAL_STEPS
    while True:
        attributions = _integrate(objective, x, baseline, count)
        total = float(attributions.sum())
        error = abs(total - difference) / max(abs(difference), MIN_DIFFERENCE)
        if steps is not None or error <= MAX_ERROR or count >= MAX_STEPS:
            return attributions, Completeness(total, difference, error, count)
        count *= 2


def gradient_times_input(objective: Objective, x: Tensor) -> FloatArray:
    """The gradient at each position of x (T, D) dotted with the position itself: (T,)."""
    (grad,) = _gradients(objective, x[None])
    return np.asarray((grad.double() * x.double()).sum(dim=-1).cpu().numpy())


@contextmanager
def gradients_enabled(model: nn.Module) -> Iterator[None]:
    """Inside, the model is in eval mode, so without dropout, but with gradients."""
    if any(isinstance(module, QuantizedEmbedding) for module in model.modules()):
        raise UsageError(
            "int8 weights have no gradients; load the model with int8=False to explain it"
        )
    # eval() would leave training mode for good; each module gets its own mode back.
    training = [module for module in model.modules() if module.training]
    model.eval()
    try:
        with torch.enable_grad():
            yield
    finally:
        for module in training:
            module.training = True


def _integrate(objective: Objective, x: Tensor, baseline: Tensor, steps: int) -> FloatArray:
    points, weights = np.polynomial.legendre.leggauss(steps)  # on [-1, 1]
    path = x - baseline  # points and weights are mapped to [0, 1] below
    total = torch.zeros_like(x, dtype=torch.float64)
    batch_size = max(1, MAX_BATCH_TOKENS // max(1, len(x)))
    for i in range(0, steps, batch_size):
        batch = slice(i, i + batch_size)
        alphas = torch.from_numpy((points[batch] + 1) / 2).to(x)[:, None, None]
        batch_weights = torch.from_numpy(weights[batch] / 2).to(x.device)[:, None, None]
        grads = _gradients(objective, baseline + alphas * path).double()
        total += (grads * batch_weights).sum(dim=0)
    return np.asarray((total * path.double()).sum(dim=-1).cpu().numpy())


def _gradients(objective: Objective, x: Tensor) -> Tensor:
    """The gradient of each objective with respect to x (B, T, D)."""
    x = x.detach().requires_grad_()
    (grads,) = torch.autograd.grad(objective(x).sum(), x)
    return grads


@dataclass(frozen=True)
class Baseline:
    """This token replaces every token of a word; special tokens stay."""

    id: int
    token: str

    def ids(self, ids: Sequence[int], special_positions: Collection[int]) -> list[int]:
        """The baseline of a text with special tokens at these positions."""
        return [id if at in special_positions else self.id for at, id in enumerate(ids)]

    @property
    def description(self) -> str:
        return f"every token of the text is {self.token}"


def default_baseline(tokenizer: Tokenizer) -> Baseline:
    """The mask token of a public vocabulary, otherwise padding, which carries no meaning.

    A vocabulary trained by qkv has a mask token as well, but few models were trained with it.
    """
    roles: tuple[str, ...] = BASELINE_ROLES
    if tokenizer.special_tokens != DEFAULT_SPECIAL_TOKENS:
        roles = ("mask", *BASELINE_ROLES)
    for role in roles:
        token = getattr(tokenizer.special_tokens, role)
        if token is not None:
            return Baseline(tokenizer.token_to_id(token), token)
    return Baseline(0, tokenizer.token(0))
