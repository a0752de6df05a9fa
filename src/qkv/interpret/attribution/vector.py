"""Which words determine the embedding of a text: how far it rotates when a word is occluded."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from qkv.engine.embed import embedding_model, pooling_note
from qkv.interpret.attribution.display import Displayed
from qkv.interpret.attribution.faithfulness import (
    DEFAULT_DRAWS,
    DEFAULT_SEED,
    Faithfulness,
    WordSet,
    faithfulness,
)
from qkv.interpret.attribution.occlusion import REMOVE, DeletionCache, EncoderProbe, Occlusion
from qkv.interpret.attribution.words import WordSpan, tokenize
from qkv.interpret.matrix import cosine
from qkv.model import Model
from qkv.text import Tokenizer

VECTOR_QUANTITY = "the cosine to the vector of the full text"
DIRECTION_CAVEAT = "the distance says how far a word moves the vector, not in which direction"


@dataclass(frozen=True)
class VectorWord:
    """A word and the cosine distance, 1 − cosine, between the embeddings with and without it."""

    word: WordSpan
    cosine_distance: float

    def json(self) -> dict[str, object]:
        return {**self.word.json(), "turned": self.cosine_distance}


@dataclass(frozen=True, repr=False)
class VectorAttribution(Displayed):
    """The effect of each word on the embedding, in text order.

    faithfulness: None for a text without words.
    """

    text: str
    words: tuple[VectorWord, ...]
    occlusion_method: str
    faithfulness: Faithfulness | None
    remarks: tuple[str, ...]

    def json(self) -> dict[str, object]:
        return {
            "text": self.text,
            "words": [word.json() for word in self.words],
            "hidden": self.occlusion_method,
            "faithfulness": self.faithfulness and self.faithfulness.json(),
            "remarks": list(self.remarks),
        }


def why_vector(
    model: Model,
    tokenizer: Tokenizer,
    text: str,
    *,
    occlusion: Occlusion = REMOVE,
    draws: int = DEFAULT_DRAWS,
    seed: int = DEFAULT_SEED,
) -> VectorAttribution:
    """The effect of each word on the embedding of the text, as `embed` returns it."""
    encoder = embedding_model(model, raw=False)
    tokenized = tokenize(
        tokenizer, text, encoder.config.context_length, tokenizer.prefix_ids, tokenizer.suffix_ids
    )
    deletions = DeletionCache(EncoderProbe(encoder, tokenized, occlusion).outputs)

    def cosines(sets: Sequence[WordSet]) -> list[float]:
        full = deletions.full()
        return [cosine(full, vector) for vector in deletions(sets)]

    single_words = [frozenset({word}) for word in range(len(tokenized.words))]
    distances = [1 - similarity for similarity in cosines(single_words)]
    ranking = np.argsort([-distance for distance in distances], kind="stable").tolist()
    pairs = zip(tokenized.words, distances, strict=True)
    remarks = [DIRECTION_CAVEAT]
    pooling_remark = pooling_note(model)
    if pooling_remark:
        remarks.append(pooling_remark)
    return VectorAttribution(
        text=text,
        words=tuple(VectorWord(word, distance) for word, distance in pairs),
        occlusion_method=occlusion.description,
        faithfulness=faithfulness(ranking, cosines, VECTOR_QUANTITY, draws, seed),
        remarks=tuple(remarks),
    )
