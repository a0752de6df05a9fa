"""Where the path of integrated gradients begins: a text whose every word is one empty token.

Not zeros: a norm that divides by the size of a vector jumps there, and no sum of slopes can follow.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from qkv.text import Tokenizer
from qkv.text.marks import OWN

ROLES = ("pad", "unknown", "mask", "end", "start")  # the first there is


@dataclass(frozen=True)
class Baseline:
    """This token in the place of every token of a word; marks stay."""

    id: int
    name: str

    def ids(self, ids: Sequence[int], marks: Collection[int]) -> list[int]:
        """The baseline of a text whose marks stand at these positions."""
        return [id if at in marks else self.id for at, id in enumerate(ids)]

    @property
    def said(self) -> str:
        return f"every token of the text is {self.name}"


def usual_baseline(tokenizer: Tokenizer) -> Baseline:
    """The mask of a published vocabulary, or padding, which no model learnt anything of.

    A vocabulary made here has a mask too, but few models met it.
    """
    roles = ROLES if tokenizer.marks == OWN else ("mask", *ROLES)
    for role in roles:
        name = getattr(tokenizer.marks, role)
        if name is not None:
            return Baseline(tokenizer.id_of(name), name)
    return Baseline(0, tokenizer.token(0))
