"""What a public model directory says about its tokenizer, besides the vocabulary.

Several files say the same things, and not always alike. `transformers` decides between them by
rules that grew; they are kept here, since they decide ids: tokenizer_config.json comes first,
special_tokens_map.json and added_tokens.json count only where it lists no added tokens itself.
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

# FOLDED text/vocabulary: The files a vocabulary can come in: tokenizer.json, vocab.txt, or
#   vocab.json with merges.txt.

FLAGS = ("single_word", "lstrip", "rstrip", "normalized", "special")


@dataclass(frozen=True)
class Settings:
    directory: Path
    config: Mapping[str, Any]  # config.json
    generation: Mapping[str, Any]  # generation_config.json
    options: Mapping[str, Any]  # tokenizer_config.json
    # By name: bos_token, …, and a model's own such as image_token. As text where no more is said of
    # a token, and None where there shall be none.
    roles: Mapping[str, AddedToken | str | None]
    extras: tuple[AddedToken, ...] | None  # further special tokens, None if nothing is said
    added: Mapping[int, AddedToken]  # tokens beside the vocabulary, by their ids
    added_from: Path  # the file that lists them
    adds_all: bool  # whether that is all of them, whatever tokenizer.json adds
    chat: str | None

    def flag(self, name: str, default: bool | None) -> bool | None:
        """A yes or no of tokenizer_config.json; what is null there is the default."""
        value = self.options.get(name)
        if value is not None and not isinstance(value, bool):
            where = self.directory / "tokenizer_config.json"
            raise DataError(f"{where}: {name} must be true or false, not {short_repr(value)}")
        return default if value is None else value


def read_settings(directory: Path, config: Mapping[str, Any] | None) -> Settings:
    """All of it; files that are not there say nothing."""
    where = directory / "tokenizer_config.json"
    options = _object(directory, where.name)
    said = {name: Said(value, where) for name, value in options.items()}
    if "extra_special_tokens" not in said and "additional_special_tokens" in said:
        said["extra_special_tokens"] = said["additional_special_tokens"]
    listed = options.get("added_tokens_decoder")
    added: dict[int, AddedToken] = {}
    if listed is not None:
        for id, token in _items(where, listed):
            added[_id(where, id)] = _token(where, token, special=False)
    else:
        further = directory / "special_tokens_map.json"
        said |= {name: Said(v, further) for name, v in _object(directory, further.name).items()}
        extra = said.get("extra_special_tokens")
        if "additional_special_tokens" in said and not (extra and extra.value):
            said["extra_special_tokens"] = said["additional_special_tokens"]
    by_name = {token.content: token for token in added.values()}
    roles, extras = _special(said, by_name)
    if listed is None:
        special = {str(token) for token in (*roles.values(), *(extras or ())) if token}
        where = directory / "added_tokens.json"
        for content, id in _object(directory, "added_tokens.json").items():
            is_special = content in special
            added[_id(where, id)] = AddedToken(
                content, normalized=not is_special, special=is_special
            )
    generation = _object(directory, "generation_config.json")
    config = _object(directory, "config.json") if config is None else config
    chat = _chat(directory, options.get("chat_template"))
    return Settings(
        directory,
        config,
        generation,
        options,
        roles,
        extras,
        added,
        added_from=where,
        adds_all=listed is not None,
        chat=chat,
    )


class Said(NamedTuple):
    """A value, and the file that says it."""

    value: Any
    where: Path


def _special(
    said: Mapping[str, Said], by_name: Mapping[str, AddedToken]
) -> tuple[dict[str, AddedToken | str | None], tuple[AddedToken, ...] | None]:
    """The tokens that have a name, and the further ones."""
    own = {name: value for name, value in said.items() if name.endswith("_token")}
    found = said.get("extra_special_tokens")
    extras, where = (None, Path()) if found is None else found
    if isinstance(extras, dict):  # a model's own names
        own |= {name: Said(value, where) for name, value in extras.items()}
        extras = None
    if extras is not None and not isinstance(extras, list):
        raise DataError(f"{where}: extra_special_tokens must be a list or an object")
    roles: dict[str, AddedToken | str | None] = {}
    for name, (value, place) in own.items():
        if isinstance(value, bool):  # add_bos_token is no token
            continue
        token = value if value is None or isinstance(value, str) else _token(place, value)
        roles[name] = token and by_name.get(str(token), token)
    further = None if extras is None else tuple(_token(where, value) for value in extras)
    return roles, further


def _token(where: Path, value: object, special: bool = True) -> AddedToken:
    """A token given as its text, or as an object with flags."""
    if isinstance(value, str):
        return AddedToken(value, special=True, normalized=False)
    if not isinstance(value, dict) or not isinstance(value.get("content"), str):
        raise DataError(
            f"{where}: a token must be a string or have a content, not {short_repr(value)}"
        )
    flags = {name: value[name] for name in FLAGS if name in value}
    if not all(isinstance(flag, bool) for flag in flags.values()):
        raise DataError(
            f"{where}: the flags of {short_repr(value['content'])} must be true or false"
        )
    return AddedToken(value["content"], **{"special": special, **flags})


def _id(where: Path, value: object) -> int:
    digits = str(value)
    if isinstance(value, bool) or not digits.isdecimal() or len(digits) > 10:  # ids have 32 bits
        raise DataError(f"{where}: {short_repr(value)} is not the id of a token")
    return int(digits)


def _items(where: Path, value: object) -> list[tuple[str, Any]]:
    if not isinstance(value, dict):
        raise DataError(f"{where}: added_tokens_decoder must be an object of tokens by their ids")
    return list(value.items())


def _object(directory: Path, name: str) -> dict[str, Any]:
    path = directory / name
    return read_json(path) if lexists(path) else {}


def _chat(directory: Path, value: object) -> str | None:
    """The chat template: a file of its own comes first; of several the one called default."""
    path = directory / "chat_template.jinja"
    if lexists(path):
        return read_text(path)
    if isinstance(value, list):
        named = [t for t in value if isinstance(t, dict) and t.get("name") == "default"]
        value = named[-1].get("template") if named else None
    if value is not None and not isinstance(value, str):
        where = directory / "tokenizer_config.json"
        raise DataError(f"{where}: chat_template must be a string or a list of named templates")
    return value


# What the library takes for blank at the end of a line of vocab.txt.
BLANK = "\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(
    map(chr, range(0x2000, 0x200B))
)


@dataclass(frozen=True)
class Vocabulary:
    """The tokens, best known by their ids, and whatever else decides how a text is cut."""

    path: Path
    ids: dict[str, int]
    scores: Sequence[tuple[str, float]] = ()  # of a unigram model, in the order of the ids
    merges: Sequence[tuple[str, str]] = ()
    charsmap: bytes | None = None  # SentencePiece's normalizer
    adds_space: bool = True  # SentencePiece's settings, see there
    tidies_space: bool = True
    unknown: int = 0
    byte_fallback: bool = False
    special: tuple[AddedToken, ...] = ()  # tokens it says are never cut
    names: Mapping[str, str] = field(default_factory=dict)  # bos_token, …, if it says so itself
    whole: Backend | None = None  # of tokenizer.json, all the rest


def from_tokenizer_json(path: Path, whole: Backend, text: str) -> Vocabulary:
    """The vocabulary inside of a tokenizer.json that the library has read already."""
    state = parse_json(text, path, DataError)
    for token in state.get("added_tokens") or []:
        id = whole.token_to_id(token["content"])
        if id != token["id"]:  # the library goes on counting, whatever the file says
            raise DataError(
                f"{short_repr(token['content'])} has the id {token['id']}, but {id} is next"
            )
    model = state.get("model") or {}
    found, merges = model.get("vocab") or {}, model.get("merges") or []
    scores = [(piece, score) for piece, score in found] if isinstance(found, list) else []
    ids = {piece: id for id, (piece, _) in enumerate(scores)} or dict(found)
    pairs = [tuple(m.split(" ") if isinstance(m, str) else m) for m in merges]
    charsmap = next(_charsmaps(state.get("normalizer")), None)
    return Vocabulary(path, ids, scores, pairs, charsmap, whole=whole)


def from_vocab_txt(path: Path) -> Vocabulary:
    """One token a line; its number is its id."""
    ids: dict[str, int] = {}
    lines = read_text(path).split("\n")
    for number, line in enumerate(lines[:-1] if not lines[-1] else lines):
        token = line.rstrip(BLANK)
        if token in ids:
            raise DataError(
                f"{path} line {number + 1}: {short_repr(token)} was there before, in line "
                f"{ids[token] + 1}"
            )
        ids[token] = number
    return Vocabulary(path, ids)


def from_vocab_json(path: Path, merges: Path) -> Vocabulary:
    """Tokens with their ids, and the pairs that merge, the first ones first."""
    ids = expect_ids(path, read_json(path, MAX_VOCAB_BYTES))
    pairs = []
    for number, line in enumerate(read_text(merges).split("\n")):
        line = line.removesuffix("\r")
        if line.startswith("#version") or not line:
            continue
        left, *right = line.split(" ")
        if len(right) != 1:
            raise DataError(
                f"{merges} line {number + 1}: expected two tokens, not {short_repr(line)}"
            )
        missing = [token for token in (left, right[0], left + right[0]) if token not in ids]
        if missing:
            raise DataError(
                f"{merges} line {number + 1}: {path.name} has no {short_repr(missing[0])}"
            )
        pairs.append((left, right[0]))
    return Vocabulary(path, ids, merges=pairs)


def expect_ids(path: Path, found: dict[str, Any]) -> dict[str, int]:
    """The tokens with their ids, if these are numbers."""
    for token, id in found.items():
        if isinstance(id, bool) or not isinstance(id, int):
            raise DataError(
                f"{path}: the id of {short_repr(token)} must be a whole number, not "
                f"{short_repr(id)}"
            )
    return found


def expect_whole(path: Path, ids: dict[str, int]) -> None:
    """Refuses a vocabulary in which a number is left out, or two tokens have the same one."""
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
    parts = (normalizer or {}).get("normalizers") or [normalizer or {}]
    for part in parts:
        if part.get("type") == "Precompiled" and part.get("precompiled_charsmap"):
            yield base64.b64decode(part["precompiled_charsmap"])
