"""What the tasks on single texts share: token ids truncated to a length, and facts about them."""

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from qkv.data import (
    BpeDropoutTexts,
    TokenizedTexts,
    length_batches,
    overlap,
    padding_fraction,
)
from qkv.text import Tokenizer
from qkv.training.tasks.task import Ids


class TruncatedTexts(Sequence[Ids]):
    """Encoded texts with their special tokens, truncated to `length` tokens in all."""

    def __init__(self, encoded: TokenizedTexts, tokenizer: Tokenizer, length: int) -> None:
        self.encoded = encoded
        self.tokenizer = tokenizer
        self.length = length
        self.text_length = length - len(
            tokenizer.add_special_tokens((), length)
        )  # without special tokens

    @cached_property
    def lengths(self) -> Ids:
        special_tokens = self.length - self.text_length
        return np.minimum(self.encoded.lengths, self.text_length) + special_tokens

    @property
    def num_truncated(self) -> int:
        return int((self.encoded.lengths > self.text_length).sum())

    def __len__(self) -> int:
        return len(self.encoded)

    def __getitem__(self, i: int) -> Ids:  # type: ignore[override]
        tokenizer = self.tokenizer
        ids = np.asarray(self.encoded[i][: self.text_length], dtype=np.int64)
        if not tokenizer.adds_special_tokens:
            return ids
        return np.concatenate([tokenizer.prefix_ids, ids, tokenizer.suffix_ids]).astype(np.int64)

    def remarks(self, split: str) -> list[str]:
        """A sentence about truncated texts, if there are any."""
        return truncation_remarks(self.num_truncated, len(self), split, self.text_length)


def truncation_remarks(truncated: int, total: int, split: str, length: int) -> list[str]:
    if not truncated:
        return []
    return [
        f"{truncated:,} of {total:,} {split} texts have more than {length} tokens; "
        f"only their beginnings are read"
    ]


def encode_texts(texts: Sequence[str], tokenizer: Tokenizer, length: int) -> TruncatedTexts:
    """The texts as ids in memory."""
    encoded = TokenizedTexts.of(tokenizer.encode_many(texts), tokenizer.vocab_size)
    return TruncatedTexts(encoded, tokenizer, length)


def bpe_dropout_remarks(texts: Sequence[BpeDropoutTexts]) -> list[str]:
    """A sentence about texts to which BPE-dropout cannot be applied, if there are any."""
    unaffected = sum(each.num_fixed for each in texts)
    total = sum(len(each.plain) for each in texts)
    if not unaffected:
        return []
    return [
        f"{unaffected:,} of {total:,} training texts hold tokens with a single segmentation, and "
        "are read without BPE-dropout"
    ]


def leakage_remarks(train: Sequence[str], validation: Sequence[str]) -> list[str]:
    """A sentence about validation texts that are in the training split too, if there are any.

    They make every metric look better than it is.
    """
    duplicates = overlap(train, validation)
    if not duplicates:
        return []
    return [
        f"{len(duplicates):,} of {len(validation):,} validation texts are also in the training "
        f"split, for example “{duplicates[0][:60]}”"
    ]


def data_facts(
    lengths: Ids, validation: int, batch: int, seed: int, epoch_lengths: Ids | None = None
) -> list[tuple[str, str]]:
    """Sizes for the report; lengths (N, sides) of the training examples.

    epoch_lengths: those of the first epoch, where augmentation makes them different.
    """
    if epoch_lengths is None:
        epoch_lengths = lengths
    batches = length_batches(epoch_lengths, batch, np.random.default_rng((seed, 0)))
    total = lengths.sum(axis=1)
    return [
        ("training examples", f"{len(lengths):,}"),
        ("validation examples", f"{validation:,}"),
        ("tokens per epoch", f"{int(epoch_lengths.sum()):,}"),
        ("tokens per example", f"median {int(np.median(total))}, maximum {int(total.max())}"),
        ("steps per epoch", f"{len(batches):,}"),
        ("padding", f"{padding_fraction(epoch_lengths, batches):.1%} of the tokens computed"),
    ]
