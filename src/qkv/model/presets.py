"""Named models, as data: published ones with their published sizes, and ours for each job."""

from collections.abc import Callable
from functools import partial

from qkv.errors import ConfigError, unknown
from qkv.model.attention import MultiHead
from qkv.model.build import ModelConfig
from qkv.model.decoder import DecoderOnly
from qkv.model.embedding import Embedding
from qkv.model.encoder import EncoderOnly
from qkv.model.encoder_decoder import EncoderDecoder
from qkv.model.feed_forward import GELU, ReLU, ReLU2, SwiGLU
from qkv.model.norm import LayerNorm, PostNorm, PreNorm, RMSNorm
from qkv.model.output import Classify, First, MaskedToken, Mean, NextToken, Output, TextVector
from qkv.model.position import Learned, RelativeBuckets, Rope, Sinusoidal
from qkv.model.stack import Stack


def preset(name: str) -> ModelConfig:
    """The config of that name; `presets()` lists them."""
    if name not in _PRESETS:
        raise ConfigError(unknown("preset", name, _PRESETS))
    return _PRESETS[name]()


def presets() -> list[str]:
    """Every name that `preset` knows."""
    return list(_PRESETS)


def _paper(width: int, heads: int, feed_forward: int, dropout: float) -> EncoderDecoder:
    """Vaswani et al. 2017, table 3: one byte-pair vocabulary of 37,000, shared three ways."""
    stack = Stack(
        layers=6,
        width=width,
        attention=MultiHead(heads=heads, bias=False, output_bias=False),
        feed_forward=ReLU(width=feed_forward),
        position=Sinusoidal(),
        norm_placement=PostNorm(),
        dropout=dropout,
    )
    table = Embedding(vocabulary=37_000, scaled=True)
    return EncoderDecoder(length=512, embedding=table, encoder=stack, decoder=stack)


def _bert(layers: int, width: int, output: Output) -> EncoderOnly:
    """Devlin et al. 2019, uncased vocabulary; heads of width 64 or, in MiniLM, 32."""
    norm = LayerNorm(eps=1e-12)
    return EncoderOnly(
        length=512,
        embedding=Embedding(vocabulary=30_522, token_types=2),
        encoder=Stack(
            layers=layers,
            width=width,
            attention=MultiHead(heads=12),
            feed_forward=GELU(width=4 * width),
            position=Learned(),
            norm=norm,
            norm_placement=PostNorm(),
            input_norm=norm,
            dropout=0.1,
        ),
        output=output,
    )


def _gpt2() -> DecoderOnly:
    """Radford et al. 2019, the smallest of the four."""
    return DecoderOnly(
        length=1024,
        embedding=Embedding(vocabulary=50_257),
        decoder=Stack(
            layers=12,
            width=768,
            attention=MultiHead(heads=12),
            feed_forward=GELU(width=3072, tanh=True),
            position=Learned(),
            norm_placement=PreNorm(),
            dropout=0.1,
        ),
    )


def _t5_small() -> EncoderDecoder:
    """Raffel et al. 2020: no attention scale, relative buckets, logits times 1/√D."""

    def stack(bidirectional: bool) -> Stack:
        return Stack(
            layers=6,
            width=512,
            attention=MultiHead(heads=8, bias=False, output_bias=False, scale=1.0),
            feed_forward=ReLU(width=2048, bias=False),
            position=RelativeBuckets(bidirectional=bidirectional),
            norm=RMSNorm(eps=1e-6),
            norm_placement=PreNorm(),
            dropout=0.1,
        )

    return EncoderDecoder(
        length=512,
        embedding=Embedding(vocabulary=32_128),
        encoder=stack(bidirectional=True),
        decoder=stack(bidirectional=False),
        output=NextToken(multiplier=512**-0.5),
    )


