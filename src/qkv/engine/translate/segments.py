"""A text as portions the model can read, and its translation put together from theirs.

Lines are portions always: a break stays where it was. A line that is too long is an error, or is
cut into its sentences; a sentence that is too long into clauses, then words, then characters, as
many in one portion as fit.
"""

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from qkv.engine.beam.hypotheses import Hypothesis
from qkv.errors import DataError
from qkv.model import EncoderDecoder
from qkv.text import Tokenizer

# FOLDED engine/translate/sentences: Where a text can be cut with the least harm: after
#   sentences, after clauses, between words.
#
#   Every cut keeps all characters: the pieces, put together again, are the text.
# FOLDED engine/translate/marking: The marks of a translator: what stands around a source, and
#   what a target begins and ends with.
#
#   A tokenizer of ours has no template: a source is closed by the end mark, unless its marks
#   say that
#   it is read bare. One from elsewhere puts around a source what it always does, and may want
#   a target
#   to begin with more than one mark.
# FOLDED engine/translate/plan: What of each text the model is asked: its portions as token ids,
#   or why it cannot be asked.
# FOLDED engine/translate/combine: The best translations of a text whose portions have several
#   each.

# A sentence ends with these, then perhaps quotes or brackets that close, then a space; in Chinese
# and Japanese without one.
_END = re.compile(r"[.?!…؟۔।॥]+[\"'”’»›)\]]*\s+|[。！？｡]+[」』”’）】]*\s*")

_CLAUSE = re.compile(r"[,;:،؛—–]+[\"'”’»)\]]*\s+|\s[—–-]\s+|[、，；：]\s*")

_WORD = re.compile(r"\s+")

_NEAR = 32  # characters before a full stop that are looked at

_LAST_WORD = re.compile(r"[^\s(\[\"'“‘„«]*\Z")

_ORDINAL = re.compile(r"\d{1,3}|[IVXLC]+")  # "der 2. Mai", "Louis XIV. von Frankreich"

_INITIAL = re.compile(r"(?:[^\W\d_]\.)*[^\W\d_]")  # "J. Smith", "e.g. Rome", "z.B. Rom"

_ABBREVIATIONS = {
    "mr", "mrs", "ms", "dr", "prof", "st", "jr", "sr", "rev", "hon", "gen", "col", "capt", "lt",
    "sgt", "messrs", "mt", "ft", "vs", "etc", "cf", "al", "approx", "dept", "inc", "ltd", "co",
    "corp", "bros", "jan", "feb", "apr", "aug", "sept", "oct", "nov", "hr", "fr", "frl", "abs",
    "abb", "bd", "bzw", "usw", "ca", "evtl", "ggf", "inkl", "exkl", "geb", "gest", "jh", "jhd",
    "kap", "mio", "mrd", "mwst", "sog", "str", "tel", "vgl", "zzgl", "dipl", "ing", "mme", "mlle",
    "mlles", "av", "env", "janv", "juil", "sra", "srta", "ud", "uds", "dña", "lic", "avda", "pág",
    "núm", "dott", "ecc", "pag", "ул", "им", "др", "тыс", "млн", "млрд", "руб", "стр", "рис",
}  # fmt: skip

_BEFORE_A_NUMBER = {
    "no", "nos", "nr", "art", "sec", "fig", "figs", "p", "pp", "vol", "ch", "ed",
}  # fmt: skip


def split_sentences(text: str) -> list[str]:
    """The sentences of a text, each with the space behind it."""
    return pieces(text, [found.end() for found in _END.finditer(text) if _ends(text, found)])


def split_clauses(text: str) -> list[str]:
    """The parts of a sentence between commas, semicolons, colons and dashes."""
    return pieces(text, [found.end() for found in _CLAUSE.finditer(text)])


def split_at_spaces(text: str) -> list[str]:
    """What stands between spaces, each word with the space behind it."""
    return pieces(text, [found.end() for found in _WORD.finditer(text)])


def pieces(text: str, ends: list[int]) -> list[str]:
    """The text cut at these places; no piece is empty."""
    return [text[a:b] for a, b in pairwise([0, *ends, len(text)]) if a < b]


def _ends(text: str, found: re.Match[str]) -> bool:
    """Whether a sentence ends with this mark, rather than an abbreviation or a number."""
    follows = text[found.end() : found.end() + 8].lstrip("\"'“‘„«‹([¿¡")[:1]
    if follows.islower():
        return False  # “Is it?” he asked
    if not found[0].startswith(".") or found[0].startswith(".."):
        return True
    last = _LAST_WORD.search(text[max(0, found.start() - _NEAR) : found.start()])
    before = "" if last is None else last[0]
    if _ORDINAL.fullmatch(before) or _INITIAL.fullmatch(before):
        return False
    if follows.isdigit() and before.lower() in _BEFORE_A_NUMBER:
        return False
    return before.lower() not in _ABBREVIATIONS


