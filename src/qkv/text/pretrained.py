"""Tokenizers as others published them: a directory in, the same ids as `transformers` out."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from itertools import islice
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
    JSON,
    MARIAN,
    PLAIN,
    T5,
    TXT,
    Family,
    class_of,
)
from qkv.text.pretrained_files import (
    Settings,
    Vocabulary,
    expect_ids,
    from_tokenizer_json,
    from_vocab_json,
    from_vocab_txt,
    read_settings,
)
from qkv.text.sentencepiece import (
    BPE,
    CONTROL,
    NORMAL,
    UNIGRAM,
    UNKNOWN,
    USER_DEFINED,
    SentencePieceModel,
    read_model,
)
from qkv.text.tokenizer import Tokenizer
from qkv.text.tokenizer_files import read_json, read_text, tokenizer_errors

# FOLDED text/marian: Marian's tokenizers: a SentencePiece model for each language, and
#   vocab.json with the ids.
# FOLDED text/pieces: From the ids of a SentencePiece model to those of the model that was
#   trained with it.
#
#   T5 appends its extra ids. The fairseq models (XLM-R, mBART) have four special tokens of
#   their own
#   where SentencePiece has three, then all pieces moved up by one, and more special tokens at
#   the end.

MARIAN_FILES = (MARIAN.file, "target.spm")


def read_marian(settings: Settings) -> Tokenizer:
    """A tokenizer that cuts a text by source.spm or target.spm and numbers it by vocab.json."""
    directory, path = settings.directory, settings.directory / "vocab.json"
    if settings.options.get("separate_vocabs") or lexists(directory / "target_vocab.json"):
        raise DataError(f"{directory} has two vocabularies; only Marian models with one are read")
    ids = expect_ids(path, read_json(path, MAX_VOCAB_BYTES))
    in_order = sorted(ids, key=lambda token: ids[token])
    names = Vocabulary(path, ids, [(token, 0.0) for token in in_order], unknown=ids.get("<unk>", 0))
    with tokenizer_errors(path):
        numbers = assemble(MARIAN, names, settings, None)
    tokens = [numbers.token(id) for id in numbers.special_ids]
    special = [AddedToken(token, normalized=False, special=True) for token in tokens]
    source, target = (_cutter(directory / name, settings, special) for name in MARIAN_FILES)
    return numbers.with_language_pair((source, target))


def _cutter(path: Path, settings: Settings, special: list[AddedToken]) -> Backend:
    """How one language is cut; control pieces of the model, such as </s>, are never found."""
    model = read_model(path)
    if model.type != UNIGRAM:
        raise DataError(f"{path} is a BPE model, but Marian needs a Unigram one")
    found = [p for p in model.pieces if p.type in (NORMAL, UNKNOWN, USER_DEFINED)]
    # No text holds a space when it is cut, so none can spell the unknown piece.
    scores = [(p.text if p.type != UNKNOWN else f" {p.text}", p.score) for p in found]
    unknown = next((n for n, p in enumerate(found) if p.type == UNKNOWN), None)
    with tokenizer_errors(path):
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


LONGEST = 512  # characters of a piece; the work grows with the square

MOST = 2**22  # ways to join two pieces

FAIRSEQ = ("bos_token", "pad_token", "eos_token", "unk_token")


def from_sentencepiece(path: Path, family: Family, settings: Settings) -> Vocabulary:
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
    elif family.unknown == len(FAIRSEQ) - 1:
        named = {**family.roles, **{name: str(t) for name, t in settings.roles.items() if t}}
        named.setdefault("bos_token", named["cls_token"])
        head = [(named[name], 0.0) for name in FAIRSEQ]
        tail = [(token, 0.0) for token in (*family.languages, named["mask_token"])]
        scores = [*head, *scores[3:], *tail]
    ids = {piece: id for id, (piece, _) in enumerate(scores)}
    if len(ids) < len(scores):
        raise DataError(f"{path} has the same piece twice")
    return Vocabulary(
        path,
        ids,
        scores=[] if kind == "BPE" else scores,
        # As in transformers: the pieces in the order of their ids, and all of them. A trainer
        # numbers them in the order it made them, which is that of their scores.
        merges=merge_pairs(path, ids, ids, DataError) if kind == "BPE" else [],
        charsmap=model.charsmap,
        unknown=model.unknown,
        byte_fallback=model.byte_fallback,
        special=_special(model),
        names=model.names,
    )


def merge_pairs(
    path: Path, ranked: Iterable[str], known: Collection[str], error: type[QkvError]
) -> list[tuple[str, str]]:
    """Every two known pieces that spell another, in the order in which they are to be joined.

    SentencePiece joins the neighbours that make the best piece, `tokenizers` those that come first
    in a list of pairs; so it is each piece, best first, as every pair that spells it.
    """
    longest = max(known, key=len, default="")
    if len(longest) > LONGEST:
        raise error(
            f"{path}: the piece {short_repr(longest)} has {len(longest)} characters; no vocabulary "
            f"needs more than {LONGEST}, so it is damaged"
        )
    pairs = (
        (piece[:cut], piece[cut:])
        for piece in ranked
        for cut in range(1, len(piece))
        if piece[:cut] in known and piece[cut:] in known
    )
    found = list(islice(pairs, MOST + 1))
    if len(found) > MOST:
        raise error(f"{path}: its pieces can be joined in more than {MOST} ways; it is damaged")
    return found


def _special(model: SentencePieceModel) -> tuple[AddedToken, ...]:
    """Pieces that are never cut: control tokens, and symbols its trainer asked for."""
    return tuple(
        AddedToken(piece.text, normalized=False, special=piece.type == CONTROL)
        for piece in model.pieces
        if piece.type in (CONTROL, USER_DEFINED)
    )


WHOLE, MERGES = "tokenizer.json", "merges.txt"

MODELS = ("tokenizer.model", "spiece.model", "sentencepiece.bpe.model")

# What a tokenizer can come in: the first that is there with what belongs to it is read.
FILES = ((MARIAN.file,), (WHOLE,), (TXT,), (JSON, MERGES), *((model,) for model in MODELS))


def has_tokenizer(directory: Path) -> bool:
    """Whether there is a tokenizer to be read, or to be refused."""
    return any(lexists(directory / first) for first, *_ in FILES)


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
    with tokenizer_errors(vocabulary.path):
        return assemble(family, vocabulary, settings, backend)


def _first(directory: Path) -> Path:
    """The file that decides."""
    for first, *rest in FILES:
        if all(lexists(directory / name) for name in (first, *rest)):
            return directory / first
    looked = ", ".join(" with ".join(names) for names in FILES)
    raise DataError(f"{directory} has no tokenizer: looked for {looked}")


def _choose(path: Path, settings: Settings) -> tuple[Family, Vocabulary, Backend | None]:
    """The family, its vocabulary, and of a tokenizer.json that stays as it is the tokenizer."""
    if path.name != WHOLE:
        return *_from_vocabulary(path, settings), None
    text = read_text(path)
    with tokenizer_errors(path):
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
            f"{directory} needs code of its own for its tokenizer, which is not run; save it with "
            "transformers as tokenizer.json"
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
            f"cannot read {path} for a {short_repr(f'{name}Tokenizer')}; save it with transformers "
            "as tokenizer.json"
        )
    return family
