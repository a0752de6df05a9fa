"""The marks of a translator while it is taught: as where it answers, but long sources are cut."""

from collections.abc import Sequence

import numpy as np

from qkv.data.grouping import Ids
from qkv.engine.translate import Marking as Marks
from qkv.model import EncoderDecoder
from qkv.text import Tokenizer
from qkv.train.job.sentences import tell_cut


class Marking:
    """How texts are marked for this model."""

    def __init__(self, tokenizer: Tokenizer, config: EncoderDecoder) -> None:
        self.tokenizer, self.marks = tokenizer, Marks.of(tokenizer, config)
        self.start, self.end, self.never = self.marks.start, self.marks.end, self.marks.never
        around = len(self.marks.source(()))
        self.counts: Ids = np.array([around, len(self.start)])  # marks of a source and a target

    def source(self, ids: Sequence[int]) -> list[int]:
        """A source as the encoder reads it, cut if it is longer than the model's length."""
        return self.marks.source(ids[: self.marks.room])

    def remarks(self, texts: Sequence[str]) -> list[str]:
        """What a person should know of these sources, if anything: none is cut silently."""
        room = self.marks.room
        long = sum(len(ids) > room for ids in self.tokenizer.encode_many(texts))
        return tell_cut(long, len(texts), "source", room)
