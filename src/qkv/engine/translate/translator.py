"""Texts to their translations: marked as in training, searched together, given back in order."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from qkv.engine.beam.search import beam_search
from qkv.engine.translate.alignment import Aligner, Link
from qkv.engine.translate.segments import (
    CombinedHypothesis,
    Long,
    SegmentedText,
    TranslationTemplate,
    best_combinations,
    join_segments,
    segment_texts,
)
from qkv.errors import UsageError, unknown
from qkv.model import Translator
from qkv.text import Tokenizer

# FOLDED engine/translate/translation: What a translator says of one text, and the other ways it
#   would have put it.

StopReason = Literal["end", "length"]


@dataclass(frozen=True)
class Alternative:
    """One way to put a text."""

    text: str
    score: float  # Σ log p of its tokens ÷ their number ^ length penalty: what ways are compared by
    stop_reason: StopReason


@dataclass(frozen=True)
class Translation:
    """The best way that was found to put a text.

    A text that is empty, or nothing but spaces, has an empty one, which ends with a score of 0.
    """

    source: str
    text: str
    score: float
    stop_reason: StopReason  # "length" if any part of it had to be stopped
    alternatives: tuple[Alternative, ...]  # best first, the translation itself among them
    alignment: tuple[Link, ...] | None = None
    remark: str | None = None  # what a person should know of how it was made, if anything


def translate(
    model: Translator,
    tokenizer: Tokenizer,
    texts: Sequence[str],
    *,
    beams: int = 4,
    best: int = 1,
    length_penalty: float = 1.0,
    max_length: int | None = None,
    long: Long = "error",
    alignment: bool = False,
    layer: int | None = None,
    batch_tokens: int = 8192,
    template: TranslationTemplate | None = None,
) -> list[Translation]:
    """The best translation found for each text, in the order of the texts.

    Lines of a text are translated one by one. long: what becomes of a line that has more tokens
    than the model reads: an error, or a translation sentence by sentence. max_length: tokens of a
    target, EOS included; if not given, `default_max_length`. layer: whose looks an alignment is
    read off; if not given, the one before the last. batch_tokens: source tokens times beams that
    are searched together. marking: for a model trained with other marks than its tokenizer's.
    """
    if long not in get_args(Long):
        raise UsageError(unknown("treatment of long texts", long, get_args(Long)))
    if template is None:
        marks = TranslationTemplate.of(tokenizer, model.config)
    else:
        marks = template
    if alignment:
        aligner = Aligner(model, tokenizer, marks, layer)
    else:
        aligner = None
    asked = segment_texts(texts, tokenizer, marks, long)
    found = iter(
        beam_search(
            model,
            [marks.wrap_source(ids) for plan in asked for ids in plan.ids],
            bos=marks.target_prefix[-1],
            prefix=marks.target_prefix[:-1],
            eos=marks.eos_id,
            beams=beams,
            best=best,
            max_length=max_length,
            length_penalty=length_penalty,
            forbidden=marks.suppressed_ids,
            batch_tokens=batch_tokens,
        )
    )
    translations = []
    for plan in asked:
        ways = best_combinations([next(found) for _ in plan.ids], best, length_penalty)
        said = tuple(_said(plan, way, tokenizer) for way in ways)
        if aligner is None:
            links = None
        else:
            links = aligner.links(plan, ways[0].parts)
        translations.append(_translation(plan, said, links))
    return translations


def _said(plan: SegmentedText, way: CombinedHypothesis, tokenizer: Tokenizer) -> Alternative:
    # A part is of one line, so that lines of the answer stay beside those of the source.
    parts = [tokenizer.decode(part.ids).replace("\n", " ") for part in way.parts]
    text, _ = join_segments(plan.segments, parts)
    return Alternative(text, way.score, "end" if way.ended else "length")


def _translation(
    plan: SegmentedText, said: tuple[Alternative, ...], links: tuple[Link, ...] | None
) -> Translation:
    first = said[0]
    return Translation(
        source=plan.text,
        text=first.text,
        score=first.score,
        stop_reason=first.stop_reason,
        alternatives=said,
        alignment=links,
        remark=plan.remark,
    )
