"""The model under test: the model, its optimized form, its tokenizer, and the inputs to run.

Inputs are tokenized built-in texts, the user's own, or random tokens if there is no tokenizer. A
model of any family runs them as a padded batch, or one text step by step with a cache.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
import torch.nn.functional as F
from torch import Tensor

from qkv.attention import KVCache
from qkv.bundle import Bundle
from qkv.engine import Engine, PaddedBatch
from qkv.engine.translate import TranslationTemplate
from qkv.errors import UsageError
from qkv.model import (
    Classify,
    Decoder,
    Encoder,
    Model,
    PooledOutput,
    Stack,
    TextVector,
    TokenEmbedding,
    Translator,
)
from qkv.text import Tokenizer

# All kinds of lengths, alphabets and blanks; the first is long, so that much can go wrong in it.
SAMPLE_TEXTS = (
    "Once upon a time a small dog sat on a mat and looked at the moon, and the moon looked back "
    "at the dog as if there were nothing else to look at in the whole wide world that night.",
    "no",
    "ein Hund läuft über die Straße",
    "x = 3.14 * (a_1 + b_2)",
    "naïve café, Ωμέγα, Привет",
    "  two  spaces,\ta tab\nand a line ",
    "犬が走る 🐕‍🦺",
    "",
)
MAX_TEXTS = 32  # of the user's own
RANDOM_LENGTHS = (29, 2, 11, 7, 17)
PADDING_POSITIONS = 3  # left free in the context, so that padding can be added

LARGE_MODEL_PARAMETERS = 200_000_000  # the quick form makes no copy of a larger model
MAX_RECORDED_NUMBERS = 40_000_000  # activations of a forward pass kept for comparison
MIN_TOKENS = 18  # beyond the 16 cached tokens after which a decode step takes a faster path
MAX_TOKENS = 40
QUICK_MAX_TOKENS = 20
QUICK_TEXTS = 3


@dataclass(frozen=True)
class ProbeInput:
    """The input ids of one text; for an encoder–decoder the target's, with those of a source."""

    ids: tuple[int, ...]
    source: tuple[int, ...] = ()


def context_length(model: Model) -> int:
    """How many tokens the model reads at most."""
    if isinstance(model, Encoder):
        return model.config.context_length
    return model.config.length


def probe_inputs(
    model: Model, tokenizer: Tokenizer | None, texts: Sequence[str], max_length: int
) -> list[ProbeInput]:
    """The texts as input ids, truncated, with the special tokens used in training.

    Texts without a token are skipped.
    """
    max_length = max(1, min(max_length, context_length(model) - PADDING_POSITIONS))
    if tokenizer is None:
        return _random_inputs(model, max_length)
    if isinstance(model, Translator):
        inputs = _pair_inputs(model, tokenizer, texts, max_length)
    else:
        inputs = []
        for ids in tokenizer.encode_many(texts):
            ids_with_special = _add_special_tokens(model, tokenizer, ids, max_length)
            if ids_with_special:
                inputs.append(ProbeInput(ids_with_special))
    if not inputs:
        raise UsageError("none of the texts has a token to check with; give other texts")
    return inputs


def _pair_inputs(
    model: Translator, tokenizer: Tokenizer, texts: Sequence[str], max_length: int
) -> list[ProbeInput]:
    """Each source is paired with the next text as its target, so that their lengths differ."""
    marking = TranslationTemplate.of(tokenizer, model.config)
    sources = tokenizer.encode_many(texts)
    targets = tokenizer.encode_many(texts, target=True)
    targets = targets[1:] + targets[:1]
    max_source = max(1, min(marking.max_source_tokens, max_length - len(marking.wrap_source(()))))
    inputs = []
    for source, target in zip(sources, targets, strict=True):
        if marking.wrap_source(source):
            ids = (*marking.target_prefix, *target)[:max_length]
            inputs.append(ProbeInput(ids, tuple(marking.wrap_source(source[:max_source]))))
    return inputs


