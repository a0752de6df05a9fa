"""Strict JSON from untrusted files: configurations, vocabularies, tensor headers.

Rejected is what two parsers could read differently (duplicate keys) and what would break a program
later (unpaired surrogates, which cannot be encoded; unlimited nesting).

`json.loads` builds any value before anybody can object: 100 MB of `[[],[],[],…` become 2 GB of
lists. For files that large, `JsonScanner` walks the outer objects by hand and decodes their values
one short slice at a time, so that memory stays bounded.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from qkv.errors import BundleError, QkvError
from qkv.files.safe_io import MAX_CONFIG_BYTES, one_line, read_text, short_repr

T = TypeVar("T")

MAX_DEPTH = 100  # of nested objects and lists

SURROGATE = re.compile(r"[\ud800-\udfff]")
SURROGATE_ESCAPE = re.compile(r"\\u[dD][89a-fA-F]")  # the only way to write one in UTF-8
WHITESPACE = re.compile(r"[ \t\n\r]*")


def read_json(
    path: Path, error: type[QkvError] = BundleError, max_bytes: int = MAX_CONFIG_BYTES
) -> dict[str, Any]:
    """The object in a JSON file."""
    value = parse_json(read_text(path, error, max_bytes), path, error)
    if not isinstance(value, dict):
        raise error(f"{path} must hold a JSON object, not {type(value).__name__}")
    return value


def read_json_list(
    path: Path, error: type[QkvError] = BundleError, max_bytes: int = MAX_CONFIG_BYTES
) -> list[Any]:
    """The list in a JSON file."""
    value = parse_json(read_text(path, error, max_bytes), path, error)
    if not isinstance(value, list):
        raise error(f"{path} must hold a JSON list, not {type(value).__name__}")
    return value


def parse_json(text: str, source: str | Path, error: type[QkvError] = BundleError) -> Any:
    """The value of a JSON text; `source` names the text in messages."""
    try:
        value = json.loads(text, object_pairs_hook=unique_keys)
    except DuplicateKeyError as duplicate:
        raise error(
            f"{source} names {duplicate} twice, where each name may come once; get the file again"
        ) from None
    except RecursionError:
        raise error(f"{source} is nested too deeply to be read") from None
    except ValueError as cause:
        raise error(f"{source} is not JSON: {one_line(cause)}") from cause
    may_have_surrogates = SURROGATE_ESCAPE.search(text) is not None
    _check_values(value, source, error, may_have_surrogates)
    return value


class DuplicateKeyError(ValueError):
    """A key that an object has twice."""


def unique_keys(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """The object with these members, for Python's decoder; raises on a duplicate key."""
    members = dict(pairs)
    if len(members) < len(pairs):
        counts = Counter(name for name, _ in pairs)
        raise DuplicateKeyError(short_repr(counts.most_common(1)[0][0]))
    return members


def _check_values(
    value: Any, source: str | Path, error: type[QkvError], may_have_surrogates: bool
) -> None:
    """Check depth and strings level by level, so that no depth can exhaust Python's stack."""
    level = [value]
    for _ in range(MAX_DEPTH + 1):
        if may_have_surrogates:
            for text in _strings(level):
                if SURROGATE.search(text):
                    raise error(
                        f"{source} holds {short_repr(text)}, which has half a character; get the "
                        "file again"
                    )
        next_level: list[Any] = []
        for item in level:
            if type(item) is dict:
                next_level.extend(item.values())
            elif type(item) is list:
                next_level.extend(item)
        level = next_level
        if not level:
            return
    raise error(f"{source} is nested too deeply to be read")


def _strings(values: list[Any]) -> Iterator[str]:
    """The strings among the values, and the keys of the objects among them."""
    for value in values:
        if isinstance(value, str):
            yield value
        elif isinstance(value, dict):
            yield from value


class JsonScanner:
    """A forward-only cursor in a JSON text; `source` names the text in messages."""

    def __init__(self, raw: bytes | bytearray, source: str | Path) -> None:
        self.source = source
        self.position = 0
        try:
            self.text = raw.decode("utf-8")
        except UnicodeDecodeError as error:
            raise BundleError(
                f"{source} is not JSON: byte {error.start} is not UTF-8; get the file again"
            ) from None

    def read_object(self, read_member: Callable[[str], T]) -> dict[str, T]:
        """The object at the cursor; `read_member` gets each key, the cursor before its value."""
        members: dict[str, T] = {}
        self._expect_character("{")
        if self._peek() != "}":
            while True:
                name = self.read_string()
                if name in members:
                    raise BundleError(
                        f"{self.source} names {short_repr(name)} twice, where each name may come "
                        "once; get the file again"
                    )
                self._expect_character(":")
                members[name] = read_member(name)
                if self._peek() != ",":
                    break
                self._expect_character(",")
        self._expect_character("}")
        return members

    def read_string_map(self, name: str) -> dict[str, str]:
        """The object at the cursor, called `name`, all of whose values are strings."""
        if self._peek() != "{":
            self._raise_unexpected(f"{name}, a map of strings to strings")
        return self.read_object(lambda _: self.read_string(f"a string, as all values in {name}"))

    def read_string(self, expected: str = "a name in quotes") -> str:
        """The string at the cursor; `expected` describes in a message what it should have been."""
        if self._peek() != '"':
            self._raise_unexpected(expected)
        value, self.position = self._decode(self.text, self.position, expected)
        text = str(value)
        if SURROGATE.search(text):
            raise BundleError(
                f"{self.source} holds {short_repr(text)}, which has half a character; get the file "
                "again"
            )
        return text

    def read_value(self, max_characters: int) -> object:
        """Any value at the cursor that is no longer than that."""
        self._peek()
        window = self.text[self.position : self.position + max_characters]
        value, length = self._decode(window, 0, f"a value of at most {max_characters} characters")
        self.position += length
        return value

    def expect_end(self) -> None:
        """Raises unless only whitespace follows."""
        if self._peek():
            self._raise_unexpected("its end")

    def _decode(self, text: str, position: int, expected: str) -> tuple[object, int]:
        try:
            return DECODER.raw_decode(text, position)
        except DuplicateKeyError as error:
            raise BundleError(
                f"{self.source} names {error} twice near character {self.position}, where each "
                "name may come once; get the file again"
            ) from None
        except RecursionError:
            raise BundleError(
                f"{self.source} is nested too deeply near character {self.position}; get the file "
                "again"
            ) from None
        except ValueError:
            self._raise_unexpected(expected)

    def _peek(self) -> str:
        """Skip whitespace; the next character, or "" at the end."""
        whitespace = WHITESPACE.match(self.text, self.position)
        assert whitespace is not None  # the pattern matches the empty string
        self.position = whitespace.end()
        return self.text[self.position : self.position + 1]

    def _expect_character(self, character: str) -> None:
        if self._peek() != character:
            self._raise_unexpected(f"a {character}")
        self.position += 1

    def _raise_unexpected(self, expected: str) -> NoReturn:
        actual = "its end"
        if self.position < len(self.text):
            actual = short_repr(self.text[self.position : self.position + 20])
        raise BundleError(
            f"{self.source} is not the JSON it should be: at character {self.position} it has "
            f"{actual} instead of {expected}; get the file again"
        )


def _reject_constant(text: str) -> NoReturn:
    """Python's decoder accepts NaN and Infinity, which JSON does not have."""
    raise ValueError(f"{text} is not a number in JSON")


DECODER = json.JSONDecoder(object_pairs_hook=unique_keys, parse_constant=_reject_constant)
