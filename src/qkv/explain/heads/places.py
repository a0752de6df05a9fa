"""Which keys of which queries make a pattern: the grids that a head's weights are held against."""

from dataclasses import dataclass

import torch
from torch import Tensor

PREVIOUS, NEXT, ITSELF = "previous token", "next token", "itself"
FIRST, MARKS = "first token", "marks"
SAME, INDUCTION, POSITION = "same token", "induction", "position"
BROAD, MIXED = "broad", "mixed"

BESIDE = {PREVIOUS: -1, ITSELF: 0, NEXT: 1}  # from query to key; "position" is any other distance


@dataclass(frozen=True, eq=False)
class Sight:
    """What one attention reads: ids of queries (T,) and keys (S,), marks, and who sees whom."""

    queries: Tensor
    keys: Tensor
    marks: Tensor  # of the keys, (S,) bool
    seen: Tensor  # (T, S) bool
    cross: bool
    shared: bool = True  # whether the same id means the same token on both sides

    @property
    def chance(self) -> Tensor:
        """The weights of a head that looks everywhere alike, (T, S)."""
        return self.seen / self.seen.sum(dim=1, keepdim=True).clamp(min=1)

    @property
    def chosen(self) -> Tensor:
        """Queries that have a choice, (T,): where one key is seen, every head looks there."""
        return self.seen.sum(dim=1) > 1

    @property
    def distance(self) -> Tensor:
        """From query to key, (T, S): −1 for the token before."""
        T, S = self.seen.shape
        return torch.arange(S) - torch.arange(T)[:, None]


def in_texts(sight: Sight) -> dict[str, Tensor]:
    """Patterns that any text shows, each a grid (T, S) of the keys that belong to it."""
    T, S = sight.seen.shape
    first = (torch.arange(S) == 0).expand(T, S)
    found = {FIRST: first, MARKS: sight.marks.expand(T, S) & ~first}
    if sight.cross:
        return found
    beside = {name: sight.distance == step for name, step in BESIDE.items()}
    found = {name: grid & ~beside[ITSELF] for name, grid in found.items()}
    return beside | found


def in_repeats(sight: Sight) -> dict[str, Tensor]:
    """Patterns that need a token to come again.

    Induction is to look from a token at the one after an earlier occurrence of it, which foretells
    what comes next if the text repeats itself (Olsson et al. 2022, "In-context Learning and
    Induction Heads").
    """
    same = (sight.queries[:, None] == sight.keys) & ~sight.marks
    if sight.cross:
        return {SAME: same} if sight.shared else {}
    same &= sight.distance != 0
    earlier = same & (sight.distance < 0)
    after = torch.zeros_like(same)
    after[:, 1:] = earlier[:, :-1]
    return {SAME: same, INDUCTION: after & (sight.distance != 0)}
