"""A label for each text: by the whole encoder, or by a small network on frozen embeddings."""

from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from pydantic import PositiveFloat
from torch import Tensor

from qkv.engine.batching import PaddedBatch
from qkv.errors import ConfigError
from qkv.model import Encoder
from qkv.model.config import Config, Fraction, NonNegative
from qkv.model.output import PooledOutput
from qkv.tasks.loss import disagreement, twice

# FOLDED task/embed: Vectors that are near each other where texts mean the same: contrast, or
#   scores to agree with.


@dataclass(frozen=True)
class LabelledTexts:
    """texts (B, T), the number of each one's label (B,) and how much it counts (B,).

    shares (B, labels): what a teacher says of them, in place of the labels.
    """

    texts: PaddedBatch
    labels: Tensor
    weights: Tensor
    shares: Tensor | None = None

    @property
    def tokens(self) -> int:
        return self.texts.tokens

    @property
    def targets(self) -> int:
        return len(self.labels)

    def to(self, device: torch.device) -> "LabelledTexts":
        shares = None if self.shares is None else self.shares.to(device)
        return LabelledTexts(
            self.texts.to(device), self.labels.to(device), self.weights.to(device), shares
        )


@dataclass(frozen=True)
class LabelledVectors:
    """What a frozen encoder made of each text, pooled (B, D), with label and weight (B,)."""

    vectors: Tensor
    labels: Tensor
    weights: Tensor
    shares: Tensor | None = None

    @property
    def tokens(self) -> int:
        return len(self.labels)

    @property
    def targets(self) -> int:
        return len(self.labels)

    def to(self, device: torch.device) -> "LabelledVectors":
        shares = None if self.shares is None else self.shares.to(device)
        return LabelledVectors(
            self.vectors.to(device), self.labels.to(device), self.weights.to(device), shares
        )


class ClassifyTask(Config):
    """The task: how surprised the model is by each text's label.

    balance: how far rare labels count for more, from 0 (every text alike) to 1 (every label
    alike). r_drop: what it costs that two passes with other dropout disagree (R-Drop, Wu et
    al. 2021). blanked: the share of tokens hidden from the model in training. counted: the share
    of a text's target that is not its label but how likely counting words finds each label, by
    what other texts teach (Hinton et al. 2015, with a simple teacher). cutmix: how many new
    texts, each of two parts of others and judged by counting words, are read beside each text.
    """

    kind: Literal["classify"] = "classify"
    frozen: bool = False
    label_smoothing: Fraction = 0.0
    balance: NonNegative = 0.5
    r_drop: NonNegative = 0.0
    word_dropout: Fraction = 0.0
    distillation_weight: Fraction = 0.0
    cutmix: NonNegative = 0.0

    def loss(self, model: Encoder, batch: LabelledTexts | LabelledVectors) -> Tensor:
        if isinstance(batch, LabelledVectors):
            return self._judge(head(model).from_pooled(batch.vectors), batch)
        ids, lengths = batch.texts.ids, batch.texts.lengths
        if not self.r_drop:
            return self._judge(model(ids, lengths), batch)
        one, other = model(twice(ids), twice(lengths)).chunk(2)
        apart = (disagreement(one, other) * batch.weights).sum()
        return (self._judge(one, batch) + self._judge(other, batch)) / 2 + self.r_drop * apart

    def _judge(self, scores: Tensor, batch: LabelledTexts | LabelledVectors) -> Tensor:
        losses = F.cross_entropy(
            scores.float(),
            batch.labels if batch.shares is None else batch.shares,
            reduction="none",
            label_smoothing=self.label_smoothing,
        )
        return (losses * batch.weights).sum()


def head(model: Encoder) -> PooledOutput:
    """The small network on the pooled states."""
    if not isinstance(model.output, PooledOutput):
        raise ConfigError("to learn labels, a model needs the output Classify")
    return model.output


@dataclass(frozen=True)
class Twins:
    """Texts that belong together, row by row.

    labels (B,): rows with the same label are not held against each other. scores (B,): how alike
    the two are, from 0 to 1.
    """

    one: PaddedBatch
    other: PaddedBatch
    labels: Tensor | None = None
    scores: Tensor | None = None

    @property
    def tokens(self) -> int:
        return self.one.tokens + self.other.tokens

    @property
    def targets(self) -> int:
        return len(self.one)

    def to(self, device: torch.device) -> "Twins":
        labels = None if self.labels is None else self.labels.to(device)
        scores = None if self.scores is None else self.scores.to(device)
        return Twins(self.one.to(device), self.other.to(device), labels, scores)


class EmbedTask(Config):
    """The task, by what is known of the texts.

    pairs: the twin of a text is nearer than every other text of the batch (van den Oord et al.
    2018). labels: its twin is another text with its label. texts: its twin is itself with other
    dropout (SimCSE, Gao et al. 2021). scores: cosines should equal them.
    """

    kind: Literal["embed"] = "embed"
    supervision: Literal["pairs", "labels", "texts", "scores"]
    temperature: PositiveFloat = 0.05

    def loss(self, model: Encoder, batch: Twins) -> Tensor:
        one, other = (vectors(model, side) for side in (batch.one, batch.other))
        if batch.scores is not None:
            return ((one * other).sum(dim=-1) - batch.scores).square().sum()
        return contrast(one, other, self.temperature, batch.labels)


def contrast(one: Tensor, other: Tensor, temperature: float, labels: Tensor | None) -> Tensor:
    """Both ways: how surprising each row's own twin is among all rows, (B, D) twice -> a sum."""
    likeness = one @ other.T / temperature  # (B, B)
    if labels is not None:
        same = labels[:, None] == labels
        same.fill_diagonal_(False)
        likeness = likeness.masked_fill(same, -torch.inf)
    own = torch.arange(len(likeness), device=likeness.device)
    there, back = (F.cross_entropy(side, own, reduction="sum") for side in (likeness, likeness.T))
    return (there + back) / 2


def vectors(model: Encoder, texts: PaddedBatch) -> Tensor:
    """One vector of length 1 for each text, (B, D)."""
    return F.normalize(model(texts.ids, texts.lengths).float(), dim=-1)
