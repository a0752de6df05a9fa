"""Texts as token ids: encoded once and mapped from disk, with BPE dropout, in batches by length."""

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

# Characters encoded at a time: enough chunks for many cores. More are no faster and need more
# memory, as the library takes over a hundred bytes per token.
BATCH_CHARACTERS = 1 << 17

SEAM = ("one line\n", "and one more")

BPE_DROPOUT_STREAM = 1  # separates these random numbers from those of the order and of the steps

# A batch is closed early if more than MAX_PADDING of it is padding, once it is filled to MIN_FILL.
MAX_PADDING = 0.03
MIN_FILL = 0.3

Ids = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class TokenizedTexts:
    """The token ids of many texts in one array, which may be mapped from a file.

    ids (tokens of all texts); starts (texts + 1): where each text begins, then the total.
    """

    ids: NDArray[Any]
    starts: NDArray[np.int64]

    @classmethod
    def of(cls, texts: Sequence[Sequence[int]], vocab_size: int) -> "TokenizedTexts":
        """From ids in memory, each below `vocab_size`."""
        ids, starts = _concatenate(texts, _id_dtype(vocab_size))
        return cls(ids, starts)

    def __len__(self) -> int:
        """The number of texts."""
        return len(self.starts) - 1

    def __getitem__(self, i: int) -> NDArray[Any]:
        """The ids of one text."""
        index = range(len(self))[i]  # negative indices, and IndexError beyond the end
        return self.ids[self.starts[index] : self.starts[index + 1]]

    def __iter__(self) -> Iterator[NDArray[Any]]:
        return (self[i] for i in range(len(self)))

    @property
    def lengths(self) -> NDArray[np.int64]:
        """The number of tokens of each text."""
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
    """The ids of each text, or of each document given in chunks, cached in `folder`.

    eos: a token added after each text. prefix: tokens added before each text. target: these are
    translations, which some tokenizers encode differently. `key` identifies the content: if an
    equal tokenizer has encoded it before, the ids come from the cache and `texts` is not iterated.
    """
    if folder is None:
        folder = cache_folder()
    # The words of the name are those of existing caches.
    name = f"{key} end {eos}"
    if prefix:
        name += f" start {list(prefix)}"
    if target:
        name += " target"
    entry = folder / entry_name(name, tokenizer)
    arrays = open_entry(entry)
    if arrays is None:
        write_entry(entry, _encode_batches(_as_chunks(texts), tokenizer, eos, prefix, target))
        arrays = open_entry(entry)
        if arrays is None:
            raise DataError(f"{entry} was removed while it was being written; start again")
    return TokenizedTexts(*arrays)


def _encode_batches(
    chunks: Iterable[DocumentChunk],
    tokenizer: Tokenizer,
    eos: int | None,
    prefix: Sequence[int],
    target: bool,
) -> Iterator[tuple[NDArray[Any], NDArray[np.int64]]]:
    """For each batch its ids, and the positions in them at which a text ends."""
    if _depends_on_seams(tokenizer):
        chunks = _as_chunks(join_chunks(chunks))
    dtype = _id_dtype(tokenizer.vocab_size)
    starts_text = True
    for batch in _batches(chunks):
        ids_of_chunks = tokenizer.encode_many([chunk.text for chunk in batch], target=target)
        sequences = []
        for chunk, ids in zip(batch, ids_of_chunks, strict=True):
            sequence = ids
            if prefix and starts_text:
                sequence = [*prefix, *sequence]
            if eos is not None and chunk.last:
                sequence = [*sequence, eos]
            sequences.append(sequence)
            starts_text = chunk.last
        flat, starts = _concatenate(sequences, dtype)
        yield flat, starts[1:][[chunk.last for chunk in batch]]


def _depends_on_seams(tokenizer: Tokenizer) -> bool:
    """Whether a document has to be encoded in one piece.

    Some public tokenizers put a space before every text; those trained here never do.
    """
    first, second = tokenizer.encode_many(SEAM)
    return tokenizer.encode("".join(SEAM)) != first + second


def _as_chunks(texts: Iterable[str | DocumentChunk]) -> Iterator[DocumentChunk]:
    for i, text in enumerate(texts):
        if isinstance(text, DocumentChunk):
            yield text
        else:
            yield DocumentChunk(text, i, True)


def _batches(chunks: Iterable[DocumentChunk]) -> Iterator[list[DocumentChunk]]:
    batch: list[DocumentChunk] = []
    size = 0
    for chunk in chunks:
        batch.append(chunk)
        size += len(chunk.text) + 1  # so that many empty texts fill a batch too
        if size >= BATCH_CHARACTERS:
            yield batch
            batch = []
            size = 0
    if batch:
        yield batch


def _concatenate(
    texts: Sequence[Sequence[int]], dtype: np.dtype[Any]
) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """All ids in one array, and where each text begins, then the total."""
    starts = np.cumsum([0, *map(len, texts)], dtype=np.int64)
    return np.fromiter(chain.from_iterable(texts), dtype, int(starts[-1])), starts


def _id_dtype(vocab_size: int) -> np.dtype[Any]:
    if vocab_size <= 1 << 16:
        return np.dtype(np.uint16)
    return np.dtype(np.int32)


