"""Two languages, one vocabulary: each language cuts a text in its own way, then tokens get ids.

So it is in Marian. A language to translate to may be asked for by a token in front of a text, such
as >>fr<<, which is never cut.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

from tokenizers import Tokenizer as Backend

from qkv.errors import DataError
from qkv.files import lexists
from qkv.text.tokenizer_files import read_text, refusing

BackendPair = tuple[Backend, Backend]
FILES = ("source.json", "target.json")  # beside tokenizer.json


class LanguagePair:
    """How texts of the source and of the target language are cut, and the ids of the tokens."""

    def __init__(self, source: Backend, target: Backend, vocabulary: Backend) -> None:
        self.backends: BackendPair = (source, target)
        self._ids = vocabulary.get_vocab(with_added_tokens=True)

    def encode_many(
        self, texts: Sequence[str], special: bool, target: bool, unknown: int
    ) -> list[list[int]]:
        """A token that is not in the vocabulary is unknown, even if its language has it."""
        cutter = (self._reading_special if special else self.backends)[target]
        parts = [_without_language(text) for text in texts]
        # Not the "fast" one, which leaves out the tokens' text.
        found = cutter.encode_batch([rest for _, rest in parts], add_special_tokens=False)
        return [
            [self._ids.get(token, unknown) for token in (*language, *encoding.tokens)]
            for (language, _), encoding in zip(parts, found, strict=True)
        ]

    def offsets(self, text: str) -> list[tuple[int, int]]:
        """The characters each token of a source text covers."""
        language, rest = _without_language(text)
        start = len(text) - len(rest)
        found = self.backends[0].encode(rest, add_special_tokens=False).offsets
        first = [(0, start)] if language else []
        return first + [(start + begin, start + end) for begin, end in found]

    @cached_property
    def _reading_special(self) -> BackendPair:
        source, target = map(reading_special, self.backends)
        return source, target


def reading_special(backend: Backend) -> Backend:
    """A copy that reads special tokens in a text as such.

    The switch is no argument of a call, and two threads may encode at once.
    """
    return Backend.from_str(backend.to_str())


def read_pair(beside: Path) -> BackendPair | None:
    """What `write_pair` wrote: two files, or none, then None."""
    paths = [beside.with_name(name) for name in FILES]
    missing = [path for path in paths if not lexists(path)]
    if len(missing) == len(paths):
        return None
    if missing:
        raise DataError(f"{missing[0]} is missing, without which {' and '.join(FILES)} are nothing")
    cutters = []
    for path in paths:
        text = read_text(path)
        with refusing(path):
            cutters.append(Backend.from_str(text))
    source, target = cutters
    return source, target


def write_pair(pair: LanguagePair | None, beside: Path) -> None:
    """Two files, or none: then those that are there are removed."""
    for number, name in enumerate(FILES):
        path = beside.with_name(name)
        if pair is None:
            path.unlink(missing_ok=True)
        else:
            path.write_text(pair.backends[number].to_str(pretty=True) + "\n", encoding="utf-8")


def _without_language(text: str) -> tuple[tuple[str, ...], str]:
    end = text.find("<<") + 2
    return ((text[:end],), text[end:]) if text.startswith(">>") and end > 1 else ((), text)
