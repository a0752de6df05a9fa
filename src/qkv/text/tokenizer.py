"""Text ⇄ ids, with offsets back to the text.

A tokenizer is saved as one tokenizer.json of the `tokenizers` library; a pretrained one has its
special tokens next to it in special_tokens.json, and a language pair two files more.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer as Backend
from tokenizers import processors

from qkv.errors import DataError
from qkv.files import short_repr, write_error_message
from qkv.text.bpe_dropout import (
    BPEDropout,
    MaxMatchDropout,
    SubwordSampler,
    check_dropout_supported,
)
from qkv.text.long_words import LONG_WORD, LongWordSplitter
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
from qkv.text.token_bytes import TokenBytes, token_bytes_of
from qkv.text.tokenizer_files import read_text, tokenizer_errors
from qkv.text.translation_pair import (
    PAIR_FILES,
    BackendPair,
    LanguagePair,
    parsing_special_tokens,
    read_pair,
    write_pair,
)
from qkv.text.vocab_training import (
    check_no_surrogates,
    display_token,
    kind_of,
    pre_tokenize,
    train_backend,
)

# Files that may be next to a tokenizer.json and belong to it.
TOKENIZER_COMPANIONS = (SPECIAL_TOKENS_FILE, LEGACY_FILE, *PAIR_FILES)

NON_TARGET_ROLES = ("pad", "unk", "bos", "mask")


class Tokenizer:
    """Encodes text as token ids and decodes ids, with the characters each token covers.

    Encoding adds no special tokens and by default parses none in the text; `add_special_tokens`
    adds those of the template. Of the kinds trained here `bpe` and `bytes` decode every text
    exactly; the others encode a character they never saw as unk, and `wordpiece` also drops case,
    accents and spaces.
    """

    def __init__(
        self,
        backend: Backend,
        special_tokens: SpecialTokens = DEFAULT_SPECIAL_TOKENS,
        pair: BackendPair | None = None,
    ) -> None:
        """`pair` segments source and target texts, where the two languages differ in that."""
        for part in (backend, *(pair or ())):
            # A file's truncation and padding are for other programs: nothing is truncated or
            # padded here. The third setting is never saved.
            part.no_truncation()
            part.no_padding()
            part.encode_special_tokens = True
        self._backend = backend
        self._pair = None if pair is None else LanguagePair(*pair, backend)
        self._kind = kind_of(backend)
        self._vocab_size = backend.get_vocab_size()
        self.special_tokens = special_tokens
        # What the tokenizer's own template adds around a text, such as [CLS] and [SEP].
        self.prefix_ids, self.suffix_ids = template_ids(backend)

    @classmethod
    def train(cls, kind: str, texts: Iterable[str], vocab_size: int) -> Tokenizer:
        """A tokenizer of one of TOKENIZER_KINDS; the same texts give the same one.

        `vocab_size` is a maximum: few texts may not have that many tokens.
        """
        return cls(train_backend(kind, texts, vocab_size))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Tokenizer:
        """The tokenizer in this tokenizer.json, with the special tokens saved next to it."""
        text = read_text(Path(path), follow_symlinks=True)
        special_tokens_path = find_special_tokens(Path(path).parent)
        special_tokens = DEFAULT_SPECIAL_TOKENS
        if special_tokens_path is not None:
            special_tokens = read_special_tokens(special_tokens_path)
        pair = read_pair(Path(path))
        with tokenizer_errors(path):
            tokenizer = cls(Backend.from_str(text), special_tokens, pair)
        if special_tokens_path is not None:
            tokenizer.check_special_tokens(str(special_tokens_path))
        return tokenizer

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write tokenizer.json to `path`, and the other files next to it."""
        try:
            Path(path).write_text(self.to_json(), encoding="utf-8")
            write_special_tokens(self.special_tokens, Path(path).parent)
            write_pair(self._pair, Path(path))
        except OSError as error:
            raise DataError(write_error_message(Path(path), error)) from error

    @property
    def has_language_pair(self) -> bool:
        """Whether source and target texts are segmented differently."""
        return self._pair is not None

    def to_json(self, add_eos: bool = False) -> str:
        """The content of its tokenizer.json; with `add_eos` its template puts EOS after a text."""
        backend = self._backend
        if add_eos:
            backend = Backend.from_str(backend.to_str())
            eos = {"id": "eos", "ids": [self.eos_id], "tokens": [self.special_tokens.eos]}
            backend.post_processor = processors.TemplateProcessing("$A eos", None, [eos])
        return backend.to_str(pretty=True) + "\n"

    @property
    def kind(self) -> str:
        """One of TOKENIZER_KINDS."""
        return self._kind

    @property
    def vocab_size(self) -> int:
        """The number of tokens, special ones included."""
        return self._vocab_size

    @property
    def summary(self) -> str:
        """Its kind and vocabulary size, for display."""
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
        if self.special_tokens.forced_bos is None:
            return None
        return self._special_id("forced_bos")

    @cached_property
    def eos_ids(self) -> tuple[int, ...]:
        """All tokens that end a text, `eos_id` first."""
        tokens = (self.special_tokens.eos, *self.special_tokens.extra_eos)
        ids = (self._backend.token_to_id(token) for token in tokens if token is not None)
        return tuple(dict.fromkeys(id for id in ids if id is not None))

    @cached_property
    def special_ids(self) -> frozenset[int]:
        """Every token that is not text: those tokenizer.json calls special, and special_tokens."""
        ids = {self._backend.token_to_id(token) for token in self.special_tokens.tokens}
        for id, token in self._backend.get_added_tokens_decoder().items():
            if token.special:
                ids.add(id)
        return frozenset(id for id in ids if id is not None)

    def non_target_ids(self, rows: int) -> list[int]:
        """The ids that no translation holds: special tokens but EOS, and unused embedding rows."""
        ids = set()
        for role in NON_TARGET_ROLES:
            token = getattr(self.special_tokens, role)
            if token is not None:
                ids.add(self.token_to_id(token))
        ids.discard(self.eos_id)
        return [*sorted(ids), *range(self.vocab_size, rows)]

    def encode(self, text: str, parse_special: bool = False, target: bool = False) -> list[int]:
        """The ids of a text, without special tokens around it.

        What looks like a special token is text, or with `parse_special` that token. But a
        published unigram vocabulary has its special tokens as pieces, and finds them in any text,
        as in transformers. `target` is for a text in the target language of a language pair.
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
        is_short = all(len(text) <= LONG_WORD for text in texts)
        if parse_special or is_short or self._splitter is None:
            return self._encode_batch(texts, parse_special)
        sequences = [self._splitter.encode(text) for text in texts]
        rest = [text for text, ids in zip(texts, sequences, strict=True) if ids is None]
        rest_ids = iter(self._encode_batch(rest))
        return [next(rest_ids) if ids is None else ids for ids in sequences]

    def pre_tokenize(self, text: str) -> list[str]:
        """The words that are segmented into tokens, spelled as in the vocabulary."""
        check_no_surrogates(text)
        return pre_tokenize(self._backend, text)

    def subword_sampler(self, words: Sequence[str]) -> SubwordSampler:
        """Segments these words at random, for subword regularisation."""
        check_dropout_supported(self.kind)
        if self.kind == "wordpiece":
            return MaxMatchDropout(self._backend, words)
        return BPEDropout(self._backend, words)

    @property
    def adds_special_tokens(self) -> bool:
        """Whether its template adds special tokens around a text."""
        return bool(self.prefix_ids or self.suffix_ids)

    def add_special_tokens(self, ids: Sequence[int], max_length: int | None = None) -> list[int]:
        """The ids with the template's special tokens; the text is truncated to `max_length`."""
        if max_length is not None:
            added = len(self.prefix_ids) + len(self.suffix_ids)
            if max_length < added:
                raise DataError(
                    f"max_length={max_length} leaves no space for the {added} special tokens "
                    "around a text"
                )
            ids = ids[: max_length - added]
        return [*self.prefix_ids, *ids, *self.suffix_ids]

    def offsets(self, text: str) -> list[tuple[int, int]]:
        """The characters each token covers, as (start, end).

        Tokens that share the bytes of one character all cover that character.
        """
        check_no_surrogates(text)
        if self._pair is not None:
            return self._pair.offsets(text)
        return self._backend.encode(text, add_special_tokens=False).offsets

    def decode(self, ids: Iterable[int]) -> str:
        """The text of these ids without special tokens; invalid UTF-8 becomes �."""
        return self._backend.decode([self._check_id(id) for id in ids])

    def apply_chat_template(
        self, messages: Sequence[Mapping[str, str]], add_generation_prompt: bool = True
    ) -> str:
        """The messages as one text, in the model's format; encode it with `parse_special`."""
        if self.special_tokens.chat_template is None:
            raise DataError(
                f"this {self.kind} tokenizer has no chat template, so the model was trained on "
                "plain text; give it a plain string as prompt"
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
        """One token for display: spaces as spaces, invisible characters escaped."""
        token = self._backend.id_to_token(self._check_id(id))
        if token is None or id in self._added_ids:
            return token or ""
        return display_token(token, self._token_bytes.spelling)

    def token_bytes(self, id: int) -> bytes:
        """The bytes of text one token stands for; of a special token, its name."""
        token = self._backend.id_to_token(self._check_id(id)) or ""
        if id in self.special_ids:
            return token.encode()
        return self._token_bytes.of(token)

    @property
    def joins_token_bytes(self) -> bool:
        """Whether decoded texts are exactly the bytes of their tokens, joined."""
        return self._token_bytes.joins

    def token_to_id(self, token: str) -> int:
        """The id of a token, spelled as in the vocabulary."""
        id = self._backend.token_to_id(token)
        if id is None:
            raise DataError(f"this {self.kind} tokenizer has no {token} token")
        return id

    def with_language_pair(self, pair: BackendPair) -> Tokenizer:
        """The same vocabulary, with source and target texts segmented by these two."""
        return type(self)(self._backend, self.special_tokens, pair)

    def check_special_tokens(self, source: str) -> None:
        """Raises DataError if a special token is not in the vocabulary."""
        for token in self.special_tokens.tokens:
            if self._backend.token_to_id(token) is None:
                raise DataError(f"{source}: the vocabulary has no token {short_repr(token)}")

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._backend, self.special_tokens, self._pair and self._pair.backends)

    def __repr__(self) -> str:
        return f"<Tokenizer {self.summary}>"

    def _encode_batch(self, texts: Sequence[str], parse_special: bool = False) -> list[list[int]]:
        backend = self._special_backend if parse_special else self._backend
        # "fast" leaves out the offsets, which cost twice as much as the ids.
        try:
            encodings = backend.encode_batch_fast(texts, add_special_tokens=False)
        except TypeError:
            for text in texts:
                check_no_surrogates(text)
            raise
        return [encoding.ids for encoding in encodings]

    @cached_property
    def _splitter(self) -> LongWordSplitter | None:
        return LongWordSplitter.of(self._backend)

    @cached_property
    def _special_backend(self) -> Backend:
        return parsing_special_tokens(self._backend)

    @cached_property
    def _added_ids(self) -> frozenset[int]:
        return frozenset(self._backend.get_added_tokens_decoder())

    @cached_property
    def _token_bytes(self) -> TokenBytes:
        return token_bytes_of(self._backend)

    def _special_id(self, role: str) -> int:
        token = getattr(self.special_tokens, role)
        if token is None:
            raise DataError(f"this {self.kind} tokenizer has no {role} token")
        id = self._backend.token_to_id(token)
        if id is None:
            raise DataError(f"this {self.kind} tokenizer has no {token}, its {role} token")
        return id

    def _check_id(self, id: int) -> int:
        if not 0 <= id < self.vocab_size:
            raise DataError(
                f"token {id} does not exist; this tokenizer has 0 to {self.vocab_size - 1}"
            )
        return int(id)
