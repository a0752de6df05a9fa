"""What the jobs on running text share: documents in two parts, each one stream of tokens."""

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property

import numpy as np

from qkv.data import built_in, overlap
from qkv.data.documents import Documents, Piece, part
from qkv.data.encoded import Encoded, Ids, Noisy, encode, near_length, padding
from qkv.tasks.token_tasks import Windows, epoch_windows, window_starts, windows
from qkv.text import Tokenizer
from qkv.training.jobs.base import Job, part_key, paths
from qkv.training.recipe import Data, Recipe

# FOLDED train/job/sentences: What the jobs on sentences share: token ids cut to a length, and
#   what is told of the data.


class Corpus:
    """Documents to learn from and documents held out; nothing of them is kept in memory."""

    def __init__(self, data: Data, seed: int) -> None:
        whole = read_documents(data.files, data.text)
        if data.validation:
            validation = read_documents(data.validation, data.text)
            self.train: Iterable[Piece] = whole
            self.validation: Iterable[Piece] = validation
            self.sha256 = f"{whole.sha256}-{validation.sha256}"
        else:
            self.train, self.validation = part(whole, data.validation_fraction, seed)
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
        self.train, self.validation = (
            stream_of(pieces, tokenizer, part_key(corpus, name, recipe))
            for name, pieces in (("train", corpus.train), ("held-out", corpus.validation))
        )
        epoch_windows(self.train, self.length)  # too little text is said at once
        epoch_windows(self.validation, 1)
        self.facts = [
            ("documents", f"{corpus.documents:,}"),
            ("characters", f"{corpus.characters:,}"),
            ("training tokens", f"{len(self.train.ids):,}"),
            ("held-out tokens", f"{len(self.validation.ids):,}"),
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
    return encode(pieces, tokenizer, key, end=tokenizer.eos_id, start=tokenizer.prefix_ids)


def read_documents(files: Iterable[str], text: str | None) -> Documents:
    names = list(files)
    return Documents(paths(names), text) if names else Documents.of(built_in("language"))


def frequencies_loss(learnt: Encoded, vocabulary: int, wanted: Ids) -> float:
    """Nats a token for somebody who only knows how often each one occurs in training."""
    counts = np.bincount(np.asarray(learnt.ids, dtype=np.int64), minlength=vocabulary) + 1.0
    return float(-np.log(counts[wanted] / counts.sum()).mean())


class Cut(Sequence[Ids]):
    """Encoded texts with the tokenizer's own marks around them, cut to `length` tokens in all."""

    def __init__(self, encoded: Encoded, tokenizer: Tokenizer, length: int) -> None:
        self.encoded, self.tokenizer, self.length = encoded, tokenizer, length
        self.room = length - len(tokenizer.add_special_tokens((), length))  # for the text itself

    @cached_property
    def lengths(self) -> Ids:
        return np.minimum(self.encoded.lengths, self.room) + self.length - self.room

    @property
    def long(self) -> int:
        """How many texts have more."""
        return int((self.encoded.lengths > self.room).sum())

    def __len__(self) -> int:
        return len(self.encoded)

    def __getitem__(self, i: int) -> Ids:  # type: ignore[override]
        t, ids = self.tokenizer, np.asarray(self.encoded[i][: self.room], dtype=np.int64)
        return (
            np.concatenate([t.prefix_ids, ids, t.suffix_ids]).astype(np.int64)
            if t.adds_special_tokens
            else ids
        )

    def remarks(self, where: str) -> list[str]:
        """What a person should know, if anything: no text is cut silently."""
        return tell_cut(self.long, len(self), where, self.room)


def tell_cut(long: int, total: int, where: str, room: int) -> list[str]:
    if not long:
        return []
    return [
        f"{long:,} of {total:,} {where} texts have more than {room} tokens; "
        f"only their beginnings are read"
    ]


def cut_texts(texts: Sequence[str], tokenizer: Tokenizer, length: int) -> Cut:
    """The texts as ids in memory."""
    return Cut(Encoded.of(tokenizer.encode_many(texts), tokenizer.vocab_size), tokenizer, length)


def tell_stiff(noisy: Sequence[Noisy], remarks: list[str]) -> None:
    """Texts that have no noise though it was asked for."""
    stiff, total = sum(texts.stiff for texts in noisy), sum(len(texts.plain) for texts in noisy)
    if stiff:
        remarks.append(
            f"{stiff:,} of {total:,} training texts hold tokens that are cut one way only, and "
            "are read without noise"
        )


def tell_leaks(train: Sequence[str], validation: Sequence[str], remarks: list[str]) -> None:
    """Held-out texts that training has seen make every number look better than it is."""
    leaked = overlap(train, validation)
    if leaked:
        remarks.append(
            f"{len(leaked):,} of {len(validation):,} held-out texts also stand in the training "
            f"part, for example “{leaked[0][:60]}”"
        )


def data_facts(
    lengths: Ids, validation: int, budget: int, seed: int, read: Ids | None = None
) -> list[tuple[str, str]]:
    """Sizes for the report: lengths (N, sides) of the training examples.

    read: what the first epoch reads, if that is not the same.
    """
    read = lengths if read is None else read
    batches = near_length(read, budget, np.random.default_rng((seed, 0)))
    total = lengths.sum(axis=1)
    return [
        ("training examples", f"{len(lengths):,}"),
        ("held-out examples", f"{validation:,}"),
        ("tokens in one epoch", f"{int(read.sum()):,}"),
        ("tokens an example", f"{int(np.median(total))} in the middle, {int(total.max())} at most"),
        ("steps in one epoch", f"{len(batches):,}"),
        ("padding", f"{padding(read, batches):.1%} of the tokens computed"),
    ]
