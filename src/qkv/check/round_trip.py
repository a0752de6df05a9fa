"""Tokenizer round trip: a text cut into tokens and put together again is that text."""

import unicodedata

from qkv.check.report import Check, Finding
from qkv.check.subject import Subject
from qkv.text import Tokenizer
from qkv.text.marks import OWN

EXACT = ("bpe", "bytes")  # kinds that, learned here, give back every text as it was


def find(subject: Subject, tolerance: float) -> Finding:
    """How many texts do not come back; those with a character that is not known are left out."""
    tokenizer = subject.engine.tokenizer
    exact = tokenizer.kind in EXACT and tokenizer.marks == OWN
    lost, unknown = list[str](), 0
    for number, text in enumerate(subject.texts, start=1):
        ids = tokenizer.encode(text, target=True)
        if _unknown(tokenizer) in ids:
            unknown += 1
            continue
        back = tokenizer.decode(ids)
        if back != text if exact else bare(back) != bare(text):
            lost.append(f"text {number}, character {_first(text, back, exact)}")
        elif not exact and tokenizer.encode(back, target=True) != ids:
            lost.append(f"text {number}, whose tokens change on the way")
    told = [] if exact else ["but for case, accents and blanks"]
    told += [f"{unknown} of {len(subject.texts)} texts hold what it does not know"] * bool(unknown)
    return Finding(float(len(lost)), lost[0] if lost else "", "; ".join(told))


def bare(text: str) -> str:
    """What every tokenizer must keep: a text without case, accents and blanks."""
    letters = unicodedata.normalize("NFKD", text.casefold())
    letters = unicodedata.normalize("NFKD", letters.casefold())
    return "".join(c for c in letters if not c.isspace() and unicodedata.category(c)[0] not in "MC")


def _first(text: str, back: str, exact: bool) -> str:
    """The first character that is another one, and where it stands."""
    one, other = (text, back) if exact else (bare(text), bare(back))
    for place, letter in enumerate(one):
        if place >= len(other) or other[place] != letter:
            return f"{place} ({letter!r})"
    return f"{len(one)} (one too many)"


def _unknown(tokenizer: Tokenizer) -> int | None:
    return None if tokenizer.marks.unknown is None else tokenizer.unknown


def lacks(subject: Subject) -> str:
    return "the model has no tokenizer" if subject.engine.bundle.tokenizer is None else ""


ROUND_TRIP = Check(
    "tokenizer round trip",
    "a text cut into tokens and put together again is that text",
    0.0,
    find,
    lacks,
)
