"""The bytes of text that each token stands for, as the tokenizer's decoder reads them.

A byte-level decoder does nothing but join them, and SentencePiece's only drops the space in front
of a text besides. WordPiece puts spaces between words, and other decoders trim or replace: their
texts are not the joined bytes of the tokens, which is known too.
"""

import json
import re
from typing import Any, NamedTuple

from tokenizers import Tokenizer as Backend

from qkv.text.sentencepiece import METASPACE
from qkv.text.vocab_training import BYTE_OF, spelling_of

BYTE_TOKEN = re.compile("<0x([0-9A-F]{2})>")
SAMPLE_BYTE_TOKEN = "<0x41>"

# Steps of a decoder that turn pieces into text; a last Strip drops one space in front.
METASPACE_TO_SPACE = {"type": "Replace", "pattern": {"String": METASPACE}, "content": " "}
FUSE = {"type": "Fuse"}
BYTE_FALLBACK = {"type": "ByteFallback"}
STRIP_FIRST = {"type": "Strip", "content": " ", "start": 1, "stop": 0}


class TokenBytes(NamedTuple):
    """How one tokenizer's tokens become bytes.

    spelling: as in `display_token`.
    joins: whether a text, once begun, is the bytes of its tokens joined, and nothing else.
    """

    spelling: str
    joins: bool

    def of(self, token: str) -> bytes:
        """The bytes of a token, spelled as in the vocabulary."""
        if self.spelling == "bytes":
            if BYTE_OF.keys() >= set(token):
                return bytes(BYTE_OF[character] for character in token)
            return token.encode()
        if self.spelling == "pieces":
            byte = BYTE_TOKEN.fullmatch(token)
            if byte:
                return bytes([int(byte[1], 16)])
            token = token.replace(METASPACE, " ")
        return token.encode()


def token_bytes_of(backend: Backend) -> TokenBytes:
    """How the tokens of this tokenizer become bytes, by the steps of its decoder."""
    spelling = spelling_of(backend)
    if backend.decoder is None:
        return TokenBytes(spelling, joins=False)  # the library puts spaces between tokens
    has_byte_tokens = backend.token_to_id(SAMPLE_BYTE_TOKEN) is not None
    match _steps(backend):
        case [{"type": "ByteLevel"}]:
            return TokenBytes(spelling, joins=spelling == "bytes")
        case [{"type": "Fuse"}]:
            return TokenBytes(spelling, joins=spelling == "plain")
        case [{"type": "Metaspace", "replacement": "▁"}]:
            return TokenBytes(spelling, spelling == "pieces" and not has_byte_tokens)
        case [first, *steps] if first == METASPACE_TO_SPACE:
            return _sentencepiece(spelling, steps, has_byte_tokens)
        case _:
            return TokenBytes(spelling, joins=False)


def _sentencepiece(spelling: str, steps: list[dict[str, Any]], has_byte_tokens: bool) -> TokenBytes:
    """The steps after "▁" has become a space: bytes, then perhaps the first space."""
    joins = spelling == "pieces" and has_byte_tokens == (BYTE_FALLBACK in steps)
    steps = [step for step in steps if step != BYTE_FALLBACK]
    match steps:
        case [] | [{"type": "Fuse"}]:
            return TokenBytes(spelling, joins)
        case [fuse, strip] if fuse == FUSE and strip == STRIP_FIRST:
            return TokenBytes(spelling, joins)
        case _:
            return TokenBytes(spelling, joins=False)


def _steps(backend: Backend) -> list[dict[str, Any]]:
    """The decoder's steps, as tokenizer.json has them."""
    decoder = json.loads(backend.decoder.__getstate__())
    if decoder["type"] == "Sequence":
        steps: list[dict[str, Any]] = decoder["decoders"]
        return steps
    return [decoder]