def _llama(
    layers: int,
    width: int,
    heads: int,
    kv_heads: int,
    feed_forward: int,
    vocabulary: int,
    length: int,
) -> DecoderOnly:
    """Touvron et al. 2023, small: rotary halves, grouped heads, SwiGLU, no biases, tied."""
    return DecoderOnly(
        length=length,
        embedding=Embedding(vocabulary=vocabulary),
        decoder=Stack(
            layers=layers,
            width=width,
            attention=MultiHead(heads=heads, kv_heads=kv_heads, bias=False, output_bias=False),
            feed_forward=SwiGLU(width=feed_forward),
            position=Rope(),
            norm=RMSNorm(eps=1e-5),
        ),
    )


# Ours: layers, width, heads; the vocabulary is what a tokenizer of that size class reaches.
SIZES = {"tiny": (2, 64, 2), "small": (4, 128, 4), "medium": (6, 256, 4)}
_VOCABULARY = {"tiny": 1_024, "small": 6_000, "medium": 8_000}


# Torch computes it in one go; an RMSNorm takes many small steps.
_OWN_NORM = LayerNorm(bias=False)


def _own_stack(size: str, dropout: float) -> Stack:
    """Bias-free layers with rotary positions and squared ReLU, which public formats can hold:
    a decoder that of Apertus, an encoder that of ModernBERT, a translator that of T5Gemma.
    """
    layers, width, heads = SIZES[size]
    return Stack(
        layers=layers,
        width=width,
        attention=MultiHead(heads=heads, bias=False, output_bias=False),
        feed_forward=ReLU2(width=4 * width, bias=False),
        position=Rope(),
        norm=_OWN_NORM,
        dropout=dropout,
    )


def _own_language(size: str) -> DecoderOnly:
    stack = _own_stack(size, dropout=0.0)
    attention = stack.attention.model_copy(update={"qk_norm": _OWN_NORM})
    return DecoderOnly(
        length=256,
        embedding=Embedding(vocabulary=_VOCABULARY[size]),
        decoder=stack.model_copy(update={"attention": attention}),
    )


def _own_encoder(size: str, output: Output, dropout: float = 0.1) -> EncoderOnly:
    # The norm on the embeddings stands in for that of the first attention, as in ModernBERT.
    norms = {"norm_placement": PreNorm(skip_first_norm=True), "input_norm": _OWN_NORM}
    return EncoderOnly(
        length=256,
        embedding=Embedding(vocabulary=_VOCABULARY[size]),
        encoder=_own_stack(size, dropout).model_copy(update=norms),
        output=output,
    )


def _own_classifier(size: str) -> EncoderOnly:
    _, width, _ = SIZES[size]
    output = Classify(
        labels=("negative", "positive"),
        hidden=width,
        hidden_bias=False,
        activation="gelu",
        norm=_OWN_NORM,
    )
    return _own_encoder(size, output, dropout=0.3)


def _own_translate(size: str) -> EncoderDecoder:
    stack = _own_stack(size, dropout=0.15)
    table = Embedding(vocabulary=_VOCABULARY[size], scaled=True)
    return EncoderDecoder(length=256, embedding=table, encoder=stack, decoder=stack)


_JOBS: dict[str, Callable[[str], ModelConfig]] = {
    "language": _own_language,
    "masked": lambda size: _own_encoder(size, MaskedToken(norm=_OWN_NORM)),
    "classify": _own_classifier,
    "translate": _own_translate,
    "embed": lambda size: _own_encoder(size, TextVector()),
}

_PRESETS: dict[str, Callable[[], ModelConfig]] = {
    "paper-base": lambda: _paper(512, 8, 2048, dropout=0.1),
    "paper-big": lambda: _paper(1024, 16, 4096, dropout=0.3),
    "bert-base": lambda: _bert(12, 768, TextVector(pooling=First(), dense=True, normalize=False)),
    "minilm-l6": lambda: _bert(6, 384, TextVector(pooling=Mean())),
    "gpt2": _gpt2,
    "t5-small": _t5_small,
    "llama-15m": lambda: _llama(6, 288, 6, 6, 768, 32_000, 256),
    "smollm-135m": lambda: _llama(30, 576, 9, 3, 1536, 49_152, 2048),
    **{f"{job}-{size}": partial(make, size) for job, make in _JOBS.items() for size in SIZES},
}
