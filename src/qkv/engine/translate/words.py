"""The words of a text, and which of its tokens belong to which word."""

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

from qkv.text import Tokenizer

Span = tuple[int, int]  # the first character, and the one after the last

# In the sorts of characters that `_sort` knows. An apostrophe or a hyphen joins letters, a point or
# a comma digits; marks (accents, vowel signs) belong to what they stand on; any other visible
# character, an ideograph or a kana among them, is a word of its own.
_WORD = re.compile("LM*(?:J?LM*)*|DM*(?:P?DM*)*|[^S]M*")


@dataclass(frozen=True)
class Word:
    """A word and where it stands: text[start:end]."""

    text: str
    start: int
    end: int

    def moved(self, by: int) -> "Word":
        return Word(self.text, self.start + by, self.end + by)


def words_of(text: str) -> list[Word]:
    """The words of a text, in order; nothing but space stands between them."""
    sorts = "".join(map(_sort, text))
    spans = (found.span() for found in _WORD.finditer(sorts))
    return [Word(text[start:end], start, end) for start, end in spans]


def shares(words: Sequence[Word], spans: Sequence[Span]) -> list[list[tuple[int, float]]]:
    """For each word the numbers of the tokens that cover some of it, and the share of each.

    A token counts once in all: one that covers two words is shared out between them.
    """
    found: list[list[tuple[int, float]]] = [[] for _ in words]
    for token, (start, end) in enumerate(spans):
        inside = [w for w, word in enumerate(words) if word.start < end and start < word.end]
        for w in inside:
            found[w].append((token, 1 / len(inside)))
    return found


def written_spans(tokenizer: Tokenizer, ids: Sequence[int], text: str) -> list[Span]:
    """The characters of a decoded text that each of its tokens wrote.

    A token that wrote only some bytes of a character covers the whole of it.
    """
    spans, reached = list[Span](), 0
    for n in range(len(ids)):
        end = max(reached, _common(tokenizer.decode(ids[: n + 1]), text))
        spans.append((reached, end if end > reached else min(reached + 1, len(text))))
        reached = end
    return spans


def _common(a: str, b: str) -> int:
    """How many characters two texts have in common from the start."""
    differ = (i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y)
    return next(differ, min(len(a), len(b)))


def _sort(character: str) -> str:
    """Letter, Digit, Mark, Space, Joint of letters, Point, Ideograph or Other."""
    kind = unicodedata.category(character)
    if character.isspace():
        return "S"
    if kind[0] == "M" or character in "\u200c\u200d":
        return "M"
    if kind == "Lo" and unicodedata.east_asian_width(character) == "W" and not _hangul(character):
        return "I"
    if kind[0] in "LN":
        return "L" if kind[0] == "L" else "D"
    if character in ".,":
        return "P"
    return "J" if character in "'’-‐" else "O"


def _hangul(character: str) -> bool:
    return unicodedata.name(character, "").startswith("HANGUL")
