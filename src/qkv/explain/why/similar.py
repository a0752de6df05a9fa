"""Whether the words that the parts of a cosine name do make two texts alike: delete them."""

from collections.abc import Sequence
from dataclasses import dataclass, fields

from qkv.engine.embed.vectors import borrowed, with_vectors
from qkv.engine.similar import Similarity, similar
from qkv.explain.matrix import cosine
from qkv.explain.why.asking import Asked
from qkv.explain.why.deletions import Deletions
from qkv.explain.why.faithfulness import DRAWS, SEED, Faithfulness, Words, faithfulness
from qkv.explain.why.hiding import REMOVED, Hiding
from qkv.explain.why.words import read
from qkv.model import Model
from qkv.text import Tokenizer

COSINE = "the cosine"
UNNAMED = "the parts do not rank the words, so there is nothing to delete and no test of them"


@dataclass(frozen=True)
class SimilarReason(Similarity):
    """A similarity with its test; None where its parts do not rank the words of both texts."""

    hidden: str = ""
    faithfulness: Faithfulness | None = None

    @property
    def remarks(self) -> tuple[str, ...]:
        """Everything a person should know beside the numbers."""
        return tuple(filter(None, (self.remark, *self.unknown)))

    def json(self) -> dict[str, object]:
        return {
            "cosine": self.cosine,
            "pairs": [pair.json() for pair in self.pairs],
            "faithfulness": self.faithfulness and self.faithfulness.json(),
            "remarks": list(self.remarks),
        }


def why_similar(
    model: Model,
    tokenizer: Tokenizer,
    a: str,
    b: str,
    *,
    hiding: Hiding = REMOVED,
    draws: int = DRAWS,
    seed: int = SEED,
) -> SimilarReason:
    """The cosine of two texts taken apart, and its fall without the words whose pairs add most.

    Words of both texts are deleted.
    """
    found = similar(model, tokenizer, a, b)
    encoder = with_vectors(model, raw=False)
    around = encoder.config.reads, tokenizer.before, tokenizer.after
    texts = [read(tokenizer, text, *around) for text in (a, b)]
    one, other = (Deletions(Asked(encoder, text, hiding).without) for text in texts)
    split = len(texts[0].words)

    def cosines(sets: Sequence[Words]) -> list[float]:
        ours = one([frozenset(w for w in words if w < split) for words in sets])
        theirs = other([frozenset(w - split for w in words if w >= split) for words in sets])
        return [cosine(*pair) for pair in zip(ours, theirs, strict=True)]

    ranking = _ranking(found, len(tokenizer.before), split, len(texts[1].words))
    test = faithfulness(ranking, cosines, COSINE, draws, seed)
    known = {field.name: getattr(found, field.name) for field in fields(found)}
    lent, unnamed = borrowed(model), None if test else UNNAMED
    known["unknown"] = tuple(filter(None, (*found.unknown, lent, unnamed)))
    return SimilarReason(**known, hidden=hiding.said, faithfulness=test)


def _ranking(found: Similarity, before: int, ours: int, theirs: int) -> list[int]:
    """The words of a, then of b, by what all their pairs add; none if some are in no pair."""
    added: dict[int, float] = {}
    for pair in found.pairs:
        i, j = (place - before for place in pair.place)
        if 0 <= i < ours:
            added[i] = added.get(i, 0.0) + pair.contribution
        if 0 <= j < theirs:
            added[ours + j] = added.get(ours + j, 0.0) + pair.contribution
    every = len(added) == ours + theirs
    return sorted(sorted(added), key=lambda word: -added[word]) if every else []
