"""JSON files of strangers, read whole: settings and vocabularies.

Refused is what two readers could understand differently (a name that comes twice) and what would
break a program later (half a character, which nothing can print; nesting without end).
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from qkv.errors import BundleError, QkvError
from qkv.files.safe_io import MAX_CONFIG_BYTES, one_line, read_text, short_repr

# FOLDED files/walk: Large JSON from strangers, walked member by member, so that it cannot fill
#   the memory.
#
#   `json.loads` builds whatever it is given before anybody can object: 100 MB of
#   `[[],[],[],…` become
#   2 GB of lists. Here the outer objects are walked by hand, and what they hold is decoded
#   one short
#   piece at a time.

MAX_DEPTH = 100  # objects and lists inside each other

HALF = re.compile(r"[\ud800-\udfff]")  # of a surrogate pair

_MAY_HALVE = re.compile(r"\\u[dD][89a-fA-F]")  # only an escape can bring one into UTF-8


def read_json(
    path: Path, error: type[QkvError] = BundleError, max_bytes: int = MAX_CONFIG_BYTES
) -> dict[str, Any]:
    """The object a JSON file holds."""
    found = parse_json(read_text(path, error, max_bytes), path, error)
    if not isinstance(found, dict):
        raise error(f"{path} must hold a JSON object, not {type(found).__name__}")
    return found


def read_json_list(
    path: Path, error: type[QkvError] = BundleError, max_bytes: int = MAX_CONFIG_BYTES
) -> list[Any]:
    """The list a JSON file holds."""
    found = parse_json(read_text(path, error, max_bytes), path, error)
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
        raise TwiceError(short_repr(counts.most_common(1)[0][0]))
    return found


def _check_values(found: Any, what: str | Path, error: type[QkvError], halves: bool) -> None:
    """Level by level, so that no depth can exhaust Python's stack."""
    level = [found]
    for _ in range(MAX_DEPTH + 1):
        for text in _texts(level) if halves else ():
            if HALF.search(text):
                raise error(
                    f"{what} holds {short_repr(text)}, which has half a character; get the file "
                    "again"
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


T = TypeVar("T")

_SPACE = re.compile(r"[ \t\n\r]*")


class JsonScanner:
    """A place in a JSON text that only moves forward; `what` names the text in messages."""

    def __init__(self, raw: bytes | bytearray, what: str | Path) -> None:
        self.what = what
        self.at = 0
        try:
            self.text = raw.decode("utf-8")
        except UnicodeDecodeError as error:
            raise BundleError(
                f"{what} is not JSON: byte {error.start} is not UTF-8; get the file again"
            ) from None

    def read_object(self, read: Callable[[str], T]) -> dict[str, T]:
        """The object that stands here; `read` is called with each name, in front of its value."""
        found: dict[str, T] = {}
        self._take("{")
        if self._next() != "}":
            while True:
                name = self.read_string()
                if name in found:
                    raise BundleError(
                        f"{self.what} names {short_repr(name)} twice, where each name may come "
                        "once; "
                        "get the file again"
                    )
                self._take(":")
                found[name] = read(name)
                if self._next() != ",":
                    break
                self._take(",")
        self._take("}")
        return found

    def read_string_map(self, name: str) -> dict[str, str]:
        """The object that stands here, called `name`, every value of which is a string."""
        if self._next() != "{":
            self._expected(f"{name}, a map of strings to strings")
        return self.read_object(lambda _: self.read_string(f"a string, as all values in {name}"))

    def read_string(self, wanted: str = "a name in quotes") -> str:
        """The string that stands here; `wanted` says in a message what it should have been."""
        if self._next() != '"':
            self._expected(wanted)
        value, self.at = self._decode(self.text, self.at, wanted)
        text = str(value)
        if HALF.search(text):
            raise BundleError(
                f"{self.what} holds {short_repr(text)}, which has half a character; get the file "
                "again"
            )
        return text

    def read_value(self, longest: int) -> object:
        """Whatever stands here, as long as it is no longer than that many characters."""
        self._next()
        piece = self.text[self.at : self.at + longest]
        value, length = self._decode(piece, 0, f"a value of at most {longest} characters")
        self.at += length
        return value

    def expect_end(self) -> None:
        """Nothing but space may follow."""
        if self._next():
            self._expected("its end")

    def _decode(self, text: str, at: int, wanted: str) -> tuple[object, int]:
        try:
            return _DECODER.raw_decode(text, at)
        except TwiceError as error:
            raise BundleError(
                f"{self.what} names {error} twice near character {self.at}, where each name may "
                "come once; get the file again"
            ) from None
        except RecursionError:
            raise BundleError(
                f"{self.what} is nested too deeply near character {self.at}; get the file again"
            ) from None
        except ValueError:
            self._expected(wanted)

    def _next(self) -> str:
        """The next character that is no space; empty at the end."""
        space = _SPACE.match(self.text, self.at)
        self.at = space.end() if space else self.at
        return self.text[self.at : self.at + 1]

    def _take(self, mark: str) -> None:
        if self._next() != mark:
            self._expected(f"a {mark}")
        self.at += 1

    def _expected(self, wanted: str) -> NoReturn:
        found = (
            short_repr(self.text[self.at : self.at + 20]) if self.at < len(self.text) else "its end"
        )
        raise BundleError(
            f"{self.what} is not the JSON it should be: at character {self.at} it has {found} "
            f"instead of {wanted}; get the file again"
        )


def _no_number(text: str) -> NoReturn:
    raise ValueError(f"{text} is not a number in JSON")


_DECODER = json.JSONDecoder(object_pairs_hook=once, parse_constant=_no_number)
