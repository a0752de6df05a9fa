"""A source and its translation side by side, by words; of a single word, by tokens."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from qkv.engine.beam import beam_search
from qkv.engine.translate import Marking
from qkv.engine.translate.plan import plans
from qkv.engine.translate.words import written_spans
from qkv.errors import DataError
from qkv.explain.why.words import Piece, Reading, by_tokens, pieces, read
from qkv.model import Translator
from qkv.text import Tokenizer


@dataclass(frozen=True)
class Pairing:
    """A source as it is read, and the ids of a target with the words they are."""

    source: Reading
    inside: tuple[int, ...]  # the source's ids without marks
    target: str
    ids: tuple[int, ...]
    words: tuple[Piece, ...]


def paired(
    model: Translator,
    tokenizer: Tokenizer,
    source: str,
    target: str | None,
    marks: Marking,
    beams: int,
) -> Pairing:
    """The source beside this target, or beside what the model itself makes of it."""
    text = _one_line(source, tokenizer, marks)
    seen = read(tokenizer, text, model.config.length, marks.before, marks.after, "the source")
    if not seen.words:
        raise DataError("the source has no words the model knows, so there is nothing to explain")
    first = len(marks.before)
    inside = seen.ids[first : len(seen.ids) - len(marks.after)]
    if target is None:
        ids = _translated(model, seen.ids, marks, beams)
    else:
        ids = tuple(tokenizer.encode(target, target=True))
    written = tokenizer.decode(ids)
    most = model.config.length - len(marks.start) + 1  # the start and all but the last are read
    if len(ids) > most:
        raise DataError(f"the target has {len(ids):,} tokens but {most:,} are the most; shorten it")
    cut = pieces
    if len(seen.words) == 1:
        cut = by_tokens
        seen = replace(seen, words=cut(tokenizer, text, inside, tokenizer.offsets(text), first))
    words = cut(tokenizer, written, ids, written_spans(tokenizer, ids, written))
    if not words:
        raise DataError("the target has no words, so there is nothing to explain")
    return Pairing(seen, inside, written, ids, words)


def _one_line(source: str, tokenizer: Tokenizer, marks: Marking) -> str:
    (plan,) = plans([source], tokenizer, marks, "error")
    if len(plan.portions) != 1:
        raise DataError(
            f"the source has {len(plan.portions)} lines of text but a translation is explained "
            "line by line; give one"
        )
    return plan.portions[0].text


def _translated(
    model: Translator, source: Sequence[int], marks: Marking, beams: int
) -> tuple[int, ...]:
    (found,) = beam_search(
        model,
        [source],
        start=marks.start[-1],
        before=marks.start[:-1],
        end=marks.end,
        beams=beams,
        forbidden=marks.never,
    )
    return tuple(found[0].ids)
