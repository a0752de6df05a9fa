"""Segments a translator can read: split texts, wrap them in special tokens, join the results.

Every line is a segment of its own, so line breaks stay where they were. A line that is too long is
an error, or is split into its sentences; a sentence that is too long into clauses, then words, then
characters, as many per segment as fit. No split loses a character: the pieces of a text, joined
again, are the text.

When the segments of a text have n-best hypotheses each, `best_combinations` ranks the texts.
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

# A sentence ends with these, then perhaps quotes or brackets that close, then a space; in Chinese
# and Japanese without one.
_SENTENCE_END = re.compile(r"[.?!…؟۔।॥]+[\"'”’»›)\]]*\s+|[。！？｡]+[」』”’）】]*\s*")

_CLAUSE = re.compile(r"[,;:،؛—–]+[\"'”’»)\]]*\s+|\s[—–-]\s+|[、，；：]\s*")

_WORD = re.compile(r"\s+")

_LOOK_BACK = 32  # characters before a full stop that decide whether it ends a sentence

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
    matches = [match for match in _SENTENCE_END.finditer(text) if _ends_sentence(text, match)]
    return split_at(text, [match.end() for match in matches])


def split_clauses(text: str) -> list[str]:
    """The parts of a sentence between commas, semicolons, colons and dashes."""
    return split_at(text, [match.end() for match in _CLAUSE.finditer(text)])


def split_at_spaces(text: str) -> list[str]:
    """The words of a text, each with the space behind it."""
    return split_at(text, [match.end() for match in _WORD.finditer(text)])


def split_at(text: str, positions: list[int]) -> list[str]:
    """The text split at these positions; no piece is empty."""
    return [text[a:b] for a, b in pairwise([0, *positions, len(text)]) if a < b]


def _ends_sentence(text: str, match: re.Match[str]) -> bool:
    """Whether this punctuation ends a sentence, rather than an abbreviation or a number."""
    next_character = text[match.end() : match.end() + 8].lstrip("\"'“‘„«‹([¿¡")[:1]
    if next_character.islower():
        return False  # “Is it?” he asked
    if not match[0].startswith(".") or match[0].startswith(".."):
        return True
    last_word = _LAST_WORD.search(text[max(0, match.start() - _LOOK_BACK) : match.start()])
    before = ""
    if last_word is not None:
        before = last_word[0]
    if _ORDINAL.fullmatch(before) or _INITIAL.fullmatch(before):
        return False
    if next_character.isdigit() and before.lower() in _BEFORE_A_NUMBER:
        return False
    return before.lower() not in _ABBREVIATIONS


Fits = Callable[[str], bool]

_LINE_BREAK = re.compile(r"(?:\r\n|[\n\r\u2028\u2029])+")

_FINER_SPLITS: tuple[Callable[[str], list[str]], ...] = (split_clauses, split_at_spaces, list)


@dataclass(frozen=True)
class Segment:
    """A piece of a text that is translated by itself, and the space around it, which is not."""

    text: str
    start: int  # of its first character in the whole text
    before: str = ""
    after: str = ""


def split_lines(text: str) -> list[Segment]:
    """The lines of a text that are not blank; the only line of a text stays as it is."""
    if not _LINE_BREAK.search(text):
        if text.strip():
            return [Segment(text, 0)]
        return []
    ends = [match.end() for match in _LINE_BREAK.finditer(text)]
    return _segments(split_at(text, ends), Segment("", 0))


def split_line(line: Segment, fits: Fits) -> list[Segment]:
    """The sentences of a line, or parts of them where one does not fit."""
    pieces: list[str] = []
    for sentence in split_sentences(line.text):
        pieces += _split_finer(sentence, fits, _FINER_SPLITS)
    return _segments(pieces, line)


def join_segments(
    segments: Sequence[Segment], translations: Sequence[str]
) -> tuple[str, list[int]]:
    """The translations with the space of the source between them, and where each one begins."""
    text = ""
    starts = list[int]()
    for segment, translation in zip(segments, translations, strict=True):
        # Chinese has no space after a sentence, but most other languages want one there.
        if text[-1:] in (".", "?", "!") and not segment.before and translation[:1].isalpha():
            text += " "
        else:
            text += segment.before
        starts.append(len(text))
        text += translation + segment.after
    return text, starts


def _split_finer(text: str, fits: Fits, splits: Sequence[Callable[[str], list[str]]]) -> list[str]:
    """The text itself if it fits, else its pieces, as many together as fit."""
    if not splits or fits(text.strip()):
        return [text]
    pieces = splits[0](text)
    first = 0
    result = list[str]()
    while first < len(pieces):
        count = _count_that_fits(pieces, first, fits)
        result += _split_finer("".join(pieces[first : first + count]), fits, splits[1:])
        first += count
    return result


def _count_that_fits(pieces: Sequence[str], first: int, fits: Fits) -> int:
    """How many pieces from the first on fit together; 1 if not even that fits.

    Doubling and then bisection, so that a long text is never tried as a whole.
    """

    def fit(count: int) -> bool:
        return fits("".join(pieces[first : first + count]).strip())

    available = len(pieces) - first
    count = 1
    while 2 * count <= available and fit(2 * count):
        count *= 2
    step = count
    while step:
        if count + step <= available and fit(count + step):
            count += step
        step //= 2
    return count


def _segments(pieces: Sequence[str], parent: Segment) -> list[Segment]:
    """The pieces without the space around them; a blank piece is space before the next one."""
    segments: list[Segment] = []
    position = parent.start
    space = parent.before
    for piece in pieces:
        text = piece.strip()
        if text:
            lead = piece[: len(piece) - len(piece.lstrip())]
            segments.append(Segment(text, position + len(lead), space + lead))
            space = piece[len(lead) + len(text) :]
        else:
            space += piece
        position += len(piece)
    if segments:
        last = segments[-1]
        segments[-1] = Segment(last.text, last.start, last.before, space + parent.after)
    return segments


@dataclass(frozen=True)
class TranslationTemplate:
    """The special tokens of a translator: around a source, at the start and end of a target.

    A tokenizer of ours has no template: a source is closed by EOS, unless its special tokens say
    that it is not. A public tokenizer wraps a source as it always does, and may want a target to
    begin with more than one token.
    """

    source_prefix: tuple[int, ...]
    source_suffix: tuple[int, ...]
    target_prefix: tuple[int, ...]
    eos_id: int
    suppressed_ids: tuple[int, ...]  # tokens that are never generated
    max_source_tokens: int  # without prefix and suffix

    @classmethod
    def of(cls, tokenizer: Tokenizer, config: EncoderDecoder) -> "TranslationTemplate":
        """The template that `qkv train translate` uses for such a model."""
        special_tokens = tokenizer.special_tokens
        prefix: tuple[int, ...] = ()
        suffix: tuple[int, ...] = (tokenizer.eos_id,)
        if tokenizer.adds_special_tokens or special_tokens.omit_source_eos:
            prefix = tuple(tokenizer.prefix_ids)
            suffix = tuple(tokenizer.suffix_ids)
        target_prefix: tuple[int, ...] = (tokenizer.bos_id,)
        if tokenizer.forced_bos_id is not None:
            target_prefix = (tokenizer.bos_id, tokenizer.forced_bos_id)
        added = len(prefix) + len(suffix)
        max_source_tokens = config.length - added
        if max_source_tokens < 1:
            raise DataError(
                f"length={config.length} leaves no position for a source next to its {added} "
                "special tokens"
            )
        return cls(
            prefix,
            suffix,
            target_prefix,
            tokenizer.eos_id,
            tuple(tokenizer.non_target_ids(config.embedding.vocabulary)),
            max_source_tokens,
        )

    def wrap_source(self, ids: Sequence[int]) -> list[int]:
        """A source as the encoder reads it."""
        return [*self.source_prefix, *ids, *self.source_suffix]


Long = Literal["error", "sentences"]

MAX_QUOTE = 40  # characters of a text in a message

Ids = Sequence[int]


@dataclass(frozen=True)
class SegmentedText:
    """A text, its segments and their ids without special tokens; a blank text has none."""

    text: str
    segments: tuple[Segment, ...]
    ids: tuple[Ids, ...]
    remark: str | None = None


def segment_texts(
    texts: Sequence[str], tokenizer: Tokenizer, template: TranslationTemplate, long: Long
) -> list[SegmentedText]:
    """Each text by its lines or, where a line is too long and `long` allows it, by sentences."""
    lines_of_texts = [split_lines(text) for text in texts]
    all_lines = [line.text for lines in lines_of_texts for line in lines]
    encodings = iter(tokenizer.encode_many(all_lines))
    segmented = []
    for text, lines in zip(texts, lines_of_texts, strict=True):
        ids = [next(encodings) for _ in lines]
        if any(len(line_ids) > template.max_source_tokens for line_ids in ids):
            segmented.append(_split_long_lines(text, lines, ids, tokenizer, template, long))
        else:
            segmented.append(SegmentedText(text, tuple(lines), tuple(ids)))
    return segmented


def _split_long_lines(
    text: str,
    lines: Sequence[Segment],
    ids_of_lines: Sequence[Ids],
    tokenizer: Tokenizer,
    template: TranslationTemplate,
    long: Long,
) -> SegmentedText:
    """A text with at least one line longer than the model reads."""
    limit = template.max_source_tokens
    segments = list[Segment]()
    ids = list[Ids]()
    first_too_long = ""
    for line, line_ids in zip(lines, ids_of_lines, strict=True):
        if len(line_ids) <= limit:
            segments.append(line)
            ids.append(line_ids)
            continue
        lengths = f"{len(line_ids):,} tokens but the model reads at most {limit:,}"
        if long == "error":
            raise DataError(
                f"the text {_quote(line.text)} has {lengths}; shorten it, or translate it "
                'sentence by sentence with long="sentences"'
            )
        parts = split_line(line, lambda part: len(tokenizer.encode(part)) <= limit)
        segments += parts
        ids += tokenizer.encode_many([part.text for part in parts])
        first_too_long = first_too_long or f"{_quote(line.text)} has {lengths}"
    _refuse_unsplittable(segments, ids, limit)
    remark = f"{first_too_long}; it was translated in {len(ids):,} parts"
    return SegmentedText(text, tuple(segments), tuple(ids), remark)


def _refuse_unsplittable(segments: Sequence[Segment], ids: Sequence[Ids], limit: int) -> None:
    for segment, tokens in zip(segments, ids, strict=True):
        if len(tokens) > limit:
            raise DataError(
                f"{_quote(segment.text)} alone has {len(tokens)} tokens but the model reads at "
                f"most {limit}; remove it from the text"
            )


def _quote(text: str) -> str:
    if len(text) > MAX_QUOTE:
        return f"“{text[:MAX_QUOTE].rstrip()}…”"
    return f"“{text}”"


@dataclass(frozen=True)
class CombinedHypothesis:
    """One hypothesis for each segment, in order."""

    parts: tuple[Hypothesis, ...] = ()
    score: float = 0.0  # Σ log p ÷ tokens ^ length penalty over all segments
    logprob: float = 0.0  # Σ log p
    tokens: int = 0
    complete: bool = True  # whether every segment ended with EOS

    def extend(self, part: Hypothesis, length_penalty: float) -> "CombinedHypothesis":
        """This one with the hypothesis of the next segment."""
        logprob = self.logprob + part.score
        tokens = self.tokens + part.scored_tokens
        score = logprob / math.pow(tokens, length_penalty)
        complete = self.complete and part.stop_reason == "end"
        return CombinedHypothesis((*self.parts, part), score, logprob, tokens, complete)


def best_combinations(
    n_best: Sequence[Sequence[Hypothesis]], best: int, length_penalty: float
) -> list[CombinedHypothesis]:
    """The `best` combinations by score, extended segment by segment; best first."""
    combinations = [CombinedHypothesis()]
    for hypotheses in n_best:
        longer = []
        for combination in combinations:
            for hypothesis in hypotheses:
                longer.append(combination.extend(hypothesis, length_penalty))
        longer.sort(key=lambda each: -each.score)  # stable: of equals, the first
        combinations = longer[:best]
    return combinations
