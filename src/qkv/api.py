"""What `import qkv` offers as functions: load, build and explain.

`train` is in `qkv.training`, `check` in `qkv.checks`, `attend` in `qkv.attention`.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal, overload

import torch

from qkv.bundle import Bundle
from qkv.errors import UsageError, suggest_arguments
from qkv.interpret import (
    GlassBox,
    Walk,
    Worksheet,
    head_value_names,
    locate_head,
    read_worksheet,
    walk,
    walk_head,
)
from qkv.interpret import example as example_worksheet
from qkv.model import EncoderDecoder, EncoderOnly, Model, ModelConfig
from qkv.model import build as build_model
from qkv.text import Tokenizer

DEFAULT_EXAMPLE = "poem"


@suggest_arguments
def load(
    directory: str | os.PathLike[str],
    device: torch.device | str = "cpu",
    int8: bool = False,
    compile: bool = False,
) -> GlassBox:
    """Loads a bundle or a public checkpoint, ready to use and to look into.

    int8: quantizes the weights. compile: uses kernels compiled for this machine.
    """
    return GlassBox.load(directory, device, int8, compile)


@overload
def build(
    config: ModelConfig,
    tokenizer: None = None,
    *,
    seed: int = 0,
    device: torch.device | str = "cpu",
) -> Model: ...


@overload
def build(
    config: ModelConfig,
    tokenizer: Tokenizer,
    *,
    seed: int = 0,
    device: torch.device | str = "cpu",
) -> GlassBox: ...


def build(
    config: ModelConfig,
    tokenizer: Tokenizer | None = None,
    *,
    seed: int = 0,
    device: torch.device | str = "cpu",
) -> Model | GlassBox:
    """A model with fresh weights, the same for the same seed.

    Without a tokenizer it is the bare torch module. With one it is ready to use, as `load` returns
    it, and its vocabulary has the size of the tokenizer's.
    """
    if tokenizer is None:
        return build_model(config, seed, device)
    embedding = config.embedding.model_copy(update={"vocabulary": tokenizer.vocab_size})
    model = build_model(config.model_copy(update={"embedding": embedding}), seed, device)
    return GlassBox(Bundle(model.eval(), tokenizer))


@suggest_arguments
def explain(
    text: str | None = None,
    *,
    model: GlassBox | str | os.PathLike[str] | None = None,
    layer: int = 0,
    head: int = 0,
    cross: bool = False,
    side: Literal["encoder", "decoder"] | None = None,
    target: str | None = None,
    worksheet: Worksheet | str | os.PathLike[str] | None = None,
    example: str = DEFAULT_EXAMPLE,
) -> Walk:
    """Attention step by step: X, Q, K, V, scores, weights and output as labelled matrices.

    Without a model, the worked example, or a worksheet with your own matrices. With a model, what
    one of its heads computes for the text.

    side, cross: of an encoder–decoder, which stack, and its attention to the source.
    target: of an encoder–decoder, the target text; by default its own translation.
    """
    if model is None:
        if text is not None:
            raise UsageError("a text needs a model that reads it; pass model=… too")
        if worksheet is None:
            return walk(example_worksheet(example))
        if not isinstance(worksheet, Worksheet):
            worksheet = read_worksheet(Path(worksheet))
        return walk(worksheet)
    if text is None:
        raise UsageError("a model needs a text to read; pass explain(text, model=…)")
    if not isinstance(model, GlassBox):
        model = load(model)
    location = locate_head(model.graph, _heads(model, side), layer, head, cross, side or "")
    trace = model.trace(text, target=target, keep=head_value_names(model.graph, location))
    return walk_head(trace, location)


def _heads(model: GlassBox, side: str | None) -> int:
    config = model.model.config
    if isinstance(config, EncoderOnly):
        return config.encoder.attention.heads
    if isinstance(config, EncoderDecoder) and side == "encoder":
        return config.encoder.attention.heads
    return config.decoder.attention.heads
