"""What came out of a tour: the three trained models, their metrics, and answers with reasons.

Everything is computed on validation examples, which no model was trained on.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qkv.checks import CheckReport
from qkv.data import LabelledText, Pair
from qkv.engine.cluster import Clustering, cluster
from qkv.engine.generate import Sampling
from qkv.interpret import GlassBox
from qkv.interpret.attribution import LabelAttribution, TranslationAttribution, why_translation
from qkv.model import Translator
from qkv.tour.stages import ModelSpec
from qkv.training import METRICS, RECIPE, Recipe, read_recipe, read_summary
from qkv.training.tasks import find_task


@dataclass(frozen=True)
class TrainedModel:
    """One model of the tour after training, read from its bundle."""

    spec: ModelSpec
    path: Path

    @cached_property
    def model(self) -> GlassBox:
        """The model, ready to answer and to be opened."""
        return GlassBox.load(self.path)

    @cached_property
    def recipe(self) -> Recipe:
        return read_recipe((self.path / RECIPE).read_text("utf-8"))

    @cached_property
    def summary(self) -> Mapping[str, Any]:
        return read_summary(self.path / METRICS)

    @cached_property
    def metrics(self) -> Sequence[Mapping[str, Any]]:
        """Every step and evaluation of the training."""
        text = (self.path / METRICS).read_text("utf-8")
        return [json.loads(line) for line in text.splitlines()]

    @cached_property
    def examples(self) -> Any:
        """The training and validation examples."""
        return find_task(self.recipe.task.kind).load(self.recipe.data, self.recipe.seed)

    @property
    def validation_reviews(self) -> Sequence[LabelledText]:
        reviews: Sequence[LabelledText] = self.examples.validation
        return reviews

    @property
    def validation_pairs(self) -> Sequence[Pair]:
        pairs: Sequence[Pair] = self.examples.validation
        return pairs

    @property
    def parameters(self) -> int:
        return self.model.model.config.parameters()

    @property
    def score(self) -> float:
        return float(self.summary["validation"][self.spec.metric])

    @property
    def baseline(self) -> float:
        return float(self.summary["baseline"][self.spec.metric])

    @property
    def beats_baseline(self) -> bool:
        return (self.score > self.baseline) == self.spec.higher_is_better

    @property
    def training_sentence(self) -> str:
        """How large it is and how it was trained."""
        steps = self.summary["steps"]
        seconds = self.summary["seconds"]
        return (
            f"{self.parameters:,} parameters, trained for {steps:,} steps in {seconds:.0f} s on "
            f"{self.spec.corpus}."
        )

    @property
    def score_sentence(self) -> str:
        """Its score next to the baseline's."""
        verdict = ""
        if not self.beats_baseline:
            verdict = ": no better than its baseline yet"
        return (
            f"{self.format_score(self.score)} {self.spec.metric_words}; {self.spec.baseline}: "
            f"{self.format_score(self.baseline)}{verdict}."
        )

    def format_score(self, score: float) -> str:
        match self.spec.metric:
            case "accuracy":
                return f"{score:.1%}".replace("%", " %")
            case "bleu":
                return f"{score:.1f}"
            case _:
                return f"{score:.2f}"


REVIEW_PATTERNS = ("although ", " never ", ", but ", " not ")  # one review of each is explained

SENTENCES = 3  # to translate

MIN_WORDS = 6  # of a sentence that is easy to follow word by word

MAX_WORDS = 12

PROMPT = "Return the"

SEED = 1

SAMPLING = Sampling.of(temperature=0.6, top_p=0.9)

MEMBERS = 3  # texts of a cluster that are printed


@dataclass(frozen=True)
class ExplainedReview:
    """A validation review with its true label, and why the model predicts the label it predicts."""

    review: LabelledText
    attribution: LabelAttribution

    @property
    def correct(self) -> bool:
        return self.attribution.label == self.review.label

    @property
    def faithful(self) -> bool:
        """Whether deleting the top words moves the label clearly more than random ones do."""
        test = self.attribution.faithfulness.get("occlusion")
        return test is not None and test.trust.better is True