def _add_special_tokens(
    model: Encoder | Decoder, tokenizer: Tokenizer, ids: Sequence[int], max_length: int
) -> tuple[int, ...]:
    """Around the text of an encoder; only in front of a decoder's, which is to be continued."""
    if isinstance(model, Decoder):
        return (*tokenizer.prefix_ids, *ids)[:max_length]
    special = len(tokenizer.prefix_ids) + len(tokenizer.suffix_ids)
    return tuple(tokenizer.add_special_tokens(ids, max(max_length, special)))


def _random_inputs(model: Model, max_length: int) -> list[ProbeInput]:
    generator = torch.Generator().manual_seed(0)

    def sample(vocabulary: int, length: int) -> tuple[int, ...]:
        size = (min(length, max_length),)
        return tuple(torch.randint(vocabulary, size, generator=generator).tolist())

    vocabulary = model.config.embedding.vocabulary
    if not isinstance(model, Translator):
        return [ProbeInput(sample(vocabulary, length)) for length in RANDOM_LENGTHS]
    source_table = model.config.source or model.config.embedding
    source_lengths = RANDOM_LENGTHS[1:] + RANDOM_LENGTHS[:1]
    inputs = []
    for length, source_length in zip(RANDOM_LENGTHS, source_lengths, strict=True):
        target = sample(vocabulary, length)
        inputs.append(ProbeInput(target, sample(source_table.vocabulary, source_length)))
    return inputs


