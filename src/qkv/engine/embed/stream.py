"""Texts in portions: so many that they can be grouped by length, so few that memory stays flat.

Where a portion ends depends on the texts alone, so work that goes on where one ended is the work
that was interrupted.
"""

from collections.abc import Iterable, Iterator

TEXTS, CHARACTERS = 1024, 1 << 20  # a portion is closed when it has either


def portions(texts: Iterable[str]) -> Iterator[list[str]]:
    """All texts in their order; no portion is empty."""
    portion: list[str] = []
    size = 0
    for text in texts:
        portion.append(text)
        size += len(text)
        if len(portion) >= TEXTS or size >= CHARACTERS:
            yield portion
            portion, size = [], 0
    if portion:
        yield portion
