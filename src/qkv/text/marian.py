"""Marian's tokenizers: a SentencePiece model for each language, and vocab.json with the ids."""

from __future__ import annotations

from pathlib import Path

from tokenizers import AddedToken
from tokenizers import Tokenizer as Backend

from qkv.errors import DataError
from qkv.files import LARGEST, is_there
from qkv.text import pipelines
from qkv.text.assemble import assemble
from qkv.text.families import MARIAN
from qkv.text.files import read_json, refusing
from qkv.text.sentencepiece import NORMAL, UNIGRAM, UNKNOWN, USER_DEFINED, read_model
from qkv.text.settings import Settings
from qkv.text.tokenizer import Tokenizer
from qkv.text.vocabulary import Vocabulary, expect_ids

FILES = (MARIAN.file, "target.spm")


def read_marian(settings: Settings) -> Tokenizer:
    """A tokenizer that cuts a text by source.spm or target.spm and numbers it by vocab.json."""
    directory, path = settings.directory, settings.directory / "vocab.json"
    if settings.options.get("separate_vocabs") or is_there(directory / "target_vocab.json"):
        raise DataError(f"{directory} has two vocabularies; only Marian models with one are read")
    ids = expect_ids(path, read_json(path, LARGEST))
    in_order = sorted(ids, key=lambda token: ids[token])
    names = Vocabulary(path, ids, [(token, 0.0) for token in in_order], unknown=ids.get("<unk>", 0))
    with refusing(path):
        numbers = assemble(MARIAN, names, settings, None)
    tokens = [numbers.token(id) for id in numbers.special]
    special = [AddedToken(token, normalized=False, special=True) for token in tokens]
    source, target = (_cutter(directory / name, settings, special) for name in FILES)
    return numbers.cut_by((source, target))


def _cutter(path: Path, settings: Settings, special: list[AddedToken]) -> Backend:
    """How one language is cut; control pieces of the model, such as </s>, are never found."""
    model = read_model(path)
    if model.type != UNIGRAM:
        raise DataError(f"{path} is a BPE model, but Marian needs a Unigram one")
    found = [p for p in model.pieces if p.type in (NORMAL, UNKNOWN, USER_DEFINED)]
    # No text holds a space when it is cut, so none can spell the unknown piece.
    scores = [(p.text if p.type != UNKNOWN else f" {p.text}", p.score) for p in found]
    unknown = next((n for n, p in enumerate(found) if p.type == UNKNOWN), None)
    with refusing(path):
        if unknown is None:
            raise DataError("it has no unknown piece")
        backend = pipelines.sentencepiece_words(
            Vocabulary(
                path,
                {},
                scores,
                charsmap=model.charsmap,
                adds_space=model.adds_space,
                tidies_space=model.tidies_space,
                unknown=unknown,
            ),
            settings,
            {},
        )
        backend.add_tokens(special)
        backend.encode("")
    return backend
