"""Which words made a classifier give its label: hidden one by one, and by the slope of its score.

Both are in log-odds of the label, log p − log (1 − p), so that the two can be compared and words
that speak against it count below zero. Attention stands beside them as what it is.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from qkv.engine.classify import Classifier
from qkv.errors import UsageError, unknown
from qkv.interpret.attribution.faithfulness import DRAWS, SEED, Faithfulness, Words, faithfulness
from qkv.interpret.attribution.gradients import (
    Baseline,
    Completeness,
    default_baseline,
    gradients_enabled,
    integrated_gradients,
)
from qkv.interpret.attribution.occlusion import (
    CIRCULAR,
    REMOVE,
    Asked,
    DeletionCache,
    Hiding,
    Numbers,
    log_odds,
)
from qkv.interpret.attribution.readouts import ATTENTION_CAVEAT, attention_received
from qkv.interpret.attribution.words import Piece, read
from qkv.model import Model
from qkv.text import Tokenizer

# FOLDED explain/why/label_reason: What is said of a label: each word's part in it, and how far
#   to trust that.

WAYS = ("occlusion", "gradients", "attention")  # to rank words


@dataclass(frozen=True)
class LabelWord:
    """What one word, or mark, has to do with the label."""

    word: Piece
    occlusion: float | None  # how far the log-odds of the label fall without it; marks stay
    drop: float | None  # the same in probability
    gradients: float  # what it adds to the log-odds, by integrated gradients
    attention: float  # the share of all looks it got: where the model looked, not why

    def json(self) -> dict[str, object]:
        numbers = ("occlusion", "drop", "gradients", "attention")
        return {**self.word.json(), **{name: getattr(self, name) for name in numbers}}


@dataclass(frozen=True)
class LabelAttribution:
    """Why this label: the words in their order, marks apart.

    `faithfulness` has a test for each way to rank the words; none for a text without words.
    """

    text: str
    label: str
    probabilities: dict[str, float]  # the likeliest first
    words: tuple[LabelWord, ...]
    special_tokens: tuple[LabelWord, ...]
    occlusion_method: str
    baseline: str
    completeness: Completeness
    faithfulness: dict[str, Faithfulness]
    remarks: tuple[str, ...]

    @property
    def probability(self) -> float:
        return self.probabilities[self.label]

    def json(self) -> dict[str, object]:
        return {
            "text": self.text,
            "label": self.label,
            "probability": self.probability,
            "probabilities": self.probabilities,
            "words": [word.json() for word in self.words],
            "marks": [mark.json() for mark in self.special_tokens],
            "hidden": self.occlusion_method,
            "baseline": self.baseline,
            "completeness": self.completeness.json(),
            "faithfulness": {way: test.json() for way, test in self.faithfulness.items()},
            "remarks": list(self.remarks),
        }


NO_WORDS = "the text has no words, so no word is the reason"


def why_label(
    model: Model,
    tokenizer: Tokenizer,
    text: str,
    label: str | None = None,
    *,
    hiding: Hiding = REMOVE,
    baseline: Baseline | None = None,
    steps: int | None = None,
    draws: int = DRAWS,
    seed: int = SEED,
) -> LabelAttribution:
    """Why the model gives this label to the text; if none is named, the likeliest.

    hiding: what becomes of a hidden word. baseline: where the path of integrated gradients begins;
    if not given, at masks or padding. steps: of that path. draws: random deletions.
    """
    classifier = Classifier(model, tokenizer)
    encoder, labels = classifier.model, classifier.labels
    seen = read(
        tokenizer, text, encoder.config.context_length, tokenizer.prefix_ids, tokenizer.suffix_ids
    )
    baseline = baseline or default_baseline(tokenizer)
    asked = Asked(encoder, seen, hiding)
    deletions = DeletionCache(asked.without)
    shares = _shares(deletions.full())
    chosen = _number(labels, label, shares)
    words, apart, completeness = _by_words(asked, deletions, chosen, baseline, steps)
    return LabelAttribution(
        text=text,
        label=labels[chosen],
        probabilities={labels[i]: float(shares[i]) for i in np.argsort(-shares, kind="stable")},
        words=words,
        special_tokens=apart,
        occlusion_method=hiding.said,
        baseline=baseline.said,
        completeness=completeness,
        faithfulness=_tests(words, deletions, chosen, labels[chosen], draws, seed),
        remarks=(ATTENTION_CAVEAT, CIRCULAR) if words else (NO_WORDS,),
    )


def _by_words(
    asked: Asked,
    deletions: DeletionCache[Numbers],
    label: int,
    baseline: Baseline,
    steps: int | None,
) -> tuple[tuple[LabelWord, ...], tuple[LabelWord, ...], Completeness]:
    """What each word has to do with the label, and each mark."""
    seen = asked.text
    rows = np.array([deletions.full(), *deletions.one_by_one(len(seen.words))])
    odds = log_odds(torch.from_numpy(rows), label).tolist()
    chances = [float(_shares(row)[label]) for row in rows]
    start = baseline.ids(seen.ids, {at for mark in seen.marks for at in mark.at})
    with gradients_enabled(asked.model):
        ends = asked.embedded(seen.ids), asked.embedded(start)
        slopes, completeness = integrated_gradients(asked.log_odds_of(label), *ends, steps)
    looks = attention_received(asked.model, seen.ids)
    found = []
    for number, word in enumerate((*seen.words, *seen.marks), 1):
        at, fell, drop = list(word.at), None, None
        if number <= len(seen.words):
            fell, drop = odds[0] - odds[number], chances[0] - chances[number]
        found.append(LabelWord(word, fell, drop, float(slopes[at].sum()), float(looks[at].sum())))
    words = len(seen.words)
    return tuple(found[:words]), tuple(found[words:]), completeness


def _tests(
    words: Sequence[LabelWord],
    deletions: DeletionCache[Numbers],
    label: int,
    name: str,
    draws: int,
    seed: int,
) -> dict[str, Faithfulness]:
    """How far each way to rank the words is to be trusted."""

    def probability(sets: Sequence[Words]) -> list[float]:
        return [float(_shares(row)[label]) for row in deletions(sets)]

    found = {}
    for way in WAYS:
        order = np.argsort([-getattr(word, way) for word in words], kind="stable").tolist()
        test = faithfulness(order, probability, f"the probability of “{name}”", draws, seed)
        if test is not None:
            found[way] = test
    return found


def _number(labels: Sequence[str], asked: str | None, shares: Numbers) -> int:
    if asked is None:
        return int(np.argmax(shares))
    if asked not in labels:
        raise UsageError(unknown("label", asked, labels))
    return labels.index(asked)


def _shares(scores: Numbers) -> Numbers:
    powers = np.exp(scores - scores.max())
    return np.asarray(powers / powers.sum())
