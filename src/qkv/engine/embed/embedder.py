"""A vector for each text.

They are encoded just as `qkv train embed` and `qkv evaluate` encode them, so vectors of different
runs can be compared.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from qkv.engine.answer import answers
from qkv.engine.embed.stream import portions
from qkv.engine.embed.vectors import with_vectors
from qkv.engine.embed.windows import Long, read
from qkv.errors import QkvError, UsageError
from qkv.model import Model
from qkv.text import Tokenizer

Vectors = NDArray[np.float32]
Progress = Callable[[int], None]  # told how many texts are done: once before, then now and again


@dataclass(frozen=True, eq=False)
class Embedded:
    """vectors (n, D); long: how many of the texts were longer than the model reads."""

    vectors: Vectors
    long: int


def embed(
    model: Model,
    tokenizer: Tokenizer,
    texts: Iterable[str],
    *,
    raw: bool = False,
    long: Long = "error",
    batch_tokens: int | None = None,
    progress: Progress | None = None,
) -> Embedded:
    """The vectors of all texts, in their order.

    Rows have length 1, or with `raw` the one they came out with. A text of no token at all, not
    even a mark, has no direction: its row is zeros. `long` says what to do with a text that is
    longer than the model reads: an error, its beginning (truncate), or the mean of windows
    (average); one that fits has the same vector either way.
    """
    embedder = Embedder(model, tokenizer, raw=raw, long=long, batch_tokens=batch_tokens)
    tell = progress or (lambda done: None)
    tell(0)
    found, done, count = [embedder(())], 0, 0
    for portion in portions(several(texts)):
        part = embedder(portion, done + 1)
        found.append(part)
        done, count = done + len(portion), count + part.long
        tell(done)
    return Embedded(np.concatenate([part.vectors for part in found]), count)


class Embedder:
    """Embeds one portion after another in the same manner."""

    def __init__(
        self,
        model: Model,
        tokenizer: Tokenizer,
        *,
        raw: bool = False,
        long: Long = "error",
        batch_tokens: int | None = None,
    ) -> None:
        self.model, self.tokenizer = with_vectors(model, raw), tokenizer
        self.raw, self.long = raw, long
        self.budget = expect_budget(batch_tokens)

    def __call__(self, texts: Sequence[str], first: int = 1) -> Embedded:
        """The vectors of these texts, of which the first has that number in the whole."""
        config = self.model.config
        seen = read(self.tokenizer, texts, config.reads, self.long, first)
        vectors = seen.ask(self._answer, config.encoder.width).float()
        if not self.raw:
            vectors = F.normalize(vectors, dim=-1)
        wrong = (~vectors.isfinite().all(dim=-1)).nonzero()
        if len(wrong):
            number = first + int(wrong[0])
            raise QkvError(f"the vector of text {number:,} is not finite; the weights are damaged")
        return Embedded(vectors.numpy(), seen.long)

    def _answer(self, ids: list[list[int]]) -> Tensor:
        return answers(self.model, ids, **self.budget)


def expect_budget(batch_tokens: int | None) -> dict[str, int]:
    """The argument that says how many tokens are computed at a time, if anything is said."""
    if batch_tokens is None:
        return {}
    if batch_tokens < 1:
        raise UsageError(f"batch tokens = {batch_tokens} must be 1 or more")
    return {"budget": batch_tokens}


def several(texts: Iterable[str]) -> Iterable[str]:
    """The same, unless it is a single text, whose letters would each be taken for one."""
    if isinstance(texts, str):
        raise UsageError("give a list of texts; a single one is a list of one, [text]")
    return texts
