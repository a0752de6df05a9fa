"""A loaded bundle that answers: embed, classify, translate and generate, whatever it can.

    model = qkv.load("runs/reviews")
    model.classify(["what a film"])

Answers come from a twin of the model that gives the same numbers sooner; see `quick`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, Self, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from qkv.bundle import Bundle
from qkv.checkpoints import Card
from qkv.engine.optimized import can_optimize, int8_supported, optimize
from qkv.errors import UsageError
from qkv.kernels import inference_kernels
from qkv.model import Classify, Decoder, Encoder, Model, TextVector, Translator
from qkv.text import Tokenizer

if TYPE_CHECKING:
    from qkv.engine.classify import Classification
    from qkv.engine.cluster import Clustering
    from qkv.engine.embed import Long
    from qkv.engine.generate import Completion, CompletionStream
    from qkv.engine.similar import Similarity
    from qkv.engine.translate import Translation

# FOLDED engine/purpose: What a model is for, in words: said where it is asked for something
#   else.


class Purpose(NamedTuple):
    it_is: str
    command: str  # what suits it


def purpose_of(model: Model) -> Purpose:
    """Told from the family and, of an encoder, from the output."""
    if isinstance(model, Decoder):
        return Purpose("a decoder, which writes text", "qkv generate")
    if not isinstance(model, Encoder):
        return Purpose("an encoder–decoder, which turns a text into another", "qkv translate")
    if isinstance(model.config.output, Classify):
        return Purpose("a classifier", "qkv classify")
    if isinstance(model.config.output, TextVector):
        return Purpose("an encoder that gives vectors", "qkv embed")
    return Purpose("an encoder that fills in hidden tokens", "qkv embed")


Family = TypeVar("Family", Encoder, Decoder, Translator)


class Engine:
    """A model with its tokenizer, ready to answer.

    int8: with its matrices in 8 bits, which takes about a quarter of the memory and is quicker;
    `remarks` says so if this machine cannot.
    compile: with inner loops compiled for this machine, once, which needs a C++ compiler.
    """

    def __init__(
        self, bundle: Bundle, name: str = "this model", int8: bool = False, compile: bool = False
    ) -> None:
        self.bundle, self.name, self.warnings = bundle, name, list[str]()
        self.compile = compile
        if compile:
            inference_kernels()  # what is missing for it is said now
        if compile and not can_optimize(bundle.model):
            self.warnings.append("compiled loops need float32 weights on a CPU; none are used here")
        if int8 and not (compile or int8_supported()):
            self.warnings.append(
                "this CPU multiplies in 8 bits only with compiled loops (--compile); float32 is "
                "used instead"
            )
            int8 = False
        if int8:  # nothing of the larger numbers stays in memory
            self.bundle = replace(bundle, model=optimize(bundle.model, True, compile))
            self.optimized = self.bundle.model
            if self.optimized is bundle.model:
                self.warnings.append("8 bits need float32 weights on a CPU; none are made here")

    @classmethod
    def load(
        cls,
        directory: str | os.PathLike[str],
        device: torch.device | str = "cpu",
        int8: bool = False,
        compile: bool = False,
    ) -> Self:
        """The model of a bundle or of a public checkpoint, told apart by looking."""
        if compile:
            inference_kernels()  # before anything large is read
        return cls(Bundle.load(directory, device), str(directory), int8, compile)

    @property
    def model(self) -> Model:
        """The network itself, as it was trained, or in 8 bits if that was asked for."""
        return self.bundle.model

    @cached_property
    def optimized(self) -> Model:
        """The twin that answers."""
        return optimize(self.bundle.model, compile=self.compile)

    @property
    def tokenizer(self) -> Tokenizer:
        if self.bundle.tokenizer is None:
            raise UsageError(
                f"{self.name} has no tokenizer, so it cannot read text; put the tokenizer.json it "
                "came with into its directory, or save it with one"
            )
        return self.bundle.tokenizer

    @property
    def card(self) -> Card | None:
        """Where it comes from, if it was imported."""
        return self.bundle.card

    def embed(
        self, texts: Iterable[str], *, raw: bool = False, long: Long = "error", **options: Any
    ) -> NDArray[np.float32]:
        """A vector for each text, (n, D), of length 1 unless `raw`; see `qkv.engine.embed`."""
        from qkv.engine.embed import embed

        return embed(self.optimized, self.tokenizer, texts, raw=raw, long=long, **options).vectors

    def classify(self, texts: Iterable[str], **options: Any) -> list[Classification]:
        """The label of each text and how probable every label is; see `qkv.engine.classify`."""
        from qkv.engine.classify import classify

        return classify(self.optimized, self.tokenizer, texts, **options)

    def translate(
        self, texts: Sequence[str], *, beams: int = 4, best: int = 1, **options: Any
    ) -> list[Translation]:
        """Each text in the other language; see `qkv.engine.translate`."""
        from qkv.engine.translate import translate

        return translate(
            self.require(Translator), self.tokenizer, texts, beams=beams, best=best, **options
        )

    def generate(self, prompt: Any, **options: Any) -> CompletionStream:
        """The tokens that follow the prompt, one after the other; see `qkv.engine.generate`."""
        from qkv.engine.generate import generate

        return generate(self.require(Decoder), self.tokenizer, prompt, **options)

    def generate_many(self, prompts: Sequence[Any], **options: Any) -> list[Completion]:
        """What follows each of the prompts, written together."""
        from qkv.engine.generate import generate_many

        return generate_many(self.require(Decoder), self.tokenizer, prompts, **options)

    def similar(self, a: str, b: str) -> Similarity:
        """The cosine of two texts, and which words make it."""
        from qkv.engine.similar import similar

        return similar(self.require(Encoder), self.tokenizer, a, b)

    def cluster(self, texts: Sequence[str], k: int | None = None, **options: Any) -> Clustering:
        """Groups of texts that are alike; `k` of them, or as many as are found stable."""
        from qkv.engine.cluster import cluster

        return cluster(texts, self.embed(texts, long="average"), k=k, **options)

    def require(self, family: type[Family]) -> Family:
        """The twin, if it is of that family."""
        if isinstance(self.optimized, family):
            return self.optimized
        it_is, command = purpose_of(self.optimized)
        raise UsageError(f"{self.name} is {it_is}; use {command}")


def load(
    directory: str | os.PathLike[str],
    device: torch.device | str = "cpu",
    int8: bool = False,
    compile: bool = False,
) -> Engine:
    """The model of a bundle or of a public checkpoint, ready to answer."""
    return Engine.load(directory, device, int8, compile)
