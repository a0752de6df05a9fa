"""Letters for pictures: which fonts there are, and what is written for a letter that none has."""

from collections.abc import Iterable
from functools import cache

OWN = "DejaVu Sans"  # comes with matplotlib, so a picture is the same on every machine
# Asked for only if a text needs them: fonts that often are there, for letters the first one lacks.
OTHERS = (
    "Noto Sans", "Noto Sans CJK SC", "Noto Sans CJK JP", "Noto Sans CJK KR", "Noto Sans SC",
    "Noto Sans JP", "Noto Sans KR", "Source Han Sans SC", "WenQuanYi Zen Hei", "Hiragino Sans",
    "Droid Sans Fallback", "PingFang SC", "Apple SD Gothic Neo", "Microsoft YaHei", "Yu Gothic",
    "Malgun Gothic", "Arial Unicode MS", "Noto Sans Devanagari", "Noto Sans Bengali",
    "Noto Sans Tamil", "Noto Sans Thai", "Noto Sans Ethiopic", "Noto Emoji", "Symbola",
)  # fmt: skip
LONGEST = 18  # characters of a token beside a row


def fonts_for(texts: Iterable[str]) -> list[str]:
    """Families to write these texts with: the first one alone if it has every letter."""
    needed = {letter for text in texts for letter in text if ord(letter) > 126}
    needed -= _letters(OWN)
    chosen = [OWN]
    for family in OTHERS if needed else ():
        had = needed & _letters(family)
        if had:
            chosen.append(family)
            needed -= had
    return chosen


def written(text: str, fonts: Iterable[str]) -> str:
    """The text with the number of a letter, as in ‹8a69›, where no font has it."""
    known = frozenset[str]().union(*(_letters(family) for family in fonts))
    return "".join(letter if letter in known else f"‹{ord(letter):x}›" for letter in text)


def shortened(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"


@cache
def _letters(family: str) -> frozenset[str]:
    """What a font has; nothing if it is not installed."""
    from matplotlib.font_manager import FontProperties, findfont, get_font

    try:
        path = findfont(FontProperties(family=[family]), fallback_to_default=False)
    except ValueError:
        return frozenset()
    return frozenset(c for c in map(chr, get_font(path).get_charmap()) if c.isprintable())
