"""JSON files of strangers, read whole: settings and vocabularies.

Refused is what two readers could understand differently (a name that comes twice) and what would
break a program later (half a character, which nothing can print; nesting without end).
"""

import json
import re
from collections import Counter
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

from qkv.errors import BundleError, QkvError
from qkv.files.ordinary import SMALL, read_text
from qkv.files.wording import one_line, shown

DEEPEST = 100  # objects and lists inside each other
HALF = re.compile(r"[\ud800-\udfff]")  # of a surrogate pair
_MAY_HALVE = re.compile(r"\\u[dD][89a-fA-F]")  # only an escape can bring one into UTF-8


def read_json(
    path: Path, error: type[QkvError] = BundleError, largest: int = SMALL
) -> dict[str, Any]:
    """The object a JSON file holds."""
    found = parse_json(read_text(path, error, largest), path, error)
    if not isinstance(found, dict):
        raise error(f"{path} must hold a JSON object, not {type(found).__name__}")
    return found


def read_json_list(
    path: Path, error: type[QkvError] = BundleError, largest: int = SMALL
) -> list[Any]:
    """The list a JSON file holds."""
    found = parse_json(read_text(path, error, largest), path, error)
    if not isinstance(found, list):
        raise error(f"{path} must hold a JSON list, not {type(found).__name__}")
    return found


def parse_json(text: str, what: str | Path, error: type[QkvError] = BundleError) -> Any:
    """The value of a JSON text; `what` names the text in messages."""
    try:
        found = json.loads(text, object_pairs_hook=once)
    except TwiceError as twice:
        raise error(
            f"{what} names {twice} twice, where each name may come once; get the file again"
        ) from None
    except RecursionError:
        raise error(f"{what} is nested too deeply to be read") from None
    except ValueError as why:
        raise error(f"{what} is not JSON: {one_line(why)}") from why
    _check_values(found, what, error, halves=_MAY_HALVE.search(text) is not None)
    return found


class TwiceError(ValueError):
    """A name that an object has twice."""


def once(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """The object of these members, for Python's decoder."""
    found = dict(pairs)
    if len(found) < len(pairs):
        counts = Counter(name for name, _ in pairs)
        raise TwiceError(shown(counts.most_common(1)[0][0]))
    return found


def _check_values(found: Any, what: str | Path, error: type[QkvError], halves: bool) -> None:
    """Level by level, so that no depth can exhaust Python's stack."""
    level = [found]
    for _ in range(DEEPEST + 1):
        for text in _texts(level) if halves else ():
            if HALF.search(text):
                raise error(
                    f"{what} holds {shown(text)}, which has half a character; get the file again"
                )
        level = list(
            chain.from_iterable(
                value.values() if type(value) is dict else value
                for value in level
                if type(value) is dict or type(value) is list
            )
        )
        if not level:
            return
    raise error(f"{what} is nested too deeply to be read")


def _texts(level: list[Any]) -> Iterator[str]:
    for value in level:
        if isinstance(value, str):
            yield value
        elif isinstance(value, dict):
            yield from value