Fits = Callable[[str], bool]

_BREAK = re.compile(r"(?:\r\n|[\n\r\u2028\u2029])+")

_FINER: tuple[Callable[[str], list[str]], ...] = (split_clauses, split_at_spaces, list)


@dataclass(frozen=True)
class Segment:
    """A part of a text that is translated by itself, and the space around it, which is not."""

    text: str
    start: int  # the place of its first character in the whole
    before: str = ""
    after: str = ""


def split_lines(text: str) -> list[Segment]:
    """The lines of a text that have anything in them; the only line of a text stays as it is."""
    if not _BREAK.search(text):
        if text.strip():
            return [Segment(text, 0)]
        return []
    ends = [found.end() for found in _BREAK.finditer(text)]
    return _portions(pieces(text, ends), Segment("", 0))


def split_line(line: Segment, fits: Fits) -> list[Segment]:
    """The sentences of a line, or parts of them where one does not fit."""
    found: list[str] = []
    for sentence in split_sentences(line.text):
        found += _cut_finer(sentence, fits, _FINER)
    return _portions(found, line)


def join_segments(portions: Sequence[Segment], said: Sequence[str]) -> tuple[str, list[int]]:
    """What was said of each portion with the space that stood between them, and where it begins."""
    text = ""
    starts = list[int]()
    for portion, part in zip(portions, said, strict=True):
        # Chinese has no space after a sentence, but most other languages want one there.
        lacks = text[-1:] in (".", "?", "!") and not portion.before and part[:1].isalpha()
        text += " " if lacks else portion.before
        starts.append(len(text))
        text += part + portion.after
    return text, starts


def _cut_finer(text: str, fits: Fits, ways: Sequence[Callable[[str], list[str]]]) -> list[str]:
    """The text itself if it fits, else its parts, as many together as fit."""
    if not ways or fits(text.strip()):
        return [text]
    parts = ways[0](text)
    first = 0
    found = list[str]()
    while first < len(parts):
        count = _most(parts, first, fits)
        found += _cut_finer("".join(parts[first : first + count]), fits, ways[1:])
        first += count
    return found


def _most(parts: Sequence[str], first: int, fits: Fits) -> int:
    """How many parts from the first on fit together; one, if not even that fits."""

    def fit(count: int) -> bool:
        return fits("".join(parts[first : first + count]).strip())

    left = len(parts) - first
    most = 1
    while 2 * most <= left and fit(2 * most):  # a long text is not tried as a whole
        most *= 2
    step = most
    while step:
        if most + step <= left and fit(most + step):
            most += step
        step //= 2
    return most


def _portions(parts: Sequence[str], whole: Segment) -> list[Segment]:
    """Pieces of a whole without the space around them; a blank one is space before the next."""
    found: list[Segment] = []
    place = whole.start
    space = whole.before
    for piece in parts:
        text = piece.strip()
        if text:
            lead = piece[: len(piece) - len(piece.lstrip())]
        else:
            lead = piece
        trail = piece[len(lead) + len(text) :]
        if text:
            found.append(Segment(text, place + len(lead), space + lead))
            space = trail
        else:
            space += piece
        place += len(piece)
    if found:
        last = found[-1]
        found[-1] = Segment(last.text, last.start, last.before, space + whole.after)
    return found


UNWRITTEN = ("pad", "unk", "bos", "mask")  # marks that no target holds


@dataclass(frozen=True)
class TranslationTemplate:
    """How texts are marked for one model."""

    source_prefix: tuple[int, ...]  # in front of a source
    source_suffix: tuple[int, ...]  # behind it
    target_prefix: tuple[int, ...]  # what a target begins with
    eos_id: int
    suppressed_ids: tuple[int, ...]  # tokens that are not written
    max_source_tokens: int  # for the tokens of a source

    @classmethod
    def of(cls, tokenizer: Tokenizer, config: EncoderDecoder) -> "TranslationTemplate":
        """The marks that `qkv train translate` puts around the texts of such a model."""
        t = tokenizer
        marked = t.adds_special_tokens or t.special_tokens.omit_source_eos
        before, after = (t.prefix_ids, t.suffix_ids) if marked else ((), (t.eos_id,))
        start: tuple[int, ...] = (t.bos_id,)
        if t.forced_bos_id is not None:
            start = (t.bos_id, t.forced_bos_id)
        named = (getattr(t.special_tokens, role) for role in UNWRITTEN)
        marks = {t.token_to_id(token) for token in named if token is not None}
        spare = range(t.vocab_size, config.embedding.vocabulary)  # a table may have rows to spare
        never = (*sorted(marks - {t.eos_id}), *spare)
        room = config.length - len(before) - len(after)
        if room < 1:
            around = len(before) + len(after)
            raise DataError(f"length={config.length} leaves no room beside {around} marks")
        return cls(tuple(before), tuple(after), start, t.eos_id, never, room)

    def wrap_source(self, ids: Sequence[int]) -> list[int]:
        """A source as the encoder reads it."""
        return [*self.source_prefix, *ids, *self.source_suffix]


