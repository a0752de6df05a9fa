"""What is checked: a model, the twin that answers for it, its tokenizer, and texts to try."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from qkv.bundle import Bundle
from qkv.check.samples import MOST, TEXTS, Reading, readings
from qkv.engine.engine import Engine
from qkv.errors import UsageError
from qkv.model import Classify, Model, Stack, TextVector
from qkv.model.embedding import Table

LARGE = 200_000_000  # parameters; of a larger model the quick form makes no copies
KEPT = 40_000_000  # numbers of one pass that are kept, to be compared with another
FEWEST = 18  # tokens of a text: more than a cache holds before single tokens take a shorter way
QUICK_TEXTS, QUICK_TOKENS, TOKENS = 3, 20, 40


@dataclass(frozen=True, eq=False)
class Subject:
    """A model and all that is needed to check it.

    texts: the user's own, else built-in ones. quick: fewer and shorter texts, and of a large
    model nothing that copies it.
    """

    engine: Engine
    texts: tuple[str, ...] = TEXTS
    quick: bool = False

    @classmethod
    def of(
        cls, given: Engine | Bundle | Model, texts: Sequence[str] = (), quick: bool = False
    ) -> Subject:
        """Of a loaded model, or of a bare one without a tokenizer."""
        if not isinstance(given, Engine):
            given = Engine(given if isinstance(given, Bundle) else Bundle(given))
        if not isinstance(given.model.embedding, Table):
            raise UsageError(
                f"{given.name} is in 8 bits; check it in float32, 8 bits are looked at"
            )
        if texts and given.bundle.tokenizer is None:
            raise UsageError(f"{given.name} has no tokenizer, so it cannot read texts")
        return cls(given, tuple(texts)[:MOST] or TEXTS, quick)

    @property
    def model(self) -> Model:
        return self.engine.model

    @property
    def parameters(self) -> int:
        return sum(parameter.numel() for parameter in self.model.parameters())

    @property
    def too_large(self) -> str:
        """Why the quick form leaves out what copies the model; nothing if it does not."""
        if not self.quick or self.parameters <= LARGE:
            return ""
        return f"left out by the quick form: the model has {self.parameters:,} parameters"

    @property
    def twin(self) -> Model | None:
        """The twin that answers, if there is one and it is looked at."""
        if self.too_large or self.engine.quick is self.model:
            return None
        return self.engine.quick

    def models(self) -> Iterator[tuple[str, Model]]:
        """The model and the twin that answers, each with what to call it where it matters."""
        yield "", self.model
        if self.twin is not None:
            yield "in the twin that answers", self.twin

    @cached_property
    def tokens(self) -> int:
        """The most tokens of a text that are read: fewer of a large model, to spare memory."""
        most = QUICK_TOKENS if self.quick else TOKENS
        return max(FEWEST, min(most, KEPT // (len(TEXTS) * _numbers_a_token(self.model))))

    @cached_property
    def readings(self) -> list[Reading]:
        """The texts as the model reads them; in the quick form a few."""
        found = readings(self.model, self.engine.bundle.tokenizer, self.texts, self.tokens)
        return found[:QUICK_TEXTS] if self.quick else found

    @cached_property
    def remarks(self) -> tuple[str, ...]:
        """How much was looked at, for a person to judge what the results are worth."""
        kind = "random texts" if self.engine.bundle.tokenizer is None else "texts"
        most = max(max(len(text.ids), len(text.source)) for text in self.readings)
        return (f"read {len(self.readings)} {kind}, the first {most} tokens at most of each",)


def _numbers_a_token(model: Model) -> int:
    """About how many numbers a pass computes for each token."""
    config, numbers = model.config, 0
    for name in ("encoder", "decoder"):
        stack = getattr(config, name, None)
        if isinstance(stack, Stack):
            numbers += stack.layers * (16 * stack.width + 4 * stack.feed_forward.width)
    pools = isinstance(config.output, TextVector | Classify)
    return numbers if pools else numbers + config.embedding.vocabulary
