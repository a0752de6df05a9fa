"""A loaded model that answers and can be opened: every number it computes, by name.

model = qkv.load("runs/reviews")
trace = model.trace("what a film")
trace["encoder.0.attention.weights"]
"""

from __future__ import annotations

import hashlib
import os
import platform
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

import qkv
from qkv.engine.batching import inference
from qkv.engine.cluster.clustering import tokens_of_words
from qkv.engine.engine import Engine
from qkv.engine.generate.request import Prompter
from qkv.engine.translate.alignment import written_spans
from qkv.engine.translate.segments import Marking
from qkv.errors import UsageError
from qkv.interpret.trace import (
    Edit,
    Graph,
    TokenizedInput,
    Trace,
    build_graph,
    capture_trace,
)
from qkv.interpret.trace.capture import ALL_VALUES, Rows
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

if TYPE_CHECKING:
    from qkv.interpret.attribution.attribute import Attribution

# FOLDED explain/reading: A text as a model reads it, position by position, with names people
#   can read.
# FOLDED explain/answer: What the model answered: tokens, labels, or a vector, with the
#   likeliest by name.


class GlassBox(Engine):
    """An engine whose model can be looked into."""

    def trace(
        self,
        text: str,
        *,
        target: str | None = None,
        keep: Sequence[str] = ALL_VALUES,
        rows: Rows = None,
        edits: Sequence[Edit] = (),
    ) -> Trace:
        """The values of one pass over the text, those whose names match one of `keep`.

        target: what an encoder–decoder is to have written so far; its own translation if not
        given. rows: of scores, weights and the steps between, only these queries.
        """

        if isinstance(self.model, Translator) and target is None:
            target = self._own_translation(text)
        reading = read_text(self.model, self.tokenizer, text, target)
        about = self.about | {"text": text} | ({} if target is None else {"target": target})
        served = None if edits else served_answer(self.optimized, reading)
        return capture_trace(
            self.model, reading, keep, rows, edits, about, served, graph=self.graph
        )

    def why(self, text: str, **asked: Any) -> Attribution:
        """Why the model answers as it does, and how far to trust that.

        A classifier: which words make the label. A decoder: why this token rather than that one.
        A translator: where each word of the target comes from. Other encoders: which words make
        the vector.
        """
        from qkv.interpret.attribution.attribute import why

        return why(self.model, self.tokenizer, text, **asked)

    def _own_translation(self, text: str) -> str:
        """As much of it as the model reads: cut into tokens again it may be longer."""
        written = self.translate([text])[0].text
        ids = self.tokenizer.encode(written, target=True)
        room = self.model.config.length - 2  # beside two marks at most
        return written if len(ids) <= room else self.tokenizer.decode(ids[:room])

    @cached_property
    def graph(self) -> Graph:
        """Every value of a forward pass of this model, by name; built once."""
        return build_graph(self.model)

    @cached_property
    def about(self) -> dict[str, str]:
        """Where a number comes from: the model and what computed it."""
        return {
            "model": PurePath(self.name).name,  # no folders of this machine
            "sha256": fingerprint(self.model),
            "qkv": qkv.__version__,
            "torch": torch.__version__,
            "python": platform.python_version(),
        }


def load(
    directory: str | os.PathLike[str],
    device: str = "cpu",
    int8: bool = False,
    compile: bool = False,
) -> GlassBox:
    """The model of a bundle or of a public checkpoint, ready to answer and to be opened."""
    return GlassBox.load(directory, device, int8, compile)


def fingerprint(model: Model) -> str:
    """A hash of every parameter by name: the same for the same numbers, wherever they lie."""
    found = hashlib.sha256(model.config.model_dump_json().encode())
    for name, parameter in sorted(model.named_parameters()):
        found.update(name.encode())
        numbers = parameter.detach().cpu().contiguous()
        found.update(numbers.view(torch.uint8).numpy().data)
    return found.hexdigest()


def served_answer(quick: Model, reading: TokenizedInput) -> Tensor:
    """What the twin that answers gives for the same ids."""
    device = quick.embedding.weight.device
    given = [torch.tensor([ids], device=device) for ids in reading.ids.values()]
    with inference(quick):
        answer: Tensor = quick(*given)
        return answer.float().cpu().clone()


def read_text(
    model: Model, tokenizer: Tokenizer, text: str, target: str | None = None
) -> TokenizedInput:
    """The ids, their names and their words, with the marks the model was trained with.

    target: for an encoder–decoder, how far the other text has come; its marks are put around it.
    """
    if isinstance(model, Translator):
        return _pair(model, tokenizer, text, target or "")
    if target is not None:
        raise UsageError("only an encoder–decoder has a target; leave it out")
    if isinstance(model, Decoder) and isinstance(model.config.output, NextToken):
        ids = Prompter(model, tokenizer).ids(text)
        before, after = len(ids) - len(tokenizer.encode(text)), 0
    else:
        assert isinstance(model, Encoder | Decoder)
        ids = tokenizer.add_special_tokens(tokenizer.encode(text))
        before, after = len(tokenizer.prefix_ids), len(tokenizer.suffix_ids)
    config = model.config
    most = config.context_length if isinstance(config, EncoderOnly) else config.length
    _expect_room(len(ids), most, "text")
    names, words = _named(tokenizer, text, ids, before, after)
    return TokenizedInput(
        {"text": ids}, {"text": names}, {"text": words}, _outputs(model, tokenizer)
    )


