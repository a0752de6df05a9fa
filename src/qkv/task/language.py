"""The next token: documents packed into windows that do not see each other's texts."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from qkv.attention import Mask
from qkv.data.encoded import Encoded
from qkv.errors import ConfigError, DataError
from qkv.model import Decoder
from qkv.model.choice import Choice, Share
from qkv.model.output import TiedScores, Transformed
from qkv.task.loss import IGNORED, scored_cross_entropy

Ids = NDArray[np.int64]


@dataclass(frozen=True)
class Windows:
    """Some windows of the stream as one batch.

    ids and following (B, T): each token and the one it should be followed by, IGNORED where the
    document ends. documents and positions (B, T) where a window holds more than one document.
    """

    ids: Tensor
    following: Tensor
    documents: Tensor | None
    positions: Tensor | None

    @property
    def tokens(self) -> int:
        return self.ids.numel()

    @property
    def targets(self) -> int:
        return int((self.following != IGNORED).sum())

    def to(self, device: torch.device) -> "Windows":
        documents = None if self.documents is None else self.documents.to(device)
        positions = None if self.positions is None else self.positions.to(device)
        return Windows(self.ids.to(device), self.following.to(device), documents, positions)


def windows(stream: Encoded, starts: Ids, length: int) -> Windows:
    """The windows of `length` tokens that begin at these places."""
    places = starts[:, None] + np.arange(length + 1)
    taken = stream.ids[np.minimum(places, len(stream.ids) - 1)].astype(np.int64)
    document = np.searchsorted(stream.starts, places, side="right") - 1
    goes_on = document[:, 1:] == document[:, :-1]
    following = np.where(goes_on, taken[:, 1:], IGNORED)
    inner = document[:, :-1]
    ids, wanted = torch.from_numpy(taken[:, :-1]), torch.from_numpy(following)
    if (inner[:, :1] == inner).all():
        return Windows(ids, wanted, None, None)
    begin = np.maximum(stream.starts[inner], starts[:, None])
    positions = places[:, :-1] - begin
    return Windows(ids, wanted, torch.from_numpy(inner), torch.from_numpy(positions))


def window_starts(stream: Encoded, length: int, seed: int, epoch: int) -> Ids:
    """Where every window of one epoch begins, in an order that depends only on (seed, epoch).

    Each epoch begins at another place, so that windows are cut elsewhere.
    """
    draws = np.random.default_rng((seed, epoch))
    count = epoch_windows(stream, length)
    shift = int(draws.integers(min(length, max(1, len(stream.ids) - count * length))))
    return draws.permutation(count) * length + shift


def in_order(stream: Encoded, length: int, batch: int) -> Iterator[Windows]:
    """Every token of the stream once, from the first to the last; the last window may be short."""
    whole = (len(stream.ids) - 1) // length
    starts = np.arange(whole) * length
    for part in range(0, whole, batch):
        yield windows(stream, starts[part : part + batch], length)
    rest = len(stream.ids) - 1 - whole * length
    if rest:
        yield windows(stream, np.array([whole * length]), rest)


def epoch_windows(stream: Encoded, length: int) -> int:
    """How many windows one epoch has."""
    count = (len(stream.ids) - 1) // length
    if count < 1:
        raise DataError(
            f"the text has {len(stream.ids)} tokens, but one window needs {length + 1}; "
            f"give more text or a shorter context, as in --context {max(2, len(stream.ids) // 4)}"
        )
    return count


class LanguageTask(Choice):
    """The task: how surprised the model is by each token that really follows."""

    kind: Literal["language"] = "language"
    smoothing: Share = 0.0

    def loss(self, model: Decoder, batch: Windows) -> Tensor:
        mask = None if batch.documents is None else Mask.documents(batch.documents)
        states = model.states(batch.ids, mask=mask, positions=batch.positions)
        score = model.output
        if not isinstance(score, TiedScores | Transformed):
            raise ConfigError("to learn the next token, a model needs the output NextToken")
        factors = score.factors(states.flatten(0, 1), model.embedding.weight)
        return scored_cross_entropy(factors, batch.following.flatten(), self.smoothing)
