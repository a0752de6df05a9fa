"""A label for each text, and how probable every label is."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from qkv.engine.batching import batched_outputs
from qkv.engine.embed.embedder import Long, expect_budget, portions, read, several
from qkv.engine.engine import purpose_of
from qkv.errors import QkvError, UsageError
from qkv.model import Classify, Encoder, Model
from qkv.text import Tokenizer


@dataclass(frozen=True)
class Classification:
    """The likeliest label of a text; `probabilities` has all labels, the likeliest first."""

    text: str
    label: str
    probabilities: dict[str, float]


def classify(
    model: Model,
    tokenizer: Tokenizer,
    texts: Iterable[str],
    *,
    long: Long = "error",
    batch_tokens: int | None = None,
    progress: Callable[[int], None] | None = None,
) -> list[Classification]:
    """What the model says of each text, in their order; the probabilities of one sum to 1.

    `long` says what to do with a text that is longer than the model reads: an error, its
    beginning (truncate), or the mean of the probabilities of its windows (average).
    """
    classifier = Classifier(model, tokenizer, long=long, batch_tokens=batch_tokens)
    tell = progress or (lambda done: None)
    tell(0)
    found: list[Classification] = []
    for portion in portions(several(texts)):
        found += classifier(portion, len(found) + 1)
        tell(len(found))
    return found


class Classifier:
    """Labels one portion after another in the same manner; `long` counts those that did not fit."""

    def __init__(
        self,
        model: Model,
        tokenizer: Tokenizer,
        *,
        long: Long = "error",
        batch_tokens: int | None = None,
    ) -> None:
        self.model, self.tokenizer, self.way = _classifier(model), tokenizer, long
        self.labels, self.long = labels_of(self.model), 0
        self.budget = expect_budget(batch_tokens)

    def __call__(self, texts: Sequence[str], first: int = 1) -> list[Classification]:
        """The answers for these texts, of which the first has that number in the whole."""
        seen = read(self.tokenizer, texts, self.model.config.context_length, self.way, first)
        shares = seen.ask(self._answer, len(self.labels))
        wrong = (~shares.isfinite().all(dim=-1)).nonzero()
        if len(wrong):
            number = first + int(wrong[0])
            raise QkvError(f"the scores of text {number:,} are not finite; the weights are damaged")
        shares /= shares.sum(dim=-1, keepdim=True)
        self.long += seen.long
        order = shares.argsort(dim=-1, descending=True, stable=True)
        rows = zip(texts, order.tolist(), shares.tolist(), strict=True)
        return [self._one(text, best, row) for text, best, row in rows]

    def _one(self, text: str, best: list[int], shares: list[float]) -> Classification:
        probabilities = {self.labels[i]: shares[i] for i in best}
        return Classification(text, self.labels[best[0]], probabilities)

    def _answer(self, ids: list[list[int]]) -> Tensor:
        scores = batched_outputs(self.model, ids, **self.budget)
        return torch.softmax(scores.double(), dim=-1)


def labels_of(model: Encoder) -> tuple[str, ...]:
    """The labels it may give, in the order of its scores."""
    output = model.config.output
    if not isinstance(output, Classify):
        raise UsageError("this model gives no labels")
    return output.labels


def _classifier(model: Model) -> Encoder:
    if isinstance(model, Encoder) and isinstance(model.config.output, Classify):
        return model
    description, command = purpose_of(model)
    raise UsageError(
        f"this model is {description}, so it gives no labels; use {command}, or make a "
        "classifier with qkv train classify"
    )
