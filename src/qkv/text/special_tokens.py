"""Which token plays which part: padding, the unknown, the start and the end of a text, the mask.

A tokenizer learned here names its marks itself. One from elsewhere has names of its own ("[CLS]",
"</s>", "<|endoftext|>"), which are kept in marks.json beside tokenizer.json.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from tokenizers import Tokenizer as Backend
from tokenizers import models

from qkv.errors import DataError, unknown
from qkv.files import one_line, shown
from qkv.text.tokenizer_files import read_json
from qkv.text.vocab_training import SPECIAL

# FOLDED text/around: What a tokenizer's own template puts around one text, such as [CLS] …
#   [SEP].

FILE = "marks.json"

ROLES = ("pad", "unknown", "start", "end", "mask")

USUAL = ("pad_token", "unk_token", "bos_token", "eos_token", "mask_token")


@dataclass(frozen=True)
class Marks:
    """The tokens by their parts; None where a tokenizer has no such token."""

    pad: str | None
    unknown: str | None
    start: str | None
    end: str | None
    mask: str | None
    stops: tuple[str, ...] = ()  # further tokens that end a text
    first: str | None = None  # a token every target must begin with
    chat: str | None = None  # the chat template (Jinja source)
    names: tuple[tuple[str, str], ...] = ()  # what the template calls tokens: ("bos_token", "<s>")
    bare: bool = False  # a source to be translated is read as it is, without its end behind it

    @property
    def tokens(self) -> tuple[str, ...]:
        """Every token that plays a part, each one once."""
        all_of_them = (*(getattr(self, role) for role in ROLES), *self.stops, self.first)
        return tuple(dict.fromkeys(token for token in all_of_them if token is not None))

    @property
    def variables(self) -> dict[str, str]:
        """The tokens by the names a chat template knows."""
        usual = zip(USUAL, (getattr(self, role) for role in ROLES), strict=True)
        return dict(self.names) or {name: token for name, token in usual if token is not None}


OWN = Marks(*SPECIAL)


def write_marks(marks: Marks, path: Path) -> None:
    """The file says nothing that the tokenizer's own marks would not; then there is no file."""
    if marks == OWN:
        path.unlink(missing_ok=True)
        return
    kept = {**asdict(marks), "names": dict(marks.names)}
    text = json.dumps(kept, indent=2, ensure_ascii=False)
    path.write_text(text + "\n", encoding="utf-8")


def read_marks(path: Path) -> Marks:
    """What `write_marks` wrote; every field there must be known and of its type."""
    found = read_json(path)
    known = [field.name for field in fields(Marks)]
    for name in found:
        if name not in known:
            raise DataError(f"{path}: {unknown('field', one_line(name), known)}")
    for role in ROLES:
        if role not in found:
            raise DataError(f"{path}: the field {role} is missing; write null if there is no token")
    for name in (*ROLES, "first", "chat"):
        _expect(path, name, found.get(name), "a string or null", _is_text_or_none)
    stops, names = found.get("stops", []), found.get("names", {})
    _expect(path, "bare", found.get("bare", False), "true or false", _is_true_or_false)
    _expect(path, "stops", stops, "a list of strings", _are_texts)
    _expect(path, "names", names, "an object of strings", _are_texts_by_name)
    return Marks(**{**found, "stops": tuple(stops), "names": tuple(names.items())})


def _expect(
    path: Path, name: str, value: object, wanted: str, is_right: Callable[[object], bool]
) -> None:
    if not is_right(value):
        raise DataError(f"{path}: {name} must be {wanted}, not {shown(value)}")


def _is_text_or_none(value: object) -> bool:
    return value is None or isinstance(value, str)


def _is_true_or_false(value: object) -> bool:
    return isinstance(value, bool)


def _are_texts(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def _are_texts_by_name(value: object) -> bool:
    return isinstance(value, dict) and _are_texts(list(value.values()))


TEXT = 2**32 - 1  # no token has this number


def around(backend: Backend) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The ids before and after a text.

    The template is given a text of one token that cannot be its own, so it does not matter
    what the vocabulary makes of any text, or of none.
    """
    template = backend.post_processor
    if template is None:
        return (), ()
    text = Backend(models.WordLevel({"text": TEXT}, unk_token="text")).encode("text")
    ids = template.process(text, None, True).ids
    if ids.count(TEXT) != 1:
        raise DataError(f"its template holds the text {ids.count(TEXT)} times instead of once")
    place = ids.index(TEXT)
    before, after = tuple(ids[:place]), tuple(ids[place + 1 :])
    for id in before + after:
        if backend.id_to_token(id) is None:
            raise DataError(f"its template puts token {id} around a text, which does not exist")
    return before, after
