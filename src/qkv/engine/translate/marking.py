"""The marks of a translator: what stands around a source, and what a target begins and ends with.

A tokenizer of ours has no template: a source is closed by the end mark, unless its marks say that
it is read bare. One from elsewhere puts around a source what it always does, and may want a target
to begin with more than one mark.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from qkv.errors import DataError
from qkv.model import EncoderDecoder
from qkv.text import Tokenizer

UNWRITTEN = ("pad", "unknown", "start", "mask")  # marks that no target holds


@dataclass(frozen=True)
class Marking:
    """How texts are marked for one model."""

    before: tuple[int, ...]  # in front of a source
    after: tuple[int, ...]  # behind it
    start: tuple[int, ...]  # what a target begins with
    end: int
    never: tuple[int, ...]  # tokens that are not written
    room: int  # for the tokens of a source

    @classmethod
    def of(cls, tokenizer: Tokenizer, config: EncoderDecoder) -> "Marking":
        """The marks that `qkv train translate` puts around the texts of such a model."""
        t = tokenizer
        marked = t.marked or t.marks.bare
        before, after = (t.before, t.after) if marked else ((), (t.end,))
        start = (t.start,) if t.first is None else (t.start, t.first)
        named = (getattr(t.marks, role) for role in UNWRITTEN)
        marks = {t.id_of(token) for token in named if token is not None}
        spare = range(t.size, config.embedding.vocabulary)  # a table may have rows to spare
        never = (*sorted(marks - {t.end}), *spare)
        room = config.length - len(before) - len(after)
        if room < 1:
            around = len(before) + len(after)
            raise DataError(f"length={config.length} leaves no room beside {around} marks")
        return cls(tuple(before), tuple(after), start, t.end, never, room)

    def source(self, ids: Sequence[int]) -> list[int]:
        """A source as the encoder reads it."""
        return [*self.before, *ids, *self.after]
