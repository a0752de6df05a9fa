"""What the jobs on sentences share: token ids cut to a length, and what is told of the data."""

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from qkv.data import overlap
from qkv.data.encoded import Encoded
from qkv.data.grouping import Ids, near_length, padding
from qkv.data.noisy import Noisy
from qkv.text import Tokenizer


class Cut(Sequence[Ids]):
    """Encoded texts with the tokenizer's own marks around them, cut to `length` tokens in all."""

    def __init__(self, encoded: Encoded, tokenizer: Tokenizer, length: int) -> None:
        self.encoded, self.tokenizer, self.length = encoded, tokenizer, length
        self.room = length - len(tokenizer.wrap((), length))  # for the text itself

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
        return np.concatenate([t.before, ids, t.after]).astype(np.int64) if t.marked else ids

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
    return Cut(Encoded.of(tokenizer.encode_many(texts), tokenizer.size), tokenizer, length)


def tell_stiff(noisy: Sequence[Noisy], remarks: list[str]) -> None:
    """Texts that have no noise though it was asked for."""
    stiff, total = sum(texts.stiff for texts in noisy), sum(len(texts.plain) for texts in noisy)
    if stiff:
        remarks.append(
            f"{stiff:,} of {total:,} training texts hold tokens that are cut one way only, and "
            "are read without noise"
        )


def tell_leaks(train: Sequence[str], held_out: Sequence[str], remarks: list[str]) -> None:
    """Held-out texts that training has seen make every number look better than it is."""
    leaked = overlap(train, held_out)
    if leaked:
        remarks.append(
            f"{len(leaked):,} of {len(held_out):,} held-out texts also stand in the training "
            f"part, for example “{leaked[0][:60]}”"
        )


def data_facts(
    lengths: Ids, held_out: int, budget: int, seed: int, read: Ids | None = None
) -> list[tuple[str, str]]:
    """Sizes for the report: lengths (N, sides) of the training examples.

    read: what the first epoch reads, if that is not the same.
    """
    read = lengths if read is None else read
    batches = near_length(read, budget, np.random.default_rng((seed, 0)))
    total = lengths.sum(axis=1)
    return [
        ("training examples", f"{len(lengths):,}"),
        ("held-out examples", f"{held_out:,}"),
        ("tokens in one epoch", f"{int(read.sum()):,}"),
        ("tokens an example", f"{int(np.median(total))} in the middle, {int(total.max())} at most"),
        ("steps in one epoch", f"{len(batches):,}"),
        ("padding", f"{padding(read, batches):.1%} of the tokens computed"),
    ]
