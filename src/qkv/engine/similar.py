"""How alike two texts are, and which of their words make them so.

The cosine of two text vectors is a sum that can be taken apart exactly. Of vectors that are means
of n and m states it is Σᵢⱼ xᵢ·yⱼ / (n·m·|x̄|·|ȳ|): a part for each pair of tokens. Where each
feature is the largest of its states, it is credited to the two tokens it came from. Where the
first or the last state alone is the vector, that pair is all of it. A dense layer on top of a mean
or of largest values bends the sum, and then there are no parts to give. Parts say what was added
up, not what caused it: every state has seen its whole text.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from qkv.engine.batching import inference
from qkv.engine.cluster.clustering import tokens_of_words
from qkv.engine.embed.embedder import with_vectors
from qkv.errors import DataError
from qkv.model import Encoder, First, Last, Max, Model, TextVector
from qkv.text import Tokenizer

Numbers = NDArray[np.float64]

DENSE = "a dense layer bends the vectors, so their cosine is no sum over pairs of words"
SEEN_ALL = (
    "each state has seen its whole text, so what a pair adds may come from the words around the two"
)
ONE_STATE = "one state alone is the vector; which words went into it the parts cannot say"
LARGEST = "a feature is credited to the state where it is largest; others may be nearly as large"


@dataclass(frozen=True)
class Contribution:
    """What one pair of words, or marks, adds to the cosine.

    place: which of the words and marks of its text each of the two is, from 0.
    """

    a: str
    b: str
    contribution: float
    place: tuple[int, int]

    def json(self) -> dict[str, object]:
        return {"a": self.a, "b": self.b, "contribution": self.contribution}


@dataclass(frozen=True)
class Similarity:
    """The pairs add up to the cosine, the strongest first; without any, `remark` says why.

    unknown: what these parts cannot tell, in plain sentences.
    """

    cosine: float
    pairs: tuple[Contribution, ...]
    remark: str = ""
    unknown: tuple[str, ...] = ()


def similar(model: Model, tokenizer: Tokenizer, a: str, b: str) -> Similarity:
    """The cosine of the vectors of two texts, and the part that each pair of their words adds.

    A word that stands in a text twice is there twice. Marks around a text, such as [CLS], are
    read by the model and so have parts of their own. An encoder made for something else lends the
    vector that `embed` gives for it.
    """
    encoder = with_vectors(model, raw=False)
    output = encoder.config.output
    assert isinstance(output, TextVector)
    one, other = (_read(encoder, tokenizer, text, which) for text, which in ((a, "A"), (b, "B")))
    lengths = float(np.linalg.norm(one.vector) * np.linalg.norm(other.vector))
    cosine = float(one.vector @ other.vector) / lengths if lengths else 0.0
    parts = _parts(output, one, other, cosine)
    if parts is None:
        return Similarity(cosine, (), DENSE, (SEEN_ALL,))
    added = one.joined @ parts @ other.joined.T  # (words of a, words of b)
    order = np.argsort(-np.abs(added), axis=None, kind="stable")
    places = (divmod(int(at), added.shape[1]) for at in order)
    named = tuple(
        Contribution(one.words[i], other.words[j], float(added[i, j]), (i, j)) for i, j in places
    )
    if isinstance(output.pooling, First | Last):
        return Similarity(cosine, named[:1], unknown=(SEEN_ALL, ONE_STATE))
    unknown = (SEEN_ALL, LARGEST) if isinstance(output.pooling, Max) else (SEEN_ALL,)
    return Similarity(cosine, named, unknown=(*unknown, *_of_marks(tokenizer, added)))


def _of_marks(tokenizer: Tokenizer, added: Numbers) -> tuple[str, ...]:
    """What is to be said of parts (words of a, words of b) in which marks have a share."""
    if not tokenizer.adds_special_tokens:
        return ()
    before, after = len(tokenizer.prefix_ids), len(tokenizer.suffix_ids)
    rows, columns = (slice(before, size - after) for size in added.shape)
    part = float(added.sum() - added[rows, columns].sum())
    return (f"{part:+.4f} of the cosine is from pairs with marks, which stand for no word",)


@dataclass(frozen=True)
class _Read:
    """A text as the model sees it: states (T, D), vector (D,), and which token is in which word."""

    states: Numbers
    vector: Numbers
    words: list[str]
    joined: Numbers  # (words, T) of 0 and 1


def _parts(output: TextVector, one: _Read, other: _Read, cosine: float) -> Numbers | None:
    """What each pair of tokens adds, (T, S); None if there is no telling."""
    parts = np.zeros((len(one.states), len(other.states)))
    if isinstance(output.pooling, First | Last):
        at = 0 if isinstance(output.pooling, First) else -1
        parts[at, at] = cosine
        return parts
    if output.dense:
        return None
    if isinstance(output.pooling, Max):
        pooled = one.states.max(axis=0), other.states.max(axis=0)
        came_from = one.states.argmax(axis=0), other.states.argmax(axis=0)
        np.add.at(parts, came_from, pooled[0] * pooled[1])
    else:
        pooled = one.states.mean(axis=0), other.states.mean(axis=0)
        parts = one.states @ other.states.T / parts.size
    lengths = np.linalg.norm(pooled[0]) * np.linalg.norm(pooled[1])
    return np.asarray(parts / lengths if lengths else np.zeros_like(parts))


def _read(model: Encoder, tokenizer: Tokenizer, text: str, which: str) -> _Read:
    inside, most = tokenizer.encode(text), model.config.context_length
    ids = tokenizer.add_special_tokens(inside)
    if not ids:
        raise DataError(f"text {which} is empty: there is nothing to compare")
    if len(ids) > most:
        raise DataError(
            f"text {which} has {len(ids)} tokens but the model reads at most {most}; shorten it"
        )
    weight = model.embedding.weight
    with inference(model):
        states = model.encode(torch.tensor([ids], device=weight.device))
        length = torch.tensor([len(ids)], device=weight.device)
        vector = model.output(states, length, weight)[0]
    words, joined = _words(tokenizer, text, inside)
    return _Read(_numbers(states[0]), _numbers(vector), words, joined)


def _words(tokenizer: Tokenizer, text: str, inside: Sequence[int]) -> tuple[list[str], Numbers]:
    """The words and marks in order, and which tokens each is made of."""
    before = len(tokenizer.prefix_ids)
    names = [tokenizer.token(id) for id in tokenizer.prefix_ids]
    groups = [[at] for at in range(before)]
    for span, tokens in tokens_of_words(text, tokenizer.offsets(text)):
        shown = [tokenizer.token(inside[at]) for at in tokens]
        names.append(text[slice(*span)] if span else "".join(shown))
        groups.append([before + at for at in tokens])
    for at, id in enumerate(tokenizer.suffix_ids, start=before + len(inside)):
        names.append(tokenizer.token(id))
        groups.append([at])
    joined = np.zeros((len(groups), before + len(inside) + len(tokenizer.suffix_ids)))
    for row, tokens in zip(joined, groups, strict=True):
        row[tokens] = 1
    return names, joined


def _numbers(tensor: Tensor) -> Numbers:
    return np.asarray(tensor.double().cpu().numpy())
