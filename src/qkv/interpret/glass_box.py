"""A loaded model that can be looked into: every value it computes, by name.

model = qkv.load("runs/reviews")
trace = model.trace("what a film")
trace["encoder.0.attention.weights"]
"""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from qkv.engine import Engine, inference
from qkv.engine.cluster import tokens_by_word
from qkv.engine.generate import encode_prompt
from qkv.engine.translate import TranslationTemplate, decoded_spans
from qkv.errors import UsageError, suggest_arguments
from qkv.interpret.trace import (
    Edit,
    Graph,
    TokenizedInput,
    Trace,
    TraceDifference,
    build_graph,
    capture_trace,
    compare_traces,
    first_difference,
)
from qkv.interpret.trace.capture import ALL_VALUES, LAYERS, Rows
from qkv.interpret.trace.operations import Array
from qkv.interpret.trace.recompute import to_numpy
from qkv.model import (
    Classify,
    Decoder,
    Encoder,
    EncoderOnly,
    Model,
    NextToken,
    TextVector,
    Translator,
)
from qkv.text import Tokenizer
from qkv.version import __version__

if TYPE_CHECKING:
    from qkv.interpret.attribution.attribute import Attribution
    from qkv.interpret.patching import Metric, Part, PatchSweep, Progress


class GlassBox(Engine):
    """An engine whose model can be looked into."""

    @suggest_arguments
    def trace(
        self,
        text: str,
        *,
        target: str | None = None,
        keep: Sequence[str] = ALL_VALUES,
        rows: Rows = None,
        edits: Sequence[Edit] = (),
    ) -> Trace:
        """The values of one forward pass over the text whose names match one of `keep`.

        target: the target text an encoder–decoder has read; by default its own translation.
        rows: only these queries of scores, weights and the steps between.
        edits: changes to make on the way, such as an ablated head.
        """
        if isinstance(self.model, Translator) and target is None:
            target = self.own_translation(text)
        tokenized = tokenize_input(self.model, self.tokenizer, text, target)
        metadata = self.about | {"text": text}
        if target is not None:
            metadata["target"] = target
        served = None
        if not edits:
            served = model_output(self.optimized, tokenized)
        return capture_trace(
            self.model, tokenized, keep, rows, edits, metadata, served, graph=self.graph
        )

    @suggest_arguments
    def what_if(
        self, text: str, edits: Sequence[Edit], *, target: str | None = None
    ) -> TraceDifference:
        """What edits change: the first value that differs, each layer's output, the prediction."""
        if isinstance(self.model, Translator) and target is None:
            target = self.own_translation(text)
        keep = [name for name in ("output", "probabilities") if name in self.graph.nodes]
        keep += [self.graph.resolve("output"), LAYERS]
        before = self.trace(text, target=target, keep=keep)
        after = self.trace(text, target=target, keep=keep, edits=edits)
        tokenized = tokenize_input(self.model, self.tokenizer, text, target)
        first = first_difference(self.model, tokenized, edits, self.graph)
        return replace(compare_traces(before, after), first=first)

    @suggest_arguments
    def patch_sweep(
        self,
        clean: str,
        corrupted: str,
        metric: Metric | None = None,
        *,
        answer: str | int | None = None,
        against: str | int | None = None,
        part: Part = "residual",
        positions: Sequence[int] | None = None,
        side: str | None = None,
        target: str | None = None,
        progress: Progress | None = None,
    ) -> PatchSweep:
        """Activation patching of every layer at every position, from the clean to the corrupted.

        Both texts need the same number of tokens.

        metric: a function of a trace that has captured the output. By default the logit
        difference between `answer` and `against`, tokens or labels: those that the clean and the
        corrupted text make more probable; for a model that gives vectors, the cosine to the clean.
        part: "residual" (what a layer passes on), "attention", "feed_forward" or "cross" (what
        these add to it), or "heads": layers × heads, each patched at every position.
        side: of an encoder–decoder, the encoder (the default) or the decoder.
        target: of an encoder–decoder, the target text of both; by default the clean translation.
        progress: called with the number of cells that are done, and of all.
        """
        from qkv.interpret.patching import patch_sweep

        return patch_sweep(
            self,
            clean,
            corrupted,
            metric,
            answer=answer,
            against=against,
            part=part,
            positions=positions,
            side=side,
            target=target,
            progress=progress,
        )

    @suggest_arguments
    def why(
        self,
        text: str,
        *,
        label: str | None = None,
        token: str | int | None = None,
        against: str | int | None = None,
        target: str | None = None,
        seed: int = 0,
    ) -> Attribution:
        """Which words made the model's output what it is, with a test of how faithful that is.

        A classifier: which words make `label`, by default the predicted one. A decoder: why
        `token` follows rather than `against`. A translator: where each word of `target` comes
        from. Other encoders: which words make the vector.
        """
        from qkv.interpret.attribution.attribute import why

        return why(
            self.model,
            self.tokenizer,
            text,
            label=label,
            token=token,
            against=against,
            target=target,
            heads=self.bundle.alignment,
            seed=seed,
        )

    @property
    def methods(self) -> tuple[str, ...]:
        return (*super().methods, "trace", "why", "what_if", "patch_sweep")

    @cached_property
    def graph(self) -> Graph:
        """Every value of a forward pass of this model, by name; built once."""
        return build_graph(self.model)

    @cached_property
    def about(self) -> dict[str, str]:
        """The provenance of a trace: the model, and the versions that computed it."""
        return {
            "model": PurePath(self.name).name,  # without the directories of this machine
            "sha256": fingerprint(self.model),
            "qkv": __version__,
            "torch": torch.__version__,
            "python": platform.python_version(),
        }

    def own_translation(self, text: str) -> str:
        """The model's translation, truncated to its context: tokenized again it may be longer."""
        translation = self.translate([text])[0].text
        ids = self.tokenizer.encode(translation, target=True)
        max_tokens = self.model.config.length - 2  # there are two special tokens at most
        if len(ids) <= max_tokens:
            return translation
        return self.tokenizer.decode(ids[:max_tokens])


