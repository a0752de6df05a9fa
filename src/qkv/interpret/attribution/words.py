"""A text as a model reads it, by words: which positions each word is made of, and which are marks.

An explanation speaks of words, because people do; the model reads tokens. Where a language writes
without spaces each character is a word, and tokens that share one stay together.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from qkv.engine.beam.search import beam_search
from qkv.engine.cluster.clustering import Span, tokens_of_words
from qkv.engine.translate import Marking
from qkv.engine.translate.alignment import written_spans
from qkv.engine.translate.segments import plans
from qkv.errors import DataError
from qkv.model import Translator
from qkv.text import Tokenizer

# FOLDED explain/why/pairing: A source and its translation side by side, by words; of a single
#   word, by tokens.


@dataclass(frozen=True)
class Piece:
    """A word of the text, text[start:end], or a mark, which stands nowhere in it."""

    text: str
    start: int
    end: int
    at: tuple[int, ...]  # the positions of its tokens among those the model reads

    def json(self) -> dict[str, object]:
        return {"word": self.text, "start": self.start, "end": self.end}


@dataclass(frozen=True)
class Reading:
    """The ids a model reads, and the words and marks they are."""

    text: str
    ids: tuple[int, ...]
    words: tuple[Piece, ...]
    marks: tuple[Piece, ...]

    def places(self, words: Sequence[int] | frozenset[int]) -> frozenset[int]:
        """The positions of the words of these numbers."""
        return frozenset(at for word in words for at in self.words[word].at)


def read(
    tokenizer: Tokenizer,
    text: str,
    most: int,
    before: Sequence[int] = (),
    after: Sequence[int] = (),
    what: str = "the text",
) -> Reading:
    """The text with these marks around it, for a model that reads so many tokens."""
    inside = tokenizer.encode(text)
    ids = (*before, *inside, *after)
    if not ids:
        raise DataError(f"{what} is empty: there is nothing to explain")
    if len(ids) > most:
        raise DataError(
            f"{what} has {len(ids):,} tokens but the model reads at most {most:,}; shorten it"
        )
    words = pieces(tokenizer, text, inside, tokenizer.offsets(text), len(before))
    places = (*range(len(before)), *range(len(before) + len(inside), len(ids)))
    marks = tuple(Piece(tokenizer.token(ids[at]), -1, -1, (at,)) for at in places)
    return Reading(text, ids, words, marks)


def pieces(
    tokenizer: Tokenizer, text: str, ids: Sequence[int], spans: Sequence[Span], first: int = 0
) -> tuple[Piece, ...]:
    """The words of a text whose tokens cover these characters; `first` is where they begin."""
    return _named(tokenizer, text, ids, spans, first, tokens_of_words(text, spans))


def token_spans(
    tokenizer: Tokenizer, text: str, ids: Sequence[int], spans: Sequence[Span], first: int = 0
) -> tuple[Piece, ...]:
    """The same for a text that is one word: each token by itself."""
    alone = [(span, [at]) for at, span in enumerate(spans)]
    return _named(tokenizer, text, ids, spans, first, alone)


def _named(
    tokenizer: Tokenizer,
    text: str,
    ids: Sequence[int],
    spans: Sequence[Span],
    first: int,
    groups: Sequence[tuple[Span | None, list[int]]],
) -> tuple[Piece, ...]:
    found = []
    for span, tokens in groups:
        start, end = span or (spans[tokens[0]][0], max(spans[at][1] for at in tokens))
        shown = text[start:end] or "".join(tokenizer.token(ids[at]) for at in tokens)
        found.append(Piece(shown, start, end, tuple(first + at for at in tokens)))
    return tuple(found)


@dataclass(frozen=True)
class TokenizedPair:
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
) -> TokenizedPair:
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
        cut = token_spans
        seen = replace(seen, words=cut(tokenizer, text, inside, tokenizer.offsets(text), first))
    words = cut(tokenizer, written, ids, written_spans(tokenizer, ids, written))
    if not words:
        raise DataError("the target has no words, so there is nothing to explain")
    return TokenizedPair(seen, inside, written, ids, words)


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
