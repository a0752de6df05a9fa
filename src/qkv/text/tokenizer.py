"""Text ⇄ ids, with offsets back to the text; a whole tokenizer is one tokenizer.json."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer as Backend

from qkv.errors import DataError
from qkv.text.alphabet import SPECIAL, spell
from qkv.text.kinds import kind_of, learn
from qkv.text.words import refuse_half_characters


class Tokenizer:
    """Cuts text into numbered tokens, and says which characters each one covers.

    Encoding adds no special tokens and takes none from the text: they are for the caller to
    place. `bpe` and `bytes` give every text back exactly; the other kinds read a character they
    never saw as `unknown`, and `wordpiece` also drops case, accents and spaces.
    """

    def __init__(self, backend: Backend) -> None:
        # What a file says of these is for other programs: nothing is cut or filled up here, and
        # the last one is never saved.
        backend.no_truncation()
        backend.no_padding()
        backend.encode_special_tokens = True
        self._backend = backend
        self._kind, self._size = kind_of(backend), backend.get_vocab_size()

    @classmethod
    def train(cls, kind: str, texts: Iterable[str], vocabulary: int) -> Tokenizer:
        """The same texts give the same tokenizer; `vocabulary` is a ceiling, see `size`."""
        return cls(learn(kind, texts, vocabulary))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Tokenizer:
        try:
            text = Path(path).read_text(encoding="utf-8")
        except OSError as error:
            raise DataError(f"cannot read {path}: {error.strerror or error}") from error
        except UnicodeDecodeError as error:
            raise DataError(f"cannot use {path} as a tokenizer: it is not UTF-8 text") from error
        try:
            return cls(Backend.from_str(text))
        except Exception as error:  # the library knows no narrower one
            raise DataError(f"cannot use {path} as a tokenizer: {error}") from error

    def save(self, path: str | os.PathLike[str]) -> None:
        try:
            Path(path).write_text(self._backend.to_str(pretty=True) + "\n", encoding="utf-8")
        except OSError as error:
            raise DataError(f"cannot write {path}: {error.strerror or error}") from error

    @property
    def kind(self) -> str:
        """One of KINDS."""
        return self._kind

    @property
    def size(self) -> int:
        """How many tokens there are, special ones included."""
        return self._size

    @property
    def pad(self) -> int:
        return self._special("<pad>")

    @property
    def unknown(self) -> int:
        return self._special("<unknown>")

    @property
    def start(self) -> int:
        return self._special("<start>")

    @property
    def end(self) -> int:
        return self._special("<end>")

    @property
    def mask(self) -> int:
        return self._special("<mask>")

    def encode(self, text: str) -> list[int]:
        return self.encode_many([text])[0]

    def encode_many(self, texts: Sequence[str]) -> list[list[int]]:
        """What `encode` gives for each text, on all cores."""
        # "fast" leaves out the offsets, which cost twice as much as the ids.
        try:
            found = self._backend.encode_batch_fast(texts, add_special_tokens=False)
        except TypeError:
            for text in texts:
                refuse_half_characters(text)
            raise
        return [encoding.ids for encoding in found]

    def offsets(self, text: str) -> list[tuple[int, int]]:
        """The characters each token covers, as (first, after the last).

        Tokens that share the bytes of one character all cover the whole of it.
        """
        refuse_half_characters(text)
        return self._backend.encode(text, add_special_tokens=False).offsets

    def decode(self, ids: Iterable[int]) -> str:
        """The text of these tokens, special ones left out; bytes that make no character are �."""
        return self._backend.decode([self._known(id) for id in ids])

    def token(self, id: int) -> str:
        """One token as people read it: a space as a space, what cannot be seen escaped."""
        token = self._backend.id_to_token(self._known(id))
        if token is None or token in SPECIAL:
            return token or ""
        if self.kind in ("bpe", "bytes"):
            token = spell(token)
        elif self.kind == "unigram":
            token = token.replace("▁", " ")
        return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in token)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._backend,)

    def __repr__(self) -> str:
        return f"<Tokenizer {self.kind}, {self.size} tokens>"

    def _special(self, token: str) -> int:
        id = self._backend.token_to_id(token)
        if id is None:
            raise DataError(f"this {self.kind} tokenizer has no {token} token")
        return id

    def _known(self, id: int) -> int:
        if not 0 <= id < self.size:
            raise DataError(f"token {id} does not exist; this tokenizer has 0 to {self.size - 1}")
        return int(id)