@dataclass(frozen=True, eq=False)
class ModelUnderTest:
    """A model and everything needed to check it.

    texts: the user's own, else built-in ones. quick: fewer and shorter texts, and nothing that
    copies a large model.
    """

    engine: Engine
    texts: tuple[str, ...] = SAMPLE_TEXTS
    quick: bool = False

    @classmethod
    def of(
        cls, model: Engine | Bundle | Model, texts: Sequence[str] = (), quick: bool = False
    ) -> ModelUnderTest:
        """Of a loaded model, or of a bare one without a tokenizer."""
        match model:
            case Engine():
                engine = model
            case Bundle():
                engine = Engine(model)
            case _:
                engine = Engine(Bundle(model))
        if not isinstance(engine.model.embedding, TokenEmbedding):
            raise UsageError(
                f"{engine.name} has int8 weights; check it in float32, which checks int8 as well"
            )
        if texts and engine.bundle.tokenizer is None:
            raise UsageError(f"{engine.name} has no tokenizer, so it cannot read texts")
        return cls(engine, tuple(texts)[:MAX_TEXTS] or SAMPLE_TEXTS, quick)

    @property
    def model(self) -> Model:
        return self.engine.model

    @property
    def parameters(self) -> int:
        return sum(parameter.numel() for parameter in self.model.parameters())

    @property
    def too_large_reason(self) -> str:
        """Why the quick form skips what copies the model; empty if it does not."""
        if not self.quick or self.parameters <= LARGE_MODEL_PARAMETERS:
            return ""
        return f"skipped by the quick form: the model has {self.parameters:,} parameters"

    @property
    def optimized(self) -> Model | None:
        """The optimized form of the model, if there is one and it is checked."""
        if self.too_large_reason or self.engine.optimized is self.model:
            return None
        return self.engine.optimized

    def models(self) -> Iterator[tuple[str, Model]]:
        """The model and its optimized form, each with its name in a location."""
        yield "", self.model
        if self.optimized is not None:
            yield "in the optimized model", self.optimized

    @cached_property
    def max_tokens(self) -> int:
        """The maximum number of tokens per text: fewer for a large model, to save memory."""
        limit = QUICK_MAX_TOKENS if self.quick else MAX_TOKENS
        numbers = len(SAMPLE_TEXTS) * _numbers_per_token(self.model)
        return max(MIN_TOKENS, min(limit, MAX_RECORDED_NUMBERS // numbers))

    @cached_property
    def inputs(self) -> list[ProbeInput]:
        """The texts as input ids; in the quick form only a few."""
        tokenizer = self.engine.bundle.tokenizer
        inputs = probe_inputs(self.model, tokenizer, self.texts, self.max_tokens)
        if self.quick:
            inputs = inputs[:QUICK_TEXTS]
        return inputs

    @cached_property
    def remarks(self) -> tuple[str, ...]:
        """How much was checked, so that a reader can judge what the results are worth."""
        kind = "texts" if self.engine.bundle.tokenizer is not None else "random texts"
        longest = max(max(len(text.ids), len(text.source)) for text in self.inputs)
        return (f"read {len(self.inputs)} {kind}, the first {longest} tokens at most of each",)


def _numbers_per_token(model: Model) -> int:
    """About how many activations a forward pass computes per token."""
    numbers = 0
    for name in ("encoder", "decoder"):
        stack = getattr(model.config, name, None)
        if isinstance(stack, Stack):
            # Projections, residual sums and norms, and both sides of the feed-forward.
            numbers += stack.layers * (16 * stack.width + 4 * stack.feed_forward.width)
    if not isinstance(model.config.output, TextVector | Classify):
        numbers += model.config.embedding.vocabulary  # logits
    return numbers


def forward(
    model: Model, inputs: Sequence[ProbeInput], padding: int = 0, pad_id: int = 0
) -> Tensor:
    """The output for a padded batch, with so many columns of padding beyond the longest text."""
    ids, lengths = _pad(model, [text.ids for text in inputs], padding, pad_id)
    output: Tensor
    if isinstance(model, Translator):
        sources = [text.source for text in inputs]
        source_ids, source_lengths = _pad(model, sources, padding, pad_id)
        output = model(source_ids, ids, source_lengths, lengths)
    else:
        output = model(ids, lengths)
    return output


def _pad(
    model: Model, rows: Sequence[Sequence[int]], padding: int, pad_id: int
) -> tuple[Tensor, Tensor | None]:
    device = model.embedding.weight.device
    batch = PaddedBatch.of([*rows], pad_id)
    lengths = batch.lengths
    if padding and lengths is None:  # rows of equal length, which have no padding of their own
        lengths = torch.tensor([len(row) for row in rows])
    if lengths is not None:
        lengths = lengths.to(device)
    return F.pad(batch.ids, (0, padding), value=pad_id).to(device), lengths


def id_row(model: Model, ids: Sequence[int]) -> Tensor:
    """A single text, (1, T)."""
    return torch.tensor([list(ids)], device=model.embedding.weight.device)


class IncrementalDecoder:
    """A decoder, or an encoder–decoder with its source encoded, that reads a text in steps."""

    def __init__(self, model: Decoder | Translator, text: ProbeInput) -> None:
        self.model = model
        self.ids = id_row(model, text.ids)
        self.memory: Tensor | None = None
        if isinstance(model, Translator):
            with torch.inference_mode():
                self.memory = model.encode(id_row(model, text.source))

    def empty_cache(self, rows: int = 1) -> KVCache:
        return self.model.empty_cache(rows, self.ids.shape[1])

    def decode_span(self, start: int, stop: int, cache: KVCache | None = None) -> Tensor:
        """The output for tokens of the text that follow those in the cache."""
        return self.decode(self.ids[:, start:stop], cache)

    def decode(self, ids: Tensor, cache: KVCache | None) -> Tensor:
        """The same for any tokens (B, T), where each row may be another text."""
        if isinstance(self.model, Translator):
            assert self.memory is not None
            return self.model.decode(ids, self.memory.expand(len(ids), -1, -1), cache=cache)
        output: Tensor = self.model(ids, cache=cache)
        return output


def pooled(model: Encoder | Decoder, text: ProbeInput) -> Tensor:
    """The pooled states of a text, before the output layer: (1, D)."""
    ids = id_row(model, text.ids)
    if isinstance(model, Encoder):
        states = model.encode(ids)
    else:
        states = model.states(ids)
    assert isinstance(model.output, PooledOutput)
    return model.output.pool(states, torch.tensor([ids.shape[1]], device=ids.device))
