"""`qkv train classify`: predict the label of a text."""

import math
import random
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from qkv.bundle import Bundle
from qkv.checkpoints import public_classification_head
from qkv.data import BadRows, LabelledText, built_in, label_remarks, read_labelled
from qkv.engine import PaddedBatch, batched_outputs, labels_of
from qkv.errors import ConfigError, DataError
from qkv.metrics import bag_of_words, score_labels, wilson_interval
from qkv.model import (
    Classify,
    Encoder,
    Fraction,
    Model,
    ModelConfig,
    NonNegative,
    PooledOutput,
    TextVector,
)
from qkv.text import Tokenizer
from qkv.training.loss import duplicate, symmetric_kl
from qkv.training.tasks.encoded_texts import encode_texts
from qkv.training.tasks.task import (
    DataConfig,
    DataModule,
    EvalResult,
    Ids,
    Predictions,
    Split,
    Task,
    fingerprint,
    paths,
    to_device,
)

if TYPE_CHECKING:
    from qkv.training.recipe import Recipe

BASELINE_PART = 10  # one of so many texts is enough to estimate how long all of them take


@dataclass(frozen=True)
class LabelledBatch:
    """texts (B, T), the index of each one's label (B,) and its weight in the loss (B,).

    probs (B, labels): soft targets of a teacher, instead of the labels.
    """

    texts: PaddedBatch
    labels: Tensor
    weights: Tensor
    probs: Tensor | None = None

    @property
    def num_tokens(self) -> int:
        return self.texts.tokens

    @property
    def num_targets(self) -> int:
        return len(self.labels)

    def to(self, device: torch.device) -> "LabelledBatch":
        return LabelledBatch(
            self.texts.to(device),
            self.labels.to(device),
            self.weights.to(device),
            to_device(self.probs, device),
        )


@dataclass(frozen=True)
class VectorBatch:
    """PooledOutput outputs of a frozen encoder (B, D), with label and weight (B,)."""

    vectors: Tensor
    labels: Tensor
    weights: Tensor
    probs: Tensor | None = None

    @property
    def num_tokens(self) -> int:
        return len(self.labels)

    @property
    def num_targets(self) -> int:
        return len(self.labels)

    def to(self, device: torch.device) -> "VectorBatch":
        return VectorBatch(
            self.vectors.to(device),
            self.labels.to(device),
            self.weights.to(device),
            to_device(self.probs, device),
        )


