"""Which source words a translation goes back to: by cross attention, checked by hiding them."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from qkv.engine.translate import Marking
from qkv.engine.translate.alignment import aligning_layer, cross_weights
from qkv.interpret.attribution.faithfulness import SEED, Faithfulness, alignment_faithfulness
from qkv.interpret.attribution.occlusion import REMOVE, DeletionCache, ForcedDecoding
from qkv.interpret.attribution.occlusion import NumbersAblation as Numbers
from qkv.interpret.attribution.readouts import ATTENTION_CAVEAT
from qkv.interpret.attribution.words import Piece, paired
from qkv.model import Translator
from qkv.text import Tokenizer

# FOLDED explain/why/translation_reason: What is said of a translation: which source word each
#   of its words goes back to, if any.


@dataclass(frozen=True)
class TargetWord:
    """A word of the translation, and the source words it goes back to, by their numbers.

    probability: of all its tokens together, given what was written before. whole: how far its
    log-probability falls when the whole source is hidden.
    """

    word: Piece
    probability: float
    most_attended: int  # the source word that most attention went to
    attention: tuple[float, ...]  # its share of attention to each source word
    depends_on: int | None  # the source word without which it is least likely; None if invented
    ablation: tuple[float, ...]  # how far its log-probability falls without each source word
    whole: float

    @property
    def hallucinated(self) -> bool:
        """Whether hiding any one source word moves it by next to nothing."""
        return self.depends_on is None

    @property
    def agrees(self) -> bool:
        """Whether what it looked at is what it depends on most."""
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
            "whole": self.whole,
            "attention": list(self.attention),
            "ablation": list(self.ablation),
        }


@dataclass(frozen=True)
class SourceWord:
    """A word of the source; moved: the most that hiding it changes a target word's log p."""

    word: Piece
    moved: float
    attention: float  # the most that any target word paid it
    dropped: bool  # it moves next to nothing, and no target word goes back to it

    def json(self) -> dict[str, object]:
        numbers = {"moved": self.moved, "attention": self.attention, "dropped": self.dropped}
        return {**self.word.json(), **numbers}


@dataclass(frozen=True)
class TranslationAttribution:
    """The words of both texts in their order, and how far each alignment is to be trusted.

    agreement: of the target words that are not invented, the share that attention and ablation
    lead back to the same word.
    """

    source: str
    target: str
    layer: int  # whose attention it is
    sources: tuple[SourceWord, ...]
    targets: tuple[TargetWord, ...]
    agreement: float | None
    threshold: float  # below this much of log p a word counts as not moved
    occlusion_method: str
    faithfulness: dict[str, Faithfulness]
    remarks: tuple[str, ...]

    @property
    def omitted(self) -> tuple[SourceWord, ...]:
        return tuple(word for word in self.sources if word.dropped)

    @property
    def hallucinated(self) -> tuple[TargetWord, ...]:
        return tuple(word for word in self.targets if word.hallucinated)

    def json(self) -> dict[str, object]:
        return {
            "source": self.source,
            "target": self.target,
            "layer": self.layer,
            "source_words": [word.json() for word in self.sources],
            "target_words": [word.json() for word in self.targets],
            "agreement": self.agreement,
            "dropped": [word.word.text for word in self.omitted],
            "invented": [word.word.text for word in self.hallucinated],
            "still": self.threshold,
            "hidden": self.occlusion_method,
            "faithfulness": {way: test.json() for way, test in self.faithfulness.items()},
            "remarks": list(self.remarks),
        }


STILL = 0.1  # of log p: a word that moves by less was not moved

NEAR = 0.5  # of the most attention: a source word with that much is gone back to as well

CIRCULAR = "ablation picks the word that moves most, so its own test is sure to pass"

SHARED = "a word that two source words carry alike moves with neither, only with the whole source"


def why_translation(
    model: Translator,
    tokenizer: Tokenizer,
    source: str,
    target: str | None = None,
    *,
    beams: int = 4,
    layer: int | None = None,
    marking: Marking | None = None,
    seed: int = SEED,
) -> TranslationAttribution:
    """Where each word of the target comes from; without one, of the model's own translation.

    layer: whose attention is read off; if not given, the one before the last. marking: for a model
    trained with other marks than its tokenizer's.
    """
    marks = Marking.of(tokenizer, model.config) if marking is None else marking
    pair = paired(model, tokenizer, source, target, marks, beams)
    words, sources = pair.words, pair.source.words
    deletions = DeletionCache(ForcedDecoding(model, marks, pair).without)
    full, whole = deletions([frozenset(), frozenset(range(len(sources)))])
    moved = full[:, None] - np.array(deletions.one_by_one(len(sources))).T  # (targets, sources)
    which = aligning_layer(model, layer)
    tokens = cross_weights(model, marks, pair.inside, pair.ids, which).double().numpy()
    looks = _by_words(tokens, words, sources, len(marks.before))
    targets = _targets(words, full, whole, looks, moved)
    agree = [word.agrees for word in targets if not word.hallucinated]
    return TranslationAttribution(
        source=pair.source.text,
        target=pair.target,
        layer=which,
        sources=_sources(sources, looks, moved),
        targets=targets,
        agreement=float(np.mean(agree)) if agree else None,
        threshold=STILL,
        occlusion_method=REMOVE.said,
        faithfulness={
            "attention": alignment_faithfulness(looks, moved, float(full.mean()), seed),
            "ablation": alignment_faithfulness(moved, moved, float(full.mean()), seed),
        },
        remarks=(ATTENTION_CAVEAT, CIRCULAR, SHARED),
    )


def _targets(
    words: Sequence[Piece], full: Numbers, whole: Numbers, looks: Numbers, moved: Numbers
) -> tuple[TargetWord, ...]:
    return tuple(
        TargetWord(
            word=word,
            probability=float(np.exp(full[i])),
            most_attended=int(looks[i].argmax()),
            attention=tuple(looks[i].tolist()),
            depends_on=int(np.abs(moved[i]).argmax()) if _moves(moved[i]) else None,
            ablation=tuple(moved[i].tolist()),
            whole=float(full[i] - whole[i]),
        )
        for i, word in enumerate(words)
    )


def _sources(words: Sequence[Piece], looks: Numbers, moved: Numbers) -> tuple[SourceWord, ...]:
    """Dropped is a word that moves none, that none depends on most, and that few looks go to."""
    carried = np.array([_moves(row) for row in moved])  # what an invented word looked at is no link
    depended = set(np.abs(moved[carried]).argmax(axis=1).tolist())
    nearly = looks[carried] >= NEAR * looks[carried].max(axis=1, keepdims=True)
    found = []
    for i, word in enumerate(words):
        most = float(np.abs(moved[:, i]).max())
        gone_back_to = i in depended or bool(nearly[:, i].any())
        dropped = most < STILL and not gone_back_to
        found.append(SourceWord(word, most, float(looks[:, i].max()), dropped))
    return tuple(found)


def _moves(row: Numbers) -> bool:
    """Whether hiding some source word changes a target word's log p."""
    return bool(np.abs(row).max() >= STILL)


def _by_words(
    looks: Numbers, targets: Sequence[Piece], sources: Sequence[Piece], first: int
) -> Numbers:
    """Of the tokens' weights (T, S): a word looks as its tokens do on average, at all of theirs."""
    found = np.zeros((len(targets), len(sources)))
    for i, target in enumerate(targets):
        mean = looks[list(target.at)].mean(axis=0)
        for j, source in enumerate(sources):
            found[i, j] = mean[[at - first for at in source.at]].sum()
    return found
