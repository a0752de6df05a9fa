"""Embeddings: one vector per text.

Texts are encoded exactly as in `qkv train embed` and `qkv evaluate`, so vectors of different runs
can be compared.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from qkv.engine.batching import batched_outputs
from qkv.engine.purpose import purpose_of
from qkv.errors import DataError, QkvError, UsageError, unknown
from qkv.model import Classify, Encoder, Mean, Model, PooledOutput, TextVector
from qkv.text import Tokenizer, check_no_surrogates

# A batch is full when it reaches either limit.
BATCH_TEXTS = 1024
BATCH_CHARACTERS = 1 << 20


def text_batches(texts: Iterable[str]) -> Iterator[list[str]]:
    """All texts in order, in batches large enough to group by length and small enough for memory.

    The boundaries depend on the texts alone, so a run that resumes after a batch computes the same
    batches as one that was never interrupted.
    """
    batch: list[str] = []
    size = 0
    for text in texts:
        batch.append(text)
        size += len(text)
        if len(batch) >= BATCH_TEXTS or size >= BATCH_CHARACTERS:
            yield batch
            batch = []
            size = 0
    if batch:
        yield batch


def embedding_model(model: Model, raw: bool) -> Encoder:
    """The encoder with one vector per text as its output; `raw`: before any normalisation.

    The vector of a classifier is the pooled state that its head reads, as with `qkv train classify
    --freeze`; that of a masked language model is the mean of the states, with which `qkv train
    embed --from` starts. Anything but the model itself shares all of its weights.
    """
    if not isinstance(model, Encoder):
        description, command = purpose_of(model)
        raise UsageError(
            f"this model is {description}, so it has no vector for a text; use {command}"
        )
    output = model.config.output
    if isinstance(output, TextVector):
        if not (raw and output.normalize):
            return model
        plain = output.model_copy(update={"normalize": False})
        assert isinstance(model.output, PooledOutput)
        return _with_output(model, plain, model.output.change)
    if isinstance(output, Classify):
        pooling = output.pooling
    else:
        pooling = Mean()
    return _with_output(model, TextVector(pooling=pooling, normalize=False), nn.Identity())


def pooling_note(model: Model) -> str | None:
    """A note on the vectors of a model that was not trained for embeddings, else None."""
    if isinstance(model.config.output, TextVector):
        return None
    description, _ = purpose_of(model)
    return (
        f"this is {description}; its vectors are pooled states, which it was not trained to use as "
        "embeddings"
    )


def _with_output(model: Encoder, output: TextVector, change: nn.Module) -> Encoder:
    other = copy(model)
    pooled = PooledOutput(output.pooling, change, nn.Identity()).train(model.training)
    other._modules = {**model._modules, "output": pooled}
    other.config = model.config.model_copy(update={"output": output})
    return other


LongTextPolicy = Literal["error", "truncate", "average"]

LONG_TEXT_POLICIES: tuple[str, ...] = get_args(LongTextPolicy)


@dataclass(frozen=True)
class Windows:
    """The ids of texts that fit the context, and the windows of those that do not.

    The two are computed separately, so that the output for a text that fits does not depend on how
    the others are treated.
    """

    fitting: list[list[int]]
    fitting_texts: list[int]  # index of the text of each
    windows: list[list[int]]
    owners: list[int]  # index of the text of each window
    tokens: list[int]  # in each window, without special tokens

    @property
    def long_texts(self) -> int:
        """The number of texts that do not fit."""
        return len(set(self.owners))

    def outputs(self, compute: Callable[[list[list[int]]], Tensor], width: int) -> Tensor:
        """An output for each text (N, width), in float64; windows are averaged by their tokens."""
        outputs = torch.zeros(len(self.fitting_texts) + self.long_texts, width, dtype=torch.float64)
        if self.fitting:
            outputs[self.fitting_texts] = compute(self.fitting).double()
        if self.windows:
            owners = torch.tensor(self.owners)
            tokens = torch.tensor(self.tokens).double()
            totals = torch.zeros(len(outputs)).double().index_add_(0, owners, tokens)
            weights = tokens / totals[owners]
            outputs.index_add_(0, owners, compute(self.windows).double() * weights[:, None])
        return outputs


def tokenize_windows(
    tokenizer: Tokenizer,
    texts: Sequence[str],
    context_length: int,
    long: LongTextPolicy,
    first: int = 1,
) -> Windows:
    """The ids of the texts with their special tokens, for a context of that many tokens.

    A longer text is an error, is truncated, or becomes windows without overlap, each with its
    special tokens. `first` is the number of the first text, for messages.
    """
    if long not in LONG_TEXT_POLICIES:
        raise UsageError(unknown("value for long", long, LONG_TEXT_POLICIES))
    num_special = len(tokenizer.add_special_tokens((), context_length))
    capacity = context_length - num_special
    if capacity < 1:
        raise DataError(
            f"the context of {context_length} tokens is filled by the {num_special} special tokens"
        )
    result = Windows([], [], [], [], [])
    for index, ids in enumerate(_encode(tokenizer, texts, first)):
        if len(ids) <= capacity:
            result.fitting.append(tokenizer.add_special_tokens(ids, context_length))
            result.fitting_texts.append(index)
            continue
        if long == "error":
            raise DataError(_too_long(first + index, len(ids), capacity))
        for begin in range(0, len(ids) if long == "average" else 1, capacity):
            window = ids[begin : begin + capacity]
            result.windows.append(tokenizer.add_special_tokens(window, context_length))
            result.owners.append(index)
            result.tokens.append(len(window))
    return result


def _encode(tokenizer: Tokenizer, texts: Sequence[str], first: int) -> list[list[int]]:
    try:
        return tokenizer.encode_many(texts)
    except DataError:
        for number, text in enumerate(texts, first):
            try:
                check_no_surrogates(text)
            except DataError as error:
                raise DataError(f"text {number:,}: {error}") from None
        raise


def _too_long(number: int, tokens: int, capacity: int) -> str:
    return (
        f"text {number:,} has {tokens:,} tokens but the model reads at most {capacity:,}; shorten "
        'it, or pass long="truncate" (its beginning) or long="average" (all of it, in windows)'
    )


Vectors = NDArray[np.float32]

Progress = Callable[[int], None]  # receives the number of texts done, from 0


@dataclass(frozen=True, eq=False)
class Embeddings:
    """vectors (n, D); long: how many of the texts were longer than the model reads."""

    vectors: Vectors
    long_texts: int


def embed(
    model: Model,
    tokenizer: Tokenizer,
    texts: Iterable[str],
    *,
    raw: bool = False,
    long: LongTextPolicy = "error",
    batch_tokens: int | None = None,
    progress: Progress | None = None,
) -> Embeddings:
    """The vectors of all texts, in their order.

    Rows have length 1, or with `raw` the one they came out with. A text of no token at all, not
    even a mark, has no direction: its row is zeros. `long` says what to do with a text that is
    longer than the model reads: an error, its beginning (truncate), or the mean of windows
    (average); one that fits has the same vector either way.
    """
    embedder = Embedder(model, tokenizer, raw=raw, long=long, batch_tokens=batch_tokens)
    tell = progress or (lambda done: None)
    tell(0)
    parts = [embedder(())]
    done = 0
    long_texts = 0
    for batch in text_batches(check_text_list(texts)):
        part = embedder(batch, done + 1)
        parts.append(part)
        done += len(batch)
        long_texts += part.long_texts
        tell(done)
    return Embeddings(np.concatenate([part.vectors for part in parts]), long_texts)


class Embedder:
    """Embeds one batch of texts after another with the same options."""

    def __init__(
        self,
        model: Model,
        tokenizer: Tokenizer,
        *,
        raw: bool = False,
        long: LongTextPolicy = "error",
        batch_tokens: int | None = None,
    ) -> None:
        self.model = embedding_model(model, raw)
        self.tokenizer = tokenizer
        self.raw = raw
        self.long = long
        self.budget = batching_args(batch_tokens)

    def __call__(self, texts: Sequence[str], first: int = 1) -> Embeddings:
        """The vectors of these texts; `first` is the number of the first one, for messages."""
        config = self.model.config
        windows = tokenize_windows(self.tokenizer, texts, config.context_length, self.long, first)
        vectors = windows.outputs(self._compute, config.encoder.width).float()
        if not self.raw:
            vectors = F.normalize(vectors, dim=-1)
        damaged = (~vectors.isfinite().all(dim=-1)).nonzero()
        if len(damaged):
            number = first + int(damaged[0])
            raise QkvError(f"the vector of text {number:,} is not finite; the weights are damaged")
        return Embeddings(vectors.numpy(), windows.long_texts)

    def _compute(self, ids: list[list[int]]) -> Tensor:
        return batched_outputs(self.model, ids, **self.budget)


def batching_args(batch_tokens: int | None) -> dict[str, int]:
    """The keyword argument for the number of tokens computed at a time, if it is set."""
    if batch_tokens is None:
        return {}
    if batch_tokens < 1:
        raise UsageError(f"batch_tokens={batch_tokens} must be 1 or more")
    return {"batch_tokens": batch_tokens}


def check_text_list(texts: Iterable[str]) -> Iterable[str]:
    """The texts; raises for a single string, whose characters would be taken for texts."""
    if isinstance(texts, str):
        raise UsageError("give a list of texts; a single one is a list of one, [text]")
    return texts
