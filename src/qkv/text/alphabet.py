"""What a vocabulary starts with: the special tokens, and for byte-level kinds the 256 letters.

Byte-level tokenizers keep their tokens as strings, so each byte is written as one visible
character. A byte that is a visible Latin-1 character stands for itself; the others borrow the
characters from U+0100 on, in order (GPT-2, Radford et al. 2019). So a space is "Ġ", and "é" is
two letters, "Ã©".
"""

import re

from qkv.text.sentencepiece import SPACE

SPECIAL = ("<pad>", "<unknown>", "<start>", "<end>", "<mask>")
UNKNOWN = SPECIAL[1]


def _letters() -> tuple[str, ...]:
    visible = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    borrowed = iter(range(0x100, 0x200))
    return tuple(chr(byte if byte in visible else next(borrowed)) for byte in range(256))


LETTERS = _letters()  # the letter of each byte
BYTES = {letter: byte for byte, letter in enumerate(LETTERS)}


def spell(token: str) -> str:
    """The text a byte-level token stands for; a byte that is only part of a character as \\xNN."""
    if not BYTES.keys() >= set(token):
        return token
    return bytes(BYTES[letter] for letter in token).decode("utf-8", errors="backslashreplace")


def people_read(token: str, spelling: str) -> str:
    """A token of the vocabulary as text; what cannot be seen is escaped.

    In `bytes` each letter is a byte; in `pieces` "▁" is a space and "<0x0A>" a byte; `plain`
    tokens are what they say.
    """
    if spelling == "bytes":
        token = spell(token)
    elif spelling == "pieces":
        byte = re.fullmatch("<0x([0-9A-F]{2})>", token)
        token = spell(LETTERS[int(byte[1], 16)]) if byte else token.replace(SPACE, " ")
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in token)
