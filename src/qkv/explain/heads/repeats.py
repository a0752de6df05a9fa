"""Random tokens, twice over: what comes again can be foretold from nothing but the first time."""

from collections.abc import Collection, Iterator, Mapping, Sequence

import torch

from qkv.engine.translate.marking import Marking
from qkv.explain.trace import Reading
from qkv.model import Decoder, Model, NextToken, Translator
from qkv.text import Tokenizer

HALVES = (11, 13, 17, 19, 23)  # of different lengths: no fixed distance leads to the repeat


def repeats(
    model: Model,
    tokenizer: Tokenizer | None,
    met: Mapping[str, Collection[int]],
    seed: int = 0,
) -> Iterator[Reading]:
    """Sequences as the model reads them, those that fit; no token comes twice in a half.

    Drawn from the ids met in the texts of each sequence, which the model has likely learned; from
    its whole vocabulary if these are too few.
    """
    pools = _pools(model, tokenizer, met)
    generator = torch.Generator().manual_seed(seed)
    for half in HALVES:
        drawn = {name: _drawn(pool, half, generator) * 2 for name, pool in pools.items()}
        if isinstance(model, Translator) and model.source is None:
            drawn["target"] = drawn["source"]  # a head may look for the token it is at
        reading = _marked(model, tokenizer, drawn)
        if all(len(ids) <= model.config.length for ids in reading.ids.values()):
            yield reading


def _pools(
    model: Model, tokenizer: Tokenizer | None, met: Mapping[str, Collection[int]]
) -> dict[str, list[int]]:
    """Tokens that are no marks, for each sequence."""
    tables = {"text": model.embedding}
    if isinstance(model, Translator):
        tables = {"source": model.source_table, "target": model.embedding}
    found = {}
    for name, table in tables.items():
        size, special = table.weight.shape[0], frozenset[int]()
        if tokenizer is not None:
            size, special = min(size, tokenizer.size), tokenizer.special
        every = [id for id in range(size) if id not in special]
        known = sorted(met.get(name, ()))
        found[name] = known if len(known) >= max(HALVES) else every
    return found


def _drawn(pool: Sequence[int], count: int, generator: torch.Generator) -> list[int]:
    if len(pool) < count:  # then some come more often, and by chance as well
        return [pool[i] for i in torch.randint(len(pool), (count,), generator=generator).tolist()]
    return [pool[i] for i in torch.randperm(len(pool), generator=generator)[:count].tolist()]


def _marked(model: Model, tokenizer: Tokenizer | None, ids: Mapping[str, list[int]]) -> Reading:
    """With the marks around them that the model was trained with."""
    t = tokenizer
    if t is None:
        return Reading.of_ids(**ids)
    if isinstance(model, Translator):
        marking = Marking.of(t, model.config)
        target = [*marking.start, *ids["target"]]
        return Reading.of_ids(source=marking.source(ids["source"]), target=target)
    if isinstance(model, Decoder) and isinstance(model.config.output, NextToken):
        return Reading.of_ids(text=[*t.before, *ids["text"]])
    return Reading.of_ids(text=t.wrap(ids["text"]))
