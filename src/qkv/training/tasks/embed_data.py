"""Batches of text pairs for contrastive learning, and metrics of text vectors."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.nn.functional as F

from qkv.data import encode, length_batches
from qkv.engine import PaddedBatch, batched_outputs
from qkv.errors import DataError, UsageError
from qkv.metrics import (
    LatentSemanticAnalysis,
    bag_of_words_vectors,
    neighbour_overlap,
    score_clusters,
    score_halves,
    spearman,
)
from qkv.model import Encoder, EncoderOnly
from qkv.report import Table
from qkv.text import Tokenizer
from qkv.training.tasks.embed import (
    ContrastiveBatch,
    DistillationBatch,
    EmbedTask,
    RelatedTexts,
    Supervision,
    contrastive_loss,
    unit_vectors,
)
from qkv.training.tasks.embed_predictions import rank_examples
from qkv.training.tasks.encoded_texts import (
    TruncatedTexts,
    data_facts,
    encode_texts,
    leakage_remarks,
)
from qkv.training.tasks.task import (
    DataModule,
    EvalResult,
    Ids,
    Metric,
    Predictions,
    Split,
    cache_key,
)

if TYPE_CHECKING:
    from qkv.training.recipe import Recipe

METRICS: dict[Supervision, Metric] = {
    "pairs": Metric("retrieval", higher_is_better=True),
    "labels": Metric("v_measure", higher_is_better=True),
    "texts": Metric("loss", higher_is_better=False),
    "scores": Metric("spearman", higher_is_better=True),
}
LSA_COMPONENTS = 100  # of the baseline
HALVES = Metric("halves", higher_is_better=True)
NEIGHBOURS = Metric("lsa_neighbours", higher_is_better=True)
MIN_HALVES = 10  # texts to be split
MIN_TEXTS = 20  # to be measured without labels
MAX_PROBE_TEXTS = 5000  # their cosines with each other are computed
MIN_WORDS = 4  # of a text that is split in halves
MAX_VALIDATION_TEXTS = 1000  # looked at in each evaluation
MAX_SAMPLE_TEXTS = 200
MAX_SAMPLES = 8


class EmbedData(DataModule):
    """Anchors and positives in batches in which both have similar lengths."""

    def __init__(
        self, task: EmbedTask, split: Split[RelatedTexts], tokenizer: Tokenizer, recipe: "Recipe"
    ) -> None:
        self.task = task
        self.split = split
        self.tokenizer = tokenizer
        self.seed = recipe.seed
        self.batch_tokens = recipe.batch
        self.metric = METRICS[task.supervision]
        self.lsa: LatentSemanticAnalysis | None = None
        _check_teacher(task)
        if task.teacher == "lsa":
            firsts, _ = split_in_halves(e.first for e in split.validation[:MAX_VALIDATION_TEXTS])
            self.metric = HALVES if len(firsts) >= MIN_HALVES else NEIGHBOURS
            self.lsa = self._fit_teacher(recipe)
            self.teacher = self.lsa([e.first for e in split.train])
        self.anchors = self._encode((e.first for e in split.train), "train-one", recipe)
        self.positives = self.anchors  # for labels and texts, positives are among the anchors
        if task.supervision in ("pairs", "scores"):
            self.positives = self._encode((e.second for e in split.train), "train-other", recipe)
        self.remarks = self.anchors.remarks("training")
        train_texts = [e.first for e in split.train]
        self.remarks += leakage_remarks(train_texts, [e.first for e in split.validation])
        names = sorted({e.label for e in split.train if e.label is not None})
        index = {name: i for i, name in enumerate(names)}
        self.labels = np.array([index[e.label] for e in split.train if e.label is not None])
        self.scores = np.array([e.score for e in split.train if e.score is not None])
        lengths = self._lengths(self._positive_indices(0))
        self.lengths = lengths.sum(axis=1)
        self.facts = data_facts(lengths, len(split.validation), self.batch_tokens, self.seed)
        if names:
            self.facts.append(("labels", f"{len(names)}"))

    def batch_indices(self, epoch: int) -> list[Ids]:
        """Each batch (n, 2): indices of anchors and of their positives; (n,) with a teacher."""
        positives = self._positive_indices(epoch)
        rng = np.random.default_rng((self.seed, epoch))
        batches = length_batches(self._lengths(positives), self.batch_tokens, rng)
        if self.lsa is not None:
            return batches
        return [np.stack([batch, positives[batch]], axis=1) for batch in batches]

    def batch(
        self, indices: Ids, rng: np.random.Generator, epoch: int = 0
    ) -> ContrastiveBatch | DistillationBatch:
        pad = self.tokenizer.pad_id
        if self.lsa is not None:
            texts = PaddedBatch.of([self._drop_tokens(self.anchors[i], rng) for i in indices], pad)
            return DistillationBatch(texts, torch.from_numpy(self.teacher[indices]))
        anchor_indices = indices[:, 0]
        anchors = PaddedBatch.of([self.anchors[i] for i in anchor_indices], pad)
        positives = PaddedBatch.of([self.positives[i] for i in indices[:, 1]], pad)
        labels = None
        scores = None
        if len(self.labels):
            labels = torch.from_numpy(self.labels[anchor_indices])
        if len(self.scores):
            scores = torch.from_numpy(self.scores[anchor_indices]).float()
        return ContrastiveBatch(anchors, positives, labels, scores)

    def validate(self, model: Encoder) -> dict[str, float]:
        supervision = self.task.supervision
        if supervision == "texts" and self.lsa is None:
            return {"loss": self._loss(model)}
        examples = self.split.validation[:MAX_VALIDATION_TEXTS]
        if self.lsa is not None:
            result = probe_texts(model, self.tokenizer, self.lsa, examples, baseline=False)
            return dict(result.scores)
        result = evaluate_embeddings(model, self.tokenizer, supervision, examples, baseline=False)
        return dict(result.scores)

    def sample(self, model: Encoder) -> str:
        """A validation text and its nearest neighbour."""
        examples = self.split.validation[:MAX_SAMPLE_TEXTS]
        texts = list(dict.fromkeys(e.first for e in examples))
        if len(texts) < 2:
            return ""
        encoded = encode_texts(texts, self.tokenizer, model.config.context_length)
        vectors = embed_texts(model, encoded)
        cosines = vectors @ vectors[0]
        cosines[0] = -np.inf
        return f"{texts[0][:50]} ~ {texts[int(cosines.argmax())][:50]}"

    def evaluate(self, model: Encoder) -> EvalResult:
        supervision = self.task.supervision
        if self.lsa is not None:
            return probe_texts(model, self.tokenizer, self.lsa, self.split.validation)
        if supervision == "texts":
            return EvalResult({"loss": self._loss(model)}, len(self.split.validation))
        return evaluate_embeddings(model, self.tokenizer, supervision, self.split.validation)

    def _drop_tokens(self, ids: Ids, rng: np.random.Generator) -> Ids:
        """The text without a random fraction of its tokens; special tokens stay."""
        if not self.task.token_dropout:
            return ids
        read = rng.random(len(ids)) >= self.task.token_dropout
        read[: len(self.tokenizer.prefix_ids)] = True
        read[len(ids) - len(self.tokenizer.suffix_ids) :] = True
        if not read.any():
            return ids
        return ids[read]

    def _fit_teacher(self, recipe: "Recipe") -> LatentSemanticAnalysis:
        assert isinstance(recipe.model, EncoderOnly)
        components = min(self.task.teacher_components, recipe.model.encoder.width)
        return LatentSemanticAnalysis([e.first for e in self.split.train], components, self.seed)

    def _encode(self, texts: Iterable[str], part: str, recipe: "Recipe") -> TruncatedTexts:
        assert isinstance(recipe.model, EncoderOnly)
        encoded = encode(texts, self.tokenizer, cache_key(self.split.sha256, part, recipe))
        return TruncatedTexts(encoded, self.tokenizer, recipe.model.context_length)

    def _lengths(self, positives: Ids) -> Ids:
        """The lengths of anchors and positives (N, 2); of the texts (N, 1) with a teacher."""
        lengths = [self.anchors.lengths]
        if self.lsa is None:
            lengths.append(self.positives.lengths[positives])
        return np.maximum(1, np.stack(lengths, axis=1))

    def _positive_indices(self, epoch: int) -> Ids:
        """The positive of each anchor: with labels, another text with the same label."""
        positives = np.arange(len(self.split.train))
        if self.task.supervision != "labels":
            return positives
        rng = np.random.default_rng((self.seed, epoch, 1))
        members: dict[int, list[int]] = defaultdict(list)
        for i, label in enumerate(self.labels.tolist()):
            members[label].append(i)
        for group in members.values():
            shuffled = rng.permutation(group)
            # A cycle: no text is its own positive, unless it is the only one of its label.
            positives[shuffled] = np.roll(shuffled, 1)
        return positives

    @torch.no_grad()
    def _loss(self, model: Encoder) -> float:
        """The SimCSE loss of the validation texts, with dropout from a fixed seed."""
        texts = [e.first for e in self.split.validation[:MAX_VALIDATION_TEXTS]]
        encoded = encode_texts(texts, self.tokenizer, self.anchors.length)
        device = model.embedding.weight.device
        lengths = np.maximum(1, encoded.lengths[:, None])
        was_training = model.training
        model.train()
        total = 0.0
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            for indices in length_batches(lengths, self.batch_tokens, np.random.default_rng(0)):
                batch = PaddedBatch.of([encoded[i] for i in indices], self.tokenizer.pad_id)
                batch = batch.to(device)
                anchors = unit_vectors(model, batch)
                positives = unit_vectors(model, batch)
                total += float(contrastive_loss(anchors, positives, self.task.temperature, None))
        model.train(was_training)
        return total / len(texts)


def _check_teacher(task: EmbedTask) -> None:
    if task.teacher != "none" and task.supervision != "texts":
        raise UsageError(
            f"task.teacher={task.teacher} is for texts alone, but these have {task.supervision}; "
            "leave it out"
        )


def split_in_halves(texts: Iterable[str]) -> tuple[list[str], list[str]]:
    """The first and the second half of the words of each text that has at least four."""
    firsts = []
    seconds = []
    for text in dict.fromkeys(texts):
        words = text.split()
        if len(words) >= MIN_WORDS:
            middle = (len(words) + 1) // 2
            firsts.append(" ".join(words[:middle]))
            seconds.append(" ".join(words[middle:]))
    return firsts, seconds


def probe_texts(
    model: Encoder,
    tokenizer: Tokenizer,
    lsa: LatentSemanticAnalysis,
    examples: Sequence[RelatedTexts],
    baseline: bool = True,
) -> EvalResult:
    """What can be measured without labels: whether the halves of a text find each other.

    And how many of its nearest neighbours a text shares with LSA, whose halves are the baseline.
    Halves are left out where hardly any text has enough words.
    """
    texts = list(dict.fromkeys(e.first for e in examples))[:MAX_PROBE_TEXTS]
    encoded = encode_texts(texts, tokenizer, model.config.context_length)
    scores = {NEIGHBOURS.name: neighbour_overlap(embed_texts(model, encoded), lsa(texts))}
    baseline_scores: dict[str, float] = {}
    baseline_name = ""
    halves = split_in_halves(texts)
    if len(halves[0]) >= MIN_HALVES:
        vectors = []
        for half in halves:
            tokens = encode_texts(half, tokenizer, model.config.context_length)
            vectors.append(embed_texts(model, tokens))
        scores = {HALVES.name: score_halves(*vectors), **scores}
        if baseline:
            baseline_scores = {HALVES.name: score_halves(*map(lsa, halves))}
            baseline_name = "LSA"
    remarks = encoded.remarks("measured")
    remarks += advice(HALVES, scores, {baseline_name: baseline_scores})
    return EvalResult(scores, len(texts), baseline_scores, baseline_name, remarks=tuple(remarks))


def cross_probe_texts(
    model: Encoder, tokenizer: Tokenizer, examples: Sequence[RelatedTexts]
) -> EvalResult:
    """`probe_texts` of one half of the texts with LSA of the other half, both ways, averaged.

    LSA of the very texts whose halves are compared would know which halves belong together.
    """
    distinct = list({e.first: e for e in examples}.values())
    if len(distinct) < MIN_TEXTS:
        raise DataError(
            f"{len(distinct)} different texts are too few to measure without labels; "
            f"give {MIN_TEXTS} or more, or labels, pairs, or pairs with scores"
        )
    order = np.random.default_rng(0).permutation(len(distinct))
    folds = [[distinct[i] for i in order[start::2]] for start in (0, 1)]
    results = []
    for measured, others in (folds, folds[::-1]):
        lsa = LatentSemanticAnalysis([e.first for e in others], LSA_COMPONENTS)
        results.append(probe_texts(model, tokenizer, lsa, measured))
    scores = _mean_scores([result.scores for result in results])
    baseline = _mean_scores([result.baseline for result in results])
    encoded = encode_texts([e.first for e in distinct], tokenizer, model.config.context_length)
    remarks = encoded.remarks("measured")
    remarks += advice(HALVES, scores, {"LSA": baseline})
    return EvalResult(scores, len(distinct), baseline, "LSA", remarks=tuple(remarks))


def _mean_scores(scores: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """The mean of each score that all of them have."""
    names = [name for name in scores[0] if all(name in each for each in scores)]
    return {name: float(np.mean([each[name] for each in scores])) for name in names}


def evaluate_embeddings(
    model: Encoder,
    tokenizer: Tokenizer,
    supervision: Supervision,
    examples: Sequence[RelatedTexts],
    baseline: bool = True,
) -> EvalResult:
    """Scored pairs: rank correlation. Labels: k-means clusters. Pairs: top-1 retrieval.

    Texts alone: the halves of a text, next to LSA of other texts.
    """
    if supervision == "texts":
        return cross_probe_texts(model, tokenizer, examples)
    texts = [e.first for e in examples]
    if supervision == "labels":
        columns = ("text", "label")
        rows = tuple((e.first, str(e.label)) for e in examples[:MAX_SAMPLES])
    else:
        texts += [e.second for e in examples]
        columns = ("text", "positive")
        rows = tuple((e.first, e.second) for e in examples[:MAX_SAMPLES])
    encoded = encode_texts(texts, tokenizer, model.config.context_length)
    vectors = embed_texts(model, encoded)
    scores = _scores(supervision, examples, vectors)
    baseline_scores: dict[str, float] = {}
    baseline_name = ""
    predictions: Predictions | None = None
    samples = [Table("Validation examples", columns, rows)]
    others: dict[str, dict[str, float]] = {}
    if baseline:
        predictions = rank_examples(supervision, examples, vectors)
        if predictions.worst(1):
            samples.append(predictions.table())
        baseline_scores = _scores(supervision, examples, bag_of_words_vectors(texts))
        baseline_name = "cosines of TF-IDF vectors"
        lsa = fit_lsa(texts)
        if lsa is not None:
            others = {"LSA": _scores(supervision, examples, lsa(texts))}
    remarks = encoded.remarks("measured")
    remarks += advice(METRICS[supervision], scores, {baseline_name: baseline_scores, **others})
    return EvalResult(
        scores=scores,
        examples=len(examples),
        baseline=baseline_scores,
        baseline_name=baseline_name,
        other_baselines=others,
        samples=tuple(samples),
        remarks=tuple(remarks),
        predictions=predictions,
    )


def fit_lsa(texts: Sequence[str]) -> LatentSemanticAnalysis | None:
    """LSA of these texts as a baseline; None if they have too few words for one."""
    try:
        return LatentSemanticAnalysis(texts, LSA_COMPONENTS)
    except DataError:
        return None


def advice(
    metric: Metric, scores: Mapping[str, float], baselines: Mapping[str, Mapping[str, float]]
) -> list[str]:
    """A sentence about the best baseline if the model is worse than it."""
    worst_first = sorted(
        (values[metric.name], name) for name, values in baselines.items() if metric.name in values
    )
    if not worst_first or scores[metric.name] >= worst_first[-1][0]:
        return []
    value, name = worst_first[-1]
    return [
        f"{name} is better than these vectors: {metric.name} {value:.3f} against "
        f"{scores[metric.name]:.3f}; train on more texts or for longer, or start from a public "
        "sentence encoder with qkv train embed --from DIR"
    ]


def _scores(
    supervision: Supervision, examples: Sequence[RelatedTexts], vectors: Any
) -> dict[str, float]:
    if supervision == "labels":
        clusters = score_clusters(vectors, [str(e.label) for e in examples], seed=0)
        return {
            "v_measure": clusters.v_measure,
            "adjusted_rand": clusters.adjusted_rand,
            "accuracy": clusters.accuracy,
        }
    count = len(examples)
    cosines = vectors[:count] @ vectors[count:].T  # (N, N), sparse if the vectors are
    if supervision == "scores":
        truth = [0.0 if e.score is None else e.score for e in examples]
        return {"spearman": spearman(cosines.diagonal().tolist(), truth)}
    nearest = np.asarray(cosines.argmax(axis=1)).ravel()
    return {"retrieval": float((nearest == np.arange(count)).mean())}


def embed_texts(model: Encoder, texts: Sequence[Ids]) -> Any:
    """An L2-normalized vector for each text, (N, D) NumPy."""
    return F.normalize(batched_outputs(model, texts), dim=-1).numpy()
