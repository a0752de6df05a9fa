"""Special tokens: which token of a vocabulary pads, starts, ends or masks a text.

A tokenizer trained here uses DEFAULT_SPECIAL_TOKENS. A pretrained one brings its own ("[CLS]",
"</s>", "<|endoftext|>"), which are saved as special_tokens.json next to tokenizer.json.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from tokenizers import Tokenizer as Backend
from tokenizers import models

from qkv.errors import DataError, unknown
from qkv.files import lexists, one_line, short_repr
from qkv.legacy import upgrade
from qkv.text.tokenizer_files import read_json
from qkv.text.vocab_training import SPECIAL

SPECIAL_TOKENS_FILE = "special_tokens.json"
LEGACY_FILE = "marks.json"  # its name in qkv 0.1; read, never written

# Each role, and the variable by which chat templates refer to its token.
ROLES = {
    "pad": "pad_token",
    "unk": "unk_token",
    "bos": "bos_token",
    "eos": "eos_token",
    "mask": "mask_token",
}


@dataclass(frozen=True)
class SpecialTokens:
    """The special tokens by role; None where a tokenizer has no such token."""

    pad: str | None
    unk: str | None
    bos: str | None  # of an encoder-decoder, the token its decoder starts with
    eos: str | None
    mask: str | None
    extra_eos: tuple[str, ...] = ()  # further tokens that end a text, such as <|eot_id|>
    forced_bos: str | None = None  # the token every target must begin with
    chat_template: str | None = None  # Jinja source
    template_names: tuple[
        tuple[str, str], ...
    ] = ()  # the template's variables: ("bos_token", "<s>")
    omit_source_eos: bool = False  # a source to translate is not closed by eos

    @property
    def tokens(self) -> tuple[str, ...]:
        """Every special token once, in the order of the roles."""
        roles = (getattr(self, role) for role in ROLES)
        candidates = (*roles, *self.extra_eos, self.forced_bos)
        return tuple(dict.fromkeys(token for token in candidates if token is not None))

    @property
    def template_variables(self) -> dict[str, str]:
        """The tokens by the names a chat template uses for them."""
        if self.template_names:
            return dict(self.template_names)
        variables = {}
        for role, name in ROLES.items():
            token = getattr(self, role)
            if token is not None:
                variables[name] = token
        return variables


DEFAULT_SPECIAL_TOKENS = SpecialTokens(*SPECIAL)


def find_special_tokens(directory: Path) -> Path | None:
    """The path of the directory's special-tokens file, under its present or its former name."""
    for name in (SPECIAL_TOKENS_FILE, LEGACY_FILE):
        if lexists(directory / name):
            return directory / name
    return None


def write_special_tokens(special_tokens: SpecialTokens, directory: Path) -> None:
    """Write special_tokens.json; the defaults need no file, so an old one is removed."""
    path = directory / SPECIAL_TOKENS_FILE
    (directory / LEGACY_FILE).unlink(missing_ok=True)
    if special_tokens == DEFAULT_SPECIAL_TOKENS:
        path.unlink(missing_ok=True)
        return
    content = {**asdict(special_tokens), "template_names": dict(special_tokens.template_names)}
    text = json.dumps(content, indent=2, ensure_ascii=False)
    path.write_text(text + "\n", encoding="utf-8")


def read_special_tokens(path: Path) -> SpecialTokens:
    """The special tokens of a file; raises DataError on unknown fields and wrong types."""
    content = upgrade(SPECIAL_TOKENS_FILE, read_json(path))
    known_fields = [field.name for field in fields(SpecialTokens)]
    for name in content:
        if name not in known_fields:
            raise DataError(f"{path}: {unknown('field', one_line(name), known_fields)}")
    for role in ROLES:
        if role not in content:
            raise DataError(f"{path}: the field {role} is missing; write null if there is no token")

    for name in (*ROLES, "forced_bos", "chat_template"):
        _expect(path, name, content.get(name), "a string or null", _is_string_or_none)
    omit_source_eos = content.get("omit_source_eos", False)
    extra_eos = content.get("extra_eos", [])
    template_names = content.get("template_names", {})
    _expect(path, "omit_source_eos", omit_source_eos, "true or false", _is_bool)
    _expect(path, "extra_eos", extra_eos, "a list of strings", _is_string_list)
    _expect(path, "template_names", template_names, "an object of strings", _is_string_map)
    content["extra_eos"] = tuple(extra_eos)
    content["template_names"] = tuple(template_names.items())
    return SpecialTokens(**content)


def _expect(
    path: Path, name: str, value: object, expected: str, is_valid: Callable[[object], bool]
) -> None:
    if not is_valid(value):
        raise DataError(f"{path}: {name} must be {expected}, not {short_repr(value)}")


def _is_string_or_none(value: object) -> bool:
    return value is None or isinstance(value, str)


def _is_bool(value: object) -> bool:
    return isinstance(value, bool)


def _is_string_list(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def _is_string_map(value: object) -> bool:
    return isinstance(value, dict) and _is_string_list(list(value.values()))


TEXT_ID = 2**32 - 1  # stands for the text in a template; no token has this id


def template_ids(backend: Backend) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The ids that the tokenizer's own template adds before and after a text, as [CLS] … [SEP].

    The template is applied to a text of one token that no vocabulary has, so the result does not
    depend on how this vocabulary would encode any text.
    """
    template = backend.post_processor
    if template is None:
        return (), ()
    text = Backend(models.WordLevel({"text": TEXT_ID}, unk_token="text")).encode("text")
    ids = template.process(text, None, True).ids
    if ids.count(TEXT_ID) != 1:
        raise DataError(f"its template holds the text {ids.count(TEXT_ID)} times instead of once")
    position = ids.index(TEXT_ID)
    prefix = tuple(ids[:position])
    suffix = tuple(ids[position + 1 :])
    for id in prefix + suffix:
        if backend.id_to_token(id) is None:
            raise DataError(f"its template puts token {id} around a text, which does not exist")
    return prefix, suffix
