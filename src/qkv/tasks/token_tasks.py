"""What the loop knows of a job: batches that say how large they are, and a loss for each."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from qkv.attention import Mask
from qkv.data.encoded import Encoded
from qkv.engine.batching import PaddedBatch
from qkv.errors import ConfigError, DataError
from qkv.model import Decoder, Encoder, Translator
from qkv.model.config import Config, Fraction, NonNegative
from qkv.model.output import LazyLogits, PredictionHead, TiedLogits
from qkv.tasks.loss import IGNORED, scored_cross_entropy, side_by_side, twice

# FOLDED task/language: The next token: documents packed into windows that do not see each
#   other's texts.
# FOLDED task/masked: Hidden tokens: some of the text is covered, and the model says what stood
#   there (Devlin 2019).
# FOLDED task/translate: Translation: the next token of the target, with the whole source in
#   view.


class Batch(Protocol):
    """Tensors for one step, or for a part of one."""

    @property
    def tokens(self) -> int:
        """Real tokens the model reads."""
        ...

    @property
    def targets(self) -> int:
        """Real targets it is judged by: what its summed loss is divided by."""
        ...

    def to(self, device: torch.device) -> Self: ...


class Task(Protocol):
    """What a model is for."""

    def loss(self, model: Any, batch: Any) -> Tensor:
        """The loss of all targets of the batch, added up."""
        ...


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


class LanguageTask(Config):
    """The task: how surprised the model is by each token that really follows."""

    kind: Literal["language"] = "language"
    label_smoothing: Fraction = 0.0

    def loss(self, model: Decoder, batch: Windows) -> Tensor:
        mask = None if batch.documents is None else Mask.documents(batch.documents)
        states = model.states(batch.ids, mask=mask, positions=batch.positions)
        score = model.output
        if not isinstance(score, TiedLogits | PredictionHead):
            raise ConfigError("to learn the next token, a model needs the output NextToken")
        factors = score.lazy(states.flatten(0, 1), model.embedding.weight)
        return scored_cross_entropy(factors, batch.following.flatten(), self.label_smoothing)


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


class MaskedTask(Config):
    """The task: how surprised the model is by each hidden token.

    Of the hidden ones `covered` become the mask, `changed` a random token, and the rest stay as
    they are, so that the model cannot rely on what it sees.
    """

    kind: Literal["masked"] = "masked"
    mask_prob: Fraction = 0.2
    mask_replace_prob: Fraction = 0.8
    random_replace_prob: Fraction = 0.1

    def hide(
        self, windows: Windows, mask: int, words_only: Flags, draws: np.random.Generator
    ) -> Hidden:
        """Cover some of the text; tokens that `words_only` (V,) calls no words are left alone."""
        ids = windows.ids.numpy().copy()
        is_word = words_only[ids]
        chosen = (draws.random(ids.shape) < self.mask_prob) & is_word
        if not chosen.any():  # a tiny batch: judge something rather than nothing
            words = np.flatnonzero(is_word)
            chosen.flat[draws.choice(words if len(words) else ids.size)] = True
        wanted = torch.from_numpy(ids[chosen])
        fate = draws.random(ids.shape)
        ids[chosen & (fate < self.mask_replace_prob)] = mask
        random = (
            chosen
            & (fate >= self.mask_replace_prob)
            & (fate < self.mask_replace_prob + self.random_replace_prob)
        )
        ids[random] = draws.choice(np.flatnonzero(words_only), int(random.sum()))
        covered = Windows(
            torch.from_numpy(ids), windows.following, windows.documents, windows.positions
        )
        return Hidden(covered, torch.from_numpy(np.flatnonzero(chosen)), wanted)

    def loss(self, model: Encoder, batch: Hidden) -> Tensor:
        return scored_cross_entropy(self._scored(model, batch), batch.wanted)

    def evaluate(self, model: Encoder, batch: Hidden) -> tuple[float, int]:
        """The loss, and how many hidden tokens are the model's first choice."""
        factors = self._scored(model, batch)
        best = factors.logits().argmax(dim=-1)
        hits = int((best == batch.wanted).sum())
        return float(scored_cross_entropy(factors, batch.wanted)), hits

    def _scored(self, model: Encoder, batch: Hidden) -> LazyLogits:
        output, w = model.output, batch.windows
        if not isinstance(output, TiedLogits | PredictionHead):
            raise ConfigError("to learn hidden tokens, a model needs the output MaskedToken")
        mask = None if w.documents is None else Mask.documents(w.documents)
        states = model.encode(w.ids, mask=mask, positions=w.positions)
        return output.lazy(states.flatten(0, 1)[batch.places], model.embedding.weight)


@dataclass(frozen=True)
class PairBatch:
    """source (B, S); target (B, T), which begins with the start mark; and what follows each
    target token (B, T), IGNORED where there is none.
    """

    source: PaddedBatch
    target: PaddedBatch
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
        following = PaddedBatch.of(wanted, IGNORED)
        return cls(PaddedBatch.of(sources, pad), PaddedBatch.of(begun, pad), following.ids)

    @property
    def tokens(self) -> int:
        return self.source.tokens + self.target.tokens

    @property
    def targets(self) -> int:
        return int((self.following != IGNORED).sum())

    def to(self, device: torch.device) -> "PairBatch":
        return PairBatch(self.source.to(device), self.target.to(device), self.following.to(device))


class TranslateTask(Config):
    """The task: how surprised the model is by each token of the translation.

    r_drop: what it costs that two passes with other dropout disagree (R-Drop, Wu et al. 2021).
    """

    kind: Literal["translate"] = "translate"
    label_smoothing: Fraction = 0.1
    r_drop: NonNegative = 0.0

    def loss(self, model: Translator, batch: PairBatch) -> Tensor:
        source, target, wanted = batch.source, batch.target, batch.following.flatten()
        if not self.r_drop:
            states = _states(model, source.ids, source.lengths, target.ids, target.lengths)
            factors = _scores(model).lazy(states.flatten(0, 1), model.embedding.weight)
            return scored_cross_entropy(factors, wanted, self.label_smoothing)
        given = source.ids, source.lengths, target.ids, target.lengths
        states = side_by_side(_states(model, *map(twice, given)).flatten(0, 1))  # type: ignore[arg-type]
        factors = _scores(model).lazy(states, model.embedding.weight)
        both = wanted.repeat_interleave(2)
        return scored_cross_entropy(factors, both, self.label_smoothing, r_drop=self.r_drop)


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


def _scores(model: Translator) -> TiedLogits:
    assert isinstance(model.output, TiedLogits)
    return model.output
