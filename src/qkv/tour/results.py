"""What a finished model of the tour came to, read from its bundle and from what training noted."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qkv.checks import CheckReport
from qkv.data import Labelled, Pair
from qkv.engine.cluster import Clustering, cluster
from qkv.engine.generate import Sampling
from qkv.interpret import glass_box
from qkv.interpret.attribution import LabelAttribution, TranslationAttribution, why_translation
from qkv.interpret.glass_box import GlassBox
from qkv.model import Translator
from qkv.tour.pace import Part
from qkv.training.jobs import find_job
from qkv.training.recipe import Recipe, read_recipe
from qkv.training.run import METRICS, RECIPE, last_summary

# FOLDED tour/looks: What is asked of the three models after training: examples they never saw,
#   and why.
# FOLDED tour/told: Everything a tour found out, for the page.


@dataclass(frozen=True)
class Outcome:
    """One part of the tour after training."""

    part: Part
    place: Path

    @cached_property
    def box(self) -> GlassBox:
        """The model, ready to answer and to be opened."""
        return glass_box.load(self.place)

    @cached_property
    def recipe(self) -> Recipe:
        return read_recipe((self.place / RECIPE).read_text("utf-8"))

    @cached_property
    def summary(self) -> Mapping[str, Any]:
        return last_summary(self.place / METRICS)

    @cached_property
    def lines(self) -> Sequence[Mapping[str, Any]]:
        """Every step and evaluation."""
        text = (self.place / METRICS).read_text("utf-8")
        return [json.loads(line) for line in text.splitlines()]

    @cached_property
    def examples(self) -> Any:
        """What it learnt from and what was held out."""
        return find_job(self.recipe.task.kind).load(self.recipe.data, self.recipe.seed)

    @property
    def reviews(self) -> Sequence[Labelled]:
        """Held out."""
        found: Sequence[Labelled] = self.examples.validation
        return found

    @property
    def pairs(self) -> Sequence[Pair]:
        """Held out."""
        found: Sequence[Pair] = self.examples.validation
        return found

    @property
    def parameters(self) -> int:
        return self.box.model.config.parameters()

    @property
    def score(self) -> float:
        return float(self.summary["validation"][self.part.metric])

    @property
    def baseline(self) -> float:
        return float(self.summary["baseline"][self.part.metric])

    @property
    def beats(self) -> bool:
        """Whether it is better than its baseline."""
        return (self.score > self.baseline) == self.part.higher_is_better

    @property
    def trained(self) -> str:
        """How large it is and how it was made, in a sentence."""
        steps, seconds = self.summary["steps"], self.summary["seconds"]
        return (
            f"{self.parameters:,} parameters, trained for {steps:,} steps in {seconds:.0f} s on "
            f"{self.part.learns}."
        )

    @property
    def judged(self) -> str:
        """The score beside the baseline's, in a sentence."""
        said = "" if self.beats else ": no better than its baseline yet"
        return (
            f"{self.figure(self.score)} {self.part.measured}; {self.part.baseline}: "
            f"{self.figure(self.baseline)}{said}."
        )

    def figure(self, score: float) -> str:
        """The score as people read it."""
        match self.part.metric:
            case "accuracy":
                return f"{score:.1%}".replace("%", " %")
            case "bleu":
                return f"{score:.1f}"
            case _:
                return f"{score:.2f}"


KINDS = ("although ", " never ", ", but ", " not ")  # one review of each is asked about

SENTENCES = 3

LENGTHS = (6, 12)  # words of a sentence that is easily looked through

# Whose looks are shown. On 40 held-out sentences that are not shown, the last of two layers named
# the word that hiding names for 96 % of the words, the first for 58 %.
LAYER = -1

PROMPT, SEED = "Return the", 1

CALM = Sampling.of(temperature=0.6, top_p=0.9)

MEMBERS = 3  # of a group, that are shown