class BpeDropoutTexts:
    """Texts segmented anew in each epoch with BPE dropout (Provilkov, Emelianenko and Voita 2020).

    The ids of an epoch are a pure function of the seed and the number of the epoch. A text that
    would exceed `max_length` tokens keeps its deterministic segmentation in that epoch. So do,
    always, the `num_fixed` texts whose ids are not those of their words, because they contain
    tokens that were added to a published vocabulary.
    """

    def __init__(
        self,
        texts: Iterable[str],
        plain: TokenizedTexts,
        tokenizer: Tokenizer,
        dropout: float,
        max_length: int,
        seed: tuple[int, int],
    ) -> None:
        """plain: the texts without dropout. seed: of the run, and a number for these texts."""
        self.plain = plain
        self.dropout = dropout
        self.max_length = max_length
        self.seed = seed
        index = dict[str, int]()
        words = array("i")
        ends = array("q", [0])
        for text in texts:
            for word in tokenizer.pre_tokenize(text):
                words.append(index.setdefault(word, len(index)))
            ends.append(len(words))
        self.words = np.array(words, np.int32)  # all texts, as indices of distinct words
        self.ends = np.array(ends, np.int64)
        self.sampler = tokenizer.subword_sampler(list(index))
        self._fixed = _differences(self._sample(0.0, np.random.default_rng(0)), plain)
        self._last_epoch: tuple[int, TokenizedTexts] | None = None

    @property
    def num_fixed(self) -> int:
        """The number of texts that are never segmented differently."""
        return int(self._fixed.sum())

    def epoch(self, number: int) -> TokenizedTexts:
        """The texts as segmented in that epoch; the most recent one is cached."""
        if self._last_epoch is None or self._last_epoch[0] != number:
            seed, stream = self.seed
            rng = np.random.default_rng((seed, number, stream, BPE_DROPOUT_STREAM))
            sample = self._sample(self.dropout, rng)
            keep_plain = self._fixed | (sample.lengths > self.max_length)
            self._last_epoch = number, _where(keep_plain, self.plain, sample)
        return self._last_epoch[1]

    def _sample(self, dropout: float, rng: np.random.Generator) -> TokenizedTexts:
        ids, starts = self.sampler.sample(self.words, dropout, rng)
        return TokenizedTexts(ids.astype(self.plain.ids.dtype), starts[self.ends])


def _differences(a: TokenizedTexts, b: TokenizedTexts) -> NDArray[np.bool_]:
    """Which texts have different ids in the two."""
    if np.array_equal(a.starts, b.starts) and np.array_equal(a.ids, b.ids):
        return np.zeros(len(a), np.bool_)
    return np.array([not np.array_equal(x, y) for x, y in zip(a, b, strict=True)])


def _where(condition: NDArray[np.bool_], a: TokenizedTexts, b: TokenizedTexts) -> TokenizedTexts:
    """Each text from `a` where the condition holds, else from `b`."""
    if not condition.any():
        return b
    ids = np.concatenate([a.ids, b.ids])
    begins = np.where(condition, a.starts[:-1], b.starts[:-1] + len(a.ids))
    lengths = np.where(condition, a.lengths, b.lengths)
    starts = np.concatenate([np.zeros(1, np.int64), lengths.cumsum()])
    indices = np.arange(starts[-1]) + np.repeat(begins - starts[:-1], lengths)
    return TokenizedTexts(ids[indices], starts)


def length_batches(lengths: Ids, batch_tokens: int, rng: np.random.Generator) -> list[Ids]:
    """Every example once, in batches of similar length with at most `batch_tokens` each.

    lengths (N, sides): one side for a text, two for a text and its translation. Padding counts. An
    example longer than `batch_tokens` is a batch of its own. Examples of equal length, and the
    batches, are shuffled: the result is a pure function of the arguments and the generator.
    """
    order = rng.permutation(len(lengths))
    order = order[_sort_by_length(lengths[order])]
    boundaries = _batch_boundaries(lengths[order], batch_tokens)
    batches = np.split(order, boundaries)
    return [batches[i] for i in rng.permutation(len(batches))]


def padding_fraction(lengths: Ids, batches: list[Ids]) -> float:
    """The fraction of all computed tokens that is padding."""
    computed = sum(len(batch) * int(lengths[batch].max(axis=0).sum()) for batch in batches)
    return 1.0 - int(lengths.sum()) / max(1, computed)


def _sort_by_length(lengths: Ids) -> Ids:
    """The order by the last side, then by the others, alternately ascending and descending.

    Alternating keeps neighbours similar on every side, also where the last side grows by one.
    """
    last = lengths[:, -1]
    if lengths.shape[1] == 1:
        return np.argsort(last, kind="stable")
    alternating = np.where(last[:, None] % 2 == 0, lengths[:, :-1], -lengths[:, :-1])
    return np.lexsort((*alternating.T, last))


def _batch_boundaries(lengths: Ids, batch_tokens: int) -> list[int]:
    """The positions in the order at which a new batch begins."""
    boundaries = list[int]()
    start = 0
    longest = [0] * lengths.shape[1]
    tokens = 0  # in the batch so far, without padding
    for i, sides in enumerate(lengths.tolist()):
        longest_with = [max(pair) for pair in zip(longest, sides, strict=True)]
        computed = (i - start + 1) * sum(longest_with)
        padding = computed - tokens - sum(sides)
        wasteful = computed > MIN_FILL * batch_tokens and padding > MAX_PADDING * computed
        if i > start and (computed > batch_tokens or wasteful):
            boundaries.append(i)
            start = i
            longest_with = sides
            tokens = 0
        longest = longest_with
        tokens += sum(sides)
    return boundaries
