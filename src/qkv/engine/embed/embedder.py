"""A vector for each text.

They are encoded just as `qkv train embed` and `qkv evaluate` encode them, so vectors of different
runs can be compared.
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
from qkv.engine.engine import purpose_of
from qkv.errors import DataError, QkvError, UsageError, unknown
from qkv.model import Classify, Encoder, Mean, Model, TextVector
from qkv.model.output import PooledOutput
from qkv.text import Tokenizer
from qkv.text.vocab_training import check_no_surrogates

# FOLDED engine/embed/stream: Texts in portions: so many that they can be grouped by length, so
#   few that memory stays flat.
#
#   Where a portion ends depends on the texts alone, so work that goes on where one ended is
#   the work
#   that was interrupted.
# FOLDED engine/embed/vectors: Which vector an encoder has for a text, whatever its output is.
#
#   | output | its vector |
#   |---|---|
#   | a vector | that vector |
#   | a label | the pooled states its small network reads, as with `qkv train classify
#   --freeze` |
#   | a token | the mean of the states, as `qkv train embed --from` begins with |
# FOLDED engine/embed/windows: Texts as an encoder reads them, and what becomes of those that
#   are longer than it reads.

# a portion is closed when it has either
BATCH_TEXTS = 1024
BATCH_CHARACTERS = 1 << 20


def text_batches(texts: Iterable[str]) -> Iterator[list[str]]:
    """All texts in their order; no portion is empty."""
    portion: list[str] = []
    size = 0
    for text in texts:
        portion.append(text)
        size += len(text)
        if len(portion) >= BATCH_TEXTS or size >= BATCH_CHARACTERS:
            yield portion
            portion = []
            size = 0
    if portion:
        yield portion


def embedding_model(model: Model, raw: bool) -> Encoder:
    """The encoder, answering with a vector a text; `raw`: as it was before any normalisation.

    What is not the model itself shares all of its weights.
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
        return _answering(model, plain, model.output.change)
    if isinstance(output, Classify):
        pooling = output.pooling
    else:
        pooling = Mean()
    return _answering(model, TextVector(pooling=pooling, normalize=False), nn.Identity())


def pooling_note(model: Model) -> str | None:
    """What a person should know of the vectors, if the model was not made to give any."""
    if isinstance(model.config.output, TextVector):
        return None
    description, _ = purpose_of(model)
    return (
        f"this is {description}; a vector is what its states make on average, not what it learnt "
        "for"
    )


def _answering(model: Encoder, output: TextVector, change: nn.Module) -> Encoder:
    other = copy(model)
    pooled = PooledOutput(output.pooling, change, nn.Identity()).train(model.training)
    other._modules = {**model._modules, "output": pooled}
    other.config = model.config.model_copy(update={"output": output})
    return other


LongTextPolicy = Literal["error", "truncate", "average"]

LONG_TEXT_POLICIES: tuple[str, ...] = get_args(LongTextPolicy)


@dataclass(frozen=True)
class Windows:
    """The ids of texts that fit, and those of the windows of the others.

    They are asked for apart, so that what is said of a text that fits does not depend on what is
    done with the others.
    """

    fitting: list[list[int]]
    places: list[int]  # which texts they are
    windows: list[list[int]]
    owners: list[int]  # which text each window is of
    tokens: list[int]  # of the text in each window, marks aside

    @property
    def long_texts(self) -> int:
        """How many texts do not fit."""
        return len(set(self.owners))

    def outputs(self, answer: Callable[[list[list[int]]], Tensor], width: int) -> Tensor:
        """An answer for each text (N, width), in float64: of windows the mean, by their tokens."""
        found = torch.zeros(len(self.places) + self.long_texts, width, dtype=torch.float64)
        if self.fitting:
            found[self.places] = answer(self.fitting).double()
        if self.windows:
            owners = torch.tensor(self.owners)
            tokens = torch.tensor(self.tokens).double()
            totals = torch.zeros(len(found)).double().index_add_(0, owners, tokens)
            shares = tokens / totals[owners]
            found.index_add_(0, owners, answer(self.windows).double() * shares[:, None])
        return found