@dataclass(frozen=True)
class Judgement:
    """A held-out review, the label it has, and why the model gives the one it gives."""

    review: Labelled
    reason: LabelAttribution

    @property
    def right(self) -> bool:
        return self.reason.label == self.review.label

    @property
    def sure(self) -> bool:
        """Whether deleting the words named moves the label clearly more than random ones do."""
        test = self.reason.faithfulness.get("occlusion")
        return test is not None and test.trust.better is True


@dataclass(frozen=True)
class Rendering:
    """A held-out sentence, what the model makes of it, and where each word comes from."""

    pair: Pair
    reason: TranslationAttribution

    @property
    def right(self) -> bool:
        return self.reason.target == self.pair.target

    @property
    def sure(self) -> bool:
        """Whether hiding the words looked at moves the target clearly more than random ones do."""
        return self.reason.faithfulness["attention"].trust.better is True


@dataclass(frozen=True, eq=False)
class Groups:
    """Held-out reviews by the likeness of the vectors that the classifier reads its label off."""

    clustering: Clustering
    vectors: NDArray[np.float32]
    labels: tuple[str, ...]  # of each text, by the people who made it

    def members(self, group: int) -> list[int]:
        """The numbers of a few texts near the centre."""
        return list(self.clustering.clusters[group].nearest[:MEMBERS])

    def share(self, group: int) -> tuple[str, float]:
        """The most frequent label in the group, and how many have it."""
        inside = [self.labels[i] for i in np.flatnonzero(self.clustering.labels == group)]
        most = max(sorted(set(inside)), key=inside.count)
        return most, inside.count(most) / len(inside)


def judgements(outcome: Outcome) -> list[Judgement]:
    """The first held-out review of each kind, right or wrong."""
    chosen = _first_of_each(outcome.reviews)
    return [Judgement(each, _why_label(outcome, each.text)) for each in chosen]


def paragraph(outcome: Outcome, tokens: int) -> str:
    """How the model goes on with the prompt; the same every time."""
    room = outcome.box.model.config.length - len(outcome.box.tokenizer.encode(PROMPT)) - 2
    options = {"max_tokens": min(tokens, room), "sampling": CALM, "seed": SEED}
    return PROMPT + outcome.box.generate(PROMPT, **options).finish().text


def renderings(outcome: Outcome) -> list[Rendering]:
    """The first held-out sentences of a length to look through, right or wrong."""
    least, most = LENGTHS
    fit = [p for p in outcome.pairs if least <= len(p.source.split()) <= most] or outcome.pairs
    return [Rendering(each, _why_translation(outcome, each.source)) for each in fit[:SENTENCES]]


def groups(outcome: Outcome, texts: int) -> Groups:
    """Held-out reviews in as many groups as two samples agree on."""
    reviews = outcome.reviews[:texts]
    given = [review.text for review in reviews]
    vectors = outcome.box.embed(given)
    return Groups(cluster(given, vectors), vectors, tuple(review.label for review in reviews))


def _first_of_each(reviews: Sequence[Labelled]) -> list[Labelled]:
    found: list[Labelled] = []
    for kind in KINDS:
        fits = (r for r in reviews if kind in r.text.lower() and r not in found)
        found += [each for each in (next(fits, None),) if each is not None]
    return found or list(reviews[:2])


def _why_label(outcome: Outcome, text: str) -> LabelAttribution:
    reason = outcome.box.why(text)
    assert isinstance(reason, LabelAttribution)
    return reason


def _why_translation(outcome: Outcome, text: str) -> TranslationAttribution:
    box = outcome.box
    return why_translation(box.require(Translator), box.tokenizer, text, layer=LAYER)


@dataclass(frozen=True)
class Told:
    """The three models, what they said, and what was proved of each by its name."""

    sentiment: Outcome
    language: Outcome
    translation: Outcome
    judgements: Sequence[Judgement]
    paragraph: str
    renderings: Sequence[Rendering]
    groups: Groups
    reports: Mapping[str, CheckReport]

    @property
    def outcomes(self) -> tuple[Outcome, Outcome, Outcome]:
        return self.sentiment, self.language, self.translation
