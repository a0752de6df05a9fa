"""Tokenizers as others published them: a directory in, the same ids as `transformers` out."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer as Backend

from qkv.errors import DataError
from qkv.text.assemble import assemble
from qkv.text.families import BERT, BY_CLASS, GENERIC, GPT2, PLAIN, Family, class_of
from qkv.text.files import is_there, read_text, refusing
from qkv.text.marian import read_marian
from qkv.text.pieces import from_sentencepiece
from qkv.text.settings import Settings, read_settings
from qkv.text.tokenizer import Tokenizer
from qkv.text.vocabulary import Vocabulary, from_tokenizer_json, from_vocab_json, from_vocab_txt

MODELS = ("tokenizer.model", "spiece.model", "sentencepiece.bpe.model")


def read_tokenizer(directory: Path, config: Mapping[str, Any] | None = None) -> Tokenizer:
    """The tokenizer of a public model directory; `config` is its config.json if already read.

    No code of the directory is run. A class of its own is refused, unless tokenizer.json is there
    and says it all.
    """
    settings = read_settings(Path(directory), config)
    if is_there(settings.directory / "source.spm"):
        return read_marian(settings)
    family, vocabulary, backend = _choose(settings)
    with refusing(vocabulary.path):
        return assemble(family, vocabulary, settings, backend)


def _choose(settings: Settings) -> tuple[Family, Vocabulary, Backend | None]:
    """The family, its vocabulary, and of a tokenizer.json that stays as it is the tokenizer."""
    path = settings.directory / "tokenizer.json"
    if not is_there(path):
        return *_from_vocabulary(settings), None
    text = read_text(path)
    with refusing(path):
        whole = Backend.from_str(text)
        vocabulary = from_tokenizer_json(path, whole, text)
    family = BY_CLASS.get(class_of(settings, text) or "", PLAIN)
    if family is PLAIN or family.model != type(whole.model).__name__:
        return PLAIN, vocabulary, whole
    return family, vocabulary, None


def _from_vocabulary(settings: Settings) -> tuple[Family, Vocabulary]:
    """Without a tokenizer.json the class decides how a text is cut, so it must be a known one."""
    directory, name = settings.directory, class_of(settings, None)
    if "auto_map" in settings.options and name not in BY_CLASS:
        raise DataError(
            f"{directory} needs code of its own for its tokenizer, which is not run; "
            "save it with transformers as tokenizer.json"
        )
    txt, merges, vocab = (directory / n for n in ("vocab.txt", "merges.txt", "vocab.json"))
    if is_there(txt):
        return _family(settings, name, txt, BERT), from_vocab_txt(txt)
    if is_there(vocab) and is_there(merges):
        return _family(settings, name, vocab, GPT2), from_vocab_json(vocab, merges)
    for path in (directory / model for model in MODELS):
        if is_there(path):
            family = _family(settings, name, path, PLAIN)
            return family, from_sentencepiece(path, family, settings)
    files = ", ".join(
        ("tokenizer.json", "vocab.txt", "vocab.json with merges.txt", *MODELS, "source.spm")
    )
    raise DataError(f"{directory} has no tokenizer: looked for {files}")


def _family(settings: Settings, name: str | None, path: Path, usual: Family) -> Family:
    if name is None or (name in GENERIC and usual is PLAIN):
        return usual
    family = BY_CLASS.get(name)
    if family is None or family.file != usual.file:
        raise DataError(
            f"cannot read {path} for a {name}Tokenizer; save it with transformers as tokenizer.json"
        )
    return family
