"""Vectors that are near each other where texts mean the same: contrast, or scores to agree with."""

from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from pydantic import PositiveFloat
from torch import Tensor

from qkv.engine.texts import Texts
from qkv.model import Encoder
from qkv.model.choice import Choice


@dataclass(frozen=True)
class Twins:
    """Texts that belong together, row by row.

    labels (B,): rows with the same label are not held against each other. scores (B,): how alike
    the two are, from 0 to 1.
    """

    one: Texts
    other: Texts
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


class EmbedTask(Choice):
    """The task, by what is known of the texts.

    pairs: the twin of a text is nearer than every other text of the batch (van den Oord et al.
    2018). labels: its twin is another text with its label. texts: its twin is itself with other
    dropout (SimCSE, Gao et al. 2021). scores: cosines should equal them.
    """

    kind: Literal["embed"] = "embed"
    learns_from: Literal["pairs", "labels", "texts", "scores"]
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


def vectors(model: Encoder, texts: Texts) -> Tensor:
    """One vector of length 1 for each text, (B, D)."""
    return F.normalize(model(texts.ids, texts.lengths).float(), dim=-1)
