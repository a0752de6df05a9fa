"""Why a model answered a text as it did, whatever kind of answer that is."""

from collections.abc import Sequence
from dataclasses import dataclass, fields

from qkv.engine.embed.embedder import borrowed, with_vectors
from qkv.engine.engine import purpose_of
from qkv.engine.similar import Similarity, similar
from qkv.errors import UsageError
from qkv.interpret.attribution.faithfulness import DRAWS, SEED, Faithfulness, Words, faithfulness
from qkv.interpret.attribution.label import LabelAttribution, why_label
from qkv.interpret.attribution.occlusion import REMOVE, Asked, DeletionCache, Hiding
from qkv.interpret.attribution.token import TokenAttribution, why_token
from qkv.interpret.attribution.translation import TranslationAttribution, why_translation
from qkv.interpret.attribution.vector import VectorAttribution, why_vector
from qkv.interpret.attribution.words import read
from qkv.interpret.matrix import cosine
from qkv.model import Classify, Decoder, Model, Translator
from qkv.text import Tokenizer

# FOLDED explain/why/similar: Whether the words that the parts of a cosine name do make two
#   texts alike: delete them.

Attribution = LabelAttribution | TokenAttribution | TranslationAttribution | VectorAttribution


def why(
    model: Model,
    tokenizer: Tokenizer,
    text: str,
    *,
    label: str | None = None,
    token: str | int | None = None,
    against: str | int | None = None,
    target: str | None = None,
    seed: int = SEED,
) -> Attribution:
    """The reason that suits the model: for a label, the next token, a translation or a vector.

    What is asked for beside the text must suit it too: a label of a classifier, a token (and the
    one against it) of a decoder, a target of a translator.
    """
    given = {"label": label, "token": token, "against": against, "target": target}
    if isinstance(model, Translator):
        _expect(model, given, "target")
        return why_translation(model, tokenizer, text, target, seed=seed)
    if isinstance(model, Decoder):
        _expect(model, given, "token", "against")
        return why_token(model, tokenizer, text, token, against, seed=seed)
    if isinstance(model.config.output, Classify):
        _expect(model, given, "label")
        return why_label(model, tokenizer, text, label, seed=seed)
    _expect(model, given)
    return why_vector(model, tokenizer, text, seed=seed)


def _expect(model: Model, given: dict[str, str | int | None], *known: str) -> None:
    for name, value in given.items():
        if value is not None and name not in known:
            raise UsageError(
                f"{name}={value!r} does not suit this model: it is {purpose_of(model).it_is}"
            )


COSINE = "the cosine"

UNNAMED = "the parts do not rank the words, so there is nothing to delete and no test of them"


@dataclass(frozen=True)
class SimilarityAttribution(Similarity):
    """A similarity with its test; None where its parts do not rank the words of both texts."""

    occlusion_method: str = ""
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
    hiding: Hiding = REMOVE,
    draws: int = DRAWS,
    seed: int = SEED,
) -> SimilarityAttribution:
    """The cosine of two texts taken apart, and its fall without the words whose pairs add most.

    Words of both texts are deleted.
    """
    found = similar(model, tokenizer, a, b)
    encoder = with_vectors(model, raw=False)
    around = encoder.config.context_length, tokenizer.prefix_ids, tokenizer.suffix_ids
    texts = [read(tokenizer, text, *around) for text in (a, b)]
    one, other = (DeletionCache(Asked(encoder, text, hiding).without) for text in texts)
    split = len(texts[0].words)

    def cosines(sets: Sequence[Words]) -> list[float]:
        ours = one([frozenset(w for w in words if w < split) for words in sets])
        theirs = other([frozenset(w - split for w in words if w >= split) for words in sets])
        return [cosine(*pair) for pair in zip(ours, theirs, strict=True)]

    ranking = _ranking(found, len(tokenizer.prefix_ids), split, len(texts[1].words))
    test = faithfulness(ranking, cosines, COSINE, draws, seed)
    known = {field.name: getattr(found, field.name) for field in fields(found)}
    lent, unnamed = borrowed(model), None if test else UNNAMED
    known["unknown"] = tuple(filter(None, (*found.unknown, lent, unnamed)))
    return SimilarityAttribution(**known, occlusion_method=hiding.said, faithfulness=test)


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
