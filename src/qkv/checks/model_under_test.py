"""What is checked: a model, the twin that answers for it, its tokenizer, and texts to try."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
import torch.nn.functional as F
from torch import Tensor

from qkv.attention import KVCache
from qkv.bundle import Bundle
from qkv.engine.batching import PaddedBatch
from qkv.engine.engine import Engine
from qkv.engine.translate import Marking
from qkv.errors import UsageError
from qkv.model import Classify, Decoder, Encoder, Model, Stack, TextVector, Translator
from qkv.model.embedding import TokenEmbedding
from qkv.model.output import PooledOutput
from qkv.text import Tokenizer

# FOLDED check/samples: The texts a model is checked with: built-in ones, the user's own, or
#   random tokens.
# FOLDED check/asking: How a model of any family is asked: texts side by side, or one after the
#   other with a cache.

# Lengths, alphabets and blanks of all kinds; the first is long, so that much can go wrong in it.
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

MAX_TEXTS = 32  # of the user's own texts

LENGTHS = (29, 2, 11, 7, 17)  # of random ones

SPARE = 3  # positions left free, for padding


@dataclass(frozen=True)
class ProbeInput:
    """A text as the model reads it; for an encoder–decoder a source, and the target as `ids`."""

    ids: tuple[int, ...]
    source: tuple[int, ...] = ()


def readings(
    model: Model, tokenizer: Tokenizer | None, texts: Sequence[str], longest: int
) -> list[ProbeInput]:
    """What the model reads of each text: at most `longest` tokens, as it was trained to read them.

    Texts of no token are left out.
    """
    reads = model.config.context_length if isinstance(model, Encoder) else model.config.length
    longest = max(1, min(longest, reads - SPARE))
    if tokenizer is None:
        return _random(model, longest)
    ids = tokenizer.encode_many(texts)
    if not isinstance(model, Translator):
        wrapped = [_marked(model, tokenizer, text, longest) for text in ids]
        found = [ProbeInput(text) for text in wrapped if text]
    else:
        marks, told = Marking.of(tokenizer, model.config), tokenizer.encode_many(texts, target=True)
        room = max(1, min(marks.room, longest - len(marks.source(()))))
        found = [
            ProbeInput((*marks.start, *target)[:longest], tuple(marks.source(source[:room])))
            for source, target in zip(ids, _turned(told), strict=True)
            if marks.source(source)
        ]
    if not found:
        raise UsageError("none of the texts has a token to check with; give other texts")
    return found


def _marked(
    model: Encoder | Decoder, tokenizer: Tokenizer, ids: Sequence[int], longest: int
) -> tuple[int, ...]:
    """An encoder's text has marks around it; a decoder's is still to be gone on with."""
    if isinstance(model, Decoder):
        return (*tokenizer.prefix_ids, *ids)[:longest]
    around = len(tokenizer.prefix_ids) + len(tokenizer.suffix_ids)
    return tuple(tokenizer.add_special_tokens(ids, max(longest, around)))


def _turned(texts: list[list[int]]) -> list[list[int]]:
    """Each text goes with another, so that a source and its target differ in length."""
    return texts[1:] + texts[:1]


def _random(model: Model, longest: int) -> list[ProbeInput]:
    config, draws = model.config, torch.Generator().manual_seed(0)

    def some(vocabulary: int, length: int) -> tuple[int, ...]:
        size = (min(length, longest),)
        return tuple(torch.randint(vocabulary, size, generator=draws).tolist())

    if not isinstance(model, Translator):
        return [ProbeInput(some(config.embedding.vocabulary, length)) for length in LENGTHS]
    table = model.config.source or model.config.embedding
    turned = LENGTHS[1:] + LENGTHS[:1]
    return [
        ProbeInput(some(config.embedding.vocabulary, length), some(table.vocabulary, other))
        for length, other in zip(LENGTHS, turned, strict=True)
    ]


LARGE_MODEL_PARAMETERS = 200_000_000  # parameters; of a larger model the quick form makes no copies

KEPT = 40_000_000  # numbers of one pass that are kept, to be compared with another

FEWEST = 18  # tokens of a text: more than a cache holds before single tokens take a shorter way

QUICK_TEXTS, QUICK_TOKENS, TOKENS = 3, 20, 40


@dataclass(frozen=True, eq=False)
class ModelUnderTest:
    """A model and all that is needed to check it.

    texts: the user's own, else built-in ones. quick: fewer and shorter texts, and of a large
    model nothing that copies it.
    """

    engine: Engine
    texts: tuple[str, ...] = SAMPLE_TEXTS
    quick: bool = False

    @classmethod
    def of(
        cls, given: Engine | Bundle | Model, texts: Sequence[str] = (), quick: bool = False
    ) -> ModelUnderTest:
        """Of a loaded model, or of a bare one without a tokenizer."""
        if not isinstance(given, Engine):
            given = Engine(given if isinstance(given, Bundle) else Bundle(given))
        if not isinstance(given.model.embedding, TokenEmbedding):
            raise UsageError(
                f"{given.name} is in 8 bits; check it in float32, 8 bits are looked at"
            )
        if texts and given.bundle.tokenizer is None:
            raise UsageError(f"{given.name} has no tokenizer, so it cannot read texts")
        return cls(given, tuple(texts)[:MAX_TEXTS] or SAMPLE_TEXTS, quick)

    @property
    def model(self) -> Model:
        return self.engine.model

    @property
    def parameters(self) -> int:
        return sum(parameter.numel() for parameter in self.model.parameters())

    @property
    def too_large_reason(self) -> str:
        """Why the quick form leaves out what copies the model; nothing if it does not."""
        if not self.quick or self.parameters <= LARGE_MODEL_PARAMETERS:
            return ""
        return f"left out by the quick form: the model has {self.parameters:,} parameters"

    @property
    def optimized(self) -> Model | None:
        """The twin that answers, if there is one and it is looked at."""
        if self.too_large_reason or self.engine.optimized is self.model:
            return None
        return self.engine.optimized

    def models(self) -> Iterator[tuple[str, Model]]:
        """The model and the twin that answers, each with what to call it where it matters."""
        yield "", self.model
        if self.optimized is not None:
            yield "in the twin that answers", self.optimized

    @cached_property
    def tokens(self) -> int:
        """The most tokens of a text that are read: fewer of a large model, to spare memory."""
        most = QUICK_TOKENS if self.quick else TOKENS
        return max(FEWEST, min(most, KEPT // (len(SAMPLE_TEXTS) * _numbers_a_token(self.model))))

    @cached_property
    def inputs(self) -> list[ProbeInput]:
        """The texts as the model reads them; in the quick form a few."""
        found = readings(self.model, self.engine.bundle.tokenizer, self.texts, self.tokens)
        return found[:QUICK_TEXTS] if self.quick else found

    @cached_property
    def remarks(self) -> tuple[str, ...]:
        """How much was looked at, for a person to judge what the results are worth."""
        kind = "random texts" if self.engine.bundle.tokenizer is None else "texts"
        most = max(max(len(text.ids), len(text.source)) for text in self.inputs)
        return (f"read {len(self.inputs)} {kind}, the first {most} tokens at most of each",)


def _numbers_a_token(model: Model) -> int:
    """About how many numbers a pass computes for each token."""
    config, numbers = model.config, 0
    for name in ("encoder", "decoder"):
        stack = getattr(config, name, None)
        if isinstance(stack, Stack):
            numbers += stack.layers * (16 * stack.width + 4 * stack.feed_forward.width)
    pools = isinstance(config.output, TextVector | Classify)
    return numbers if pools else numbers + config.embedding.vocabulary


def forward(model: Model, readings: Sequence[ProbeInput], more: int = 0, fill: int = 0) -> Tensor:
    """What the model says of texts side by side.

    more: so many columns of padding beyond the longest; fill: the token that pads.
    """
    target = _beside(model, [reading.ids for reading in readings], more, fill)
    if isinstance(model, Translator):
        source = _beside(model, [reading.source for reading in readings], more, fill)
        said: Tensor = model(source[0], target[0], source[1], target[1])
    else:
        said = model(*target)
    return said


def one_row(model: Model, ids: Sequence[int]) -> Tensor:
    """A single text, (1, T)."""
    return torch.tensor([list(ids)], device=model.embedding.weight.device)


class Writer:
    """A decoder, or an encoder–decoder that has read its source, as it writes one text."""

    def __init__(self, model: Decoder | Translator, reading: ProbeInput) -> None:
        self.model, self.ids = model, one_row(model, reading.ids)
        self.memory: Tensor | None = None
        if isinstance(model, Translator):
            with torch.inference_mode():
                self.memory = model.encode(one_row(model, reading.source))

    def empty_cache(self, rows: int = 1) -> KVCache:
        return self.model.empty_cache(rows, self.ids.shape[1])

    def read(self, start: int, stop: int, cache: KVCache | None = None) -> Tensor:
        """What the model says of some tokens of the text, which follow those in the cache."""
        return self.say(self.ids[:, start:stop], cache)

    def say(self, ids: Tensor, cache: KVCache | None) -> Tensor:
        """The same of any tokens (B, T), each row of which may be a text of its own."""
        if isinstance(self.model, Translator):
            assert self.memory is not None
            return self.model.decode(ids, self.memory.expand(len(ids), -1, -1), cache=cache)
        said: Tensor = self.model(ids, cache=cache)
        return said


def pooled(model: Encoder | Decoder, reading: ProbeInput) -> Tensor:
    """The vector of a text before anything is made of it, (1, D)."""
    ids = one_row(model, reading.ids)
    states = model.encode(ids) if isinstance(model, Encoder) else model.states(ids)
    assert isinstance(model.output, PooledOutput)
    return model.output.pool(states, torch.tensor([ids.shape[1]], device=ids.device))


def _beside(
    model: Model, rows: Sequence[Sequence[int]], more: int, fill: int
) -> tuple[Tensor, Tensor | None]:
    texts = PaddedBatch.of([*rows], fill)
    lengths = texts.lengths
    if more and lengths is None:
        lengths = torch.tensor([len(row) for row in rows])
    ids, device = F.pad(texts.ids, (0, more), value=fill), model.embedding.weight.device
    return ids.to(device), None if lengths is None else lengths.to(device)
