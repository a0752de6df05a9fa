"""The most probable targets of many sources, by beam search or greedy search.

Sources of similar length are decoded together. With one beam the search is greedy and stops at its
first EOS; more beams are compared by their log-probability divided by a power of their length (Wu
et al. 2016, without the constants).
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

import torch
from torch import Tensor

from qkv.engine.batching import inference
from qkv.engine.beam.decoder_states import DecoderStates, RowStates, TreeStates
from qkv.engine.beam.hypotheses import BeamState, Hypothesis, SearchConfig
from qkv.errors import ShapeError, UsageError
from qkv.machine import adapt_threads
from qkv.model import Translator

# The fraction of sources that must be done before the others are moved together: moving copies
# the cache, computing finished rows wastes time.
COMPACT_AT = 1 / 8


def beam_search(
    model: Translator,
    sources: Sequence[Sequence[int]],
    *,
    bos: int,
    eos: int,
    prefix: Sequence[int] = (),
    beams: int = 1,
    best: int = 1,
    max_length: int | Callable[[int], int] | None = None,
    length_penalty: float = 1.0,
    forbidden: Sequence[int] = (),
    batch_tokens: int = 4096,
) -> list[list[Hypothesis]]:
    """The `best` most probable targets of each source, best first, in the order of the sources.

    Sources include their special tokens; `forbidden` tokens are never generated.
    prefix: what the decoder reads before `bos`, where a target starts with several special tokens.
    max_length: tokens of a target, EOS included, as a number or as a function of the length of the
    source; by default `default_max_length`, or the context length if that is less.
    batch_tokens: source tokens times beams that are decoded together.

    A source has fewer than `best` targets where no more can be generated at all.
    """
    config = SearchConfig(bos, eos, tuple(forbidden), beams, best, length_penalty, tuple(prefix))
    config.check(model.config.embedding.vocabulary)
    if batch_tokens < 1:
        raise UsageError(f"batch_tokens={batch_tokens} must be 1 or more")
    if not sources:
        return []
    _check_sources(model, sources)
    limits = [_limit(model, len(source), max_length, len(prefix)) for source in sources]
    hypotheses: list[list[Hypothesis]] = [[] for _ in sources]
    with inference(model):
        for batch in _batches([len(source) for source in sources], batch_tokens // beams):
            results = _search_batch(
                model, [sources[i] for i in batch], [limits[i] for i in batch], config
            )
            for i, result in zip(batch, results, strict=True):
                hypotheses[i] = result
    return hypotheses


def default_max_length(source: int) -> int:
    """Far more tokens than a translation of so many has, in any pair of languages."""
    return 2 * source + 10


class SearchState(Protocol):
    """The beams of each source of a batch, and the targets found so far."""

    tokens: Tensor  # (B, beams), the latest token of each beam
    parents: Tensor  # (B, beams), the beam of the same source that each one continues
    done: Tensor  # (B,) bool, sources whose result cannot change any more

    def extend(self, logs: Tensor) -> None:
        """Adds a token to each beam, from the log-probabilities (B, beams, V)."""

    def select(self, sentences: Tensor) -> None:
        """Keeps only these sources."""

    def hypotheses(self) -> list[list[Hypothesis]]:
        """The targets of each source, best first."""


class GreedyState:
    """Implements `SearchState` for one beam per source: the argmax until it is EOS."""

    def __init__(self, limits: Tensor, longest: int, config: SearchConfig) -> None:
        B = len(limits)
        device = limits.device
        self.config = config
        self.limits = limits
        self.step = 0
        self.tokens = torch.full((B, 1), config.bos, device=device)
        self.parents = torch.zeros(B, 1, dtype=torch.long, device=device)
        self.done = torch.zeros(B, dtype=torch.bool, device=device)
        self.scores = torch.zeros(B, device=device)
        self.counts = torch.zeros(B, dtype=torch.long, device=device)
        self.ids = torch.zeros(B, longest, dtype=torch.long, device=device)

    def extend(self, logs: Tensor) -> None:
        value, token = logs[:, 0].max(dim=-1)  # of equal ones the first
        self.ids[:, self.step] = token
        self.step += 1
        self.scores += value.masked_fill(self.done, 0.0)
        self.counts.masked_fill_(~self.done, self.step)
        self.done = self.done | (token == self.config.eos) | (self.limits == self.step)
        self.tokens = token[:, None]

    def select(self, sentences: Tensor) -> None:
        for name in ("tokens", "parents", "limits", "done", "scores", "counts", "ids"):
            setattr(self, name, getattr(self, name).index_select(0, sentences))

    def hypotheses(self) -> list[list[Hypothesis]]:
        eos = self.config.eos
        penalty = self.config.length_penalty
        rows = zip(self.ids.tolist(), self.counts.tolist(), self.scores.tolist(), strict=True)
        return [[Hypothesis.of(ids[:count], score, eos, penalty)] for ids, count, score in rows]


def search(states: DecoderStates, state: SearchState) -> list[list[Hypothesis]]:
    """The targets of each source, best first."""
    B, beams = state.tokens.shape
    hypotheses: list[list[Hypothesis]] = [[] for _ in range(B)]
    active = list(range(B))  # the sources of the rows that are left
    logs = states.log_probs(state.tokens[:, :1]).expand(-1, beams, -1)  # all beams start alike
    while True:
        state.extend(logs)
        done = state.done.tolist()  # the only synchronisation with the device per step
        if any(done) and sum(done) >= COMPACT_AT * len(done):
            results = state.hypotheses()
            for source, finished, result in zip(active, done, results, strict=True):
                if finished:
                    hypotheses[source] = result
            if all(done):
                return hypotheses
            rows = [row for row, finished in enumerate(done) if not finished]
            active = [active[row] for row in rows]
            selection = torch.tensor(rows, device=states.device)
            state.select(selection)
            states.select(selection)
        states.reorder(state.parents)
        adapt_threads()
        logs = states.log_probs(state.tokens)  # (B, beams, V)


def _search_batch(
    model: Translator, sources: Sequence[Sequence[int]], limits: list[int], config: SearchConfig
) -> list[list[Hypothesis]]:
    longest = max(limits)
    states: DecoderStates
    if TreeStates.supports(model):
        states = TreeStates(model, sources, config.beams, config.forbidden)
    else:
        capacity = longest + len(config.prefix)
        states = RowStates(model, sources, config.beams, config.forbidden, capacity)
    for token in config.prefix:
        states.log_probs(torch.full((len(sources), 1), token, device=states.device))
    kind = GreedyState if config.beams == 1 else BeamState
    return search(states, kind(torch.tensor(limits, device=states.device), longest, config))


def _batches(lengths: Sequence[int], max_tokens: int) -> Iterator[list[int]]:
    """Sources of similar length, as many together as fit into max_tokens, padding included.

    Padding is cheap here: a step costs the same for any source, but less for each one of many.
    """
    batch: list[int] = []
    for i in sorted(range(len(lengths)), key=lambda i: lengths[i]):
        if batch and (len(batch) + 1) * lengths[i] > max_tokens:
            yield batch
            batch = []
        batch.append(i)
    if batch:
        yield batch


def _check_sources(model: Translator, sources: Sequence[Sequence[int]]) -> None:
    limit = model.encoder.position.limit
    for i, source in enumerate(sources):
        if not len(source):
            raise ShapeError(f"source {i} is empty; a translation needs one token or more")
        if limit is not None and len(source) > limit:
            raise ShapeError(
                f"source {i} has {len(source)} tokens but the model reads at most {limit}; "
                f"shorten it"
            )


def _limit(
    model: Translator, source: int, max_length: int | Callable[[int], int] | None, prefix: int
) -> int:
    """How many tokens the target of a source of that length may have."""
    limit = model.decoder.position.limit  # BOS is read, but the last token is not
    if limit is not None:
        limit -= prefix
    if max_length is None:
        length = default_max_length(source)
        if limit is None:
            return length
        return min(length, limit)
    length = max_length(source) if callable(max_length) else max_length
    if length < 1 or (limit is not None and length > limit):
        bounds = "1 or more" if limit is None else f"between 1 and {limit} for this model"
        raise UsageError(
            f"max_length is {length} for a source of {source} tokens; it must be {bounds}"
        )
    return length
