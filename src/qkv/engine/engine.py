"""A loaded bundle that embeds, classifies, translates and generates, whatever its model can.

    model = qkv.load("runs/reviews")
    model.classify(["what a film"])

Everything is computed by an optimized copy of the model with the same outputs; see `optimized`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import PurePath
from typing import TYPE_CHECKING, Self, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from qkv.bundle import AlignmentHeads, Bundle
from qkv.checkpoints import ImportCard
from qkv.engine.optimized import can_optimize, int8_supported, optimize
from qkv.engine.purpose import methods_of, purpose_of, summary_lines
from qkv.errors import UsageError, suggest_arguments
from qkv.kernels import inference_kernels
from qkv.model import Decoder, Encoder, Model, Translator
from qkv.report import escape
from qkv.text import Tokenizer

if TYPE_CHECKING:
    from qkv.engine.classify import Classification
    from qkv.engine.cluster import Clustering
    from qkv.engine.cluster.clustering import Method
    from qkv.engine.embed import LongTextPolicy
    from qkv.engine.generate import (
        Chat,
        Completion,
        CompletionStream,
        Drafter,
        Prompt,
        Sampling,
        Truncate,
    )
    from qkv.engine.similarity import Similarity
    from qkv.engine.translate import Translation
    from qkv.engine.translate.segments import Long as LongSource


Family = TypeVar("Family", Encoder, Decoder, Translator)


class Engine:
    """A model with its tokenizer, ready to use.

    int8: quantizes the weights, which takes about a quarter of the memory and is faster;
    `warnings` has an entry if this machine cannot.
    compile: uses kernels compiled for this machine, which needs a C++ compiler.
    """

    def __init__(
        self, bundle: Bundle, name: str = "this model", int8: bool = False, compile: bool = False
    ) -> None:
        self.bundle = bundle
        self.name = name
        self.compile = compile
        self.warnings: list[str] = []
        if compile:
            inference_kernels()  # raises now if they cannot be compiled
            if not can_optimize(bundle.model):
                self.warnings.append(
                    "compiled kernels need float32 weights on a CPU; none are used here"
                )
        if int8 and not (compile or int8_supported()):
            self.warnings.append(
                "this CPU computes in int8 only with compiled kernels (compile=True); float32 is "
                "used instead"
            )
            int8 = False
        if int8:
            # The optimized model takes the place of the original, so that its float32 weights
            # are freed.
            self.optimized = optimize(bundle.model, int8=True, compile=compile)
            self.bundle = replace(bundle, model=self.optimized)
            if self.optimized is bundle.model:
                self.warnings.append("int8 needs float32 weights on a CPU; nothing is quantized")

    @classmethod
    def load(
        cls,
        directory: str | os.PathLike[str],
        device: torch.device | str = "cpu",
        int8: bool = False,
        compile: bool = False,
    ) -> Self:
        """Loads a bundle or a public checkpoint, whichever the directory holds."""
        if compile:
            inference_kernels()  # raises before anything large is read
        return cls(Bundle.load(directory, device), str(directory), int8, compile)

    @property
    def model(self) -> Model:
        """The model as it was trained, or quantized with `int8`."""
        return self.bundle.model

    @cached_property
    def optimized(self) -> Model:
        """The model that computes: fused layers with the same outputs."""
        return optimize(self.bundle.model, compile=self.compile)

    @property
    def tokenizer(self) -> Tokenizer:
        if self.bundle.tokenizer is None:
            raise UsageError(
                f"{self.name} has no tokenizer, so it cannot read text; put its tokenizer.json "
                "into its directory, or save it with one"
            )
        return self.bundle.tokenizer

    @property
    def card(self) -> ImportCard | None:
        """The provenance of an imported model."""
        return self.bundle.card

    @suggest_arguments
    def embed(
        self,
        texts: Iterable[str],
        *,
        raw: bool = False,
        long: LongTextPolicy = "error",
        batch_tokens: int | None = None,
        progress: Callable[[int], None] | None = None,
    ) -> NDArray[np.float32]:
        """A vector for each text, (n, D), normalised to length 1 unless `raw`.

        long: a text longer than the context is an "error", or "truncate" or "average" its windows.
        batch_tokens: tokens computed together.
        progress: called with the number of texts done.
        """
        from qkv.engine.embed import embed

        return embed(
            self.optimized,
            self.tokenizer,
            texts,
            raw=raw,
            long=long,
            batch_tokens=batch_tokens,
            progress=progress,
        ).vectors

    @suggest_arguments
    def classify(
        self,
        texts: Iterable[str],
        *,
        long: LongTextPolicy = "error",
        batch_tokens: int | None = None,
        progress: Callable[[int], None] | None = None,
    ) -> list[Classification]:
        """The label of each text and the probability of every label; arguments as in `embed`."""
        from qkv.engine.classify import classify

        return classify(
            self.optimized,
            self.tokenizer,
            texts,
            long=long,
            batch_tokens=batch_tokens,
            progress=progress,
        )

    @suggest_arguments
    def translate(
        self,
        texts: Sequence[str],
        *,
        beams: int = 4,
        best: int = 1,
        length_penalty: float = 1.0,
        max_length: int | None = None,
        long: LongSource = "error",
        alignment: bool = False,
        layer: int | None = None,
        batch_tokens: int = 8192,
    ) -> list[Translation]:
        """The translation of each text by beam search, with its `best` alternatives.

        max_length: tokens of a translation, EOS included.
        long: a line longer than the context is an "error", or translated sentence by sentence.
        alignment: adds which source word each target word comes from, by the attention of `layer`
        or, by default, of the heads measured to align best: see `alignment_heads`.
        batch_tokens: source tokens times beams that are decoded together.
        """
        from qkv.engine.translate import translate

        heads = None
        if alignment and layer is None:
            heads = self.alignment_heads(texts)
        return translate(
            self.require(Translator),
            self.tokenizer,
            texts,
            beams=beams,
            best=best,
            length_penalty=length_penalty,
            max_length=max_length,
            long=long,
            alignment=alignment,
            layer=layer,
            heads=heads,
            batch_tokens=batch_tokens,
        )

    def alignment_heads(self, texts: Sequence[str]) -> AlignmentHeads:
        """The cross attention that aligns words: as measured after training, else on these texts.

        What is measured here is used for later calls too, and `warnings` gets an entry.
        """
        from qkv.engine.translate import TranslationTemplate, choose_alignment_on_texts

        if self.bundle.alignment is not None:
            return self.bundle.alignment
        model = self.require(Translator)
        template = TranslationTemplate.of(self.tokenizer, model.config)
        heads = choose_alignment_on_texts(model, self.tokenizer, texts, template)
        if heads.tokens:  # else there was nothing to measure, and the next texts may tell more
            self.bundle = replace(self.bundle, alignment=heads)
            numbers = ", ".join(map(str, heads.heads))
            self.warnings.append(
                f"the alignment is read from layer {heads.layer}, heads {numbers}: of all they "
                f"agree best with occlusion, on {heads.agreement:.0%} of the {heads.tokens} target "
                "tokens measured"
            )
        return heads

    @suggest_arguments
    def generate(
        self,
        prompt: Prompt,
        *,
        max_tokens: int | None = None,
        sampling: Sampling | None = None,
        temperature: float | None = None,
        top_k: int | None = None,
        top_p: float | None = None,
        min_p: float | None = None,
        repetition_penalty: float | None = None,
        presence_penalty: float | None = None,
        frequency_penalty: float | None = None,
        logit_bias: Mapping[int, float] | None = None,
        top_logprobs: int = 0,
        seed: int | None = None,
        stop: Sequence[str] = (),
        truncate: Truncate = None,
        draft: Drafter | None = None,
        sample_index: int = 0,
    ) -> CompletionStream:
        """A completion of the prompt, a text or chat messages, as a stream of tokens.

        max_tokens: by default as many as fit into the context, at most 200.
        temperature: 0.8 by default; 0 is greedy. top_p: 0.95 by default; 1 keeps every token.
        sampling: a `Sampling` in place of the five parameters that follow it.
        presence_penalty, frequency_penalty: lower the logits of tokens generated before.
        logit_bias: added to the logits of these tokens.
        top_logprobs: how many alternatives each token gets.
        seed: random by default.
        stop: strings before which the completion ends.
        truncate: "left" drops the beginning of a prompt that does not fit, otherwise an error.
        draft: proposes tokens for speculative decoding, `NGram()` or `DraftModel(model)`.
        sample_index: completions of one seed that differ in it are sampled independently.
        """
        from qkv.engine.generate import generate

        return generate(
            self.require(Decoder),
            self.tokenizer,
            prompt,
            max_tokens=max_tokens,
            sampling=sampling,
            temperature=temperature,
            top_k=top_k,
            top_p=top_p,
            min_p=min_p,
            repetition_penalty=repetition_penalty,
            presence_penalty=presence_penalty,
            frequency_penalty=frequency_penalty,
            logit_bias=logit_bias,
            top_logprobs=top_logprobs,
            seed=seed,
            stop=stop,
            truncate=truncate,
            draft=draft,
            sample_index=sample_index,
        )

    @suggest_arguments
    def chat(
        self,
        system: str | None = None,
        *,
        max_tokens: int | None = None,
        sampling: Sampling | None = None,
        temperature: float | None = None,
        top_k: int | None = None,
        top_p: float | None = None,
        min_p: float | None = None,
        repetition_penalty: float | None = None,
        seed: int | None = None,
        stop: Sequence[str] = (),
    ) -> Chat:
        """A conversation with the model, which reads only what is new in each turn.

        system: the system prompt. The other arguments are those of `generate`, for every answer. A
        model without a chat template continues the text.
        """
        from qkv.engine.generate import Chat

        return Chat(
            self.require(Decoder),
            self.tokenizer,
            system,
            max_tokens=max_tokens,
            sampling=sampling,
            temperature=temperature,
            top_k=top_k,
            top_p=top_p,
            min_p=min_p,
            repetition_penalty=repetition_penalty,
            seed=seed,
            stop=stop,
        )

    @suggest_arguments
    def generate_many(
        self,
        prompts: Iterable[Prompt],
        *,
        n: int = 1,
        max_tokens: int | None = None,
        sampling: Sampling | None = None,
        temperature: float | None = None,
        top_k: int | None = None,
        top_p: float | None = None,
        min_p: float | None = None,
        repetition_penalty: float | None = None,
        presence_penalty: float | None = None,
        frequency_penalty: float | None = None,
        logit_bias: Mapping[int, float] | None = None,
        top_logprobs: int = 0,
        seed: int | None = None,
        stop: Sequence[str] = (),
        truncate: Truncate = None,
    ) -> list[Completion]:
        """The completions of many prompts, n for each, generated together as a batch.

        The other arguments are those of `generate`.
        """
        from qkv.engine.generate import generate_many

        return generate_many(
            self.require(Decoder),
            self.tokenizer,
            prompts,
            n=n,
            max_tokens=max_tokens,
            sampling=sampling,
            temperature=temperature,
            top_k=top_k,
            top_p=top_p,
            min_p=min_p,
            repetition_penalty=repetition_penalty,
            presence_penalty=presence_penalty,
            frequency_penalty=frequency_penalty,
            logit_bias=logit_bias,
            top_logprobs=top_logprobs,
            seed=seed,
            stop=stop,
            truncate=truncate,
        )

    @suggest_arguments
    def similar(self, a: str, b: str) -> Similarity:
        """The cosine similarity of two texts, and what each pair of words contributes to it."""
        from qkv.engine.similarity import similar

        return similar(self.require(Encoder), self.tokenizer, a, b)

    @suggest_arguments
    def cluster(
        self,
        texts: Sequence[str],
        k: int | None = None,
        *,
        method: Method = "kmeans",
        seed: int = 0,
    ) -> Clustering:
        """Clusters of similar texts: `k` of them, or as many as are most clearly separated."""
        from qkv.engine.cluster import cluster

        return cluster(texts, self.embed(texts, long="average"), k=k, method=method, seed=seed)

    @property
    def methods(self) -> tuple[str, ...]:
        """The names of the methods that suit this model."""
        return methods_of(self.model)

    def __repr__(self) -> str:
        name, *lines = self._summary()
        return "\n ".join([f"<{name}", *lines]) + ">"

    def _repr_html_(self) -> str:
        """The same for notebooks."""
        name, *lines = map(escape, self._summary())
        return f"<div><b>{name}</b><br>{'<br>'.join(lines)}</div>"

    def _summary(self) -> list[str]:
        """What it is, how large, and what one can do with it."""
        head = f"{PurePath(self.name).name}: {purpose_of(self.model).description}"
        methods = ", ".join(f".{name}()" for name in self.methods)
        return [head, *summary_lines(self.model, self.bundle.tokenizer), methods]

    def require(self, family: type[Family]) -> Family:
        """The optimized model; raises a UsageError unless it is of that family."""
        if isinstance(self.optimized, family):
            return self.optimized
        description, command = purpose_of(self.optimized)
        raise UsageError(f"{self.name} is {description}; use {command}")
