"""Translations of many sources: the most probable targets that a beam search finds.

Sources of nearly equal length are decoded together. One beam is a greedy search, which stops at its
first end; more are compared by their score divided by a power of their length (Wu et al. 2016,
without the constants).
"""

from collections.abc import Callable, Iterator, Sequence

import torch

from qkv.engine.answering import answering
from qkv.engine.beam_rows import Rows
from qkv.engine.beam_tree import Tree
from qkv.engine.decoding import Decoding
from qkv.engine.greedy import Greedy
from qkv.engine.hypothesis import Hypothesis
from qkv.engine.rules import Rules
from qkv.engine.search import search
from qkv.engine.survivors import Survivors
from qkv.errors import ShapeError, UsageError
from qkv.model import Translator

__all__ = ["Hypothesis", "beam_search", "usual_longest"]


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
    with answering(model):
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
