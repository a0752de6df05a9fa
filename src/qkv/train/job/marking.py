"""The marks of a translator: what stands around a source, and what a target begins and ends with.

A tokenizer of ours has no template: a source is closed by the end mark. One from elsewhere puts
around a source what it always does, and may want a target to begin with more than one mark.
"""

from collections.abc import Sequence

import numpy as np

from qkv.data.grouping import Ids
from qkv.errors import DataError
from qkv.model import EncoderDecoder
from qkv.text import Tokenizer
from qkv.train.job.sentences import tell_cut


class Marking:
    """How texts are marked for this model."""

    def __init__(self, tokenizer: Tokenizer, config: EncoderDecoder) -> None:
        t = tokenizer
        self.tokenizer, self.end = t, t.end
        self.before, self.after = (t.before, t.after) if t.marked else ((), (t.end,))
        self.start = (t.start,) if t.first is None else (t.start, t.first)
        roles = ("pad", "unknown", "start", "mask")
        marks = {t.id_of(token) for role in roles if (token := getattr(t.marks, role)) is not None}
        unwritten = range(t.size, config.embedding.vocabulary)  # a table may have rows to spare
        self.never = (*sorted(marks - {t.end}), *unwritten)
        around = len(self.before) + len(self.after)
        self.counts: Ids = np.array([around, len(self.start)])  # marks of a source and a target
        self.room = config.length - around  # for the tokens of a source
        if self.room < 1:
            raise DataError(f"length={config.length} leaves no room beside {around} marks")

    def source(self, ids: Sequence[int]) -> list[int]:
        """A source as the encoder reads it, cut if it is longer than the model's length."""
        return [*self.before, *ids[: self.room], *self.after]

    def remarks(self, texts: Sequence[str]) -> list[str]:
        """What a person should know of these sources, if anything: none is cut silently."""
        long = sum(len(ids) > self.room for ids in self.tokenizer.encode_many(texts))
        return tell_cut(long, len(texts), "source", self.room)
