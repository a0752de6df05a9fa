"""One wish for an answer, in token ids: everything that decides it, as a value."""

import math
from dataclasses import dataclass

from qkv.engine.generate.reading import reach
from qkv.engine.generate.sampling import USUAL, Sampling
from qkv.engine.generate.stopping import check_stops
from qkv.errors import QkvError, UsageError
from qkv.model import Decoder


@dataclass(frozen=True)
class Request:
    """A prompt and how it is to be answered.

    seed and number: answers to one request that differ in number are drawn independently.
    ends: tokens that end the answer. stop: texts that end it, for whoever reads the text.
    """

    ids: tuple[int, ...]
    max_tokens: int
    sampling: Sampling = USUAL
    seed: int = 0
    number: int = 0
    ends: frozenset[int] = frozenset()
    stop: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.ids:
            raise UsageError("the prompt has no tokens; a model needs one to start from")
        if self.max_tokens < 1:
            raise UsageError(f"max_tokens={self.max_tokens} must be 1 or more")
        if not isinstance(self.sampling, Sampling):
            raise UsageError(
                f"sampling is a {type(self.sampling).__name__}; use Sampling.of(temperature=…)"
            )
        check_stops(self.stop)

    @property
    def room(self) -> int:
        """The positions it may come to need."""
        return len(self.ids) + self.max_tokens

    def check(self, model: Decoder) -> None:
        """Refuses what this model cannot read."""
        limit, vocabulary = reach(model), model.config.embedding.vocabulary
        if len(self.ids) >= limit:
            raise UsageError(too_long(len(self.ids), limit))
        if self.room > limit:
            raise UsageError(
                f"the prompt has {len(self.ids)} tokens and max_tokens={self.max_tokens}, but the "
                f"model reads at most {limit}; ask for at most {limit - len(self.ids)}"
            )
        wrong = next((id for id in self.ids if not 0 <= id < vocabulary), None)
        if wrong is not None:
            raise UsageError(f"token {wrong} does not exist; the model has 0 to {vocabulary - 1}")


def too_long(tokens: int, limit: int) -> str:
    """The sentence for a prompt that leaves no room for an answer."""
    if tokens == limit:
        return (
            f"the prompt has {tokens} tokens, all that the model reads, so none is left for an "
            f"answer; shorten it or pass --truncate left"
        )
    return (
        f"prompt has {tokens} tokens but the model reads at most {limit}; "
        f"shorten it or pass --truncate left"
    )


def expect_finite(total: float) -> None:
    """Refuses to choose from scores that are no numbers."""
    if not math.isfinite(total):
        raise QkvError(
            "the model's scores for the next token are not finite; its weights are damaged, or "
            "this prompt drives them out of range"
        )