class ClassifyTask(Task):
    """Cross-entropy of each text's label, weighted by how rare the label is."""

    kind: Literal["classify"] = "classify"
    frozen: bool = False  # train only the classification head
    label_smoothing: Fraction = 0.0
    balance: NonNegative = 0.5  # weight of rare labels: 0 each text counts alike, 1 each label
    r_drop: NonNegative = 0.0  # weight of the KL between two dropout passes (Wu et al. 2021)
    word_dropout: Fraction = 0.0  # fraction of input tokens replaced by the mask token
    distillation_weight: Fraction = 0.0  # of a naive Bayes teacher's soft labels (Hinton 2015)
    cutmix: NonNegative = 0.0  # spliced texts per text, labelled by the same teacher

    title = "A text classifier"
    summary = "labels: a .csv, .tsv, .jsonl, .parquet or .xlsx with text and label"
    measures = "accuracy, macro-F1; TF-IDF and logistic regression on the same training split"
    usage = ("qkv evaluate {0} test.csv -o mistakes.csv",)
    next_steps = (
        'qkv classify {0} "your text"',
        'qkv explain "your text" --model {0} --why',
    )
    columns = ("text", "label")
    ranks_examples = True
    synthetic_corpus = True
    architecture = "encoder_only"
    presets = "classify"
    supports_bpe_dropout = True
    tokenizer_kind = "wordpiece"
    max_vocab_size = 10_000
    max_batch = 1024
    max_steps = 3000
    epochs = 6
    ema = 0.99
    patience = 5
    finetune_lr = 0.06
    finetune_ema = 0.98

    def loss(self, model: Encoder, batch: LabelledBatch | VectorBatch) -> Tensor:
        if isinstance(batch, VectorBatch):
            return self._loss(classification_head(model).from_pooled(batch.vectors), batch)
        ids = batch.texts.ids
        lengths = batch.texts.lengths
        if not self.r_drop:
            return self._loss(model(ids, lengths), batch)
        logits_1, logits_2 = model(duplicate(ids), duplicate(lengths)).chunk(2)
        loss = (self._loss(logits_1, batch) + self._loss(logits_2, batch)) / 2
        return loss + self.r_drop * (symmetric_kl(logits_1, logits_2) * batch.weights).sum()

    def _loss(self, logits: Tensor, batch: LabelledBatch | VectorBatch) -> Tensor:
        losses = F.cross_entropy(
            logits.float(),
            batch.labels if batch.probs is None else batch.probs,
            reduction="none",
            label_smoothing=self.label_smoothing,
        )
        return (losses * batch.weights).sum()

    @classmethod
    def load(cls, data: DataConfig, seed: int) -> Split[LabelledText]:
        bad_rows = BadRows(data.skip_bad)
        examples = _read(data.files, data, bad_rows)
        everything = list(examples)
        train: Sequence[LabelledText] = examples
        if data.validation:
            validation = _read(data.validation, data, bad_rows, least=1)
            everything += validation
            _check_validation_labels(train, validation)
        else:
            train, validation = split_by_label(examples, seed, data.validation_fraction)
        fields = (field for e in everything for field in (e.text, e.label))
        remarks = bad_rows.remarks() + label_remarks(e.label for e in everything)
        return Split(train, validation, fingerprint(fields), tuple(remarks))

    @classmethod
    def texts(cls, split: Split[LabelledText]) -> Iterable[str]:
        return (example.text for example in split.train)

    @classmethod
    def output(cls, config: ModelConfig, split: Split[LabelledText]) -> Classify:
        labels = tuple(sorted({example.label for example in split.train}, key=_natural_order))
        output = config.output
        if isinstance(output, Classify):
            return output.model_copy(update={"labels": labels})
        if isinstance(output, TextVector) and output.normalize:
            # A sentence encoder: the pooling that makes good vectors is good for labels too.
            return Classify(labels=labels, pooling=output.pooling)
        return public_classification_head(config, labels) or Classify(labels=labels)

    def data_module(
        self, split: Split[LabelledText], tokenizer: Tokenizer, recipe: "Recipe"
    ) -> DataModule:
        from qkv.training.tasks.classify_data import ClassifyData

        return ClassifyData(self, split, tokenizer, recipe)

    @classmethod
    def matches(cls, model: Model) -> bool:
        return isinstance(model, Encoder) and isinstance(model.config.output, Classify)

    @classmethod
    def evaluate(cls, bundle: Bundle, data: DataConfig, recipe: "Recipe | None") -> EvalResult:
        assert isinstance(bundle.model, Encoder)
        assert bundle.tokenizer is not None
        bad_rows = BadRows(data.skip_bad)
        examples = _read(data.files, data, bad_rows, least=1)
        labels = labels_of(bundle.model)
        unknown_labels = {e.label for e in examples} - set(labels)
        if unknown_labels:
            raise DataError(
                f'the label "{min(unknown_labels)}" is none of the model\'s: {", ".join(labels)}'
            )
        train = None if recipe is None else cls._training_examples(recipe)
        result = evaluate_labels(bundle.model, bundle.tokenizer, examples, train)
        return result.with_remarks(bad_rows.remarks())

    @classmethod
    def _training_examples(cls, recipe: "Recipe") -> Sequence[LabelledText] | None:
        """What the model was trained on; without it, there is no fair baseline."""
        try:
            split = cls.load(recipe.data, recipe.seed)
        except DataError:  # the files are no longer there
            return None
        if split.sha256 != recipe.data.sha256:
            return None
        return split.train


def classification_head(model: Encoder) -> PooledOutput:
    """The layers after pooling."""
    if not isinstance(model.output, PooledOutput):
        raise ConfigError("to learn labels, a model needs the output Classify")
    return model.output


