"""Running text for the tasks language and masked: documents packed into windows of one length.

All documents of a split are one long stream of tokens. A window may hold the end of one document
and the beginning of the next; attention is masked and positions restart, so that documents do not
see each other and nothing is padding.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from qkv.attention import Mask
from qkv.data import DocumentChunk, Documents, TokenizedTexts, built_in, encode, split_documents
from qkv.errors import DataError
from qkv.text import Tokenizer
from qkv.training.loss import IGNORED
from qkv.training.tasks.task import DataConfig, Ids, Task, cache_key, paths, to_device

if TYPE_CHECKING:
    from qkv.training.recipe import Recipe


@dataclass(frozen=True)
class Windows:
    """Windows of a stream as one batch.

    ids and targets (B, T): each token and its next token, IGNORED at the end of a document.
    documents and positions (B, T), where a window holds more than one document.
    """

    ids: Tensor
    targets: Tensor
    documents: Tensor | None
    positions: Tensor | None

    @property
    def num_tokens(self) -> int:
        return self.ids.numel()

    @property
    def num_targets(self) -> int:
        return int((self.targets != IGNORED).sum())

    @property
    def mask(self) -> Mask | None:
        """Keeps documents from seeing each other; none if each window is of one document."""
        if self.documents is None:
            return None
        return Mask.documents(self.documents)

    def to(self, device: torch.device) -> "Windows":
        return Windows(
            self.ids.to(device),
            self.targets.to(device),
            to_device(self.documents, device),
            to_device(self.positions, device),
        )


def windows(stream: TokenizedTexts, starts: Ids, length: int) -> Windows:
    """The windows of `length` tokens that begin at these offsets of the stream."""
    offsets = starts[:, None] + np.arange(length + 1)
    tokens = stream.ids[np.minimum(offsets, len(stream.ids) - 1)].astype(np.int64)
    document = np.searchsorted(stream.starts, offsets, side="right") - 1
    same_document = document[:, 1:] == document[:, :-1]
    ids = torch.from_numpy(tokens[:, :-1])
    targets = torch.from_numpy(np.where(same_document, tokens[:, 1:], IGNORED))
    document = document[:, :-1]
    if (document[:, :1] == document).all():
        return Windows(ids, targets, None, None)
    # Positions count from the start of the document, or of the window if that comes later.
    begin = np.maximum(stream.starts[document], starts[:, None])
    positions = offsets[:, :-1] - begin
    return Windows(ids, targets, torch.from_numpy(document), torch.from_numpy(positions))


def window_starts(stream: TokenizedTexts, length: int, seed: int, epoch: int) -> Ids:
    """Where each window of an epoch begins, shuffled; depends only on seed and epoch.

    Each epoch starts at another offset, so that windows end at other tokens.
    """
    rng = np.random.default_rng((seed, epoch))
    count = windows_per_epoch(stream, length)
    shift = int(rng.integers(min(length, max(1, len(stream.ids) - count * length))))
    return rng.permutation(count) * length + shift


def windows_in_order(stream: TokenizedTexts, length: int, batch: int) -> Iterator[Windows]:
    """Each token of the stream once, first to last; the last window may be shorter."""
    count = (len(stream.ids) - 1) // length
    starts = np.arange(count) * length
    for first in range(0, count, batch):
        yield windows(stream, starts[first : first + batch], length)
    rest = len(stream.ids) - 1 - count * length
    if rest:
        yield windows(stream, np.array([count * length]), rest)


def windows_per_epoch(stream: TokenizedTexts, length: int) -> int:
    count = (len(stream.ids) - 1) // length
    if count < 1:
        shorter = max(2, len(stream.ids) // 4)
        raise DataError(
            f"the text has {len(stream.ids)} tokens, but one window needs {length + 1}; "
            f"give more text or a shorter context, as in context_length={shorter}"
        )
    return count


class Corpus:
    """Training and validation documents, read from disk when they are iterated."""

    def __init__(self, data: DataConfig, seed: int) -> None:
        documents = read_documents(data.files, data)
        self.train: Iterable[DocumentChunk]
        self.validation: Iterable[DocumentChunk]
        if data.validation:
            validation = read_documents(data.validation, data)
            self.train = documents
            self.validation = validation
            self.sha256 = f"{documents.sha256}-{validation.sha256}"
            self.remarks = documents.remarks + validation.remarks
        else:
            self.train, self.validation = split_documents(documents, data.validation_fraction, seed)
            self.sha256 = documents.sha256
            self.remarks = documents.remarks
        self.documents = documents.documents
        self.characters = documents.characters

    def texts(self) -> Iterator[str]:
        return (piece.text for piece in self.train)


class RunningTextTask(Task):
    """A task whose examples are windows of documents."""

    columns = ("text",)

    @classmethod
    def load(cls, data: DataConfig, seed: int) -> Corpus:
        return Corpus(data, seed)

    @classmethod
    def texts(cls, split: Corpus) -> Iterable[str]:
        return split.texts()

    @classmethod
    def default_batch(cls, split: Corpus) -> int:
        return cls.max_batch  # running text always has enough windows for an epoch


class TokenStreams:
    """The tokens of both splits, in windows."""

    def __init__(self, corpus: Corpus, tokenizer: Tokenizer, recipe: "Recipe") -> None:
        self.length = recipe.model.length
        self.seed = recipe.seed
        self.rows = max(1, recipe.batch // self.length)
        train_key = cache_key(corpus.sha256, "train", recipe)
        validation_key = cache_key(corpus.sha256, "validation", recipe)
        self.train = token_stream(corpus.train, tokenizer, train_key)
        self.validation = token_stream(corpus.validation, tokenizer, validation_key)
        windows_per_epoch(self.train, self.length)  # raises at once if there is too little text
        windows_per_epoch(self.validation, 1)
        self.facts = [
            ("documents", f"{corpus.documents:,}"),
            ("characters", f"{corpus.characters:,}"),
            ("training tokens", f"{len(self.train.ids):,}"),
            ("validation tokens", f"{len(self.validation.ids):,}"),
            ("steps per epoch", f"{len(self.batch_indices(0)):,}"),
            ("padding", "none: documents are packed, and do not see each other"),
        ]

    def batch_indices(self, epoch: int) -> list[Ids]:
        """The offsets at which the windows of each batch begin."""
        starts = window_starts(self.train, self.length, self.seed, epoch)
        # An incomplete batch is left out, unless it is the only one.
        end = len(starts) - len(starts) % self.rows or len(starts)
        return [starts[first : first + self.rows] for first in range(0, end, self.rows)]

    def windows(self, starts: Ids) -> Windows:
        return windows(self.train, starts, self.length)


def token_stream(pieces: Iterable[DocumentChunk], tokenizer: Tokenizer, key: str) -> TokenizedTexts:
    """The documents one after the other, each with the tokenizer's bos tokens and an eos token."""
    return encode(pieces, tokenizer, key, eos=tokenizer.eos_id, prefix=tokenizer.prefix_ids)


def read_documents(files: Iterable[str], data: DataConfig) -> Documents:
    names = list(files)
    if names:
        return Documents(paths(names), data.text, data.skip_bad)
    return Documents.of(built_in("language"))


def unigram_loss(train: TokenizedTexts, vocab_size: int, targets: Ids) -> float:
    """Nats per token of a model that only knows token frequencies, with add-one smoothing."""
    counts = np.bincount(np.asarray(train.ids, dtype=np.int64), minlength=vocab_size) + 1.0
    return float(-np.log(counts[targets] / counts.sum()).mean())
