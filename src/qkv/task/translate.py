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
from qkv.task.agreement import disagreement, twice
from qkv.task.loss import IGNORED, cross_entropy, scored_cross_entropy


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
        # Both answers are needed whole, so this is not done in chunks.
        given = source.ids, source.lengths, target.ids, target.lengths
        states = _states(model, *map(twice, given))  # type: ignore[arg-type]
        states = states.flatten(0, 1)[(wanted != IGNORED).repeat(2)]
        wanted = wanted[wanted != IGNORED]
        factors = _scores(model).factors(states, model.embedding.weight)
        one, other = factors.scores().chunk(2)
        losses = [cross_entropy(scores, wanted, self.smoothing) for scores in (one, other)]
        return (losses[0] + losses[1]) / 2 + self.agreement * disagreement(one, other).sum()


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
