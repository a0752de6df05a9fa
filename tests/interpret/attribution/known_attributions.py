"""Tiny real models whose reasons are known, because their weights were set or trained so."""

from functools import cache

import numpy as np
import torch

from qkv.model import (
    GELU,
    Classify,
    Embedding,
    Encoder,
    EncoderDecoder,
    EncoderOnly,
    Last,
    Mean,
    MultiHead,
    NoPosition,
    ReLU,
    Sinusoidal,
    Stack,
    Translator,
    build,
)
from qkv.text import Tokenizer

TEXT = "the good dog sat on the old mat and ran home"
LETTERS = "日月火水木金土山"
UNSAID, ALWAYS = "口", "了"  # never translated, and always written first


@cache
def bytewise() -> Tokenizer:
    return Tokenizer.train("bytes", ["a"], 300)


@torch.no_grad()
def glad_of_g(pooling: Mean | Last = Mean()) -> Encoder:  # noqa: B008
    """Glad of every letter g, sad of every z, and of nothing else: no layer changes anything."""
    stack = Stack(
        layers=2,
        width=12,
        attention=MultiHead(heads=3),
        feed_forward=GELU(width=17),
        position=NoPosition(),
    )
    output = Classify(labels=("sad", "glad"), pooling=pooling)
    table = Embedding(vocabulary=bytewise().vocab_size)
    model = build(EncoderOnly(length=512, embedding=table, encoder=stack, output=output), seed=5)
    assert isinstance(model, Encoder)
    for name, weight in model.named_parameters():
        if ".output." in name or ".down." in name:
            weight.zero_()
    model.embedding.weight.normal_(generator=torch.Generator().manual_seed(3))
    model.embedding.weight[:, :2] = 0.0
    for letter, size in (("g", 4.0), ("z", -4.0)):
        (id,) = bytewise().encode(letter)
        model.embedding.weight[id, :2] = torch.tensor([size, -size])
    last = model.output.output[1]
    last.weight.zero_()
    last.bias.zero_()
    last.weight[1, :2] = torch.tensor([9.0, -9.0])
    return model.eval()


@cache
def ideographs() -> Tokenizer:
    return Tokenizer.train("characters", [LETTERS + UNSAID + ALWAYS], 100)


def sorted_target(source: str) -> str:
    return ALWAYS + "".join(sorted(set(source) - {UNSAID}, key=LETTERS.index))


@cache
def sorter() -> Translator:
    """Trained to write the characters of a source in one fixed order, each of them a word."""
    t = ideographs()
    stack = Stack(
        layers=1,
        width=32,
        attention=MultiHead(heads=4),
        feed_forward=ReLU(width=64),
        position=Sinusoidal(),
    )
    config = EncoderDecoder(
        length=23,
        embedding=Embedding(vocabulary=t.vocab_size, scaled=True),
        encoder=stack.model_copy(update={"position": NoPosition()}),
        decoder=stack,
    )
    model = build(config, seed=1)
    assert isinstance(model, Translator)
    draws = np.random.default_rng(0)
    optimiser = torch.optim.Adam(model.parameters(), lr=4e-3)
    for _ in range(250):
        count = int(draws.integers(1, 7))
        texts = ["".join(draws.permutation(list(LETTERS + UNSAID))[:count]) for _ in range(64)]
        targets = [[t.bos_id, *t.encode(sorted_target(text)), t.eos_id] for text in texts]
        longest = max(map(len, targets))
        rows = torch.tensor([row + [t.pad_id] * (longest - len(row)) for row in targets])
        source = torch.tensor([[*t.encode(text), t.eos_id] for text in texts])
        scores = model(source, rows[:, :-1])
        loss = torch.nn.functional.cross_entropy(
            scores.flatten(0, 1), rows[:, 1:].flatten(), ignore_index=t.pad_id
        )
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return model.eval()
