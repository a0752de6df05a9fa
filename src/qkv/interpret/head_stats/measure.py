"""The heads of a model judged by what they do with texts, and with random tokens twice over."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

import torch

from qkv.engine.engine import Engine
from qkv.engine.translate.segments import Marking
from qkv.errors import UsageError
from qkv.interpret.glass_box import read_text
from qkv.interpret.head_stats.head_statistics import Tally, Watch, head_off, kind_of, scores_of
from qkv.interpret.head_stats.patterns import HeadReport, Twin
from qkv.interpret.trace import TokenizedInput
from qkv.model import Decoder, Model, NextToken, Translator
from qkv.text import Tokenizer

# FOLDED explain/heads/repeats: Random tokens, twice over: what comes again can be foretold from
#   nothing but the first time.
# FOLDED explain/heads/samples: A few sentences to judge heads by when no text is given: short,
#   plain English, with repeats.

HALVES = (11, 13, 17, 19, 23)  # of different lengths: no fixed distance leads to the repeat


def repeats(
    model: Model,
    tokenizer: Tokenizer | None,
    met: Mapping[str, Collection[int]],
    seed: int = 0,
) -> Iterator[TokenizedInput]:
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
        tables = {"source": model.source_embedding, "target": model.embedding}
    found = {}
    for name, table in tables.items():
        size, special = table.weight.shape[0], frozenset[int]()
        if tokenizer is not None:
            size, special = min(size, tokenizer.vocab_size), tokenizer.special_ids
        every = [id for id in range(size) if id not in special]
        known = sorted(met.get(name, ()))
        found[name] = known if len(known) >= max(HALVES) else every
    return found


def _drawn(pool: Sequence[int], count: int, generator: torch.Generator) -> list[int]:
    if len(pool) < count:  # then some come more often, and by chance as well
        return [pool[i] for i in torch.randint(len(pool), (count,), generator=generator).tolist()]
    return [pool[i] for i in torch.randperm(len(pool), generator=generator)[:count].tolist()]


def _marked(
    model: Model, tokenizer: Tokenizer | None, ids: Mapping[str, list[int]]
) -> TokenizedInput:
    """With the marks around them that the model was trained with."""
    t = tokenizer
    if t is None:
        return TokenizedInput.from_ids(**ids)
    if isinstance(model, Translator):
        marking = Marking.of(t, model.config)
        target = [*marking.start, *ids["target"]]
        return TokenizedInput.from_ids(source=marking.source(ids["source"]), target=target)
    if isinstance(model, Decoder) and isinstance(model.config.output, NextToken):
        return TokenizedInput.from_ids(text=[*t.prefix_ids, *ids["text"]])
    return TokenizedInput.from_ids(text=t.add_special_tokens(ids["text"]))


SAMPLE_TEXTS = (
    "Once upon a time there was a little dog who lived in a big house with a red door.",
    "The man gave the book to the woman, and the woman gave the book back to the man.",
    "When it rains the streets are wet, but when the sun shines they soon are dry again.",
    "She opened the box, looked into it for a moment, and then slowly closed the box again.",
)

ALIKE = 0.05  # Jensen–Shannon distance: below it two heads look at the same


def measure_heads(
    box: Engine,
    texts: Iterable[str] = SAMPLE_TEXTS,
    *,
    seed: int = 0,
    progress: Callable[[int], None] | None = None,
) -> tuple[HeadReport, ...]:
    """Every head of a loaded model, layer by layer, judged by these texts; blank ones are left out.

    An encoder–decoder translates them first. progress: is told how many texts are done.
    """
    if texts is SAMPLE_TEXTS:
        _expect_english(box)
    return measure_heads_on_ids(box.model, _readings(box, texts, progress), box.tokenizer, seed)


def measure_heads_on_ids(
    model: Model,
    readings: Iterable[TokenizedInput],
    tokenizer: Tokenizer | None = None,
    seed: int = 0,
) -> tuple[HeadReport, ...]:
    """The same for texts as ids, which may come one by one; the tokenizer says which are marks."""
    watch = Watch(model, frozenset() if tokenizer is None else tokenizer.special_ids)
    for reading in readings:
        watch.read(reading)
    if not all(tally.queries for tally in watch.tallies.values()) or not watch.tallies:
        raise UsageError("heads are judged by where they look; give a text of 3 tokens or more")
    for reading in repeats(model, tokenizer, watch.met, seed):
        watch.read_repeats(reading)
    return tuple(
        _report(watch, name, tally, head)
        for name, tally in watch.tallies.items()
        for head in range(tally.heads)
    )


def _report(watch: Watch, name: str, tally: Tally, head: int) -> HeadReport:
    stack, layer, part = name.split(".")
    scores, offset = scores_of(tally, head, part == "cross")
    evenness = float(tally.evenness[head]) / tally.queries
    kind = kind_of(scores, offset, evenness)
    adds = float(tally.added[head] / tally.added.mean().clamp(min=1e-30))
    return HeadReport(
        stack=stack,
        layer=int(layer),
        part=part,
        head=head,
        kind=kind.name,
        pattern=kind.pattern,
        weight=kind.score.weight,
        chance=kind.score.chance,
        offset=kind.offset,
        scores=scores,
        entropy=float(tally.entropy[head]) / tally.queries,
        evenness=evenness,
        adds=adds,
        effect=watch.effect(head_off(name, head)),
        dead=not watch.matters(head_off(name, head)),
        duplicates=_twins(tally, head),
    )


def _twins(tally: Tally, head: int) -> tuple[Twin, ...]:
    """Heads that look at nearly the same, the nearest first."""
    apart = ((tally.apart + tally.apart.T)[head] / tally.compared).tolist()
    found = [Twin(other, far) for other, far in enumerate(apart) if other != head and far < ALIKE]
    return tuple(sorted(found, key=lambda twin: (twin.distance, twin.head)))


def _readings(
    box: Engine, texts: Iterable[str], progress: Callable[[int], None] | None
) -> Iterator[TokenizedInput]:
    for number, text in enumerate(texts):
        if not text.strip():
            continue
        if progress is not None:
            progress(number)
        if isinstance(box.model, Translator):
            yield _translated(box, box.model, text)
        else:
            yield read_text(box.model, box.tokenizer, text)


def _translated(box: Engine, model: Translator, text: str) -> TokenizedInput:
    """A text with the model's own translation, as far as the model can read that.

    What an ill-trained model wrote may be more tokens to read than it was to write.
    """
    t, marking = box.tokenizer, Marking.of(box.tokenizer, model.config)
    source = marking.source(t.encode(text))
    if len(source) > model.config.length:
        raise UsageError(
            f"a text has {len(source)} tokens but the model reads at most {model.config.length}"
        )
    written = t.encode(box.translate([text])[0].text, target=True)
    target = [*marking.start, *written][: model.config.length]
    return TokenizedInput.from_ids(source=source, target=target)


def _expect_english(box: Engine) -> None:
    """Sentences that a model cannot read tell nothing of its heads."""
    ids = [id for text in SAMPLE_TEXTS for id in box.tokenizer.encode(text)]
    lost = 0 if box.tokenizer.special_tokens.unk is None else ids.count(box.tokenizer.unk_id)
    if not ids or lost > len(ids) / 4:
        raise UsageError(
            f"the built-in English sentences say little to {box.name}: {lost} of their {len(ids)} "
            "tokens are unknown to it; give texts of its own"
        )
