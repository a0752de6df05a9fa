"""Tokenizers as others published them: a directory in, the same ids as `transformers` out."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer as Backend

from qkv.errors import DataError
from qkv.files import is_there, shown
from qkv.text.assemble import assemble
from qkv.text.families import (
    BERT,
    BY_CLASS,
    GENERIC,
    GPT2,
    JSON,
    MARIAN,
    PLAIN,
    TXT,
    Family,
    class_of,
)
from qkv.text.files import read_text, refusing
from qkv.text.marian import read_marian
from qkv.text.pieces import from_sentencepiece
from qkv.text.settings import Settings, read_settings
from qkv.text.tokenizer import Tokenizer
from qkv.text.vocabulary import Vocabulary, from_tokenizer_json, from_vocab_json, from_vocab_txt

WHOLE, MERGES = "tokenizer.json", "merges.txt"
MODELS = ("tokenizer.model", "spiece.model", "sentencepiece.bpe.model")
# What a tokenizer can come in: the first that is there with what belongs to it is read.
FILES = ((MARIAN.file,), (WHOLE,), (TXT,), (JSON, MERGES), *((model,) for model in MODELS))


def has_tokenizer(directory: Path) -> bool:
    """Whether there is a tokenizer to be read, or to be refused."""
    return any(is_there(directory / first) for first, *_ in FILES)


def read_tokenizer(directory: Path, config: Mapping[str, Any] | None = None) -> Tokenizer:
    """The tokenizer of a public model directory; `config` is its config.json if already read.

    No code of the directory is run. A class of its own is refused, unless tokenizer.json is there
    and says it all.
    """
    settings = read_settings(Path(directory), config)
    first = _first(settings.directory)
    if first.name == MARIAN.file:
        return read_marian(settings)
    family, vocabulary, backend = _choose(first, settings)
    with refusing(vocabulary.path):
        return assemble(family, vocabulary, settings, backend)


def _first(directory: Path) -> Path:
    """The file that decides."""
    for first, *rest in FILES:
        if all(is_there(directory / name) for name in (first, *rest)):
            return directory / first
    looked = ", ".join(" with ".join(names) for names in FILES)
    raise DataError(f"{directory} has no tokenizer: looked for {looked}")


def _choose(path: Path, settings: Settings) -> tuple[Family, Vocabulary, Backend | None]:
    """The family, its vocabulary, and of a tokenizer.json that stays as it is the tokenizer."""
    if path.name != WHOLE:
        return *_from_vocabulary(path, settings), None
    text = read_text(path)
    with refusing(path):
        whole = Backend.from_str(text)
        vocabulary = from_tokenizer_json(path, whole, text)
    family = BY_CLASS.get(class_of(settings, text) or "", PLAIN)
    if family is PLAIN or family.model != type(whole.model).__name__:
        return PLAIN, vocabulary, whole
    return family, vocabulary, None


def _from_vocabulary(path: Path, settings: Settings) -> tuple[Family, Vocabulary]:
    """Without a tokenizer.json the class decides how a text is cut, so it must be a known one."""
    directory, name = settings.directory, class_of(settings, None)
    if "auto_map" in settings.options and name not in BY_CLASS:
        raise DataError(
            f"{directory} needs code of its own for its tokenizer, which is not run; "
            "save it with transformers as tokenizer.json"
        )
    if path.name == TXT:
        return _family(name, path, BERT), from_vocab_txt(path)
    if path.name == JSON:
        return _family(name, path, GPT2), from_vocab_json(path, directory / MERGES)
    family = _family(name, path, PLAIN)
    return family, from_sentencepiece(path, family, settings)


def _family(name: str | None, path: Path, usual: Family) -> Family:
    if name is None or (name in GENERIC and usual is PLAIN):
        return usual
    family = BY_CLASS.get(name)
    if family is None or family.file != usual.file:
        raise DataError(
            f"cannot read {path} for a {shown(f'{name}Tokenizer')}; save it with transformers as "
            "tokenizer.json"
        )
    return family
