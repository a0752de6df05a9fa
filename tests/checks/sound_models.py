"""Small sound models of each family, for bugs to be planted in."""

import torch

from qkv.bundle import Bundle
from qkv.checks import Check, CheckResult, check
from qkv.engine.engine import Engine
from qkv.model import (
    Classify,
    DecoderOnly,
    Embedding,
    EncoderDecoder,
    EncoderOnly,
    Learned,
    MaskedToken,
    Model,
    ModelConfig,
    MultiHead,
    ReLU,
    RMSNorm,
    Rope,
    Sinusoidal,
    Stack,
    SwiGLU,
    TextVector,
    build,
)
from qkv.text import Tokenizer

LENGTH, WIDTH, LAYERS = 41, 24, 3
READER = Tokenizer.train("bytes", ["a"], 300)
TABLE = Embedding(vocabulary=READER.vocab_size)


def stack(**overrides: object) -> Stack:
    defaults: dict[str, object] = {
        "layers": LAYERS,
        "width": WIDTH,
        "attention": MultiHead(heads=4),
        "feed_forward": ReLU(width=37),
        "position": Learned(),
        "dropout": 0.1,
    }
    return Stack(**defaults | overrides)


LLAMA = {
    "attention": MultiHead(heads=4, kv_heads=2, bias=False, output_bias=False),
    "feed_forward": SwiGLU(width=29),
    "position": Rope(),
    "norm": RMSNorm(),
}
CONFIGS: dict[str, ModelConfig] = {
    "gpt": DecoderOnly(length=LENGTH, embedding=TABLE, decoder=stack()),
    "llama": DecoderOnly(length=LENGTH, embedding=TABLE, decoder=stack(**LLAMA)),
    "vectors": EncoderOnly(length=LENGTH, embedding=TABLE, encoder=stack(), output=TextVector()),
    "masked": EncoderOnly(length=LENGTH, embedding=TABLE, encoder=stack(), output=MaskedToken()),
    "labels": EncoderOnly(
        length=LENGTH,
        embedding=TABLE,
        encoder=stack(),
        output=Classify(labels=("sad", "glad", "mad")),
    ),
    "translator": EncoderDecoder(
        length=LENGTH,
        embedding=TABLE,
        encoder=stack(position=Sinusoidal()),
        decoder=stack(position=Sinusoidal()),
    ),
}


def sound(name: str) -> Model:
    """With no norm at 1 and no bias at 0, and with opinions."""
    model, draws = build(CONFIGS[name], seed=3).eval(), torch.Generator().manual_seed(5)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=draws))
    return model


def engine(model: Model, tokenizer: Tokenizer | None = READER) -> Engine:
    return Engine(Bundle(model, tokenizer))


def result_of(each: Check, model: Model, tokenizer: Tokenizer | None = READER) -> CheckResult:
    """What one check says of the model, in the quick form."""
    (result,) = check(engine(model, tokenizer), quick=True, checks=[each]).checks
    return result


def assert_red(each: Check, model: Model, *where: str) -> CheckResult:
    """The check fails, and its location contains all these words."""
    result = result_of(each, model)
    assert not result.ok, result
    for words in where:
        assert words in result.location, result
    return result
