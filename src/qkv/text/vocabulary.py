"""The files a vocabulary can come in: tokenizer.json, vocab.txt, or vocab.json with merges.txt."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tokenizers import AddedToken
from tokenizers import Tokenizer as Backend

from qkv.errors import DataError
from qkv.files import LARGEST, parse_json, shown
from qkv.text.files import read_json, read_text

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
            raise DataError(f"{shown(token['content'])} has the id {token['id']}, but {id} is next")
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
                f"{path} line {number + 1}: {shown(token)} was there before, in line "
                f"{ids[token] + 1}"
            )
        ids[token] = number
    return Vocabulary(path, ids)


def from_vocab_json(path: Path, merges: Path) -> Vocabulary:
    """Tokens with their ids, and the pairs that merge, the first ones first."""
    ids = expect_ids(path, read_json(path, LARGEST))
    pairs = []
    for number, line in enumerate(read_text(merges).split("\n")):
        line = line.removesuffix("\r")
        if line.startswith("#version") or not line:
            continue
        left, *right = line.split(" ")
        if len(right) != 1:
            raise DataError(f"{merges} line {number + 1}: expected two tokens, not {shown(line)}")
        missing = [token for token in (left, right[0], left + right[0]) if token not in ids]
        if missing:
            raise DataError(f"{merges} line {number + 1}: {path.name} has no {shown(missing[0])}")
        pairs.append((left, right[0]))
    return Vocabulary(path, ids, merges=pairs)


def expect_ids(path: Path, found: dict[str, Any]) -> dict[str, int]:
    """The tokens with their ids, if these are numbers."""
    for token, id in found.items():
        if isinstance(id, bool) or not isinstance(id, int):
            raise DataError(
                f"{path}: the id of {shown(token)} must be a whole number, not {shown(id)}"
            )
    return found


def expect_whole(path: Path, ids: dict[str, int]) -> None:
    """Refuses a vocabulary in which a number is left out, or two tokens have the same one."""
    by_id = dict(zip(ids.values(), ids, strict=True))
    if len(by_id) < len(ids):
        token = next(token for token, id in ids.items() if by_id[id] != token)
        other = by_id[ids[token]]
        raise DataError(f"{path}: {shown(token)} and {shown(other)} have the same id {ids[token]}")
    for id in range(len(ids)):
        if id not in by_id:
            raise DataError(f"{path}: no token has the id {id}, but there are {len(ids)} tokens")


def _charsmaps(normalizer: Any) -> Iterator[bytes]:
    parts = (normalizer or {}).get("normalizers") or [normalizer or {}]
    for part in parts:
        if part.get("type") == "Precompiled" and part.get("precompiled_charsmap"):
            yield base64.b64decode(part["precompiled_charsmap"])