def fingerprint(model: Model) -> str:
    """A hash of the config and of every parameter by name."""
    digest = hashlib.sha256(model.config.model_dump_json().encode())
    for name, parameter in sorted(model.named_parameters()):
        digest.update(name.encode())
        values = parameter.detach().cpu().contiguous()
        digest.update(values.view(torch.uint8).numpy().data)
    return digest.hexdigest()


def model_output(model: Model, tokenized: TokenizedInput) -> Tensor:
    """The output of a model for these ids, as float32 on the CPU."""
    device = model.embedding.weight.device
    inputs = [torch.tensor([ids], device=device) for ids in tokenized.ids.values()]
    with inference(model):
        output: Tensor = model(*inputs)
        return output.float().cpu().clone()


def tokenize_input(
    model: Model, tokenizer: Tokenizer, text: str, target: str | None = None
) -> TokenizedInput:
    """The ids with their names and words, special tokens included as in training.

    target: for an encoder–decoder, the beginning of the target text.
    """
    if isinstance(model, Translator):
        return _tokenize_pair(model, tokenizer, text, target or "")
    if target is not None:
        raise UsageError("only an encoder–decoder has a target; leave it out")
    if isinstance(model, Decoder) and isinstance(model.config.output, NextToken):
        ids = encode_prompt(tokenizer, text)
        before = len(ids) - len(tokenizer.encode(text))
        after = 0
    else:
        assert isinstance(model, Encoder | Decoder)
        ids = tokenizer.add_special_tokens(tokenizer.encode(text))
        before = len(tokenizer.prefix_ids)
        after = len(tokenizer.suffix_ids)
    config = model.config
    limit = config.context_length if isinstance(config, EncoderOnly) else config.length
    _expect_length(len(ids), limit, "text")
    names, words = _names_and_words(tokenizer, text, ids, before, after)
    return TokenizedInput(
        {"text": ids}, {"text": names}, {"text": words}, _output_names(model, tokenizer)
    )


def _tokenize_pair(
    model: Translator, tokenizer: Tokenizer, source: str, target: str
) -> TokenizedInput:
    marking = TranslationTemplate.of(tokenizer, model.config)
    limit = model.config.length
    source_ids = marking.wrap_source(tokenizer.encode(source))
    target_ids = [*marking.target_prefix, *tokenizer.encode(target, target=True)]
    _expect_length(len(source_ids), limit, "source")
    _expect_length(len(target_ids), limit, "target")
    source_names, source_words = _names_and_words(
        tokenizer, source, source_ids, len(marking.source_prefix), len(marking.source_suffix)
    )
    target_names, target_words = _names_and_words(
        tokenizer, target, target_ids, len(marking.target_prefix), 0, target=True
    )
    return TokenizedInput(
        {"source": source_ids, "target": target_ids},
        {"source": source_names, "target": target_names},
        {"source": source_words, "target": target_words},
        _output_names(model, tokenizer),
    )


