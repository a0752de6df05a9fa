"""How something found in a stranger's file is quoted in a message: on one line, and not too long.

A value may be huge, nested, or hold characters that move the cursor or cannot be printed at all.
"""

import errno
import re
from collections.abc import Sequence
from pathlib import Path

LONGEST = 80  # characters of a value
MESSAGE = 240  # of what another program says
WHAT_TO_DO = {
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT), "free some room, or choose another place"),
    **dict.fromkeys((errno.EACCES, errno.EPERM, errno.EROFS), "choose a folder you may write to"),
    errno.EFBIG: "it is larger than this system lets a file be",
}


def shown(found: object) -> str:
    """The value as Python writes it."""
    if isinstance(found, str):
        found = found[: LONGEST + 1]  # repr would first make a copy of all of it
    try:
        text = repr(found)
    except (ValueError, RecursionError):  # Python writes no number of more than 4,300 digits
        text = f"{type(found).__name__} too large to show"
    return _cut(text, LONGEST)


def one_line(said: object) -> str:
    """A text or the message of an error, without quotes."""
    text = " ".join(str(said)[: 2 * MESSAGE].split()) or type(said).__name__
    seen = (c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
    return _cut("".join(seen), MESSAGE)


def listed(names: Sequence[str]) -> str:
    """The first three names, and how many more there are."""
    rest = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(shown(name) for name in names[:3]) + rest


def unwritten(path: Path, error: Exception) -> str:
    """The sentence for something that could not be written there, and what to do about it."""
    number = getattr(error, "errno", None)
    if number is None and (said := re.search(r"\(os error (\d+)\)", str(error))):
        number = int(said[1])  # as libraries written in Rust say it
    hint = WHAT_TO_DO.get(number) if number is not None else None
    return f"cannot write {path}: {reason(error)}{f'; {hint}' if hint else ''}"


def reason(error: Exception) -> str:
    """Why the system refused, without the path, which the caller names."""
    return getattr(error, "strerror", None) or one_line(error)


def _cut(text: str, longest: int) -> str:
    return text if len(text) <= longest else f"{text[:longest]}…"
