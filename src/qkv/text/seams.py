"""Where a long word can be cut without a change to its tokens.

Byte-pair merging keeps a queue of all pairs of a word. Some public tokenizers take a whole text for
one word, and beyond some hundred thousand letters that queue no longer fits the processor's cache:
twice the text costs nearly three times as much. But two characters that stand side by side in no
token of the vocabulary are never merged into one, whatever happens around them. Between them a word
can be cut, and both sides give the tokens they give together.
"""

from __future__ import annotations

from collections.abc import Iterator

from tokenizers import Tokenizer as Backend
from tokenizers import models

from qkv.text.words import refuse_half_characters, words_of

LONG = 1 << 15  # characters of a word that is worth cutting
PART = 1 << 12  # of each part, at least
BYTES = {f"<0x{byte:02X}>" for byte in range(256)}


class Seams:
    """Encodes texts with very long words, part by part; the ids are those of the whole."""

    def __init__(self, backend: Backend, long: int = LONG, part: int = PART) -> None:
        self.long, self.part = long, part
        self._backend, self._parts = backend, Backend(backend.model)
        vocabulary = backend.get_vocab(with_added_tokens=False)
        self._known = frozenset(token for token in vocabulary if len(token) == 1)
        self._joined = frozenset(
            token[i : i + 2] for token in vocabulary for i in range(len(token) - 1)
        )
        # With a token for each byte, one that is unknown is its bytes, and never told as one with
        # its neighbours; unless some token is made of such bytes.
        spelled = {token for token in vocabulary if "<0x" in token}
        self._spells = bool(backend.model.byte_fallback) and spelled == BYTES
        added = backend.get_added_tokens_decoder().values()
        self._added = tuple(token.content for token in added if not token.special)

    @classmethod
    def of(cls, backend: Backend, long: int = LONG, part: int = PART) -> Seams | None:
        """None where words are short anyway, or where a cut could show."""
        model = backend.model
        if not isinstance(model, models.BPE) or model.dropout or model.ignore_merges:
            return None
        if model.continuing_subword_prefix or model.end_of_word_suffix:
            return None  # the parts of a word are spelled unlike its beginning or end
        seams = cls(backend, long, part)
        return seams if max(map(len, words_of(backend, "a" * (long + 1)))) > long else None

    def encode(self, text: str) -> list[int] | None:
        """The ids, or None if no word of the text is worth cutting."""
        if len(text) <= self.long or any(token in text for token in self._added):
            return None
        refuse_half_characters(text)
        words = words_of(self._backend, text)
        if self._added and any(token in word for word in words for token in self._added):
            return None
        parts = [part for word in words for part in self.cut(word)]
        if len(parts) == len(words):
            return None
        found = self._parts.encode_batch_fast(parts, add_special_tokens=False)
        return [id for encoding in found for id in encoding.ids]

    def cut(self, word: str) -> Iterator[str]:
        """The word in parts; it stays whole where every two neighbours may be merged."""
        begin = 0
        for place in self._places(word) if len(word) > self.long else ():
            yield word[begin:place]
            begin = place
        yield word[begin:]

    def _places(self, word: str) -> Iterator[int]:
        place = self.part
        while place < len(word):
            pair = word[place - 1 : place + 1]
            if pair not in self._joined and (self._spells or self._known.issuperset(pair)):
                yield place
                place += self.part
            else:
                place += 1