Long = Literal["error", "sentences"]

SHOWN = 40  # characters of a text in a message

Ids = Sequence[int]


@dataclass(frozen=True)
class SegmentedText:
    """A text, its portions and their ids without marks; a blank text has none."""

    text: str
    segments: tuple[Segment, ...]
    ids: tuple[Ids, ...]
    remark: str | None = None


def segment_texts(
    texts: Sequence[str], tokenizer: Tokenizer, marking: TranslationTemplate, long: Long
) -> list[SegmentedText]:
    """How each text is translated: as it is, line by line, or, if need be, by its sentences."""
    cuts = [split_lines(text) for text in texts]
    encoded = iter(tokenizer.encode_many([line.text for text in cuts for line in text]))
    found = []
    for text, portions in zip(texts, cuts, strict=True):
        ids = [next(encoded) for _ in portions]
        if any(len(line) > marking.max_source_tokens for line in ids):
            found.append(_cut(text, portions, ids, tokenizer, marking, long))
        else:
            found.append(SegmentedText(text, tuple(portions), tuple(ids)))
    return found


def _cut(
    text: str,
    line_portions: Sequence[Segment],
    line_ids: Sequence[Ids],
    tokenizer: Tokenizer,
    marking: TranslationTemplate,
    long: Long,
) -> SegmentedText:
    """The plan of a text that has a line longer than the model reads."""
    portions = list[Segment]()
    ids = list[Ids]()
    told = ""
    for line, whole in zip(line_portions, line_ids, strict=True):
        if len(whole) <= marking.max_source_tokens:
            portions.append(line)
            ids.append(whole)
            continue
        most = f"{len(whole):,} tokens but the model reads at most {marking.max_source_tokens:,}"
        if long == "error":
            raise DataError(
                f"the text {_shown(line.text)} has {most}; shorten it, or have it translated "
                f"sentence by sentence with --long sentences"
            )
        parts = split_line(
            line, lambda part: len(tokenizer.encode(part)) <= marking.max_source_tokens
        )
        portions += parts
        ids += tokenizer.encode_many([part.text for part in parts])
        told = told or f"{_shown(line.text)} has {most}"
    _refuse_whole(portions, ids, marking.max_source_tokens)
    return SegmentedText(
        text, tuple(portions), tuple(ids), f"{told}; it was translated in {len(ids):,} parts"
    )


def _refuse_whole(portions: Sequence[Segment], ids: Sequence[Ids], room: int) -> None:
    for portion, tokens in zip(portions, ids, strict=True):
        if len(tokens) > room:
            raise DataError(
                f"{_shown(portion.text)} alone has {len(tokens)} tokens but the model reads at "
                f"most {room}; take it out of the text"
            )


def _shown(text: str) -> str:
    if len(text) > SHOWN:
        return f"“{text[:SHOWN].rstrip()}…”"
    return f"“{text}”"


@dataclass(frozen=True)
class CombinedHypothesis:
    """One hypothesis for each portion, in order."""

    parts: tuple[Hypothesis, ...] = ()
    score: float = 0.0  # Σ log p ÷ tokens ^ penalty over all portions: of a single one, its rank
    total: float = 0.0  # Σ log p
    scored: int = 0  # tokens
    ended: bool = True

    def with_(self, part: Hypothesis, length_penalty: float) -> "CombinedHypothesis":
        """This one with the hypothesis of one more portion."""
        total = self.total + part.score
        scored = self.scored + part.scored_tokens
        score = total / math.pow(scored, length_penalty)
        ended = self.ended and part.stop_reason == "end"
        return CombinedHypothesis((*self.parts, part), score, total, scored, ended)


def best_combinations(
    portions: Sequence[Sequence[Hypothesis]], best: int, length_penalty: float
) -> list[CombinedHypothesis]:
    """The `best` combinations by score, found portion by portion; best first."""
    found = [CombinedHypothesis()]
    for hypotheses in portions:
        longer = [way.with_(part, length_penalty) for way in found for part in hypotheses]
        longer.sort(key=lambda way: -way.score)  # stable: of equals, the first
        found = longer[:best]
    return found