def _pair(model: Translator, tokenizer: Tokenizer, source: str, target: str) -> TokenizedInput:
    marking, most = Marking.of(tokenizer, model.config), model.config.length
    ids = {
        "source": marking.source(tokenizer.encode(source)),
        "target": [*marking.start, *tokenizer.encode(target, target=True)],
    }
    around = {
        "source": (source, len(marking.before), len(marking.after)),
        "target": (target, len(marking.start), 0),
    }
    for sequence, row in ids.items():
        _expect_room(len(row), most, sequence)
    found = {
        name: _named(tokenizer, text, ids[name], before, after, target=name == "target")
        for name, (text, before, after) in around.items()
    }
    tokens, words = ({name: each[i] for name, each in found.items()} for i in (0, 1))
    return TokenizedInput(ids, tokens, words, _outputs(model, tokenizer))  # type: ignore[arg-type]


def _outputs(model: Model, tokenizer: Tokenizer) -> tuple[str, ...]:
    """What each number of the answer is called: a label, a token, or nothing."""
    output = model.config.output
    if isinstance(output, Classify):
        return output.labels
    if isinstance(output, TextVector):
        return ()
    return tuple(tokenizer.token(id) for id in range(tokenizer.vocab_size))


def _named(
    tokenizer: Tokenizer,
    text: str,
    ids: Sequence[int],
    before: int,
    after: int,
    target: bool = False,
) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """What stands at each position, and the number of its word; −1 for a mark."""
    names = [tokenizer.token(id) for id in ids]
    words = [-1] * len(ids)
    inside = range(before, len(ids) - after)
    if target and tokenizer.has_language_pair:  # cut in another way than a source
        spans = written_spans(tokenizer, [ids[at] for at in inside], text)
    else:
        spans = tokenizer.offsets(text) if len(inside) else []
    if len(spans) == len(inside):  # else the pieces of a text say nothing of its characters
        for at, (start, end) in zip(inside, spans, strict=True):
            names[at] = _shown(text[start:end]) or names[at]
        for number, (_, tokens) in enumerate(tokens_of_words(text, spans)):
            for at in tokens:
                words[before + at] = number
    return tuple(names), tuple(words)


def _shown(piece: str) -> str:
    """A piece of text on one line, its spaces visible if there is nothing else."""
    return piece.strip() or piece.replace(" ", "␣").replace("\n", "↵").replace("\t", "⇥")


def _expect_room(length: int, most: int, what: str) -> None:
    if not length:
        raise UsageError(f"the {what} is empty: there is nothing to look at")
    if length > most:
        raise UsageError(
            f"the {what} has {length} tokens but the model reads at most {most}; shorten it"
        )


BEST = 8  # answers named at each position


@dataclass(frozen=True)
class Candidate:
    """One possible answer."""

    name: str
    probability: float
    score: float


@dataclass(frozen=True)
class TokenPrediction:
    """The likeliest answers at one position; token is None where a whole text has one answer."""

    token: str | None
    best: tuple[Candidate, ...]


@dataclass(frozen=True)
class Prediction:
    """Either positions or a vector."""

    title: str
    sentence: str
    positions: tuple[TokenPrediction, ...] = ()
    vector: tuple[float, ...] | None = None

    def json(self) -> dict[str, Any]:
        told: dict[str, Any] = {"title": self.title}
        if self.vector is not None:
            return told | {"vector": list(self.vector)}
        return told | {"positions": [asdict(position) for position in self.positions]}


def prediction_of(trace: Trace) -> Prediction | None:
    """The answer with its names; None if it was not kept."""
    if "output" not in trace:
        return None
    output, node = to_numpy(trace["output"])[0], trace.node("output")
    if "probabilities" not in trace:
        size = float(np.linalg.norm(output))
        said = f"{output.shape[-1]} numbers, of length {size:.4f}."
        return Prediction(f"The vector of the text: {said}", said, vector=tuple(output.tolist()))
    shares = to_numpy(trace["probabilities"])[0]
    if output.ndim == 1:
        one = TokenPrediction(None, _best(trace, output, shares))
        return Prediction("What the model says", "How probable each label is.", (one,))
    tokens = trace.tokens[node.sequences["T"]]
    rows = zip(tokens, output, shares, strict=True)
    places = tuple(TokenPrediction(token, _best(trace, *numbers)) for token, *numbers in rows)
    if any(name.startswith("decoder.") for name in trace.graph.nodes):
        title = f"What comes after “{tokens[-1]}”"
        return Prediction(title, "How probable each token is to come next.", places)
    title = f"What may stand in the place of “{tokens[-1]}”"
    return Prediction(title, "How probable each token is there.", places)


def _best(trace: Trace, scores: Array, shares: Array) -> tuple[Candidate, ...]:
    order = np.argsort(-shares, kind="stable")[:BEST]
    return tuple(
        Candidate(trace.output_name(int(at)), float(shares[at]), float(scores[at])) for at in order
    )