@dataclass(frozen=True)
class ExplainedTranslation:
    """A validation pair, the model's translation, and where each of its words comes from."""

    pair: Pair
    attribution: TranslationAttribution

    @property
    def correct(self) -> bool:
        return self.attribution.target == self.pair.target

    @property
    def faithful(self) -> bool:
        """Whether hiding the attended words moves the target clearly more than random ones do."""
        return self.attribution.faithfulness["attention"].trust.better is True


@dataclass(frozen=True, eq=False)
class ReviewClusters:
    """Validation reviews, clustered by the vectors that the classifier reads its label off."""

    clustering: Clustering
    vectors: NDArray[np.float32]
    labels: tuple[str, ...]  # the true ones, in the order of the texts

    def members(self, cluster_id: int) -> list[int]:
        """The indices of a few texts near the centre."""
        return list(self.clustering.clusters[cluster_id].nearest[:MEMBERS])

    def majority_label(self, cluster_id: int) -> tuple[str, float]:
        """The most frequent label in the cluster, and the fraction of texts that have it."""
        indices = np.flatnonzero(self.clustering.labels == cluster_id)
        labels = [self.labels[index] for index in indices]
        label = max(sorted(set(labels)), key=labels.count)
        return label, labels.count(label) / len(labels)


def explain_reviews(trained: TrainedModel) -> list[ExplainedReview]:
    """The first validation review of each pattern, whether the model is right or wrong on it."""
    explained = []
    for review in _first_of_each_pattern(trained.validation_reviews):
        attribution = trained.model.why(review.text)
        assert isinstance(attribution, LabelAttribution)
        explained.append(ExplainedReview(review, attribution))
    return explained


def sample_text(trained: TrainedModel, max_tokens: int) -> str:
    """The prompt and its continuation by the model; the same every time."""
    box = trained.model
    capacity = box.model.config.length - len(box.tokenizer.encode(PROMPT)) - 2
    completion = box.generate(
        PROMPT, max_tokens=min(max_tokens, capacity), sampling=SAMPLING, seed=SEED
    )
    return PROMPT + completion.finish().text


def explain_translations(trained: TrainedModel) -> list[ExplainedTranslation]:
    """The first validation sentences of a length to follow, whether translated right or wrong."""
    pairs = [
        pair
        for pair in trained.validation_pairs
        if MIN_WORDS <= len(pair.source.split()) <= MAX_WORDS
    ]
    if not pairs:
        pairs = list(trained.validation_pairs)
    box = trained.model
    explained = []
    for pair in pairs[:SENTENCES]:
        attribution = why_translation(
            box.require(Translator), box.tokenizer, pair.source, heads=box.bundle.alignment
        )
        explained.append(ExplainedTranslation(pair, attribution))
    return explained


def cluster_reviews(trained: TrainedModel, max_texts: int) -> ReviewClusters:
    """Validation reviews in as many clusters as are most clearly separated."""
    reviews = trained.validation_reviews[:max_texts]
    texts = [review.text for review in reviews]
    vectors = trained.model.embed(texts)
    labels = tuple(review.label for review in reviews)
    return ReviewClusters(cluster(texts, vectors), vectors, labels)


def _first_of_each_pattern(reviews: Sequence[LabelledText]) -> list[LabelledText]:
    first: list[LabelledText] = []
    for pattern in REVIEW_PATTERNS:
        for review in reviews:
            if pattern in review.text.lower() and review not in first:
                first.append(review)
                break
    return first or list(reviews[:2])


@dataclass(frozen=True)
class TourResults:
    """The three models, their answers, and the report of the checks on each, by name."""

    sentiment: TrainedModel
    language: TrainedModel
    translation: TrainedModel
    reviews: Sequence[ExplainedReview]
    sample: str
    translations: Sequence[ExplainedTranslation]
    clusters: ReviewClusters
    reports: Mapping[str, CheckReport]

    @property
    def models(self) -> tuple[TrainedModel, TrainedModel, TrainedModel]:
        return self.sentiment, self.language, self.translation
