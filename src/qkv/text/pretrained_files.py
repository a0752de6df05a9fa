"""The tokenizer files of a public model directory: its settings, and its vocabulary.

Several files give the same settings, and not always the same values. `transformers` decides between
them by rules that grew over time; they are reproduced here, since they decide ids:
tokenizer_config.json comes first, special_tokens_map.json and added_tokens.json count only where it
lists no added tokens itself. A vocabulary is in tokenizer.json, in vocab.txt, or in vocab.json with
merges.txt.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from tokenizers import AddedToken
from tokenizers import Tokenizer as Backend

from qkv.errors import DataError
from qkv.files import MAX_VOCAB_BYTES, lexists, parse_json, short_repr
from qkv.text.tokenizer_files import read_json, read_text

TOKEN_FLAGS = ("single_word", "lstrip", "rstrip", "normalized", "special")

TokensByRole = Mapping[str, AddedToken | str | None]


@dataclass(frozen=True)
class Settings:
    """What the files of a directory say about its tokenizer, besides the vocabulary."""

    directory: Path
    config: Mapping[str, Any]  # config.json
    generation_config: Mapping[str, Any]  # generation_config.json
    options: Mapping[str, Any]  # tokenizer_config.json
    # By name: bos_token, …, and a model's own such as image_token. A string where the files give
    # only the text of a token, None where they say that there is none.
    role_tokens: TokensByRole
    extra_tokens: tuple[AddedToken, ...] | None  # further special tokens; None: not specified
    added_tokens: Mapping[int, AddedToken]  # tokens outside the vocabulary, by id
    added_tokens_path: Path  # the file that lists them
    lists_all_added: bool  # whether those of tokenizer.json do not count
    chat_template: str | None

    def flag(self, name: str, default: bool | None) -> bool | None:
        """A boolean of tokenizer_config.json; the default if it is absent or null."""
        value = self.options.get(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            path = self.directory / "tokenizer_config.json"
            raise DataError(f"{path}: {name} must be true or false, not {short_repr(value)}")
        return value


class Sourced(NamedTuple):
    """A value, and the file it is from."""

    value: Any
    path: Path


def read_settings(directory: Path, config: Mapping[str, Any] | None) -> Settings:
    """The settings of a directory, none of whose files has to exist."""
    path = directory / "tokenizer_config.json"
    options = _read_object(path)
    values = {name: Sourced(value, path) for name, value in options.items()}
    if "extra_special_tokens" not in values and "additional_special_tokens" in values:
        values["extra_special_tokens"] = values["additional_special_tokens"]

    decoder = options.get("added_tokens_decoder")
    added_tokens: dict[int, AddedToken] = {}
    if decoder is not None:
        for id, token in _items(path, decoder):
            added_tokens[_parse_id(path, id)] = _parse_token(path, token, special=False)
    else:
        map_path = directory / "special_tokens_map.json"
        for name, value in _read_object(map_path).items():
            values[name] = Sourced(value, map_path)
        extra = values.get("extra_special_tokens")
        if "additional_special_tokens" in values and not (extra and extra.value):
            values["extra_special_tokens"] = values["additional_special_tokens"]

    by_content = {token.content: token for token in added_tokens.values()}
    role_tokens, extra_tokens = _special_tokens(values, by_content)
    if decoder is None:
        path = directory / "added_tokens.json"
        special = {str(token) for token in (*role_tokens.values(), *(extra_tokens or ())) if token}
        for content, id in _read_object(path).items():
            is_special = content in special
            added_tokens[_parse_id(path, id)] = AddedToken(
                content, normalized=not is_special, special=is_special
            )
    if config is None:
        config = _read_object(directory / "config.json")
    return Settings(
        directory,
        config,
        _read_object(directory / "generation_config.json"),
        options,
        role_tokens,
        extra_tokens,
        added_tokens,
        added_tokens_path=path,
        lists_all_added=decoder is not None,
        chat_template=_chat_template(directory, options.get("chat_template")),
    )


def _special_tokens(
    values: Mapping[str, Sourced], by_content: Mapping[str, AddedToken]
) -> tuple[dict[str, AddedToken | str | None], tuple[AddedToken, ...] | None]:
    """The tokens that have a name, and the extra ones."""
    by_role = {name: value for name, value in values.items() if name.endswith("_token")}
    source = values.get("extra_special_tokens", Sourced(None, Path()))
    extra: Any = source.value
    path = source.path
    if isinstance(extra, dict):  # a model's own names
        for name, value in extra.items():
            by_role[name] = Sourced(value, path)
        extra = None
    if extra is not None and not isinstance(extra, list):
        raise DataError(f"{path}: extra_special_tokens must be a list or an object")

    role_tokens: dict[str, AddedToken | str | None] = {}
    for name, (value, value_path) in by_role.items():
        if isinstance(value, bool):  # add_bos_token is not a token
            continue
        token = value
        if value is not None and not isinstance(value, str):
            token = _parse_token(value_path, value)
        role_tokens[name] = token and by_content.get(str(token), token)
    if extra is None:
        return role_tokens, None
    return role_tokens, tuple(_parse_token(path, value) for value in extra)


def _parse_token(path: Path, value: object, special: bool = True) -> AddedToken:
    """A token given as its text, or as an object with flags."""
    if isinstance(value, str):
        return AddedToken(value, special=True, normalized=False)
    if not isinstance(value, dict) or not isinstance(value.get("content"), str):
        raise DataError(
            f"{path}: a token must be a string or have a content, not {short_repr(value)}"
        )
    flags = {name: value[name] for name in TOKEN_FLAGS if name in value}
    if not all(isinstance(flag, bool) for flag in flags.values()):
        raise DataError(
            f"{path}: the flags of {short_repr(value['content'])} must be true or false"
        )
    return AddedToken(value["content"], **{"special": special, **flags})


def _parse_id(path: Path, value: object) -> int:
    digits = str(value)
    if isinstance(value, bool) or not digits.isdecimal() or len(digits) > 10:  # ids have 32 bits
        raise DataError(f"{path}: {short_repr(value)} is not the id of a token")
    return int(digits)


def _items(path: Path, value: object) -> list[tuple[str, Any]]:
    if not isinstance(value, dict):
        raise DataError(f"{path}: added_tokens_decoder must be an object of tokens by their ids")
    return list(value.items())


def _read_object(path: Path) -> dict[str, Any]:
    """The object in a JSON file; empty if there is no such file."""
    if not lexists(path):
        return {}
    return read_json(path)


def _chat_template(directory: Path, value: object) -> str | None:
    """The chat template: a file of its own comes first; of several the one called default."""
    path = directory / "chat_template.jinja"
    if lexists(path):
        return read_text(path)
    if isinstance(value, list):
        defaults = [t for t in value if isinstance(t, dict) and t.get("name") == "default"]
        value = defaults[-1].get("template") if defaults else None
    if value is not None and not isinstance(value, str):
        path = directory / "tokenizer_config.json"
        raise DataError(f"{path}: chat_template must be a string or a list of named templates")
    return value


# What the tokenizers library strips at the end of a line of vocab.txt.
BLANK = "\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(
    map(chr, range(0x2000, 0x200B))
)


@dataclass(frozen=True)
class Vocabulary:
    """The tokens with their ids, and whatever else decides how a text is segmented."""

    path: Path
    ids: dict[str, int]
    scores: Sequence[tuple[str, float]] = ()  # of a unigram model, in the order of the ids
    merges: Sequence[tuple[str, str]] = ()
    charsmap: bytes | None = None  # SentencePiece's normalizer
    add_dummy_prefix: bool = True  # SentencePiece's settings, see there
    remove_extra_whitespaces: bool = True
    unk_id: int = 0
    byte_fallback: bool = False
    special_tokens: tuple[AddedToken, ...] = ()  # tokens that are never segmented
    role_tokens: Mapping[str, str] = field(default_factory=dict)  # bos_token, …, if it has them
    backend: Backend | None = None  # of a tokenizer.json, all the rest


def from_tokenizer_json(path: Path, backend: Backend, text: str) -> Vocabulary:
    """The vocabulary in a tokenizer.json that the library has read already."""
    state = parse_json(text, path, DataError)
    for token in state.get("added_tokens") or []:
        id = backend.token_to_id(token["content"])
        if id != token["id"]:  # the library goes on counting, whatever the file says
            raise DataError(
                f"{short_repr(token['content'])} has the id {token['id']}, but {id} is next"
            )
    model = state.get("model") or {}
    vocab = model.get("vocab") or {}
    scores: list[tuple[str, float]] = []
    if isinstance(vocab, list):  # unigram: pieces with scores, in the order of the ids
        scores = [(piece, score) for piece, score in vocab]
    ids = {piece: id for id, (piece, _) in enumerate(scores)} or dict(vocab)
    merges = []
    for merge in model.get("merges") or []:
        pair = merge.split(" ") if isinstance(merge, str) else merge  # older files have strings
        merges.append(tuple(pair))
    charsmap = next(_charsmaps(state.get("normalizer")), None)
    return Vocabulary(path, ids, scores, merges, charsmap, backend=backend)


def from_vocab_txt(path: Path) -> Vocabulary:
    """One token per line; the line number is its id."""
    ids: dict[str, int] = {}
    lines = read_text(path).split("\n")
    if not lines[-1]:
        lines.pop()
    for id, line in enumerate(lines):
        token = line.rstrip(BLANK)
        if token in ids:
            raise DataError(
                f"{path} line {id + 1}: {short_repr(token)} is also in line {ids[token] + 1}"
            )
        ids[token] = id
    return Vocabulary(path, ids)


def from_vocab_json(path: Path, merges_path: Path) -> Vocabulary:
    """Tokens with their ids, and the merges in the order of their rank."""
    ids = check_ids(path, read_json(path, MAX_VOCAB_BYTES))
    merges = []
    for number, line in enumerate(read_text(merges_path).split("\n"), 1):
        line = line.removesuffix("\r")
        if line.startswith("#version") or not line:
            continue
        left, *right = line.split(" ")
        if len(right) != 1:
            raise DataError(
                f"{merges_path} line {number}: expected two tokens, not {short_repr(line)}"
            )
        missing = [token for token in (left, right[0], left + right[0]) if token not in ids]
        if missing:
            raise DataError(
                f"{merges_path} line {number}: {path.name} has no {short_repr(missing[0])}"
            )
        merges.append((left, right[0]))
    return Vocabulary(path, ids, merges=merges)


def check_ids(path: Path, vocab: dict[str, Any]) -> dict[str, int]:
    """The same tokens with their ids; raises DataError unless all ids are integers."""
    for token, id in vocab.items():
        if isinstance(id, bool) or not isinstance(id, int):
            raise DataError(
                f"{path}: the id of {short_repr(token)} must be an integer, not {short_repr(id)}"
            )
    return vocab


def check_contiguous(path: Path, ids: dict[str, int]) -> None:
    """Raises DataError if an id is left out, or two tokens have the same one."""
    by_id = dict(zip(ids.values(), ids, strict=True))
    if len(by_id) < len(ids):
        token = next(token for token, id in ids.items() if by_id[id] != token)
        other = by_id[ids[token]]
        raise DataError(
            f"{path}: {short_repr(token)} and {short_repr(other)} have the same id {ids[token]}"
        )
    for id in range(len(ids)):
        if id not in by_id:
            raise DataError(f"{path}: no token has the id {id}, but there are {len(ids)} tokens")


def _charsmaps(normalizer: Any) -> Iterator[bytes]:
    """The precompiled character maps in the normalizer of a tokenizer.json."""
    parts = (normalizer or {}).get("normalizers") or [normalizer or {}]
    for part in parts:
        if part.get("type") == "Precompiled" and part.get("precompiled_charsmap"):
            yield base64.b64decode(part["precompiled_charsmap"])
