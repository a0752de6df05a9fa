"""Translation: the next token of the target, with the whole source in view."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from qkv.engine.texts import Texts
from qkv.model import Translator
from qkv.model.choice import Choice, NotNegative, Share
from qkv.model.output import TiedScores
from qkv.task.agreement import side_by_side, twice
from qkv.task.loss import IGNORED, scored_cross_entropy


@dataclass(frozen=True)
class PairBatch:
    """source (B, S); target (B, T), which begins with the start mark; and what follows each
    target token (B, T), IGNORED where there is none.
    """

    source: Texts
    target: Texts
    following: Tensor

    @classmethod
    def of(
        cls,
        sources: Sequence[ArrayLike],
        targets: Sequence[ArrayLike],
        start: Sequence[int],
        end: int,
        pad: int,
    ) -> "PairBatch":
        """From sources with their marks and targets without: these begin with `start`.

        Of several start marks only the last is followed by something that is learnt.
        """
        begun = [np.concatenate([start, target]).astype(np.int64) for target in targets]
        given = [IGNORED] * (len(start) - 1)
        wanted = [np.concatenate([given, target, [end]]).astype(np.int64) for target in targets]
        following = Texts.of(wanted, IGNORED)
        return cls(Texts.of(sources, pad), Texts.of(begun, pad), following.ids)

    @property
    def tokens(self) -> int:
        return self.source.tokens + self.target.tokens

    @property
    def targets(self) -> int:
        return int((self.following != IGNORED).sum())

    def to(self, device: torch.device) -> "PairBatch":
        return PairBatch(self.source.to(device), self.target.to(device), self.following.to(device))


class TranslateTask(Choice):
    """The task: how surprised the model is by each token of the translation.

    agreement: what it costs that two passes with other dropout disagree (R-Drop, Wu et al. 2021).
    """

    kind: Literal["translate"] = "translate"
    smoothing: Share = 0.1
    agreement: NotNegative = 0.0

    def loss(self, model: Translator, batch: PairBatch) -> Tensor:
        source, target, wanted = batch.source, batch.target, batch.following.flatten()
        if not self.agreement:
            states = _states(model, source.ids, source.lengths, target.ids, target.lengths)
            factors = _scores(model).factors(states.flatten(0, 1), model.embedding.weight)
            return scored_cross_entropy(factors, wanted, self.smoothing)
        given = source.ids, source.lengths, target.ids, target.lengths
        states = side_by_side(_states(model, *map(twice, given)).flatten(0, 1))  # type: ignore[arg-type]
        factors = _scores(model).factors(states, model.embedding.weight)
        both = wanted.repeat_interleave(2)
        return scored_cross_entropy(factors, both, self.smoothing, agreement=self.agreement)


def _states(
    model: Translator,
    source: Tensor,
    lengths: Tensor | None,
    target: Tensor,
    target_lengths: Tensor | None,
) -> Tensor:
    # What pads the target comes after all that is real, where a causal mask does not look.
    memory = model.encode(source, lengths)
    return model.states(target, memory, lengths, read=target_lengths)


def _scores(model: Translator) -> TiedScores:
    assert isinstance(model.output, TiedScores)
    return model.output
