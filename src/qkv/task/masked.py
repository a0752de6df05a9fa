"""Hidden tokens: some of the text is covered, and the model says what stood there (Devlin 2019)."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from qkv.attention import Mask
from qkv.errors import ConfigError
from qkv.model import Encoder
from qkv.model.choice import Choice, Share
from qkv.model.output import Factors, TiedScores, Transformed
from qkv.task.language import Windows
from qkv.task.loss import scored_cross_entropy

Flags = NDArray[np.bool_]


@dataclass(frozen=True)
class Hidden:
    """Windows whose text is partly covered, and what stood there.

    places (N,) count through the flattened (B, T) positions; wanted (N,) are the tokens.
    """

    windows: Windows
    places: Tensor
    wanted: Tensor

    @property
    def tokens(self) -> int:
        return self.windows.tokens

    @property
    def targets(self) -> int:
        return len(self.places)

    def to(self, device: torch.device) -> "Hidden":
        return Hidden(self.windows.to(device), self.places.to(device), self.wanted.to(device))


class MaskedTask(Choice):
    """The task: how surprised the model is by each hidden token.

    Of the hidden ones `covered` become the mask, `changed` a random token, and the rest stay as
    they are, so that the model cannot rely on what it sees.
    """

    kind: Literal["masked"] = "masked"
    hidden: Share = 0.2
    covered: Share = 0.8
    changed: Share = 0.1

    def hide(
        self, windows: Windows, mask: int, words_only: Flags, draws: np.random.Generator
    ) -> Hidden:
        """Cover some of the text; tokens that `words_only` (V,) calls no words are left alone."""
        ids = windows.ids.numpy().copy()
        is_word = words_only[ids]
        chosen = (draws.random(ids.shape) < self.hidden) & is_word
        if not chosen.any():  # a tiny batch: judge something rather than nothing
            words = np.flatnonzero(is_word)
            chosen.flat[draws.choice(words if len(words) else ids.size)] = True
        wanted = torch.from_numpy(ids[chosen])
        fate = draws.random(ids.shape)
        ids[chosen & (fate < self.covered)] = mask
        random = chosen & (fate >= self.covered) & (fate < self.covered + self.changed)
        ids[random] = draws.choice(np.flatnonzero(words_only), int(random.sum()))
        covered = Windows(
            torch.from_numpy(ids), windows.following, windows.documents, windows.positions
        )
        return Hidden(covered, torch.from_numpy(np.flatnonzero(chosen)), wanted)

    def loss(self, model: Encoder, batch: Hidden) -> Tensor:
        return scored_cross_entropy(self._scored(model, batch), batch.wanted)

    def judge(self, model: Encoder, batch: Hidden) -> tuple[float, int]:
        """The loss, and how many hidden tokens are the model's first choice."""
        factors = self._scored(model, batch)
        best = factors.scores().argmax(dim=-1)
        hits = int((best == batch.wanted).sum())
        return float(scored_cross_entropy(factors, batch.wanted)), hits

    def _scored(self, model: Encoder, batch: Hidden) -> Factors:
        output, w = model.output, batch.windows
        if not isinstance(output, TiedScores | Transformed):
            raise ConfigError("to learn hidden tokens, a model needs the output MaskedToken")
        mask = None if w.documents is None else Mask.documents(w.documents)
        states = model.encode(w.ids, mask=mask, positions=w.positions)
        return output.factors(states.flatten(0, 1)[batch.places], model.embedding.weight)
