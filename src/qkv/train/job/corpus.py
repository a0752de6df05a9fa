"""What the jobs on running text share: documents in two parts, each one stream of tokens."""

from collections.abc import Iterable, Iterator

import numpy as np

from qkv.data import built_in
from qkv.data.documents import Documents
from qkv.data.encoded import Encoded, encode
from qkv.data.part import part
from qkv.data.pieces import Piece
from qkv.task.language import Ids, Windows, epoch_windows, window_starts, windows
from qkv.text import Tokenizer
from qkv.train.job.job import Job, part_key, paths
from qkv.train.recipe import Data, Recipe


class Corpus:
    """Documents to learn from and documents held out; nothing of them is kept in memory."""

    def __init__(self, data: Data, seed: int) -> None:
        whole = read_documents(data.files, data.text)
        if data.validation:
            held_out = read_documents(data.validation, data.text)
            self.train: Iterable[Piece] = whole
            self.held_out: Iterable[Piece] = held_out
            self.sha256 = f"{whole.sha256}-{held_out.sha256}"
        else:
            self.train, self.held_out = part(whole, data.held_out, seed)
            self.sha256 = whole.sha256
        self.documents, self.characters = whole.documents, whole.characters

    def texts(self) -> Iterator[str]:
        return (piece.text for piece in self.train)


class OnRunningText(Job[Corpus]):
    """A job whose examples are windows of documents."""

    roles = ("text",)

    def load(self, data: Data, seed: int) -> Corpus:
        return Corpus(data, seed)

    def texts(self, parts: Corpus) -> Iterable[str]:
        return parts.texts()

    def usual_batch(self, parts: Corpus) -> int:
        return self.batch  # running text has no lack of windows


class Streams:
    """The tokens of both parts, in windows."""

    def __init__(self, corpus: Corpus, tokenizer: Tokenizer, recipe: Recipe) -> None:
        self.length, self.seed = recipe.model.length, recipe.seed
        self.rows = max(1, recipe.batch // self.length)
        self.train, self.held_out = (
            stream_of(pieces, tokenizer, part_key(corpus, name, recipe))
            for name, pieces in (("train", corpus.train), ("held-out", corpus.held_out))
        )
        epoch_windows(self.train, self.length)  # too little text is said at once
        epoch_windows(self.held_out, 1)
        self.facts = [
            ("documents", f"{corpus.documents:,}"),
            ("characters", f"{corpus.characters:,}"),
            ("training tokens", f"{len(self.train.ids):,}"),
            ("held-out tokens", f"{len(self.held_out.ids):,}"),
            ("steps in one epoch", f"{len(self.order(0)):,}"),
            ("padding", "none: documents are packed, and do not see each other"),
        ]

    def order(self, epoch: int) -> list[Ids]:
        """The places where the windows of each batch begin."""
        starts = window_starts(self.train, self.length, self.seed, epoch)
        whole = len(starts) - len(starts) % self.rows or len(starts)
        return [starts[i : i + self.rows] for i in range(0, whole, self.rows)]

    def windows(self, starts: Ids) -> Windows:
        return windows(self.train, starts, self.length)


def stream_of(pieces: Iterable[Piece], tokenizer: Tokenizer, key: str) -> Encoded:
    """The documents behind each other, each with the tokenizer's own start, closed by its end."""
    return encode(pieces, tokenizer, key, end=tokenizer.end, start=tokenizer.before)


def read_documents(files: Iterable[str], text: str | None) -> Documents:
    names = list(files)
    return Documents(paths(names), text) if names else Documents.of(built_in("language"))


def frequencies_loss(learnt: Encoded, vocabulary: int, wanted: Ids) -> float:
    """Nats a token for somebody who only knows how often each one occurs in training."""
    counts = np.bincount(np.asarray(learnt.ids, dtype=np.int64), minlength=vocabulary) + 1.0
    return float(-np.log(counts[wanted] / counts.sum()).mean())
