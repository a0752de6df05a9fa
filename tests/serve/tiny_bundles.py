"""Tiny real models as bundles on disk, one of each task, for servers under test."""

from pathlib import Path

import torch

import qkv
from qkv.bundle import Bundle
from qkv.model import (
    Classify,
    DecoderOnly,
    Embedding,
    EncoderDecoder,
    EncoderOnly,
    Learned,
    Mean,
    MultiHead,
    NextToken,
    ReLU,
    RMSNorm,
    Rope,
    Stack,
    SwiGLU,
    TextVector,
    build,
)
from qkv.text import SpecialTokens, Tokenizer

WORDS = "the dog ran over a hill and saw two cats sleeping in warm grass near the old red barn"
CHAT_TEMPLATE = (
    "{% for message in messages %}{{ message['role'] }}: {{ message['content'] }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant:{% endif %}"
)
LABELS = ("bad", "fine", "good")


def stack(width: int = 24, layers: int = 2, **changes: object) -> Stack:
    fields: dict[str, object] = {
        "layers": layers,
        "width": width,
        "attention": MultiHead(heads=3, head_width=8),
        "feed_forward": ReLU(width=2 * width),
        "norm": RMSNorm(),
        "position": Rope(),
    }
    return Stack(**fields | changes)


def tokenizer(chat: bool = False) -> Tokenizer:
    trained = Tokenizer.train("bpe", [WORDS, WORDS.upper()], 320)
    if not chat:
        return trained
    special = vars(trained.special_tokens) | {"chat_template": CHAT_TEMPLATE}
    return Tokenizer(trained._backend, SpecialTokens(**special))


def write_decoder(directory: Path, seed: int = 0, length: int = 256) -> Path:
    """A decoder with opinions, so that different prompts get different answers."""
    own = tokenizer(chat=True)
    config = DecoderOnly(
        length=length,
        embedding=Embedding(vocabulary=own.vocab_size),
        decoder=stack(feed_forward=SwiGLU(width=48)),  # as in Llama, so that it can be exported
        output=NextToken(tied=False),
    )
    model = build(config, seed)
    with torch.no_grad():
        model.output.weight.mul_(20.0)
    Bundle(model.eval(), own).save(directory)
    return directory


def write_classifier(directory: Path, seed: int = 1) -> Path:
    own = tokenizer()
    config = EncoderOnly(
        length=64,
        embedding=Embedding(vocabulary=own.vocab_size),
        encoder=stack(),
        output=Classify(labels=LABELS, pooling=Mean()),
    )
    model = build(config, seed)
    with torch.no_grad():
        for parameter in model.output.parameters():
            parameter.mul_(5.0)
    Bundle(model.eval(), own).save(directory)
    return directory


def write_embedder(directory: Path, seed: int = 2) -> Path:
    own = tokenizer()
    config = EncoderOnly(
        length=64,
        embedding=Embedding(vocabulary=own.vocab_size),
        encoder=stack(position=Learned()),
        output=TextVector(pooling=Mean()),
    )
    Bundle(build(config, seed).eval(), own).save(directory)
    return directory


def write_translator(directory: Path, seed: int = 3) -> Path:
    own = tokenizer()
    config = EncoderDecoder(
        length=48,
        embedding=Embedding(vocabulary=own.vocab_size),
        encoder=stack(),
        decoder=stack(),
        output=NextToken(),
    )
    Bundle(build(config, seed).eval(), own).save(directory)
    return directory


def write_all(root: Path) -> dict[str, Path]:
    """One bundle of each task, by the name it is served under."""
    return {
        "writer": write_decoder(root / "writer"),
        "labels": write_classifier(root / "labels"),
        "vectors": write_embedder(root / "vectors"),
        "translator": write_translator(root / "translator"),
    }


def load_all(root: Path) -> dict[str, qkv.GlassBox]:
    return {name: qkv.load(path) for name, path in write_all(root).items()}
