"""Text ⇄ ids, with offsets back to the text; a whole tokenizer is one tokenizer.json.

One that was not learned here has its marks beside it, in marks.json.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer as Backend
from tokenizers import models

from qkv.errors import DataError
from qkv.files import short_repr, write_error_message
from qkv.text.bpe_dropout import (
    BPEDropout,
    MaxMatchDropout,
    SubwordSampler,
    check_dropout_supported,
)
from qkv.text.special_tokens import (
    DEFAULT_SPECIAL_TOKENS,
    LEGACY_FILE,
    SPECIAL_TOKENS_FILE,
    SpecialTokens,
    find_special_tokens,
    read_special_tokens,
    template_ids,
    write_special_tokens,
)
from qkv.text.tokenizer_files import read_text, refusing
from qkv.text.translation_pair import (
    FILES,
    BackendPair,
    LanguagePair,
    read_pair,
    reading_special,
    write_pair,
)
from qkv.text.vocab_training import (
    check_no_surrogates,
    kind_of,
    learn,
    people_read,
    spelling_of,
    words_of,
)

# FOLDED text/seams: Where a long word can be cut without a change to its tokens.
#
#   Byte-pair merging keeps a queue of all pairs of a word. Some public tokenizers take a
#   whole text for
#   one word, and beyond some hundred thousand letters that queue no longer fits the
#   processor's cache:
#   twice the text costs nearly three times as much. But two characters that stand side by
#   side in no
#   token of the vocabulary are never merged into one, whatever happens around them. Between
#   them a word
#   can be cut, and both sides give the tokens they give together.

LONG = 1 << 15  # characters of a word that is worth cutting

PART = 1 << 12  # of each part, at least

BYTES = {f"<0x{byte:02X}>" for byte in range(256)}


class LongWordSplitter:
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
    def of(cls, backend: Backend, long: int = LONG, part: int = PART) -> LongWordSplitter | None:
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
        check_no_surrogates(text)
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


TOKENIZER_COMPANIONS = (
    SPECIAL_TOKENS_FILE,
    LEGACY_FILE,
    *FILES,
)  # what may lie beside a tokenizer.json and belongs to it


class Tokenizer:
    """Cuts text into numbered tokens, and says which characters each one covers.

    Encoding adds no special tokens and, unless asked to, takes none from the text: they are for
    the caller to place, or for `wrap`. Of those learned here `bpe` and `bytes` give every text
    back exactly; the other kinds read a character they never saw as `unknown`, and `wordpiece`
    also drops case, accents and spaces.
    """

    def __init__(
        self,
        backend: Backend,
        special_tokens: SpecialTokens = DEFAULT_SPECIAL_TOKENS,
        pair: BackendPair | None = None,
    ) -> None:
        """`pair` cuts texts of the source and of the target language, if each has its own way."""
        for part in (backend, *(pair or ())):
            # What a file says of these is for other programs: nothing is cut or filled up here,
            # and the last one is never saved.
            part.no_truncation()
            part.no_padding()
            part.encode_special_tokens = True
        self._backend, self.special_tokens = backend, special_tokens
        self._pair = None if pair is None else LanguagePair(*pair, backend)
        self._kind, self._size = kind_of(backend), backend.get_vocab_size()
        self.prefix_ids, self.suffix_ids = template_ids(
            backend
        )  # the marks its own template puts around a text

    @classmethod
    def train(cls, kind: str, texts: Iterable[str], vocab_size: int) -> Tokenizer:
        """The same texts give the same tokenizer; `vocabulary` is a ceiling, see `size`."""
        return cls(learn(kind, texts, vocab_size))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Tokenizer:
        """The tokenizer in this file, its marks from the marks.json beside it if there is one."""
        text = read_text(Path(path), anywhere=True)
        special_tokens_path = find_special_tokens(Path(path).parent)
        special_tokens = DEFAULT_SPECIAL_TOKENS
        if special_tokens_path is not None:
            special_tokens = read_special_tokens(special_tokens_path)
        pair = read_pair(Path(path))
        with refusing(path):
            tokenizer = cls(Backend.from_str(text), special_tokens, pair)
        if special_tokens_path is not None:
            tokenizer.check_special_tokens(str(special_tokens_path))
        return tokenizer

    def save(self, path: str | os.PathLike[str]) -> None:
        try:
            Path(path).write_text(self.to_json(), encoding="utf-8")
            write_special_tokens(self.special_tokens, Path(path).parent)
            write_pair(self._pair, Path(path))
        except OSError as error:
            raise DataError(write_error_message(Path(path), error)) from error

    @property
    def has_language_pair(self) -> bool:
        """Whether a text to translate from and one to translate to are cut in different ways."""
        return self._pair is not None

    def to_json(self) -> str:
        """What tokenizer.json holds."""
        return self._backend.to_str(pretty=True) + "\n"

    @property
    def kind(self) -> str:
        """One of KINDS."""
        return self._kind

    @property
    def vocab_size(self) -> int:
        """How many tokens there are, special ones included."""
        return self._size

    @property
    def summary(self) -> str:
        """Its kind and size, for people."""
        return f"{self.kind}, {self.vocab_size:,} tokens"

    @property
    def pad_id(self) -> int:
        return self._special_id("pad")

    @property
    def unk_id(self) -> int:
        return self._special_id("unk")

    @property
    def bos_id(self) -> int:
        return self._special_id("bos")

    @property
    def eos_id(self) -> int:
        return self._special_id("eos")

    @property
    def mask_id(self) -> int:
        return self._special_id("mask")

    @property
    def forced_bos_id(self) -> int | None:
        """The token every target must begin with, if there is one."""
        return None if self.special_tokens.forced_bos is None else self._special_id("forced_bos")

    @cached_property
    def eos_ids(self) -> tuple[int, ...]:
        """All tokens that end a text, `end` first."""
        named = (self.special_tokens.eos, *self.special_tokens.extra_eos)
        ids = (self._backend.token_to_id(token) for token in named if token is not None)
        return tuple(dict.fromkeys(id for id in ids if id is not None))

    @cached_property
    def special_ids(self) -> frozenset[int]:
        """Every token that is no text: those the file calls special, and the marks."""
        added = self._backend.get_added_tokens_decoder().items()
        marks = (self._backend.token_to_id(token) for token in self.special_tokens.tokens)
        named = {id for id in marks if id is not None}
        return frozenset(named | {id for id, token in added if token.special})

    def encode(self, text: str, parse_special: bool = False, target: bool = False) -> list[int]:
        """Without marks around. What looks like a special token is text, or with `special` one.

        But a published unigram vocabulary holds its special tokens as pieces, and finds them in
        any text (as in transformers). `target` is for a text of the language translated to, where
        that makes a difference.
        """
        return self.encode_many([text], parse_special, target)[0]

    def encode_many(
        self, texts: Sequence[str], parse_special: bool = False, target: bool = False
    ) -> list[list[int]]:
        """What `encode` gives for each text, on all cores."""
        if self._pair is not None:
            for text in texts:
                check_no_surrogates(text)
            return self._pair.encode_many(texts, parse_special, target, self.unk_id)
        if parse_special or all(len(text) <= LONG for text in texts) or self._seams is None:
            return self._plain(texts, parse_special)
        tried = [self._seams.encode(text) for text in texts]
        whole = [text for text, ids in zip(texts, tried, strict=True) if ids is None]
        rest = iter(self._plain(whole))
        return [next(rest) if ids is None else ids for ids in tried]

    def pre_tokenize(self, text: str) -> list[str]:
        """What a text is cut into before tokens are looked for, spelled as the vocabulary is."""
        check_no_surrogates(text)
        return words_of(self._backend, text)

    def subword_sampler(self, words: Sequence[str]) -> SubwordSampler:
        """Cuts these words plainly or with noise, by their numbers in this order."""
        check_dropout_supported(self.kind)
        kind = MaxMatchDropout if self.kind == "wordpiece" else BPEDropout
        return kind(self._backend, words)

    @property
    def adds_special_tokens(self) -> bool:
        """Whether it puts marks around a text."""
        return bool(self.prefix_ids or self.suffix_ids)

    def add_special_tokens(self, ids: Sequence[int], max_length: int | None = None) -> list[int]:
        """The ids with the template's marks around them, cut so that all is at most `longest`."""
        marks = len(self.prefix_ids) + len(self.suffix_ids)
        if max_length is not None and max_length < marks:
            raise DataError(
                f"longest={max_length} leaves no room for the {marks} marks around a text"
            )
        room = None if max_length is None else max_length - marks
        return [*self.prefix_ids, *ids[:room], *self.suffix_ids]

    def offsets(self, text: str) -> list[tuple[int, int]]:
        """The characters each token covers, as (first, after the last).

        Tokens that share the bytes of one character all cover the whole of it.
        """
        check_no_surrogates(text)
        if self._pair is not None:
            return self._pair.offsets(text)
        return self._backend.encode(text, add_special_tokens=False).offsets

    def decode(self, ids: Iterable[int]) -> str:
        """The text of these tokens, special ones left out; bytes that make no character are �."""
        return self._backend.decode([self._known(id) for id in ids])

    def apply_chat_template(
        self, messages: Sequence[Mapping[str, str]], add_generation_prompt: bool = True
    ) -> str:
        """The messages as the one text the model was trained on; encode it with `special`."""
        if self.special_tokens.chat_template is None:
            raise DataError(
                f"this {self.kind} tokenizer has no chat template, so the model was made for plain "
                "text; give it the prompt without --chat"
            )
        # Jinja takes longer to import than most tokenizers to read, and few models chat.
        from qkv.text.chat_template import render

        return render(
            self.special_tokens.chat_template,
            messages,
            add_generation_prompt,
            self.special_tokens.template_variables,
        )

    def token(self, id: int) -> str:
        """One token as people read it: a space as a space, what cannot be seen escaped."""
        token = self._backend.id_to_token(self._known(id))
        if token is None or id in self._added:
            return token or ""
        return people_read(token, self._spelling)

    def token_to_id(self, token: str) -> int:
        """The id of a token of the vocabulary, spelled as it is kept there."""
        id = self._backend.token_to_id(token)
        if id is None:
            raise DataError(f"this {self.kind} tokenizer has no {token} token")
        return id

    def with_language_pair(self, pair: BackendPair) -> Tokenizer:
        """The same vocabulary, for texts that each language cuts in its own way."""
        return type(self)(self._backend, self.special_tokens, pair)

    def check_special_tokens(self, source: str) -> None:
        """Refuses marks that are no tokens of this vocabulary."""
        for token in self.special_tokens.tokens:
            if self._backend.token_to_id(token) is None:
                raise DataError(f"{source}: the vocabulary has no token {short_repr(token)}")

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._backend, self.special_tokens, self._pair and self._pair.backends)

    def __repr__(self) -> str:
        return f"<Tokenizer {self.summary}>"

    def _plain(self, texts: Sequence[str], special: bool = False) -> list[list[int]]:
        backend = self._reads_special if special else self._backend
        # "fast" leaves out the offsets, which cost twice as much as the ids.
        try:
            found = backend.encode_batch_fast(texts, add_special_tokens=False)
        except TypeError:
            for text in texts:
                check_no_surrogates(text)
            raise
        return [encoding.ids for encoding in found]

    @cached_property
    def _seams(self) -> LongWordSplitter | None:
        return LongWordSplitter.of(self._backend)

    @cached_property
    def _reads_special(self) -> Backend:
        return reading_special(self._backend)

    @cached_property
    def _added(self) -> frozenset[int]:
        return frozenset(self._backend.get_added_tokens_decoder())

    @cached_property
    def _spelling(self) -> str:
        return spelling_of(self._backend)

    def _special_id(self, role: str) -> int:
        token = getattr(self.special_tokens, role)
        if token is None:
            raise DataError(f"this {self.kind} tokenizer has no {role} token")
        id = self._backend.token_to_id(token)
        if id is None:
            raise DataError(f"this {self.kind} tokenizer has no {token}, its {role} token")
        return id

    def _known(self, id: int) -> int:
        if not 0 <= id < self.vocab_size:
            raise DataError(
                f"token {id} does not exist; this tokenizer has 0 to {self.vocab_size - 1}"
            )
        return int(id)
