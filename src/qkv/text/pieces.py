"""From the ids of a SentencePiece model to those of the model that was trained with it.

T5 appends its extra ids. The fairseq models (XLM-R, mBART) have four special tokens of their own
where SentencePiece has three, then all pieces moved up by one, and more special tokens at the end.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from itertools import islice
from pathlib import Path

from tokenizers import AddedToken

from qkv.errors import DataError, QkvError
from qkv.files import shown
from qkv.text.families import T5, Family
from qkv.text.sentencepiece import BPE, CONTROL, USER_DEFINED, Model, read_model
from qkv.text.settings import Settings
from qkv.text.vocabulary import Vocabulary

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
                f"{settings.directory}: extra_ids must be 0 to 10000, not {shown(extra)}"
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
        merges=joins(path, ids, ids, DataError) if kind == "BPE" else [],
        charsmap=model.charsmap,
        unknown=model.unknown,
        byte_fallback=model.byte_fallback,
        special=_special(model),
        names=model.names,
    )


def joins(
    path: Path, ranked: Iterable[str], known: Collection[str], error: type[QkvError]
) -> list[tuple[str, str]]:
    """Every two known pieces that spell another, in the order in which they are to be joined.

    SentencePiece joins the neighbours that make the best piece, `tokenizers` those that come first
    in a list of pairs; so it is each piece, best first, as every pair that spells it.
    """
    longest = max(known, key=len, default="")
    if len(longest) > LONGEST:
        raise error(
            f"{path}: the piece {shown(longest)} has {len(longest)} characters; no vocabulary "
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


def _special(model: Model) -> tuple[AddedToken, ...]:
    """Pieces that are never cut: control tokens, and symbols its trainer asked for."""
    return tuple(
        AddedToken(piece.text, normalized=False, special=piece.type == CONTROL)
        for piece in model.pieces
        if piece.type in (CONTROL, USER_DEFINED)
    )
