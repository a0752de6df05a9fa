"""Translations of many sources: the most probable targets that a beam search finds.

Sources of nearly equal length are decoded together. One beam is a greedy search, which stops at its
first end; more are compared by their score divided by a power of their length (Wu et al. 2016,
without the constants).
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

import torch
from torch import Tensor

from qkv.engine.batching import inference
from qkv.engine.beam.states import Decoding, Rows, Tree
from qkv.engine.beam.survivors import Hypothesis, Rules, Survivors
from qkv.errors import ShapeError, UsageError
from qkv.model import Translator

# FOLDED engine/greedy: Greedy search: the most probable token each time, until it is the end.
# FOLDED engine/search: The loop of every search: read the latest tokens, choose the next, let
#   the finished leave.


class Greedy:
    """One beam for each sentence; nothing to compare."""

    def __init__(self, limits: Tensor, longest: int, rules: Rules) -> None:
        B, device = len(limits), limits.device
        self.rules, self.limits, self.step = rules, limits, 0
        self.tokens = torch.full((B, 1), rules.start, device=device)
        self.parents = torch.zeros(B, 1, dtype=torch.long, device=device)
        self.done = torch.zeros(B, dtype=torch.bool, device=device)
        self.scores = torch.zeros(B, device=device)
        self.counts = torch.zeros(B, dtype=torch.long, device=device)
        self.ids = torch.zeros(B, longest, dtype=torch.long, device=device)

    def choose(self, logs: Tensor) -> None:
        value, token = logs[:, 0].max(dim=-1)  # of equal ones the first
        self.ids[:, self.step] = token
        self.step += 1
        self.scores += value.masked_fill(self.done, 0.0)
        self.counts.masked_fill_(~self.done, self.step)
        self.done = self.done | (token == self.rules.end) | (self.limits == self.step)
        self.tokens = token[:, None]

    def take(self, sentences: Tensor) -> None:
        for name in ("tokens", "parents", "limits", "done", "scores", "counts", "ids"):
            setattr(self, name, getattr(self, name).index_select(0, sentences))

    def hypotheses(self) -> list[list[Hypothesis]]:
        end, penalty = self.rules.end, self.rules.length_penalty
        state = zip(self.ids.tolist(), self.counts.tolist(), self.scores.tolist(), strict=True)
        return [[Hypothesis.of(ids[:n], score, end, penalty)] for ids, n, score in state]


LEAVING = 1 / 8  # the share of sentences that must have finished before the others close ranks


class Front(Protocol):
    """What a search knows of each sentence of a batch: the beams it follows, and what it found."""

    tokens: Tensor  # (B, beams), the latest of each beam
    parents: Tensor  # (B, beams), the beam of its sentence that each one goes on from
    done: Tensor  # (B,) bool, sentences whose answer cannot change any more

    def choose(self, logs: Tensor) -> None:
        """Write one more token in each beam, given log p of every token, (B, beams, V)."""

    def take(self, sentences: Tensor) -> None:
        """Go on with these sentences only."""

    def hypotheses(self) -> list[list[Hypothesis]]:
        """What was found for each sentence, best first."""


def search(decoding: Decoding, front: Front) -> list[list[Hypothesis]]:
    """The targets of each source of the decoding, best first."""
    B, beams = front.tokens.shape
    found: list[list[Hypothesis]] = [[] for _ in range(B)]
    sources = list(range(B))  # of the sentences still at work
    logs = decoding.read(front.tokens[:, :1]).expand(-1, beams, -1)  # one start for all
    while True:
        front.choose(logs)
        done = front.done.tolist()  # the one time a step that the device is waited for
        if any(done) and sum(done) >= LEAVING * len(done):
            for source, finished, answer in zip(sources, done, front.hypotheses(), strict=True):
                if finished:
                    found[source] = answer
            if all(done):
                return found
            sources = [s for s, finished in zip(sources, done, strict=True) if not finished]
            staying = torch.tensor(
                [i for i, finished in enumerate(done) if not finished], device=decoding.device
            )
            front.take(staying)
            decoding.take(staying)
        decoding.follow(front.parents)
        logs = decoding.read(front.tokens)  # (B, beams, V)


def beam_search(
    model: Translator,
    sources: Sequence[Sequence[int]],
    *,
    start: int,
    end: int,
    before: Sequence[int] = (),
    beams: int = 1,
    best: int = 1,
    longest: int | Callable[[int], int] | None = None,
    length_penalty: float = 1.0,
    forbidden: Sequence[int] = (),
    batch_tokens: int = 4096,
) -> list[list[Hypothesis]]:
    """The `best` most probable targets of each source, best first, in the order of the sources.

    A source has all marks the model was trained with; `forbidden` tokens are never written.
    before: what the decoder reads ahead of `start`, where a target begins with several marks.
    longest: how many tokens a target may have, its end included, as a number or as a function of
    the length of the source; if not given, `usual_longest`, or less where the model reads less.
    batch_tokens: source tokens times beams that are decoded together.

    There are fewer than `best` where so few targets can be written at all.
    """
    rules = Rules(start, end, tuple(forbidden), beams, best, length_penalty, tuple(before))
    rules.check(model.config.embedding.vocabulary)
    if batch_tokens < 1:
        raise UsageError(f"batch_tokens={batch_tokens} must be 1 or more")
    if not sources:
        return []
    _check_sources(model, sources)
    limits = [_limit(model, len(source), longest, len(before)) for source in sources]
    found: list[list[Hypothesis]] = [[] for _ in sources]
    with inference(model):
        for batch in _batches([len(source) for source in sources], batch_tokens // beams):
            together = [sources[i] for i in batch]
            answers = _decode(model, together, [limits[i] for i in batch], rules)
            for i, answer in zip(batch, answers, strict=True):
                found[i] = answer
    return found


def usual_longest(source: int) -> int:
    """Far more tokens than a translation of so many has, in any pair of languages."""
    return 2 * source + 10


def _batches(lengths: Sequence[int], budget: int) -> Iterator[list[int]]:
    """Sources of like length, as many together as the budget has tokens for, padding included.

    Padding is cheap here: a step costs the same for any source, but less for each one of many.
    """
    batch = list[int]()
    for i in sorted(range(len(lengths)), key=lambda i: lengths[i]):
        if batch and (len(batch) + 1) * lengths[i] > budget:
            yield batch
            batch = []
        batch.append(i)
    if batch:
        yield batch


def _decode(
    model: Translator, sources: Sequence[Sequence[int]], limits: list[int], rules: Rules
) -> list[list[Hypothesis]]:
    longest, decoding = max(limits), _decoding(model, sources, max(limits), rules)
    for token in rules.before:
        decoding.read(torch.full((len(sources), 1), token, device=decoding.device))
    front = Greedy if rules.beams == 1 else Survivors
    return search(decoding, front(torch.tensor(limits, device=decoding.device), longest, rules))


def _decoding(
    model: Translator, sources: Sequence[Sequence[int]], longest: int, rules: Rules
) -> Decoding:
    """Beams as a tree where the model allows it."""
    if Tree.suits(model):
        return Tree(model, sources, rules.beams, rules.forbidden)
    room = longest + len(rules.before)
    return Rows(model, sources, rules.beams, rules.forbidden, room)


def _check_sources(model: Translator, sources: Sequence[Sequence[int]]) -> None:
    most = model.encoder.position.limit
    for i, source in enumerate(sources):
        if not len(source):
            raise ShapeError(f"source {i} is empty; a translation needs one token or more")
        if most is not None and len(source) > most:
            raise ShapeError(
                f"source {i} has {len(source)} tokens but the model reads at most {most}; "
                f"shorten it"
            )


def _limit(
    model: Translator, source: int, longest: int | Callable[[int], int] | None, before: int
) -> int:
    """How many tokens the target of a source of that length may have."""
    most = model.decoder.position.limit  # the start is read in place of the last token
    most = None if most is None else most - before
    if longest is None:
        usual = usual_longest(source)
        return usual if most is None else min(usual, most)
    asked = longest(source) if callable(longest) else longest
    if asked < 1 or (most is not None and asked > most):
        bounds = "1 or more" if most is None else f"between 1 and {most} for this model"
        raise UsageError(f"longest is {asked} for a source of {source} tokens; it must be {bounds}")
    return asked
