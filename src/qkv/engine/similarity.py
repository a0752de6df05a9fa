"""The cosine similarity of two texts, and what each pair of words contributes to it.

The cosine of two text vectors can be taken apart exactly. For vectors that are means of n and m
states it is Σᵢⱼ xᵢ·yⱼ / (n·m·|x̄|·|ȳ|): a summand for each pair of tokens. With max pooling a
feature is credited to the two tokens it came from. Where the first or the last state alone is the
vector, that pair is all of it. A dense layer on top of mean or max pooling is not linear, and then
there are no contributions to give. Contributions say what was added up, not what caused it: every
state has attended to its whole text.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from qkv.engine.batching import inference
from qkv.engine.cluster.clustering import tokens_by_word
from qkv.engine.embed.embedder import embedding_model
from qkv.errors import DataError
from qkv.model import Encoder, First, Last, Max, Model, TextVector
from qkv.text import Tokenizer

Array = NDArray[np.float64]

DENSE = "a dense layer follows the pooling, so the cosine is no sum over pairs of words"
SEEN_ALL = (
    "each state has seen its whole text, so what a pair adds may come from the words around the two"
)
ONE_STATE = "the vector is one state alone; the contributions cannot say which words went into it"
LARGEST = "a feature is credited to the state where it is largest; others may be nearly as large"


@dataclass(frozen=True)
class Contribution:
    """What one pair of words, or special tokens, adds to the cosine.

    indices: of the two in their texts, special tokens counted, from 0.
    """

    a: str
    b: str
    contribution: float
    indices: tuple[int, int]

    def json(self) -> dict[str, object]:
        return {"a": self.a, "b": self.b, "contribution": self.contribution}


@dataclass(frozen=True)
class Similarity:
    """The pairs add up to the cosine, the largest first; without any, `remark` says why.

    unknown: what the contributions cannot tell, as sentences.
    """

    cosine: float
    pairs: tuple[Contribution, ...]
    remark: str = ""
    unknown: tuple[str, ...] = ()


def similar(model: Model, tokenizer: Tokenizer, a: str, b: str) -> Similarity:
    """The cosine similarity of two texts, and the contribution of each pair of their words.

    A word that occurs twice is there twice. Special tokens around a text, such as [CLS], are read
    by the model and so contribute too. An encoder with another output uses the vector that `embed`
    gives for it.
    """
    encoder = embedding_model(model, raw=False)
    output = encoder.config.output
    assert isinstance(output, TextVector)
    text_a = _encode(encoder, tokenizer, a, "A")
    text_b = _encode(encoder, tokenizer, b, "B")
    norms = float(np.linalg.norm(text_a.vector) * np.linalg.norm(text_b.vector))
    cosine = 0.0
    if norms:
        cosine = float(text_a.vector @ text_b.vector) / norms
    by_token = _token_contributions(output, text_a, text_b, cosine)
    if by_token is None:
        return Similarity(cosine, (), DENSE, (SEEN_ALL,))
    by_word = text_a.word_tokens @ by_token @ text_b.word_tokens.T  # (words of a, words of b)
    pairs = []
    for flat in np.argsort(-np.abs(by_word), axis=None, kind="stable"):
        i, j = divmod(int(flat), by_word.shape[1])
        pairs.append(Contribution(text_a.words[i], text_b.words[j], float(by_word[i, j]), (i, j)))
    if isinstance(output.pooling, First | Last):
        return Similarity(cosine, tuple(pairs[:1]), unknown=(SEEN_ALL, ONE_STATE))
    unknown = [SEEN_ALL]
    if isinstance(output.pooling, Max):
        unknown.append(LARGEST)
    if tokenizer.adds_special_tokens:
        unknown.append(_special_token_remark(tokenizer, by_word))
    return Similarity(cosine, tuple(pairs), unknown=tuple(unknown))


def _special_token_remark(tokenizer: Tokenizer, by_word: Array) -> str:
    """How much of the cosine is from pairs with a special token."""
    before = len(tokenizer.prefix_ids)
    after = len(tokenizer.suffix_ids)
    rows, columns = (slice(before, size - after) for size in by_word.shape)
    part = float(by_word.sum() - by_word[rows, columns].sum())
    return f"{part:+.4f} of the cosine is from pairs with special tokens, which stand for no word"


@dataclass(frozen=True)
class _EncodedText:
    """A text as the model encodes it: states (T, D) and vector (D,)."""

    states: Array
    vector: Array
    words: list[str]
    word_tokens: Array  # (words, T) of 0 and 1: which tokens each word consists of


def _token_contributions(
    output: TextVector, a: _EncodedText, b: _EncodedText, cosine: float
) -> Array | None:
    """What each pair of tokens adds, (T, S); None if the cosine is no sum over pairs."""
    contributions = np.zeros((len(a.states), len(b.states)))
    if isinstance(output.pooling, First | Last):
        index = 0 if isinstance(output.pooling, First) else -1
        contributions[index, index] = cosine
        return contributions
    if output.dense:
        return None
    if isinstance(output.pooling, Max):
        pooled_a = a.states.max(axis=0)
        pooled_b = b.states.max(axis=0)
        sources = (a.states.argmax(axis=0), b.states.argmax(axis=0))
        np.add.at(contributions, sources, pooled_a * pooled_b)
    else:
        pooled_a = a.states.mean(axis=0)
        pooled_b = b.states.mean(axis=0)
        contributions = a.states @ b.states.T / contributions.size
    norms = np.linalg.norm(pooled_a) * np.linalg.norm(pooled_b)
    if not norms:
        return np.zeros_like(contributions)
    return np.asarray(contributions / norms)


def _encode(model: Encoder, tokenizer: Tokenizer, text: str, name: str) -> _EncodedText:
    text_ids = tokenizer.encode(text)
    ids = tokenizer.add_special_tokens(text_ids)
    limit = model.config.context_length
    if not ids:
        raise DataError(f"text {name} is empty: there is nothing to compare")
    if len(ids) > limit:
        raise DataError(
            f"text {name} has {len(ids)} tokens but the model reads at most {limit}; shorten it"
        )
    weight = model.embedding.weight
    with inference(model):
        states = model.encode(torch.tensor([ids], device=weight.device))
        length = torch.tensor([len(ids)], device=weight.device)
        vector = model.output(states, length, weight)[0]
    words, word_tokens = _words(tokenizer, text, text_ids)
    return _EncodedText(_to_numpy(states[0]), _to_numpy(vector), words, word_tokens)


def _words(tokenizer: Tokenizer, text: str, ids: Sequence[int]) -> tuple[list[str], Array]:
    """The words and special tokens in order, and which tokens each consists of, (words, T)."""
    before = len(tokenizer.prefix_ids)
    words = [tokenizer.token(id) for id in tokenizer.prefix_ids]
    groups = [[i] for i in range(before)]
    for span, tokens in tokens_by_word(text, tokenizer.offsets(text)):
        if span:
            words.append(text[slice(*span)])
        else:
            words.append("".join(tokenizer.token(ids[i]) for i in tokens))
        groups.append([before + i for i in tokens])
    for i, id in enumerate(tokenizer.suffix_ids, start=before + len(ids)):
        words.append(tokenizer.token(id))
        groups.append([i])
    word_tokens = np.zeros((len(groups), before + len(ids) + len(tokenizer.suffix_ids)))
    for row, tokens in zip(word_tokens, groups, strict=True):
        row[tokens] = 1
    return words, word_tokens


def _to_numpy(tensor: Tensor) -> Array:
    return np.asarray(tensor.double().cpu().numpy())
