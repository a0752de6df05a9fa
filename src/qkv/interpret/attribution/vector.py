"""Which words make the vector of a text: how far it turns when a word is hidden."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from qkv.engine.embed.embedder import borrowed, with_vectors
from qkv.interpret.attribution.faithfulness import DRAWS, SEED, Faithfulness, Words, faithfulness
from qkv.interpret.attribution.occlusion import REMOVE, Asked, DeletionCache, Hiding
from qkv.interpret.attribution.words import Piece, read
from qkv.interpret.matrix import cosine
from qkv.model import Model
from qkv.text import Tokenizer

COSINE = "the cosine to the vector of the whole text"
WHICH_WAY = "it is said how far a word turns the vector, not in which direction"


@dataclass(frozen=True)
class VectorWord:
    """A word, and how far the vector turns without it: 1 − cosine."""

    word: Piece
    cosine_distance: float

    def json(self) -> dict[str, object]:
        return {**self.word.json(), "turned": self.cosine_distance}


@dataclass(frozen=True)
class VectorAttribution:
    """What each word has to do with the vector, the words in their order."""

    text: str
    words: tuple[VectorWord, ...]
    occlusion_method: str
    faithfulness: Faithfulness | None  # None for a text without words
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
    hiding: Hiding = REMOVE,
    draws: int = DRAWS,
    seed: int = SEED,
) -> VectorAttribution:
    """Which words make the vector of the text, of any encoder, as `embed` gives it."""
    encoder = with_vectors(model, raw=False)
    seen = read(
        tokenizer, text, encoder.config.context_length, tokenizer.prefix_ids, tokenizer.suffix_ids
    )
    deletions = DeletionCache(Asked(encoder, seen, hiding).without)

    def cosines(sets: Sequence[Words]) -> list[float]:
        whole = deletions.full()
        return [cosine(whole, vector) for vector in deletions(sets)]

    alone = [frozenset({word}) for word in range(len(seen.words))]
    turned = [1 - found for found in cosines(alone)]
    order = np.argsort([-angle for angle in turned], kind="stable").tolist()
    lent = borrowed(model)
    return VectorAttribution(
        text,
        tuple(VectorWord(*pair) for pair in zip(seen.words, turned, strict=True)),
        hiding.said,
        faithfulness(order, cosines, COSINE, draws, seed),
        (WHICH_WAY, *([lent] if lent else [])),
    )
