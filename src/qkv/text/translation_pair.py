"""Language pairs: source and target texts segmented differently, with ids of one vocabulary.

Marian models have a SentencePiece model for each language. A multilingual one is told the target
language by a token at the beginning of the source, such as >>fr<<, which is never segmented.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

from tokenizers import Tokenizer as Backend

from qkv.errors import DataError
from qkv.files import lexists
from qkv.text.tokenizer_files import read_text, tokenizer_errors

BackendPair = tuple[Backend, Backend]  # source, target
PAIR_FILES = ("source.json", "target.json")  # next to tokenizer.json


class LanguagePair:
    """The segmentation of source and target texts, and the ids of the shared vocabulary."""

    def __init__(self, source: Backend, target: Backend, vocabulary: Backend) -> None:
        self.backends: BackendPair = (source, target)
        self._ids = vocabulary.get_vocab(with_added_tokens=True)

    def encode_many(
        self, texts: Sequence[str], parse_special: bool, target: bool, unk_id: int
    ) -> list[list[int]]:
        """The ids of each text; a token that is not in the shared vocabulary is `unk_id`."""
        backends = self._special_backends if parse_special else self.backends
        split = [_split_language(text) for text in texts]
        # Not encode_batch_fast, which leaves out the tokens' text.
        encodings = backends[target].encode_batch(
            [text for _, text in split], add_special_tokens=False
        )
        sequences = []
        for (language, _), encoding in zip(split, encodings, strict=True):
            tokens = [*language, *encoding.tokens]
            sequences.append([self._ids.get(token, unk_id) for token in tokens])
        return sequences

    def offsets(self, text: str) -> list[tuple[int, int]]:
        """The characters each token of a source text covers."""
        language, rest = _split_language(text)
        start = len(text) - len(rest)
        spans = []
        if language:
            spans.append((0, start))
        for begin, end in self.backends[0].encode(rest, add_special_tokens=False).offsets:
            spans.append((start + begin, start + end))
        return spans

    @cached_property
    def _special_backends(self) -> BackendPair:
        source, target = self.backends
        return parsing_special_tokens(source), parsing_special_tokens(target)


def parsing_special_tokens(backend: Backend) -> Backend:
    """A copy that parses special tokens in a text as such.

    The library has this as a switch of the tokenizer, not as an argument of a call, and two threads
    may encode at once.
    """
    return Backend.from_str(backend.to_str())


def read_pair(tokenizer_path: Path) -> BackendPair | None:
    """The pair saved next to a tokenizer.json, or None."""
    paths = [tokenizer_path.with_name(name) for name in PAIR_FILES]
    missing = [path for path in paths if not lexists(path)]
    if len(missing) == len(paths):
        return None
    if missing:
        raise DataError(f"{missing[0]} is missing; {' and '.join(PAIR_FILES)} belong together")
    source, target = (_read_backend(path) for path in paths)
    return source, target


def _read_backend(path: Path) -> Backend:
    text = read_text(path)
    with tokenizer_errors(path):
        return Backend.from_str(text)


def write_pair(pair: LanguagePair | None, tokenizer_path: Path) -> None:
    """Write both files, or, without a pair, remove those of an earlier one."""
    for index, name in enumerate(PAIR_FILES):
        path = tokenizer_path.with_name(name)
        if pair is None:
            path.unlink(missing_ok=True)
        else:
            path.write_text(pair.backends[index].to_str(pretty=True) + "\n", encoding="utf-8")


def _split_language(text: str) -> tuple[tuple[str, ...], str]:
    """The target-language token at the beginning, if there is one, and the text after it."""
    end = text.find("<<") + 2
    if text.startswith(">>") and end > 1:
        return (text[:end],), text[end:]
    return (), text
