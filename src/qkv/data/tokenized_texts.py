"""Texts as token ids: encoded once, however many they are, and never all in memory."""

from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qkv.data.documents import DocumentChunk, join_chunks
from qkv.data.token_cache import cache_folder, entry_name, open_entry, write_entry
from qkv.errors import DataError
from qkv.text import Tokenizer

# FOLDED data/noisy: Encoded texts whose words are cut anew in every epoch.
# FOLDED data/grouping: Batches of texts that are nearly equally long, so that next to nothing
#   is padding.

# Characters encoded at a time: enough pieces for many cores. More are no faster and need more
# memory, as the library takes more than a hundred bytes a token.
BATCH_CHARACTERS = 1 << 17

SEAM = ("one line\n", "and one more")


@dataclass(frozen=True, eq=False)
class TokenizedTexts:
    """Many texts as token ids behind each other, in a file that is mapped, not read.

    ids (tokens of all texts); starts (texts + 1): where each begins, and the length of all.
    """

    ids: NDArray[Any]
    starts: NDArray[np.int64]

    @classmethod
    def of(cls, texts: Sequence[Sequence[int]], vocabulary: int) -> "TokenizedTexts":
        """The same in memory, from ids below `vocabulary`."""
        ids, starts = _joined(texts, _id_type(vocabulary))
        return cls(ids, starts)

    def __len__(self) -> int:
        """How many texts there are."""
        return len(self.starts) - 1

    def __getitem__(self, i: int) -> NDArray[Any]:
        """The ids of one text."""
        place = range(len(self))[i]
        return self.ids[self.starts[place] : self.starts[place + 1]]

    def __iter__(self) -> Iterator[NDArray[Any]]:
        return (self[i] for i in range(len(self)))

    @property
    def lengths(self) -> NDArray[np.int64]:
        """How many tokens each text has."""
        return np.diff(self.starts)


def encode(
    texts: Iterable[str | DocumentChunk],
    tokenizer: Tokenizer,
    key: str,
    folder: Path | None = None,
    eos: int | None = None,
    prefix: Sequence[int] = (),
    target: bool = False,
) -> TokenizedTexts:
    """The ids of each text, or of each document whose pieces are given; kept in `folder`.

    With `eos`, that token closes each of them, and those of `prefix` open it. `key` names the
    content: where it was encoded before by an equal tokenizer, the ids are taken from there and
    `texts` is not iterated. target: they are what is translated to, which some tokenizers cut
    in a way of its own.
    """
    if folder is None:
        folder = cache_folder()
    else:
        folder = folder
    opened = (f" start {list(prefix)}" if prefix else "") + (" target" if target else "")
    entry = folder / entry_name(f"{key} end {eos}{opened}", tokenizer)
    found = open_entry(entry)
    if found is None:
        write_entry(entry, _encoded(_pieces(texts), tokenizer, eos, prefix, target))
        found = open_entry(entry)
        if found is None:
            raise DataError(f"{entry} was removed while it was being written; prefix again")
    return TokenizedTexts(*found)


def _encoded(
    pieces: Iterable[DocumentChunk],
    tokenizer: Tokenizer,
    eos: int | None,
    prefix: Sequence[int],
    target: bool,
) -> Iterator[tuple[NDArray[Any], NDArray[np.int64]]]:
    """Chunk by chunk: the ids, and behind how many of them a text ends."""
    if _sees_seams(tokenizer):
        pieces = _pieces(join_chunks(pieces))
    # fresh: the next piece begins a text
    kind = _id_type(tokenizer.vocab_size)
    fresh = True
    for chunk in _chunks(pieces):
        found = tokenizer.encode_many([piece.text for piece in chunk], target=target)
        begins = [fresh, *(piece.last for piece in chunk)]
        fresh = begins[-1]
        if prefix:
            found = [[*prefix, *a] if new else a for a, new in zip(found, begins, strict=False)]
        if eos is not None:
            found = [[*a, eos] if p.last else a for a, p in zip(found, chunk, strict=True)]
        ids, starts = _joined(found, kind)
        yield ids, starts[1:][[piece.last for piece in chunk]]


def _sees_seams(tokenizer: Tokenizer) -> bool:
    """Whether a document must be encoded as a whole: some public tokenizers put a space before
    every text. Those that are trained here never do.
    """
    first, second = tokenizer.encode_many(SEAM)
    return tokenizer.encode("".join(SEAM)) != first + second


def _pieces(texts: Iterable[str | DocumentChunk]) -> Iterator[DocumentChunk]:
    for i, text in enumerate(texts):
        yield text if isinstance(text, DocumentChunk) else DocumentChunk(text, i, True)


def _chunks(pieces: Iterable[DocumentChunk]) -> Iterator[list[DocumentChunk]]:
    chunk: list[DocumentChunk] = []
    size = 0
    for piece in pieces:
        chunk.append(piece)
        size += len(piece.text) + 1  # many empty texts are much as well
        if size >= BATCH_CHARACTERS:
            yield chunk
            chunk = []
            size = 0
    if chunk:
        yield chunk


def _joined(
    texts: Sequence[Sequence[int]], kind: np.dtype[Any]
) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """All ids behind each other, and where each text begins, with the length of all at the end."""
    starts = np.cumsum([0, *map(len, texts)], dtype=np.int64)
    return np.fromiter(chain.from_iterable(texts), kind, int(starts[-1])), starts


