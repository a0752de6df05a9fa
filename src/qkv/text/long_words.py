"""Very long words, which BPE encodes in more than linear time: they are split where it is safe."""

from __future__ import annotations

from collections.abc import Iterator

from tokenizers import Tokenizer as Backend
from tokenizers import models

from qkv.text.vocab_training import check_no_surrogates, pre_tokenize

LONG_WORD = 1 << 15  # characters of a word that is worth splitting
MIN_PART = 1 << 12  # characters of each part

BYTE_TOKENS = {f"<0x{byte:02X}>" for byte in range(256)}


class LongWordSplitter:
    """Encodes texts with very long words in parts; the ids are those of the unsplit text.

    BPE keeps a queue of all pairs of a word. Some public tokenizers take a text for one word, and
    beyond some hundred thousand letters that queue no longer fits the processor's cache: twice the
    text takes nearly three times as long. But two characters that are neighbours in no token of
    the vocabulary are never merged, whatever happens around them. Between them a word can be split,
    and both sides give the tokens they give together.
    """

    def __init__(
        self, backend: Backend, long_word: int = LONG_WORD, min_part: int = MIN_PART
    ) -> None:
        self.long_word = long_word
        self.min_part = min_part
        self._backend = backend
        self._part_backend = Backend(backend.model)
        vocab = backend.get_vocab(with_added_tokens=False)
        self._characters = frozenset(token for token in vocab if len(token) == 1)
        self._neighbours = frozenset(
            token[i : i + 2] for token in vocab for i in range(len(token) - 1)
        )
        # With byte fallback an unknown character becomes its bytes, and is never fused with unknown
        # neighbours; unless some longer token is made of such bytes.
        byte_like = {token for token in vocab if "<0x" in token}
        self._has_byte_fallback = bool(backend.model.byte_fallback) and byte_like == BYTE_TOKENS
        added = backend.get_added_tokens_decoder().values()
        self._added_tokens = tuple(token.content for token in added if not token.special)

    @classmethod
    def of(
        cls, backend: Backend, long_word: int = LONG_WORD, min_part: int = MIN_PART
    ) -> LongWordSplitter | None:
        """None where words are short anyway, or where splitting could change the tokens."""
        model = backend.model
        if not isinstance(model, models.BPE) or model.dropout or model.ignore_merges:
            return None
        if model.continuing_subword_prefix or model.end_of_word_suffix:
            return None  # a part would be spelled differently from a beginning or end
        splitter = cls(backend, long_word, min_part)
        longest = max(map(len, pre_tokenize(backend, "a" * (long_word + 1))))
        return splitter if longest > long_word else None

    def encode(self, text: str) -> list[int] | None:
        """The ids, or None if no word of the text is worth splitting."""
        if len(text) <= self.long_word or self._has_added_token(text):
            return None
        check_no_surrogates(text)
        words = pre_tokenize(self._backend, text)
        if any(self._has_added_token(word) for word in words):
            return None
        parts = [part for word in words for part in self.split(word)]
        if len(parts) == len(words):
            return None
        encodings = self._part_backend.encode_batch_fast(parts, add_special_tokens=False)
        return [id for encoding in encodings for id in encoding.ids]

    def split(self, word: str) -> Iterator[str]:
        """The parts of a word; one, if it is short or any two neighbours may be merged."""
        start = 0
        if len(word) > self.long_word:
            for position in self._split_positions(word):
                yield word[start:position]
                start = position
        yield word[start:]

    def _split_positions(self, word: str) -> Iterator[int]:
        position = self.min_part
        while position < len(word):
            pair = word[position - 1 : position + 1]
            is_safe = self._has_byte_fallback or self._characters.issuperset(pair)
            if is_safe and pair not in self._neighbours:
                yield position
                position += self.min_part
            else:
                position += 1

    def _has_added_token(self, text: str) -> bool:
        return any(token in text for token in self._added_tokens)
