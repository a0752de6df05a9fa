"""Traces of tiny models over tokens of any kind, to be written to files."""

from collections.abc import Sequence

from qkv.interpret.trace import TokenizedInput, Trace, capture_trace
from qkv.model import (
    Alibi,
    DecoderOnly,
    Embedding,
    EncoderDecoder,
    MultiHead,
    ReLU,
    Stack,
    build,
)

HOSTILE = ("=1+1", "a|b", "50% & $x_1$", '"', "\x00\x1b[2J", "詩", "#", "-->", "\\end{tabular}")
ABOUT = {"model": "/home/somebody/models/tiny", "sha256": "0123456789abcdef" * 4, "qkv": "0.0.7"}


def decoder_trace(tokens: Sequence[str] = HOSTILE, keep: Sequence[str] = ("*",), **more) -> Trace:
    """Two layers of three heads over these tokens."""
    config = DecoderOnly(length=211, embedding=Embedding(vocabulary=17), decoder=_stack())
    return capture_trace(
        build(config, seed=4),
        TokenizedInput({"text": [i % 17 for i in range(len(tokens))]}, {"text": tuple(tokens)}),
        keep,
        metadata=ABOUT | {"text": " ".join(tokens)},
        **more,
    )


def translator_trace() -> Trace:
    """Seven source positions, four of a target."""
    config = EncoderDecoder(
        length=11, embedding=Embedding(vocabulary=17), encoder=_stack(), decoder=_stack()
    )
    reading = TokenizedInput.from_ids(source=[3, 5, 7, 2, 11, 13, 1], target=[1, 4, 9, 16])
    return capture_trace(build(config, seed=6), reading, metadata=ABOUT)


def _stack() -> Stack:
    return Stack(
        layers=2,
        width=12,
        attention=MultiHead(heads=3),
        feed_forward=ReLU(width=7),
        position=Alibi(),
    )
