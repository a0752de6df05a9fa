"""Tiny real encoders with a tokenizer, and texts of every length for them."""

import random

from tokenizers import Tokenizer as Backend
from tokenizers.processors import TemplateProcessing

from qkv.model import (
    Embedding,
    Encoder,
    EncoderOnly,
    MultiHead,
    ReLU,
    Sinusoidal,
    Stack,
    TextVector,
    build,
)
from qkv.text import Tokenizer

STORY = "the cat sat on a mat and two dogs ran to the red barn while birds sang"
WORDS = STORY.split()
LENGTH, WIDTH = 23, 14


def tokenizer(kind: str = "bpe", marked: bool = False) -> Tokenizer:
    """Learnt from WORDS; `marked`: its template puts a mark before and one after a text."""
    plain = Tokenizer.train(kind, [" ".join(WORDS)] * 3, 300)
    if not marked:
        return plain
    backend = Backend.from_str(plain.to_json())
    marks = [("<start>", plain.bos_id), ("<end>", plain.eos_id)]
    backend.post_processor = TemplateProcessing(single="<start> $A <end>", special_tokens=marks)
    return Tokenizer(backend)


def encoder(output: object = None, seed: int = 0, width: int = WIDTH, vocabulary: int = 300):
    stack = Stack(
        layers=2,
        width=width,
        attention=MultiHead(heads=2),
        feed_forward=ReLU(width=19),
        position=Sinusoidal(),
        dropout=0.1,
    )
    config = EncoderOnly(
        length=LENGTH,
        embedding=Embedding(vocabulary=vocabulary),
        encoder=stack,
        output=TextVector() if output is None else output,
    )
    model = build(config, seed)
    assert isinstance(model, Encoder)
    return model


def sentences(count: int, most: int = 5, seed: int = 0) -> list[str]:
    draws = random.Random(seed)
    return [" ".join(draws.choices(WORDS, k=draws.randint(1, most))) for _ in range(count)]