def tokenize_windows(
    tokenizer: Tokenizer, texts: Sequence[str], reads: int, long: LongTextPolicy, first: int = 1
) -> Windows:
    """The texts with the tokenizer's marks around, for a model that reads so many tokens.

    A longer one is refused, cut, or taken in windows of that length, without overlap and each
    with its marks. `first` is the number of the first text, for the message.
    """
    if long not in LONG_TEXT_POLICIES:
        raise UsageError(unknown("way with long texts", long, LONG_TEXT_POLICIES))
    marks = len(tokenizer.add_special_tokens((), reads))
    room = reads - marks
    if room < 1:
        raise DataError(f"the model reads {reads} tokens, which the {marks} marks of a text fill")
    made = Windows([], [], [], [], [])
    for place, ids in enumerate(_encoded(tokenizer, texts, first)):
        if len(ids) <= room:
            made.fitting.append(tokenizer.add_special_tokens(ids, reads))
            made.places.append(place)
            continue
        if long == "error":
            raise DataError(_too_long(first + place, len(ids), room))
        for begin in range(0, len(ids) if long == "average" else 1, room):
            window = ids[begin : begin + room]
            made.windows.append(tokenizer.add_special_tokens(window, reads))
            made.owners.append(place)
            made.tokens.append(len(window))
    return made


def _encoded(tokenizer: Tokenizer, texts: Sequence[str], first: int) -> list[list[int]]:
    try:
        return tokenizer.encode_many(texts)
    except DataError:
        for number, text in enumerate(texts, first):
            try:
                check_no_surrogates(text)
            except DataError as error:
                raise DataError(f"text {number:,}: {error}") from None
        raise


def _too_long(number: int, tokens: int, room: int) -> str:
    return (
        f"text {number:,} has {tokens:,} tokens but the model reads at most {room:,}; shorten it, "
        'or pass long="truncate" (its beginning) or long="average" (all of it, in windows)'
    )


Vectors = NDArray[np.float32]

Progress = Callable[[int], None]  # told how many texts are done: once before, then now and again


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
    found = [embedder(())]
    done = 0
    count = 0
    for portion in text_batches(check_text_list(texts)):
        part = embedder(portion, done + 1)
        found.append(part)
        done = done + len(portion)
        count = count + part.long_texts
        tell(done)
    return Embeddings(np.concatenate([part.vectors for part in found]), count)


class Embedder:
    """Embeds one portion after another in the same manner."""

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
        """The vectors of these texts, of which the first has that number in the whole."""
        config = self.model.config
        seen = tokenize_windows(self.tokenizer, texts, config.context_length, self.long, first)
        vectors = seen.outputs(self._answer, config.encoder.width).float()
        if not self.raw:
            vectors = F.normalize(vectors, dim=-1)
        wrong = (~vectors.isfinite().all(dim=-1)).nonzero()
        if len(wrong):
            number = first + int(wrong[0])
            raise QkvError(f"the vector of text {number:,} is not finite; the weights are damaged")
        return Embeddings(vectors.numpy(), seen.long_texts)

    def _answer(self, ids: list[list[int]]) -> Tensor:
        return batched_outputs(self.model, ids, **self.budget)


def batching_args(batch_tokens: int | None) -> dict[str, int]:
    """The argument that says how many tokens are computed at a time, if anything is said."""
    if batch_tokens is None:
        return {}
    if batch_tokens < 1:
        raise UsageError(f"batch tokens = {batch_tokens} must be 1 or more")
    return {"batch_tokens": batch_tokens}


def check_text_list(texts: Iterable[str]) -> Iterable[str]:
    """The same, unless it is a single text, whose letters would each be taken for one."""
    if isinstance(texts, str):
        raise UsageError("give a list of texts; a single one is a list of one, [text]")
    return texts
