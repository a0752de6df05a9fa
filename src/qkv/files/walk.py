"""Large JSON from strangers, walked member by member, so that it cannot fill the memory.

`json.loads` builds whatever it is given before anybody can object: 100 MB of `[[],[],[],…` become
2 GB of lists. Here the outer objects are walked by hand, and what they hold is decoded one short
piece at a time.
"""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn, TypeVar

from qkv.errors import BundleError
from qkv.files.strict_json import HALF, TwiceError, once
from qkv.files.wording import shown

T = TypeVar("T")

_SPACE = re.compile(r"[ \t\n\r]*")


class Walk:
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

    def members(self, read: Callable[[str], T]) -> dict[str, T]:
        """The object that stands here; `read` is called with each name, in front of its value."""
        found: dict[str, T] = {}
        self._take("{")
        if self._next() != "}":
            while True:
                name = self.string()
                if name in found:
                    raise BundleError(
                        f"{self.what} names {shown(name)} twice, where each name may come once; "
                        "get the file again"
                    )
                self._take(":")
                found[name] = read(name)
                if self._next() != ",":
                    break
                self._take(",")
        self._take("}")
        return found

    def strings(self, name: str) -> dict[str, str]:
        """The object that stands here, called `name`, every value of which is a string."""
        if self._next() != "{":
            self._expected(f"{name}, a map of strings to strings")
        return self.members(lambda _: self.string(f"a string, as all values in {name}"))

    def string(self, wanted: str = "a name in quotes") -> str:
        """The string that stands here; `wanted` says in a message what it should have been."""
        if self._next() != '"':
            self._expected(wanted)
        value, self.at = self._decode(self.text, self.at, wanted)
        text = str(value)
        if HALF.search(text):
            raise BundleError(
                f"{self.what} holds {shown(text)}, which has half a character; get the file again"
            )
        return text

    def value(self, longest: int) -> object:
        """Whatever stands here, as long as it is no longer than that many characters."""
        self._next()
        piece = self.text[self.at : self.at + longest]
        value, length = self._decode(piece, 0, f"a value of at most {longest} characters")
        self.at += length
        return value

    def end(self) -> None:
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
        found = shown(self.text[self.at : self.at + 20]) if self.at < len(self.text) else "its end"
        raise BundleError(
            f"{self.what} is not the JSON it should be: at character {self.at} it has {found} "
            f"instead of {wanted}; get the file again"
        )


def _no_number(text: str) -> NoReturn:
    raise ValueError(f"{text} is not a number in JSON")


_DECODER = json.JSONDecoder(object_pairs_hook=once, parse_constant=_no_number)
