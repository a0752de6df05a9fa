"""A text as portions the model can read, and its translation put together from theirs.

Lines are portions always: a break stays where it was. A line that is too long is an error, or is
cut into its sentences; a sentence that is too long into clauses, then words, then characters, as
many in one portion as fit.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from qkv.engine.translate.sentences import clauses, pieces, sentences, words

Fits = Callable[[str], bool]

_BREAK = re.compile(r"(?:\r\n|[\n\r\u2028\u2029])+")
_FINER: tuple[Callable[[str], list[str]], ...] = (clauses, words, list)


@dataclass(frozen=True)
class Portion:
    """A part of a text that is translated by itself, and the space around it, which is not."""

    text: str
    start: int  # the place of its first character in the whole
    before: str = ""
    after: str = ""


def lines(text: str) -> list[Portion]:
    """The lines of a text that have anything in them; the only line of a text stays as it is."""
    if not _BREAK.search(text):
        return [Portion(text, 0)] if text.strip() else []
    ends = [found.end() for found in _BREAK.finditer(text)]
    return _portions(pieces(text, ends), Portion("", 0))


def cut(line: Portion, fits: Fits) -> list[Portion]:
    """The sentences of a line, or parts of them where one does not fit."""
    found: list[str] = []
    for sentence in sentences(line.text):
        found += _cut_finer(sentence, fits, _FINER)
    return _portions(found, line)


def joined(portions: Sequence[Portion], said: Sequence[str]) -> tuple[str, list[int]]:
    """What was said of each portion with the space that stood between them, and where it begins."""
    text, starts = "", list[int]()
    for portion, part in zip(portions, said, strict=True):
        # Chinese has no space after a sentence, but most other languages want one there.
        lacks = text[-1:] in (".", "?", "!") and not portion.before and part[:1].isalpha()
        text += " " if lacks else portion.before
        starts.append(len(text))
        text += part + portion.after
    return text, starts


def _cut_finer(text: str, fits: Fits, ways: Sequence[Callable[[str], list[str]]]) -> list[str]:
    """The text itself if it fits, else its parts, as many together as fit."""
    if not ways or fits(text.strip()):
        return [text]
    parts, first, found = ways[0](text), 0, list[str]()
    while first < len(parts):
        count = _most(parts, first, fits)
        found += _cut_finer("".join(parts[first : first + count]), fits, ways[1:])
        first += count
    return found


def _most(parts: Sequence[str], first: int, fits: Fits) -> int:
    """How many parts from the first on fit together; one, if not even that fits."""

    def fit(count: int) -> bool:
        return fits("".join(parts[first : first + count]).strip())

    left, most = len(parts) - first, 1
    while 2 * most <= left and fit(2 * most):  # a long text is not tried as a whole
        most *= 2
    step = most
    while step:
        if most + step <= left and fit(most + step):
            most += step
        step //= 2
    return most


def _portions(parts: Sequence[str], whole: Portion) -> list[Portion]:
    """Pieces of a whole without the space around them; a blank one is space before the next."""
    found: list[Portion] = []
    place, space = whole.start, whole.before
    for piece in parts:
        text = piece.strip()
        lead = piece[: len(piece) - len(piece.lstrip())] if text else piece
        trail = piece[len(lead) + len(text) :]
        if text:
            found.append(Portion(text, place + len(lead), space + lead))
            space = trail
        else:
            space += piece
        place += len(piece)
    if found:
        last = found[-1]
        found[-1] = Portion(last.text, last.start, last.before, space + whole.after)
    return found