def evaluate_labels(
    model: Encoder,
    tokenizer: Tokenizer,
    examples: Sequence[LabelledText],
    train: Sequence[LabelledText] | None,
    deadline: float | None = None,
) -> EvalResult:
    """Accuracy, macro-F1 and loss; with the training examples, a TF-IDF baseline as well.

    The baseline is left out if it would not be ready before the deadline.
    """
    texts = [e.text for e in examples]
    truth = [e.label for e in examples]
    labels = labels_of(model)
    encoded = encode_texts(texts, tokenizer, model.config.context_length)
    log_probs = label_log_probs(model, encoded)
    answers = [labels[i] for i in log_probs.argmax(dim=-1).tolist()]
    scores = score_labels(truth, answers, labels)
    targets = torch.tensor([labels.index(label) for label in truth])
    truth_log_probs = log_probs.gather(1, targets[:, None])[:, 0]
    baseline: dict[str, float] = {}
    baseline_name = ""
    remarks = encoded.remarks("measured")
    complete = train is None or deadline is None or _fits(train, texts, deadline)
    if not complete:
        remarks.append("there was no time for the baseline, TF-IDF and logistic regression")
        train = None
    if train is not None:
        baseline_name = "TF-IDF and logistic regression"
        others = bag_of_words([e.text for e in train], [e.label for e in train], texts)
        other_scores = score_labels(truth, others, labels)
        baseline = {"accuracy": other_scores.accuracy, "macro_f1": other_scores.macro_f1}
    probs = log_probs.amax(dim=-1).exp().tolist()
    predictions = _rank(texts, truth, answers, probs, truth_log_probs.exp().tolist())
    correct = len(examples) - (predictions.mistakes or 0)
    return EvalResult(
        scores={
            "accuracy": scores.accuracy,
            "macro_f1": scores.macro_f1,
            "loss": -float(truth_log_probs.double().mean()),
        },
        examples=len(examples),
        baseline=baseline,
        baseline_name=baseline_name,
        labels=labels,
        confusion=scores.confusion,
        samples=(predictions.table(),) if predictions.mistakes else (),
        remarks=tuple(remarks),
        complete=complete,
        predictions=predictions,
        intervals={"accuracy": wilson_interval(correct, len(examples))},
    )


def _rank(
    texts: Sequence[str],
    truth: Sequence[str],
    answers: Sequence[str],
    probs: Sequence[float],
    truth_probs: Sequence[float],
) -> Predictions:
    """Mistakes, the most confident first, then right answers, the least confident first.

    probs: of the answers.
    """
    mistakes = []
    right = []
    for row in zip(texts, truth, answers, probs, truth_probs, strict=True):
        if row[1] == row[2]:
            right.append((*row, True))
        else:
            mistakes.append((*row, False))
    mistakes.sort(key=lambda row: -row[3])
    right.sort(key=lambda row: row[3])
    columns = ("text", "label", "prediction", "probability", "label_probability", "correct")
    return Predictions(
        "Most confident mistakes", columns, mistakes + right, columns[:4], len(mistakes)
    )


def _fits(train: Sequence[LabelledText], texts: Sequence[str], deadline: float) -> bool:
    """Whether the baseline can be computed before the deadline, by the time a part of it takes."""
    bag_of_words(["a b", "b c"], ["a", "b"], ["a"])  # imports scikit-learn, which takes a while
    start = time.perf_counter()
    part = train[::BASELINE_PART]
    bag_of_words([e.text for e in part], [e.label for e in part], texts[::BASELINE_PART])
    end = time.perf_counter()
    return end + BASELINE_PART * (end - start) < deadline


def label_log_probs(model: Encoder, texts: Sequence[Ids]) -> Tensor:
    """The log-probability of each label for each text, (N, labels)."""
    return batched_outputs(model, texts).log_softmax(dim=-1)


def split_by_label(
    examples: Sequence[LabelledText], seed: int, fraction: float
) -> tuple[list[LabelledText], list[LabelledText]]:
    """A stratified split: the same fraction of every label, at least one if it has two texts."""
    by_label: dict[str, list[int]] = defaultdict(list)
    for i, example in enumerate(examples):
        by_label[example.label].append(i)
    rng = random.Random(seed)
    indices = set[int]()
    for label in sorted(by_label):
        members = by_label[label]
        count = min(max(round(len(members) * fraction), 1), len(members) - 1)
        indices.update(rng.sample(members, count))
    if not indices:
        raise DataError("every label has a single text; nothing can be split off for validation")
    train = [e for i, e in enumerate(examples) if i not in indices]
    validation = [e for i, e in enumerate(examples) if i in indices]
    return train, validation


def _read(
    files: Sequence[str], data: DataConfig, bad_rows: BadRows, least: int = 2
) -> list[LabelledText]:
    if not files:
        return built_in("classify")
    return read_labelled(paths(files), data.text, data.label, least, bad_rows)


def _check_validation_labels(
    train: Sequence[LabelledText], validation: Sequence[LabelledText]
) -> None:
    new = Counter(e.label for e in validation).keys() - {e.label for e in train}
    if new:
        raise DataError(f'the validation label "{min(new)}" is not among the training labels')


def _natural_order(label: str) -> tuple[float, str]:
    """Numbers in their order, then words in theirs; "nan" is a word."""
    try:
        number = float(label)
    except ValueError:
        number = math.inf
    if not math.isfinite(number):
        number = math.inf
    return number, label
