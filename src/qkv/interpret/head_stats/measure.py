"""The heads of a model measured on texts, and on random tokens that occur twice.

In a random sequence that is repeated, the second half can only be predicted by looking back at the
first: that is where induction heads show.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

import torch

from qkv.engine import Engine
from qkv.engine.translate import TranslationTemplate
from qkv.errors import UsageError
from qkv.interpret.glass_box import tokenize_input
from qkv.interpret.head_stats.head_statistics import (
    HeadAccumulator,
    HeadRecorder,
    classify_head,
    head_ablation,
    pattern_scores,
)
from qkv.interpret.head_stats.patterns import HeadReport, SimilarHead
from qkv.interpret.trace import TokenizedInput
from qkv.model import Decoder, Model, NextToken, Translator
from qkv.text import Tokenizer

# Short, plain English with repeats, for when no texts are given.
SAMPLE_TEXTS = (
    "Once upon a time there was a little dog who lived in a big house with a red door.",
    "The man gave the book to the woman, and the woman gave the book back to the man.",
    "When it rains the streets are wet, but when the sun shines they soon are dry again.",
    "She opened the box, looked into it for a moment, and then slowly closed the box again.",
)
HALF_LENGTHS = (11, 13, 17, 19, 23)  # all different, so no fixed distance leads to the repeat
MAX_DUPLICATE_DISTANCE = 0.05  # Jensen–Shannon: closer heads attend to the same keys
MAX_UNKNOWN_FRACTION = 0.25  # of the sample texts' tokens


def measure_heads(
    engine: Engine,
    texts: Iterable[str] = SAMPLE_TEXTS,
    *,
    seed: int = 0,
    progress: Callable[[int], None] | None = None,
) -> tuple[HeadReport, ...]:
    """A report on every head of a loaded model, layer by layer; blank texts are skipped.

    An encoder–decoder translates the texts first. progress: called with the number of texts done.
    """
    if texts is SAMPLE_TEXTS:
        _expect_english(engine)
    inputs = _tokenize_texts(engine, texts, progress)
    return measure_heads_on_ids(engine.model, inputs, engine.tokenizer, seed)


def measure_heads_on_ids(
    model: Model,
    inputs: Iterable[TokenizedInput],
    tokenizer: Tokenizer | None = None,
    seed: int = 0,
) -> tuple[HeadReport, ...]:
    """The same for tokenized texts, which may be an iterator.

    tokenizer: names the special tokens; without one there are none.
    """
    special_ids: frozenset[int] = frozenset()
    if tokenizer is not None:
        special_ids = tokenizer.special_ids
    recorder = HeadRecorder(model, special_ids)
    for text in inputs:
        recorder.add_text(text)
    accumulators = recorder.accumulators
    if not accumulators or not all(one.queries for one in accumulators.values()):
        raise UsageError("heads are judged by where they look; give a text of 3 tokens or more")
    for text in repeated_sequences(model, tokenizer, recorder.text_ids, seed):
        recorder.add_repeat(text)
    reports = []
    for name, accumulator in accumulators.items():
        for head in range(accumulator.heads):
            reports.append(_report(recorder, name, accumulator, head))
    return tuple(reports)


def _report(
    recorder: HeadRecorder, name: str, accumulator: HeadAccumulator, head: int
) -> HeadReport:
    stack, layer, part = name.split(".")
    scores, offset = pattern_scores(accumulator, head, part == "cross")
    evenness = float(accumulator.evenness[head]) / accumulator.queries
    kind = classify_head(scores, offset, evenness)
    mean_norm = accumulator.output_norm.mean().clamp(min=1e-30)
    ablation = head_ablation(name, head)
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
        entropy=float(accumulator.entropy[head]) / accumulator.queries,
        evenness=evenness,
        adds=float(accumulator.output_norm[head] / mean_norm),
        effect=recorder.effect(ablation),
        dead=recorder.is_dead(ablation),
        duplicates=_duplicates(accumulator, head),
    )


def _duplicates(accumulator: HeadAccumulator, head: int) -> tuple[SimilarHead, ...]:
    """Heads that attend to nearly the same keys, the closest first."""
    symmetric = accumulator.js_distance + accumulator.js_distance.T
    distances = (symmetric[head] / accumulator.compared_queries).tolist()
    duplicates = []
    for other, distance in enumerate(distances):
        if other != head and distance < MAX_DUPLICATE_DISTANCE:
            duplicates.append(SimilarHead(other, distance))
    return tuple(sorted(duplicates, key=lambda one: (one.distance, one.head)))


def repeated_sequences(
    model: Model,
    tokenizer: Tokenizer | None,
    text_ids: Mapping[str, Collection[int]],
    seed: int = 0,
) -> Iterator[TokenizedInput]:
    """Random sequences that occur twice, with special tokens, as far as they fit the model.

    Tokens are sampled without replacement from those of the texts, by sequence, which the model has
    probably learned; from the full vocabulary if there are too few of these.
    """
    pools = _token_pools(model, tokenizer, text_ids)
    generator = torch.Generator().manual_seed(seed)
    for length in HALF_LENGTHS:
        ids = {name: _sample(pool, length, generator) * 2 for name, pool in pools.items()}
        if isinstance(model, Translator) and model.source is None:
            ids["target"] = ids["source"]  # a cross-attention head may look for the same token
        text = _add_special_tokens(model, tokenizer, ids)
        if all(len(row) <= model.config.length for row in text.ids.values()):
            yield text


def _token_pools(
    model: Model, tokenizer: Tokenizer | None, text_ids: Mapping[str, Collection[int]]
) -> dict[str, list[int]]:
    """The ids to sample from, by sequence, without special tokens."""
    tables = {"text": model.embedding}
    if isinstance(model, Translator):
        tables = {"source": model.source_embedding, "target": model.embedding}
    pools = {}
    for name, table in tables.items():
        size = table.weight.shape[0]
        special_ids: frozenset[int] = frozenset()
        if tokenizer is not None:
            size = min(size, tokenizer.vocab_size)
            special_ids = tokenizer.special_ids
        pool = sorted(text_ids.get(name, ()))
        if len(pool) < max(HALF_LENGTHS):
            pool = [id for id in range(size) if id not in special_ids]
        pools[name] = pool
    return pools


def _sample(pool: Sequence[int], count: int, generator: torch.Generator) -> list[int]:
    if len(pool) < count:  # too few for a sample without replacement
        index = torch.randint(len(pool), (count,), generator=generator)
    else:
        index = torch.randperm(len(pool), generator=generator)[:count]
    return [pool[i] for i in index.tolist()]


def _add_special_tokens(
    model: Model, tokenizer: Tokenizer | None, ids: Mapping[str, list[int]]
) -> TokenizedInput:
    """With the special tokens around them that the model was trained with."""
    if tokenizer is None:
        return TokenizedInput.from_ids(**ids)
    if isinstance(model, Translator):
        marking = TranslationTemplate.of(tokenizer, model.config)
        target = [*marking.target_prefix, *ids["target"]]
        return TokenizedInput.from_ids(source=marking.wrap_source(ids["source"]), target=target)
    if isinstance(model, Decoder) and isinstance(model.config.output, NextToken):
        return TokenizedInput.from_ids(text=[*tokenizer.prefix_ids, *ids["text"]])
    return TokenizedInput.from_ids(text=tokenizer.add_special_tokens(ids["text"]))


def _tokenize_texts(
    engine: Engine, texts: Iterable[str], progress: Callable[[int], None] | None
) -> Iterator[TokenizedInput]:
    for number, text in enumerate(texts):
        if not text.strip():
            continue
        if progress is not None:
            progress(number)
        if isinstance(engine.model, Translator):
            yield _translate(engine, engine.model, text)
        else:
            yield tokenize_input(engine.model, engine.tokenizer, text)


def _translate(engine: Engine, model: Translator, text: str) -> TokenizedInput:
    """A text with the model's own translation, truncated to what the model can read.

    The translation of an undertrained model may have more tokens when it is tokenized again.
    """
    tokenizer = engine.tokenizer
    marking = TranslationTemplate.of(tokenizer, model.config)
    source = marking.wrap_source(tokenizer.encode(text))
    if len(source) > model.config.length:
        raise UsageError(
            f"a text has {len(source)} tokens but the model reads at most {model.config.length}"
        )
    translation = tokenizer.encode(engine.translate([text])[0].text, target=True)
    target = [*marking.target_prefix, *translation][: model.config.length]
    return TokenizedInput.from_ids(source=source, target=target)


def _expect_english(engine: Engine) -> None:
    """Raises if the sample texts are mostly unknown tokens to this model."""
    tokenizer = engine.tokenizer
    ids = [id for text in SAMPLE_TEXTS for id in tokenizer.encode(text)]
    unknown = 0
    if tokenizer.special_tokens.unk is not None:
        unknown = ids.count(tokenizer.unk_id)
    if not ids or unknown > MAX_UNKNOWN_FRACTION * len(ids):
        raise UsageError(
            f"the built-in English sentences say little to {engine.name}: {unknown} of their "
            f"{len(ids)} tokens are unknown to it; give texts of its own"
        )
