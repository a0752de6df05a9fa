"""Which words made a classifier predict a label: by occlusion and by integrated gradients.

Both are in log-odds of the label, log p − log (1 − p), so they are comparable, and a word that
speaks against the label is negative. The attention received is shown next to them.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from qkv.engine import Classifier
from qkv.errors import UsageError, unknown
from qkv.interpret.attribution.display import Displayed
from qkv.interpret.attribution.faithfulness import (
    DEFAULT_DRAWS,
    DEFAULT_SEED,
    Faithfulness,
    FloatArray,
    WordSet,
    faithfulness,
)
from qkv.interpret.attribution.gradients import (
    Baseline,
    Completeness,
    default_baseline,
    gradients_enabled,
    integrated_gradients,
)
from qkv.interpret.attribution.occlusion import (
    OCCLUSION_CAVEAT,
    REMOVE,
    DeletionCache,
    EncoderProbe,
    Occlusion,
    log_odds,
)
from qkv.interpret.attribution.readouts import ATTENTION_CAVEAT, attention_received
from qkv.interpret.attribution.words import WordSpan, tokenize
from qkv.model import Model
from qkv.text import Tokenizer

LABEL_METHODS = ("occlusion", "gradients", "attention")  # each ranks the words
NO_WORDS_REMARK = "the text has no words, so no word is the reason"


@dataclass(frozen=True)
class LabelWord:
    """The contribution of one word, or special token, to the label.

    occlusion: how far the log-odds of the label fall without it, and drop: how far its
    probability; None for special tokens, which are never hidden. gradients: what it adds to the
    log-odds, by integrated gradients. attention: the fraction of all attention it receives.
    """

    word: WordSpan
    occlusion: float | None
    drop: float | None
    gradients: float
    attention: float

    def json(self) -> dict[str, object]:
        return {
            **self.word.json(),
            "occlusion": self.occlusion,
            "drop": self.drop,
            "gradients": self.gradients,
            "attention": self.attention,
        }


@dataclass(frozen=True, repr=False)
class LabelAttribution(Displayed):
    """Why a classifier predicts a label: its words in text order, then the special tokens.

    probabilities: most probable label first. faithfulness: by method; empty without words.
    """

    text: str
    label: str
    probabilities: dict[str, float]
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
            "marks": [token.json() for token in self.special_tokens],
            "hidden": self.occlusion_method,
            "baseline": self.baseline,
            "completeness": self.completeness.json(),
            "faithfulness": {name: test.json() for name, test in self.faithfulness.items()},
            "remarks": list(self.remarks),
        }


def why_label(
    model: Model,
    tokenizer: Tokenizer,
    text: str,
    label: str | None = None,
    *,
    occlusion: Occlusion = REMOVE,
    baseline: Baseline | None = None,
    steps: int | None = None,
    draws: int = DEFAULT_DRAWS,
    seed: int = DEFAULT_SEED,
) -> LabelAttribution:
    """Why the model gives this label to the text; by default the most probable one.

    occlusion: how words are hidden. baseline: where the path of integrated gradients starts; by
    default at mask or padding tokens. steps: of that path. draws: random deletions per test.
    """
    classifier = Classifier(model, tokenizer)
    encoder = classifier.model
    labels = classifier.labels
    tokenized = tokenize(
        tokenizer, text, encoder.config.context_length, tokenizer.prefix_ids, tokenizer.suffix_ids
    )
    baseline = baseline or default_baseline(tokenizer)
    probe = EncoderProbe(encoder, tokenized, occlusion)
    deletions = DeletionCache(probe.outputs)
    probs = _softmax(deletions.full())
    index = _label_index(labels, label, probs)
    words, special_tokens, completeness = _attribute(probe, deletions, index, baseline, steps)
    remarks = (ATTENTION_CAVEAT, OCCLUSION_CAVEAT)
    return LabelAttribution(
        text=text,
        label=labels[index],
        probabilities={labels[i]: float(probs[i]) for i in np.argsort(-probs, kind="stable")},
        words=words,
        special_tokens=special_tokens,
        occlusion_method=occlusion.description,
        baseline=baseline.description,
        completeness=completeness,
        faithfulness=_test(words, deletions, index, labels[index], draws, seed),
        remarks=remarks if words else (NO_WORDS_REMARK,),
    )


def _attribute(
    probe: EncoderProbe,
    deletions: DeletionCache[FloatArray],
    label: int,
    baseline: Baseline,
    steps: int | None,
) -> tuple[tuple[LabelWord, ...], tuple[LabelWord, ...], Completeness]:
    """The contribution of each word, of each special token, and the error of the gradients."""
    text = probe.text
    logits = np.array([deletions.full(), *deletions.leave_one_out(len(text.words))])
    full_odds, *odds = log_odds(torch.from_numpy(logits), label).tolist()
    full_prob, *probs = (float(_softmax(row)[label]) for row in logits)
    special_positions = {at for token in text.special_tokens for at in token.positions}
    with gradients_enabled(probe.model):
        gradients, completeness = integrated_gradients(
            probe.log_odds_of(label),
            probe.embed(text.ids),
            probe.embed(baseline.ids(text.ids, special_positions)),
            steps,
        )
    attention = attention_received(probe.model, text.ids)

    def contribution(word: WordSpan, occlusion: float | None, drop: float | None) -> LabelWord:
        positions = list(word.positions)
        gradient = float(gradients[positions].sum())
        return LabelWord(word, occlusion, drop, gradient, float(attention[positions].sum()))

    words = []
    for word, word_odds, word_prob in zip(text.words, odds, probs, strict=True):
        words.append(contribution(word, full_odds - word_odds, full_prob - word_prob))
    special_tokens = [contribution(token, None, None) for token in text.special_tokens]
    return tuple(words), tuple(special_tokens), completeness


def _test(
    words: Sequence[LabelWord],
    deletions: DeletionCache[FloatArray],
    label: int,
    name: str,
    draws: int,
    seed: int,
) -> dict[str, Faithfulness]:
    """The faithfulness of each method."""

    def probability(sets: Sequence[WordSet]) -> list[float]:
        return [float(_softmax(logits)[label]) for logits in deletions(sets)]

    tests = {}
    for method in LABEL_METHODS:
        ranking = np.argsort([-getattr(word, method) for word in words], kind="stable").tolist()
        test = faithfulness(ranking, probability, f"the probability of “{name}”", draws, seed)
        if test is not None:
            tests[method] = test
    return tests


def _label_index(labels: Sequence[str], label: str | None, probs: FloatArray) -> int:
    if label is None:
        return int(np.argmax(probs))
    if label not in labels:
        raise UsageError(unknown("label", label, labels))
    return labels.index(label)


def _softmax(logits: FloatArray) -> FloatArray:
    powers = np.exp(logits - logits.max())
    return np.asarray(powers / powers.sum())
