"""Translation: split texts into segments, search them together, and put the results in order."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from qkv.bundle import AlignmentHeads
from qkv.engine.beam.search import beam_search
from qkv.engine.translate.alignment import Aligner, Link, heads_of_layer
from qkv.engine.translate.alignment_choice import choose_alignment_on_texts
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

StopReason = Literal["end", "length"]


@dataclass(frozen=True)
class Alternative:
    """One of the n-best translations."""

    text: str
    score: float  # Σ log p of its tokens ÷ their number ^ length penalty: the ranking criterion
    stop_reason: StopReason


@dataclass(frozen=True)
class Translation:
    """The best translation of a text.

    An empty or blank text has an empty translation, which ends with a score of 0.
    """

    source: str
    text: str
    score: float
    stop_reason: StopReason  # "length" if any segment of it was stopped
    alternatives: tuple[Alternative, ...]  # best first, the translation itself among them
    alignment: tuple[Link, ...] | None = None
    remark: str | None = None  # what a reader should know about how it was made

    def json(self, best: int = 1) -> dict[str, Any]:
        """Its fields; the alternatives if there are several, the alignment if there is one."""
        fields: dict[str, Any] = {}
        for name in ("source", "text", "score", "stop_reason"):
            fields[name] = getattr(self, name)
        if best > 1:
            fields["alternatives"] = [vars(alternative) for alternative in self.alternatives]
        if self.alignment is not None:
            fields["alignment"] = [link.json() for link in self.alignment]
        return fields


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
    heads: AlignmentHeads | None = None,
    batch_tokens: int = 8192,
    template: TranslationTemplate | None = None,
) -> list[Translation]:
    """The best translation of each text, in the order of the texts.

    Lines of a text are translated one by one. long: what to do with a line of more tokens than the
    model reads: raise an error, or translate it sentence by sentence. max_length: tokens of a
    target, EOS included; by default it depends on the length of the source. layer, heads: whose
    cross attention the alignment is read from; by default those that align these texts best.
    batch_tokens: source tokens times beams that are searched together. template: for a model
    trained with other special tokens than its tokenizer's.
    """
    if long not in get_args(Long):
        raise UsageError(unknown("value for long", long, get_args(Long)))
    if template is None:
        template = TranslationTemplate.of(tokenizer, model.config)
    aligner = None
    if alignment:
        if layer is not None:
            heads = heads_of_layer(model, layer)
        if heads is None:
            heads = choose_alignment_on_texts(model, tokenizer, texts, template)
        aligner = Aligner(model, tokenizer, template, heads)
    segmented = segment_texts(texts, tokenizer, template, long)
    hypotheses = iter(
        beam_search(
            model,
            [template.wrap_source(ids) for text in segmented for ids in text.ids],
            bos=template.target_prefix[-1],
            prefix=template.target_prefix[:-1],
            eos=template.eos_id,
            beams=beams,
            best=best,
            max_length=max_length,
            length_penalty=length_penalty,
            forbidden=template.suppressed_ids,
            batch_tokens=batch_tokens,
        )
    )
    translations = []
    for text in segmented:
        n_best = [next(hypotheses) for _ in text.ids]
        combinations = best_combinations(n_best, best, length_penalty)
        alternatives = [_alternative(text, each, tokenizer) for each in combinations]
        links = None
        if aligner is not None:
            links = aligner.links(text, combinations[0].parts)
        translations.append(_translation(text, alternatives, links))
    return translations


def _alternative(
    text: SegmentedText, combination: CombinedHypothesis, tokenizer: Tokenizer
) -> Alternative:
    # A segment is at most one line, so that the lines of the translation match the source's.
    parts = [tokenizer.decode(part.ids).replace("\n", " ") for part in combination.parts]
    translation, _ = join_segments(text.segments, parts)
    stop_reason: StopReason = "length"
    if combination.complete:
        stop_reason = "end"
    return Alternative(translation, combination.score, stop_reason)


def _translation(
    text: SegmentedText, alternatives: Sequence[Alternative], links: tuple[Link, ...] | None
) -> Translation:
    first = alternatives[0]
    return Translation(
        source=text.text,
        text=first.text,
        score=first.score,
        stop_reason=first.stop_reason,
        alternatives=tuple(alternatives),
        alignment=links,
        remark=text.remark,
    )
