"""Pretrained tokenizers: a public model directory in, the same ids as `transformers` out.

Two formats need more than a pipeline. Marian has a SentencePiece model for each language and the
ids in vocab.json. Others renumber the pieces of their SentencePiece model: T5 appends its extra
ids; the fairseq models (XLM-R, mBART) have four special tokens of their own where SentencePiece has
three, then all pieces shifted by one, and more special tokens at the end.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

from tokenizers import AddedToken
from tokenizers import Tokenizer as Backend

from qkv.errors import DataError, QkvError
from qkv.files import MAX_VOCAB_BYTES, lexists, short_repr
from qkv.text import pipelines
from qkv.text.assemble import assemble
from qkv.text.pipelines import (
    BERT,
    BY_CLASS,
    GENERIC,
    GPT2,
    MARIAN,
    PLAIN,
    T5,
    VOCAB_JSON,
    VOCAB_TXT,
    Family,
    class_of,
)
from qkv.text.pretrained_files import (
    Settings,
    Vocabulary,
    check_ids,
    from_tokenizer_json,
    from_vocab_json,
    from_vocab_txt,
    read_settings,
)
from qkv.text.sentencepiece import (
    BPE,
    UNIGRAM,
    PieceType,
    SentencePieceModel,
    read_model,
)
from qkv.text.tokenizer import Tokenizer
from qkv.text.tokenizer_files import read_json, read_text, tokenizer_errors

MARIAN_FILES = (MARIAN.vocab_file, "target.spm")
VOCABULARY_TYPES = (PieceType.NORMAL, PieceType.UNKNOWN, PieceType.USER_DEFINED)


def read_marian(settings: Settings) -> Tokenizer:
    """A tokenizer that segments by source.spm or target.spm and takes the ids of vocab.json."""
    directory = settings.directory
    path = directory / "vocab.json"
    if settings.options.get("separate_vocabs") or lexists(directory / "target_vocab.json"):
        raise DataError(f"{directory} has two vocabularies; only Marian models with one are read")
    ids = check_ids(path, read_json(path, MAX_VOCAB_BYTES))
    scores = [(token, 0.0) for token in sorted(ids, key=lambda token: ids[token])]
    with tokenizer_errors(path):
        vocabulary = Vocabulary(path, ids, scores, unk_id=ids.get("<unk>", 0))
        tokenizer = assemble(MARIAN, vocabulary, settings, None)
    special = [
        AddedToken(tokenizer.token(id), normalized=False, special=True)
        for id in tokenizer.special_ids
    ]
    source, target = (_read_marian_model(directory / n, settings, special) for n in MARIAN_FILES)
    return tokenizer.with_language_pair((source, target))


def _read_marian_model(path: Path, settings: Settings, special: list[AddedToken]) -> Backend:
    """The segmentation of one language; control pieces, such as </s>, never match."""
    model = read_model(path)
    if model.type != UNIGRAM:
        raise DataError(f"{path} is a BPE model, but Marian needs a Unigram one")
    pieces = [piece for piece in model.pieces if piece.type in VOCABULARY_TYPES]
    scores = []
    unk_id = None
    for id, piece in enumerate(pieces):
        text = piece.text
        if piece.type == PieceType.UNKNOWN:
            # Pre-tokenized text contains no space, so this cannot match any of it.
            text = f" {text}"
            if unk_id is None:
                unk_id = id
        scores.append((text, piece.score))
    with tokenizer_errors(path):
        if unk_id is None:
            raise DataError("it has no unk piece")
        vocabulary = Vocabulary(
            path,
            {},
            scores,
            charsmap=model.charsmap,
            add_dummy_prefix=model.add_dummy_prefix,
            remove_extra_whitespaces=model.remove_extra_whitespaces,
            unk_id=unk_id,
        )
        backend = pipelines.sentencepiece_unigram(vocabulary, settings, {})
        backend.add_tokens(special)
        backend.encode("")
    return backend


MAX_PIECE_CHARACTERS = 512  # the work grows with the square
MAX_MERGES = 2**22

# The first four tokens of the fairseq models.
FAIRSEQ_TOKENS = ("bos_token", "pad_token", "eos_token", "unk_token")


def from_sentencepiece(path: Path, family: Family, settings: Settings) -> Vocabulary:
    """The vocabulary of a SentencePiece model, renumbered as its family does."""
    model = read_model(path)
    kind = "BPE" if model.type == BPE else "Unigram"
    if family.model not in ("", kind):
        raise DataError(f"{path} is a {kind} model, but this tokenizer needs a {family.model} one")
    scores = [(piece.text, piece.score) for piece in model.pieces]
    if family is T5:
        extra = settings.options.get("extra_ids", 100)
        if isinstance(extra, bool) or not isinstance(extra, int) or not 0 <= extra <= 10_000:
            raise DataError(
                f"{settings.directory}: extra_ids must be 0 to 10000, not {short_repr(extra)}"
            )
        scores += [(f"<extra_id_{number}>", 0.0) for number in reversed(range(extra))]
    elif family.unk_id == len(FAIRSEQ_TOKENS) - 1:
        by_role = dict(family.tokens)
        for name, token in settings.role_tokens.items():
            if token:
                by_role[name] = str(token)
        by_role.setdefault("bos_token", by_role["cls_token"])
        head = [(by_role[name], 0.0) for name in FAIRSEQ_TOKENS]
        tail = [(token, 0.0) for token in (*family.languages, by_role["mask_token"])]
        scores = [*head, *scores[3:], *tail]
    ids = {piece: id for id, (piece, _) in enumerate(scores)}
    if len(ids) < len(scores):
        raise DataError(f"{path} has the same piece twice")
    merges: list[tuple[str, str]] = []
    if kind == "BPE":
        # As in transformers: the pieces in the order of their ids, and all of them. A trainer
        # numbers them in the order it made them, which is that of their scores.
        merges = merge_pairs(path, ids, ids, DataError)
        scores = []
    return Vocabulary(
        path,
        ids,
        scores=scores,
        merges=merges,
        charsmap=model.charsmap,
        unk_id=model.unk_id,
        byte_fallback=model.byte_fallback,
        special_tokens=_special_tokens(model),
        role_tokens=model.role_tokens,
    )


def merge_pairs(
    path: Path, ranked: Iterable[str], vocab: Collection[str], error: type[QkvError]
) -> list[tuple[str, str]]:
    """BPE merges for a SentencePiece model: every two pieces that spell another, by its rank.

    SentencePiece merges the neighbours that make the best piece, `tokenizers` those that come
    first in a list of pairs; so the list has each piece, best first, as every pair that spells it.
    """
    longest = max(vocab, key=len, default="")
    if len(longest) > MAX_PIECE_CHARACTERS:
        raise error(
            f"{path}: the piece {short_repr(longest)} has {len(longest)} characters; no vocabulary "
            f"needs more than {MAX_PIECE_CHARACTERS}, so it is damaged"
        )
    merges = []
    for piece in ranked:
        for split in range(1, len(piece)):
            if piece[:split] in vocab and piece[split:] in vocab:
                merges.append((piece[:split], piece[split:]))
        if len(merges) > MAX_MERGES:
            raise error(
                f"{path}: its pieces can be joined in more than {MAX_MERGES} ways; it is damaged"
            )
    return merges


def _special_tokens(model: SentencePieceModel) -> tuple[AddedToken, ...]:
    """Pieces that are never segmented: control tokens and user-defined symbols."""
    return tuple(
        AddedToken(piece.text, normalized=False, special=piece.type == PieceType.CONTROL)
        for piece in model.pieces
        if piece.type in (PieceType.CONTROL, PieceType.USER_DEFINED)
    )


TOKENIZER_JSON = "tokenizer.json"
MERGES_TXT = "merges.txt"
SENTENCEPIECE_FILES = ("tokenizer.model", "spiece.model", "sentencepiece.bpe.model")

# The files a tokenizer can come in: the first group that is complete is read.
FILES = (
    (MARIAN.vocab_file,),
    (TOKENIZER_JSON,),
    (VOCAB_TXT,),
    (VOCAB_JSON, MERGES_TXT),
    *((name,) for name in SENTENCEPIECE_FILES),
)


def has_tokenizer(directory: Path) -> bool:
    """Whether a directory has tokenizer files, readable or not."""
    return any(lexists(directory / first) for first, *_ in FILES)


def read_tokenizer(directory: Path, config: Mapping[str, Any] | None = None) -> Tokenizer:
    """The tokenizer of a public model directory; `config` is its config.json if already read.

    No code of the directory is run. A tokenizer class of its own is refused, unless there is a
    tokenizer.json, which defines it completely.
    """
    settings = read_settings(Path(directory), config)
    path = _find_vocabulary(settings.directory)
    if path.name == MARIAN.vocab_file:
        return read_marian(settings)
    backend = None
    if path.name == TOKENIZER_JSON:
        family, vocabulary, backend = _from_tokenizer_json(path, settings)
    else:
        family, vocabulary = _from_vocabulary(path, settings)
    with tokenizer_errors(vocabulary.path):
        return assemble(family, vocabulary, settings, backend)


def _find_vocabulary(directory: Path) -> Path:
    """The file that decides which format is read."""
    for first, *rest in FILES:
        if all(lexists(directory / name) for name in (first, *rest)):
            return directory / first
    expected = ", ".join(" with ".join(names) for names in FILES)
    raise DataError(f"{directory} has no tokenizer: looked for {expected}")


def _from_tokenizer_json(
    path: Path, settings: Settings
) -> tuple[Family, Vocabulary, Backend | None]:
    """The family, its vocabulary, and the tokenizer itself if it is to be used unchanged."""
    text = read_text(path)
    with tokenizer_errors(path):
        backend = Backend.from_str(text)
        vocabulary = from_tokenizer_json(path, backend, text)
    family = BY_CLASS.get(class_of(settings, text) or "", PLAIN)
    if family is PLAIN or family.model != type(backend.model).__name__:
        return PLAIN, vocabulary, backend
    return family, vocabulary, None


def _from_vocabulary(path: Path, settings: Settings) -> tuple[Family, Vocabulary]:
    """Without a tokenizer.json the class defines the pipeline, so it must be a known one."""
    directory = settings.directory
    name = class_of(settings, None)
    if "auto_map" in settings.options and name not in BY_CLASS:
        raise DataError(
            f"{directory} needs code of its own for its tokenizer, which is not run; save it with "
            "transformers as tokenizer.json"
        )
    if path.name == VOCAB_TXT:
        return _family(name, path, BERT), from_vocab_txt(path)
    if path.name == VOCAB_JSON:
        return _family(name, path, GPT2), from_vocab_json(path, directory / MERGES_TXT)
    family = _family(name, path, PLAIN)
    return family, from_sentencepiece(path, family, settings)


def _family(name: str | None, path: Path, default: Family) -> Family:
    if name is None or (name in GENERIC and default is PLAIN):
        return default
    family = BY_CLASS.get(name)
    if family is None or family.vocab_file != default.vocab_file:
        raise DataError(
            f"cannot read {path} for a {short_repr(f'{name}Tokenizer')}; save it with transformers "
            "as tokenizer.json"
        )
    return family
