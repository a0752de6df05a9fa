"""The marks of a translator: what stands around a source, and what a target begins and ends with.

A tokenizer of ours has no template: a source is closed by the end mark. One from elsewhere puts
around a source what it always does, and may want a target to begin with more than one mark.
"""

from collections.abc import Sequence

import numpy as np

from qkv.data.grouping import Ids
from qkv.model import EncoderDecoder
from qkv.text import Tokenizer


class Marking:
    """How texts are marked for this model."""

    def __init__(self, tokenizer: Tokenizer, config: EncoderDecoder) -> None:
        t = tokenizer
        self.tokenizer, self.length, self.end = t, config.length, t.end
        self.before, self.after = (t.before, t.after) if t.marked else ((), (t.end,))
        self.start = (t.start,) if t.first is None else (t.start, t.first)
        roles = ("pad", "unknown", "start", "mask")
        marks = {t.id_of(token) for role in roles if (token := getattr(t.marks, role)) is not None}
        unwritten = range(t.size, config.embedding.vocabulary)  # a table may have rows to spare
        self.never = (*sorted({id for id in marks if id is not None} - {t.end}), *unwritten)

    @property
    def counts(self) -> Ids:
        """How many marks a source and a target have, as the model reads them."""
        return np.array([len(self.before) + len(self.after), len(self.start)])

    def source(self, ids: Sequence[int]) -> list[int]:
        """A source as the encoder reads it, cut if it is longer than the model's length."""
        room = self.length - int(self.counts[0])
        return [*self.before, *ids[:room], *self.after]

    def remarks(self, texts: Sequence[str]) -> list[str]:
        """What a person should know of these sources, if anything: none is cut silently."""
        room = self.length - int(self.counts[0])
        long = sum(len(ids) > room for ids in self.tokenizer.encode_many(texts))
        if not long:
            return []
        return [
            f"{long:,} of {len(texts):,} source texts have more than {room} tokens; only their "
            f"beginnings are read"
        ]
