"""What is known of a file of vectors that is not finished yet: enough to go on, or to refuse to.

It is written after the rows it speaks of are safely on disk, and replaced as a whole, so whenever
the program is stopped it is true.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from qkv.errors import DataError
from qkv.files import read_json, replace_file


@dataclass(frozen=True)
class Journal:
    """rows and bytes of the part file, the hash of their texts, and what they were made with."""

    rows: int
    bytes: int
    long: int
    texts: str
    options: Mapping[str, Any]
    finished: bool = False

    def write(self, path: Path) -> None:
        replace_file(path, json.dumps(asdict(self)).encode())

    @classmethod
    def read(cls, path: Path) -> "Journal | None":
        """None if there is none."""
        if not path.exists():
            return None
        damaged = DataError(f"{path} is damaged; pass --force to begin again")
        try:
            found = cls(**read_json(path, DataError))
        except TypeError:
            raise damaged from None
        numbers = (found.rows, found.bytes, found.long)
        if not isinstance(found.options, dict) or any(type(n) is not int or n < 0 for n in numbers):
            raise damaged
        return found

    def expect(self, options: Mapping[str, Any], name: Path) -> None:
        """Refuses to go on with another model or other options.

        Where long texts were an error there was none so far, so that may be changed.
        """
        free = {"long"} if self.options.get("long") == "error" else set[str]()
        for option in sorted({*self.options, *options} - free):
            before, now = self.options.get(option), options.get(option)
            if before != now:
                raise DataError(
                    f"{name} was begun with {option} {before}, not {now}; go on with that, or "
                    "pass --force to begin again"
                )


class Fingerprint:
    """The hash of all texts so far, wherever one ends and the next begins."""

    def __init__(self) -> None:
        self._digest = hashlib.sha256()

    def add(self, texts: Iterable[str]) -> None:
        for text in texts:
            content = text.encode("utf-8", "surrogatepass")
            self._digest.update(len(content).to_bytes(8, "big") + content)

    def __str__(self) -> str:
        return self._digest.hexdigest()
