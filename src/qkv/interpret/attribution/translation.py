"""Which source words a translation depends on: by cross-attention, verified by occlusion."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from qkv.bundle import AlignmentHeads
from qkv.engine.translate import (
    Sentence,
    TranslationTemplate,
    choose_alignment,
    cross_attention,
    heads_of_layer,
)
from qkv.interpret.attribution.display import Displayed
from qkv.interpret.attribution.faithfulness import (
    DEFAULT_SEED,
    Faithfulness,
    FloatArray,
    alignment_faithfulness,
)
from qkv.interpret.attribution.occlusion import REMOVE, DeletionCache, ForcedDecoding
from qkv.interpret.attribution.readouts import ATTENTION_CAVEAT
from qkv.interpret.attribution.words import WordSpan, tokenize_pair
from qkv.model import Translator
from qkv.text import Tokenizer

MIN_EFFECT = 0.1  # in log p: a smaller change does not count
STRONG_ATTENTION = 0.5  # of a target word's maximum: such a source word is attended to as well
ABLATION_CAVEAT = "ablation picks the word that moves most, so its own test is sure to pass"
CHOICE_CAVEAT = (
    "the attention shown is the one that agrees best with this occlusion, so that it agrees is no "
    "evidence"
)
REDUNDANCY_CAVEAT = (
    "a word that two source words carry alike moves with neither, only with the whole source"
)


@dataclass(frozen=True)
class TargetWord:
    """A word of the translation and the source words, by index, that it depends on.

    probability: of all its tokens, given those before. most_attended: the source word with the
    largest weight. attention: the fraction it pays to each source word. depends_on: the source word
    without which it is least probable; None if it is hallucinated. ablation: how far its log p
    falls without each source word. source_effect: how far without all of them.
    """

    word: WordSpan
    probability: float
    most_attended: int
    attention: tuple[float, ...]
    depends_on: int | None
    ablation: tuple[float, ...]
    source_effect: float

    @property
    def hallucinated(self) -> bool:
        """Whether no single source word has an effect on it."""
        return self.depends_on is None

    @property
    def agrees(self) -> bool:
        """Whether it attends most to the word it depends on most."""
        return self.most_attended == self.depends_on

    def json(self) -> dict[str, object]:
        return {
            **self.word.json(),
            "probability": self.probability,
            "looked_at": self.most_attended,
            "moved_by": self.depends_on,
            "agrees": self.agrees,
            "invented": self.hallucinated,
            "moved": max(self.ablation),
            "whole": self.source_effect,
            "attention": list(self.attention),
            "ablation": list(self.ablation),
        }


@dataclass(frozen=True)
class SourceWord:
    """A word of the source.

    max_effect: the largest change of any target word's log p when it is occluded. attention: the
    most that any target word pays it. omitted: it has next to no effect, and no target word
    depends on or attends to it.
    """

    word: WordSpan
    max_effect: float
    attention: float
    omitted: bool

    def json(self) -> dict[str, object]:
        return {
            **self.word.json(),
            "moved": self.max_effect,
            "attention": self.attention,
            "dropped": self.omitted,
        }


@dataclass(frozen=True, repr=False)
class TranslationAttribution(Displayed):
    """The words of source and target in text order, and how far each alignment can be trusted.

    layer, heads: whose cross-attention is shown. agreement: the fraction of target words,
    hallucinated ones aside, for which attention and ablation name the same source word. threshold:
    effects on log p below it do not count.
    """

    source: str
    target: str
    layer: int
    heads: tuple[int, ...]
    sources: tuple[SourceWord, ...]
    targets: tuple[TargetWord, ...]
    agreement: float | None
    threshold: float
    occlusion_method: str
    faithfulness: dict[str, Faithfulness]
    remarks: tuple[str, ...]

    @property
    def omitted(self) -> tuple[SourceWord, ...]:
        return tuple(word for word in self.sources if word.omitted)

    @property
    def hallucinated(self) -> tuple[TargetWord, ...]:
        return tuple(word for word in self.targets if word.hallucinated)

    def json(self) -> dict[str, object]:
        return {
            "source": self.source,
            "target": self.target,
            "layer": self.layer,
            "heads": list(self.heads),
            "source_words": [word.json() for word in self.sources],
            "target_words": [word.json() for word in self.targets],
            "agreement": self.agreement,
            "dropped": [word.word.text for word in self.omitted],
            "invented": [word.word.text for word in self.hallucinated],
            "still": self.threshold,
            "hidden": self.occlusion_method,
            "faithfulness": {name: test.json() for name, test in self.faithfulness.items()},
            "remarks": list(self.remarks),
        }


def why_translation(
    model: Translator,
    tokenizer: Tokenizer,
    source: str,
    target: str | None = None,
    *,
    beams: int = 4,
    layer: int | None = None,
    heads: AlignmentHeads | None = None,
    marking: TranslationTemplate | None = None,
    seed: int = DEFAULT_SEED,
) -> TranslationAttribution:
    """Which source words each word of the target, by default the model's own, depends on.

    layer: whose cross-attention is read; by default that of `heads`, or where nothing was measured
    the one that agrees best with the occlusion of this text. marking: for a model trained with
    other special tokens than its tokenizer's.
    """
    if marking is None:
        marking = TranslationTemplate.of(tokenizer, model.config)
    pair = tokenize_pair(model, tokenizer, source, target, marking, beams)
    sources = pair.source.words
    deletions = DeletionCache(ForcedDecoding(model, marking, pair).word_log_probs)
    # Log-probabilities of the target words with the full source, and with no source word at all.
    full, empty = deletions([frozenset(), frozenset(range(len(sources)))])
    occluded = np.array(deletions.leave_one_out(len(sources))).T  # (targets, sources)
    effects = full[:, None] - occluded
    remarks = [ATTENTION_CAVEAT, ABLATION_CAVEAT, REDUNDANCY_CAVEAT]
    if layer is not None:
        heads = heads_of_layer(model, layer)
    elif heads is None:
        heads = choose_alignment(model, marking, [Sentence(pair.source_ids, pair.target_ids)])
        remarks.append(CHOICE_CAVEAT)
    weights = cross_attention(model, marking, pair.source_ids, pair.target_ids, heads)
    attention = _word_attention(
        weights.double().numpy(), pair.target_words, sources, len(marking.source_prefix)
    )
    targets = _target_words(pair.target_words, full, empty, attention, effects)
    agree = [word.agrees for word in targets if not word.hallucinated]
    mean_log_prob = float(full.mean())
    return TranslationAttribution(
        source=pair.source.text,
        target=pair.target,
        layer=heads.layer,
        heads=heads.heads,
        sources=_source_words(sources, attention, effects),
        targets=targets,
        agreement=float(np.mean(agree)) if agree else None,
        threshold=MIN_EFFECT,
        occlusion_method=REMOVE.description,
        faithfulness={
            "attention": alignment_faithfulness(attention, effects, mean_log_prob, seed),
            "ablation": alignment_faithfulness(effects, effects, mean_log_prob, seed),
        },
        remarks=tuple(remarks),
    )


def _target_words(
    words: Sequence[WordSpan],
    full: FloatArray,
    empty: FloatArray,
    attention: FloatArray,
    effects: FloatArray,
) -> tuple[TargetWord, ...]:
    targets = []
    for i, word in enumerate(words):
        depends_on = None
        if _has_effect(effects[i]):
            depends_on = int(np.abs(effects[i]).argmax())
        target = TargetWord(
            word=word,
            probability=float(np.exp(full[i])),
            most_attended=int(attention[i].argmax()),
            attention=tuple(attention[i].tolist()),
            depends_on=depends_on,
            ablation=tuple(effects[i].tolist()),
            source_effect=float(full[i] - empty[i]),
        )
        targets.append(target)
    return tuple(targets)


def _source_words(
    words: Sequence[WordSpan], attention: FloatArray, effects: FloatArray
) -> tuple[SourceWord, ...]:
    # What a hallucinated word attends to is no evidence of a translation, so it is left out.
    grounded = np.array([_has_effect(row) for row in effects])
    strongest = set(np.abs(effects[grounded]).argmax(axis=1).tolist())
    maxima = attention[grounded].max(axis=1, keepdims=True)
    attends = attention[grounded] >= STRONG_ATTENTION * maxima
    sources = []
    for i, word in enumerate(words):
        max_effect = float(np.abs(effects[:, i]).max())
        translated = i in strongest or bool(attends[:, i].any())
        omitted = max_effect < MIN_EFFECT and not translated
        sources.append(SourceWord(word, max_effect, float(attention[:, i].max()), omitted))
    return tuple(sources)


def _has_effect(effects: FloatArray) -> bool:
    """Whether occluding some source word changes a target word's log p."""
    return bool(np.abs(effects).max() >= MIN_EFFECT)


def _word_attention(
    weights: FloatArray, targets: Sequence[WordSpan], sources: Sequence[WordSpan], first: int
) -> FloatArray:
    """Token weights (T, S) by words: the mean over a target's tokens, the sum over a source's."""
    attention = np.zeros((len(targets), len(sources)))
    for i, target in enumerate(targets):
        mean = weights[list(target.positions)].mean(axis=0)
        for j, source in enumerate(sources):
            attention[i, j] = mean[[at - first for at in source.positions]].sum()
    return attention