def _output_names(model: Model, tokenizer: Tokenizer) -> tuple[str, ...]:
    """The label or token of each logit; none for a vector."""
    output = model.config.output
    if isinstance(output, Classify):
        return output.labels
    if isinstance(output, TextVector):
        return ()
    return tuple(tokenizer.token(id) for id in range(tokenizer.vocab_size))


def _names_and_words(
    tokenizer: Tokenizer,
    text: str,
    ids: Sequence[int],
    before: int,
    after: int,
    target: bool = False,
) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """The text at each position, and the index of its word; −1 for a special token."""
    names = [tokenizer.token(id) for id in ids]
    words = [-1] * len(ids)
    positions = range(before, len(ids) - after)
    if target and tokenizer.has_language_pair:  # a target is tokenized in another way than a source
        spans = decoded_spans(tokenizer, [ids[i] for i in positions], text)
    elif len(positions):
        spans = tokenizer.offsets(text)
    else:
        spans = []
    if len(spans) != len(positions):  # the spans do not tell which token is which
        return tuple(names), tuple(words)
    for i, (start, end) in zip(positions, spans, strict=True):
        names[i] = _visible(text[start:end]) or names[i]
    for word, (_, tokens) in enumerate(tokens_by_word(text, spans)):
        for i in tokens:
            words[before + i] = word
    return tuple(names), tuple(words)


def _visible(piece: str) -> str:
    """A piece of text on one line; whitespace becomes visible if there is nothing else."""
    return piece.strip() or piece.replace(" ", "␣").replace("\n", "↵").replace("\t", "⇥")


def _expect_length(length: int, limit: int, what: str) -> None:
    if not length:
        raise UsageError(f"the {what} is empty: there is nothing to look at")
    if length > limit:
        raise UsageError(
            f"the {what} has {length} tokens but the model reads at most {limit}; shorten it"
        )


MAX_CANDIDATES = 8  # per position


@dataclass(frozen=True)
class Candidate:
    """A label or token with its probability; score is its logit."""

    name: str
    probability: float
    score: float


@dataclass(frozen=True)
class TokenPrediction:
    """The most probable candidates at one position; token is None for a label of the text."""

    token: str | None
    best: tuple[Candidate, ...]


@dataclass(frozen=True)
class Prediction:
    """What the model predicts: candidates at each position, or a vector."""

    title: str
    sentence: str
    positions: tuple[TokenPrediction, ...] = ()
    vector: tuple[float, ...] | None = None

    def json(self) -> dict[str, Any]:
        if self.vector is not None:
            return {"title": self.title, "vector": list(self.vector)}
        return {
            "title": self.title,
            "positions": [asdict(position) for position in self.positions],
        }


def prediction_of(trace: Trace) -> Prediction | None:
    """The prediction with the names of labels or tokens; None if the output was not captured."""
    if "output" not in trace:
        return None
    output = to_numpy(trace["output"])[0]
    if "probabilities" not in trace:
        norm = float(np.linalg.norm(output))
        sentence = f"{output.shape[-1]} numbers, of length {norm:.4f}."
        title = f"The vector of the text: {sentence}"
        return Prediction(title, sentence, vector=tuple(output.tolist()))
    probs = to_numpy(trace["probabilities"])[0]
    if output.ndim == 1:
        labels = TokenPrediction(None, _candidates(trace, output, probs))
        return Prediction("What the model says", "How probable each label is.", (labels,))
    tokens = trace.tokens[trace.node("output").sequences["T"]]
    positions = tuple(
        TokenPrediction(token, _candidates(trace, logits_row, probs_row))
        for token, logits_row, probs_row in zip(tokens, output, probs, strict=True)
    )
    if any(name.startswith("decoder.") for name in trace.graph.nodes):
        title = f"What comes after “{tokens[-1]}”"
        return Prediction(title, "How probable each token is to come next.", positions)
    title = f"What may stand in the place of “{tokens[-1]}”"
    return Prediction(title, "How probable each token is there.", positions)


def _candidates(trace: Trace, logits: Array, probs: Array) -> tuple[Candidate, ...]:
    order = np.argsort(-probs, kind="stable")[:MAX_CANDIDATES]
    return tuple(
        Candidate(trace.output_name(int(i)), float(probs[i]), float(logits[i])) for i in order
    )
