"""What a text looks like without some of its words: nothing in their place, or a mask.

They are taken out unless a mask is asked for. A mask is known to a model that fills it in, but to
one that was trained further it is a word like others: in a classifier on all-MiniLM-L6-v2, [MASK]
for a word of two reviews raised the log-odds of the label by 0.2 to 0.3 on average, whichever word
it was, and taking one out moved them by less than 0.1. Two texts with masks become alike by them.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from qkv.text import Tokenizer


@dataclass(frozen=True)
class Removed:
    """Hidden tokens are left out, and what follows moves up; `nothing` is read if all are."""

    nothing: tuple[int, ...] = ()

    def without(self, ids: Sequence[int], hidden: Collection[int]) -> list[int]:
        """The ids as the model reads them when the tokens at these positions are hidden."""
        left = [id for at, id in enumerate(ids) if at not in hidden]
        return left or list(self.nothing)

    @property
    def said(self) -> str:
        return "it is taken out of the text"


@dataclass(frozen=True)
class Masked:
    """A mask token stands in the place of each hidden token."""

    id: int
    name: str

    @classmethod
    def of(cls, tokenizer: Tokenizer) -> "Masked":
        """With the tokenizer's own mask; refused if it has none."""
        return cls(tokenizer.mask, tokenizer.token(tokenizer.mask))

    def without(self, ids: Sequence[int], hidden: Collection[int]) -> list[int]:
        return [self.id if at in hidden else id for at, id in enumerate(ids)]

    @property
    def said(self) -> str:
        return f"{self.name} stands in for each of its tokens"


Hiding = Removed | Masked
REMOVED = Removed()
