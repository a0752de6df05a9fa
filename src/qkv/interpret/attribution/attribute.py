"""Why a model produced its output for a text, whatever kind of output that is.

A similarity is explained by the pairs of words that add up to the cosine; whether these words do
make two texts similar is tested by deleting them.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields

from qkv.bundle import AlignmentHeads
from qkv.engine import Similarity, purpose_of, similar
from qkv.engine.embed import embedding_model, pooling_note
from qkv.errors import UsageError
from qkv.interpret.attribution.display import Displayed
from qkv.interpret.attribution.faithfulness import (
    DEFAULT_DRAWS,
    DEFAULT_SEED,
    Faithfulness,
    WordSet,
    faithfulness,
)
from qkv.interpret.attribution.label import LabelAttribution, why_label
from qkv.interpret.attribution.occlusion import REMOVE, DeletionCache, EncoderProbe, Occlusion
from qkv.interpret.attribution.token import TokenAttribution, why_token
from qkv.interpret.attribution.translation import TranslationAttribution, why_translation
from qkv.interpret.attribution.vector import VectorAttribution, why_vector
from qkv.interpret.attribution.words import tokenize
from qkv.interpret.matrix import cosine
from qkv.model import Classify, Decoder, Model, Translator
from qkv.text import Tokenizer

COSINE_QUANTITY = "the cosine"
NO_RANKING_REMARK = (
    "the parts do not rank the words, so there is nothing to delete and no test of them"
)

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
    heads: AlignmentHeads | None = None,
    seed: int = DEFAULT_SEED,
) -> Attribution:
    """The attribution for this kind of model: of a label, next token, translation or embedding.

    label is for classifiers, token and against for decoders, target for translators; any other
    combination raises a UsageError. heads: the cross attention that aligns words, if measured.
    """
    arguments = {"label": label, "token": token, "against": against, "target": target}
    if isinstance(model, Translator):
        _expect_only(model, arguments, "target")
        return why_translation(model, tokenizer, text, target, heads=heads, seed=seed)
    if isinstance(model, Decoder):
        _expect_only(model, arguments, "token", "against")
        return why_token(model, tokenizer, text, token, against, seed=seed)
    if isinstance(model.config.output, Classify):
        _expect_only(model, arguments, "label")
        return why_label(model, tokenizer, text, label, seed=seed)
    _expect_only(model, arguments)
    return why_vector(model, tokenizer, text, seed=seed)


def _expect_only(model: Model, arguments: dict[str, str | int | None], *allowed: str) -> None:
    for name, value in arguments.items():
        if value is not None and name not in allowed:
            raise UsageError(
                f"{name}={value!r} does not suit this model: it is {purpose_of(model).description}"
            )


@dataclass(frozen=True, repr=False)
class SimilarityAttribution(Displayed, Similarity):
    """A similarity with its deletion test.

    faithfulness: None where the pairs do not rank the words of both texts.
    """

    occlusion_method: str = ""
    faithfulness: Faithfulness | None = None

    @property
    def remarks(self) -> tuple[str, ...]:
        """Everything a reader should know besides the numbers."""
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
    occlusion: Occlusion = REMOVE,
    draws: int = DEFAULT_DRAWS,
    seed: int = DEFAULT_SEED,
) -> SimilarityAttribution:
    """The cosine of two texts as a sum over word pairs, and its drop without the top words.

    Words of both texts are ranked and deleted together.
    """
    similarity = similar(model, tokenizer, a, b)
    encoder = embedding_model(model, raw=False)
    max_length = encoder.config.context_length
    text_a = tokenize(tokenizer, a, max_length, tokenizer.prefix_ids, tokenizer.suffix_ids)
    text_b = tokenize(tokenizer, b, max_length, tokenizer.prefix_ids, tokenizer.suffix_ids)
    vectors_a = DeletionCache(EncoderProbe(encoder, text_a, occlusion).outputs)
    vectors_b = DeletionCache(EncoderProbe(encoder, text_b, occlusion).outputs)
    split = len(text_a.words)  # words from here on are those of b

    # Each text is evaluated by itself, so a set of words is split into those of a and of b.
    def cosines(sets: Sequence[WordSet]) -> list[float]:
        without_a = vectors_a([frozenset(w for w in words if w < split) for words in sets])
        without_b = vectors_b([frozenset(w - split for w in words if w >= split) for words in sets])
        return [cosine(*pair) for pair in zip(without_a, without_b, strict=True)]

    ranking = _rank_words(similarity, len(tokenizer.prefix_ids), split, len(text_b.words))
    test = faithfulness(ranking, cosines, COSINE_QUANTITY, draws, seed)
    values = {field.name: getattr(similarity, field.name) for field in fields(similarity)}
    remarks = [*similarity.unknown, pooling_note(model)]
    if test is None:
        remarks.append(NO_RANKING_REMARK)
    values["unknown"] = tuple(filter(None, remarks))
    return SimilarityAttribution(
        **values, occlusion_method=occlusion.description, faithfulness=test
    )


def _rank_words(similarity: Similarity, before: int, words_a: int, words_b: int) -> list[int]:
    """The words of a, then b, by the sum of their pairs; empty if a word is in no pair.

    before: the number of special tokens in front of each text, which pairs count as words.
    """
    sums: dict[int, float] = {}
    for pair in similarity.pairs:
        i, j = (index - before for index in pair.indices)
        if 0 <= i < words_a:
            sums[i] = sums.get(i, 0.0) + pair.contribution
        if 0 <= j < words_b:
            sums[words_a + j] = sums.get(words_a + j, 0.0) + pair.contribution
    if len(sums) != words_a + words_b:
        return []
    return sorted(sorted(sums), key=lambda word: -sums[word])