def _id_type(vocabulary: int) -> np.dtype[Any]:
    return np.dtype(np.uint16 if vocabulary <= 1 << 16 else np.int32)


STREAM = 1  # keeps these draws apart from those of the order and of the steps


class BpeDropoutTexts:
    """Texts with subword noise: the ids of an epoch are a pure function of the seed and its number.

    A text that would not fit into `room` tokens is cut plainly in that epoch. So is, always, one
    whose plain ids are not those of its words: `stiff` of them, in which tokens were found that
    had been added to a published vocabulary.
    """

    def __init__(
        self,
        texts: Iterable[str],
        plain: TokenizedTexts,
        tokenizer: Tokenizer,
        noise: float,
        room: int,
        seed: tuple[int, int],
    ) -> None:
        """`seed` is that of the run, and a number for these texts among those of the run."""
        self.plain = plain
        self.noise = noise
        self.room = room
        self.seed = seed
        numbers = dict[str, int]()
        words = array("i")
        ends = array("q", [0])
        for text in texts:
            words.extend(
                numbers.setdefault(word, len(numbers)) for word in tokenizer.pre_tokenize(text)
            )
            ends.append(len(words))
        self.words = np.array(words, np.int32)
        self.ends = np.array(ends, np.int64)
        self.cutter = tokenizer.subword_sampler(list(numbers))
        self._stiff = _different(self._cut(0.0, np.random.default_rng(0)), plain)
        self._made: tuple[int, TokenizedTexts] | None = None

    @property
    def num_fixed(self) -> int:
        return int(self._stiff.sum())

    def epoch(self, number: int) -> TokenizedTexts:
        """The texts as they are read in that epoch; the last one asked for is kept."""
        if self._made is None or self._made[0] != number:
            seed, which = self.seed
            draws = np.random.default_rng((seed, number, which, STREAM))
            noisy = self._cut(self.noise, draws)
            plainly = self._stiff | (noisy.lengths > self.room)
            self._made = number, _chosen(plainly, self.plain, noisy)
        return self._made[1]

    def _cut(self, noise: float, draws: np.random.Generator) -> TokenizedTexts:
        ids, starts = self.cutter.sample(self.words, noise, draws)
        return TokenizedTexts(ids.astype(self.plain.ids.dtype), starts[self.ends])


def _different(one: TokenizedTexts, other: TokenizedTexts) -> NDArray[np.bool_]:
    """Which texts have not the same ids in both."""
    if np.array_equal(one.starts, other.starts) and np.array_equal(one.ids, other.ids):
        return np.zeros(len(one), np.bool_)
    return np.array([not np.array_equal(a, b) for a, b in zip(one, other, strict=True)])


def _chosen(first: NDArray[np.bool_], one: TokenizedTexts, other: TokenizedTexts) -> TokenizedTexts:
    """Each text from the one where `first`, else from the other."""
    if not first.any():
        return other
    ids = np.concatenate([one.ids, other.ids])
    begins = np.where(first, one.starts[:-1], other.starts[:-1] + len(one.ids))
    lengths = np.where(first, one.lengths, other.lengths)
    starts = np.concatenate([np.zeros(1, np.int64), lengths.cumsum()])
    places = np.arange(starts[-1]) + np.repeat(begins - starts[:-1], lengths)
    return TokenizedTexts(ids[places], starts)


Ids = NDArray[np.int64]

PADDING = 0.03  # the share of one batch at which it is closed early,

LEAST = 0.3  # once it has this share of its budget


def length_batches(lengths: Ids, budget: int, draws: np.random.Generator) -> list[Ids]:
    """Every example once, in batches of at most `budget` tokens with their padding.

    lengths (N, sides): one side for a text, two for a text and its translation. An example longer
    than the budget is a batch of its own. Equal lengths are drawn in another order, and so are
    the batches: the result is a pure function of the arguments and the draws.
    """
    order = draws.permutation(len(lengths))
    order = order[_by_length(lengths[order])]
    cuts = _cuts(lengths[order], budget)
    batches = np.split(order, cuts)
    return [batches[i] for i in draws.permutation(len(batches))]


def padding_fraction(lengths: Ids, batches: list[Ids]) -> float:
    """The share of all tokens computed that is padding."""
    computed = sum(len(batch) * int(lengths[batch].max(axis=0).sum()) for batch in batches)
    return 1.0 - int(lengths.sum()) / max(1, computed)


def _by_length(lengths: Ids) -> Ids:
    """Sorted by the last side; among equals by the one before, up and down by turns.

    So neighbours differ little on every side, also where one length gives way to the next.
    """
    last = lengths[:, -1]
    if lengths.shape[1] == 1:
        return np.argsort(last, kind="stable")
    turns = np.where(last[:, None] % 2 == 0, lengths[:, :-1], -lengths[:, :-1])
    return np.lexsort((*turns.T, last))


def _cuts(lengths: Ids, budget: int) -> list[int]:
    """Before which examples a new batch begins."""
    cuts = list[int]()
    start = 0
    longest = [0] * lengths.shape[1]
    real = 0
    for i, sides in enumerate(lengths.tolist()):
        grown = [max(pair) for pair in zip(longest, sides, strict=True)]
        computed = (i - start + 1) * sum(grown)
        padded = computed - real - sum(sides)
        wasteful = computed > LEAST * budget and padded > PADDING * computed
        if i > start and (computed > budget or wasteful):
            cuts.append(i)
            start = i
            grown = sides
            real = 0
        longest = grown
        real = real + sum(sides)
    return cuts
