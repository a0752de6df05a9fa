"""How well a trained model does on text it has not seen, in units that can be compared."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from qkv.bundle import Bundle
from qkv.errors import TrainingError
from qkv.model import Decoder
from qkv.task.language import Stream
from qkv.train.language import evaluate


@dataclass(frozen=True)
class LanguageScore:
    """The same surprise, shared out over tokens, characters and bytes.

    Only the last two can be compared between models with different tokenizers. The baseline is
    what the text's own character frequencies give.
    """

    loss_per_token: float
    perplexity: float  # e to the loss per token
    loss_per_character: float
    loss_per_byte: float
    baseline: float  # loss per character
    examples: int  # documents
    tokens: int


def evaluate_language(bundle: Bundle, documents: Sequence[str], batch: int = 16) -> LanguageScore:
    """Every token of the documents is predicted once, each from its own document only."""
    model, tokenizer = bundle.model, bundle.tokenizer
    if not isinstance(model, Decoder) or tokenizer is None:
        raise TrainingError("this bundle is not a language model with a tokenizer")
    encoded = tokenizer.encode_many(documents)
    stream = Stream.of(encoded, tokenizer.end)
    tokens = sum(map(len, encoded))
    # Each document's first token is given, its end is predicted: as many predictions as tokens.
    loss = evaluate(model, stream, model.config.length, batch)
    text = "".join(documents)
    total, size = loss * tokens, len(text.encode("utf-8", "surrogatepass"))
    return LanguageScore(
        loss_per_token=loss,
        perplexity=math.exp(min(loss, 700.0)),
        loss_per_character=total / max(1, len(text)),
        loss_per_byte=total / max(1, size),
        baseline=_frequencies(text),
        examples=len(documents),
        tokens=tokens,
    )


def _frequencies(text: str) -> float:
    """Nats a character for somebody who knows how often each one stands in the text."""
    counts = Counter(text).values()
    return -sum(n / len(text) * math.log(n / len(text)) for n in counts)
