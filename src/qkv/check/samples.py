"""The texts a model is checked with: built-in ones, the user's own, or random tokens."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from qkv.engine.translate import Marking
from qkv.errors import UsageError
from qkv.model import Decoder, Encoder, Model, Translator
from qkv.text import Tokenizer

# Lengths, alphabets and blanks of all kinds; the first is long, so that much can go wrong in it.
TEXTS = (
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
MOST = 32  # of the user's own texts
LENGTHS = (29, 2, 11, 7, 17)  # of random ones
SPARE = 3  # positions left free, for padding


@dataclass(frozen=True)
class Reading:
    """A text as the model reads it; for an encoder–decoder a source, and the target as `ids`."""

    ids: tuple[int, ...]
    source: tuple[int, ...] = ()


def readings(
    model: Model, tokenizer: Tokenizer | None, texts: Sequence[str], longest: int
) -> list[Reading]:
    """What the model reads of each text: at most `longest` tokens, as it was trained to read them.

    Texts of no token are left out.
    """
    reads = model.config.reads if isinstance(model, Encoder) else model.config.length
    longest = max(1, min(longest, reads - SPARE))
    if tokenizer is None:
        return _random(model, longest)
    ids = tokenizer.encode_many(texts)
    if not isinstance(model, Translator):
        wrapped = [_marked(model, tokenizer, text, longest) for text in ids]
        found = [Reading(text) for text in wrapped if text]
    else:
        marks, told = Marking.of(tokenizer, model.config), tokenizer.encode_many(texts, target=True)
        room = max(1, min(marks.room, longest - len(marks.source(()))))
        found = [
            Reading((*marks.start, *target)[:longest], tuple(marks.source(source[:room])))
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
        return (*tokenizer.before, *ids)[:longest]
    around = len(tokenizer.before) + len(tokenizer.after)
    return tuple(tokenizer.wrap(ids, max(longest, around)))


def _turned(texts: list[list[int]]) -> list[list[int]]:
    """Each text goes with another, so that a source and its target differ in length."""
    return texts[1:] + texts[:1]


def _random(model: Model, longest: int) -> list[Reading]:
    config, draws = model.config, torch.Generator().manual_seed(0)

    def some(vocabulary: int, length: int) -> tuple[int, ...]:
        size = (min(length, longest),)
        return tuple(torch.randint(vocabulary, size, generator=draws).tolist())

    if not isinstance(model, Translator):
        return [Reading(some(config.embedding.vocabulary, length)) for length in LENGTHS]
    table = model.config.source or model.config.embedding
    turned = LENGTHS[1:] + LENGTHS[:1]
    return [
        Reading(some(config.embedding.vocabulary, length), some(table.vocabulary, other))
        for length, other in zip(LENGTHS, turned, strict=True)
    ]
