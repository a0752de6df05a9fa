"""Text classification: a label for each text, and the probability of every label."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from qkv.engine.batching import batched_outputs
from qkv.engine.embed.embedder import (
    LongTextPolicy,
    batching_args,
    check_text_list,
    text_batches,
    tokenize_windows,
)
from qkv.engine.purpose import purpose_of
from qkv.errors import NotFiniteError, UsageError
from qkv.model import Classify, Encoder, Model
from qkv.text import Tokenizer


@dataclass(frozen=True)
class Classification:
    """The predicted label of a text; `probabilities` has all labels, most probable first."""

    text: str
    label: str
    probabilities: dict[str, float]


def classify(
    model: Model,
    tokenizer: Tokenizer,
    texts: Iterable[str],
    *,
    long: LongTextPolicy = "error",
    batch_tokens: int | None = None,
    progress: Callable[[int], None] | None = None,
) -> list[Classification]:
    """The classification of each text, in their order; the probabilities of one sum to 1.

    long: what to do with a text longer than the context: an error, truncate it, or average the
    probabilities of its windows.
    """
    classifier = Classifier(model, tokenizer, long=long, batch_tokens=batch_tokens)
    if progress is not None:
        progress(0)
    classifications: list[Classification] = []
    for chunk in text_batches(check_text_list(texts)):
        classifications += classifier(chunk, len(classifications) + 1)
        if progress is not None:
            progress(len(classifications))
    return classifications


class Classifier:
    """Classifies one chunk of texts after another; `long_texts` counts those that did not fit."""

    def __init__(
        self,
        model: Model,
        tokenizer: Tokenizer,
        *,
        long: LongTextPolicy = "error",
        batch_tokens: int | None = None,
    ) -> None:
        self.model = _expect_classifier(model)
        self.tokenizer = tokenizer
        self.long = long
        self.labels = labels_of(self.model)
        self.long_texts = 0
        self.budget = batching_args(batch_tokens)

    def __call__(self, texts: Sequence[str], first: int = 1) -> list[Classification]:
        """The classifications of these texts, numbered from `first` in error messages."""
        limit = self.model.config.context_length
        windows = tokenize_windows(self.tokenizer, texts, limit, self.long, first)
        probs = windows.outputs(self._probs, len(self.labels))
        damaged = (~probs.isfinite().all(dim=-1)).nonzero()
        if len(damaged):
            number = first + int(damaged[0])
            raise NotFiniteError(
                f"the logits of text {number:,} are not finite; the weights are damaged"
            )
        probs /= probs.sum(dim=-1, keepdim=True)  # exact after averaging windows
        self.long_texts += windows.long_texts
        order = probs.argsort(dim=-1, descending=True, stable=True)
        rows = zip(texts, order.tolist(), probs.tolist(), strict=True)
        return [self._classification(text, best, row) for text, best, row in rows]

    def _classification(self, text: str, order: list[int], probs: list[float]) -> Classification:
        probabilities = {self.labels[i]: probs[i] for i in order}
        return Classification(text, self.labels[order[0]], probabilities)

    def _probs(self, ids: list[list[int]]) -> Tensor:
        logits = batched_outputs(self.model, ids, **self.budget)
        return torch.softmax(logits.double(), dim=-1)


def labels_of(model: Encoder) -> tuple[str, ...]:
    """The labels of a classifier, in the order of its logits."""
    output = model.config.output
    if not isinstance(output, Classify):
        raise UsageError("this model gives no labels")
    return output.labels


def _expect_classifier(model: Model) -> Encoder:
    if isinstance(model, Encoder) and isinstance(model.config.output, Classify):
        return model
    description, command = purpose_of(model)
    raise UsageError(
        f"this model is {description}, so it gives no labels; use {command}, or make a "
        "classifier with qkv train classify"
    )
