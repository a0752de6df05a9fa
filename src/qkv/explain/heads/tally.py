"""What is counted of the heads of one attention, text after text, in memory that does not grow."""

from dataclasses import dataclass, field
from itertools import combinations

import torch
from torch import Tensor

from qkv.explain.heads.places import Sight


@dataclass
class Mass:
    """Weight that fell on the keys of a pattern, (H,), what chance gives, and of how many queries.

    Only queries count that see such a key.
    """

    mass: Tensor
    chance: float = 0.0
    queries: int = 0


@dataclass
class Tally:
    """Sums over all queries so far that had a choice."""

    heads: int
    patterns: dict[str, Mass] = field(default_factory=dict)
    distances: dict[int, Mass] = field(default_factory=dict)
    entropy: Tensor = field(init=False)  # bits, (H,)
    evenness: Tensor = field(init=False)  # entropy as a share of what is possible, (H,)
    apart: Tensor = field(init=False)  # Jensen–Shannon distance of each two heads, (H, H)
    added: Tensor = field(init=False)  # length of what a head adds, (H,)
    queries: int = 0
    compared: int = 0  # queries whose weights were held against those of other heads

    def __post_init__(self) -> None:
        self.entropy, self.evenness, self.added = (self._zeros() for _ in range(3))
        self.apart = torch.zeros(self.heads, self.heads, dtype=torch.float64)

    def count(self, weights: Tensor, sight: Sight, patterns: dict[str, Tensor]) -> None:
        """Weights (H, T, S) of one text on grids (T, S)."""
        for name, grid in patterns.items():
            grid = grid & sight.seen & sight.chosen[:, None]
            here = self.patterns.setdefault(name, Mass(self._zeros()))
            here.mass += weights[:, grid].double().sum(dim=1)
            here.chance += float(sight.chance[grid].double().sum())
            here.queries += int(grid.any(dim=1).sum())

    def count_distances(self, weights: Tensor, sight: Sight) -> None:
        """The same for every distance from query to key."""
        grid = sight.seen & sight.chosen[:, None]
        steps = sight.distance[grid]
        lowest, size = int(steps.min()), int(steps.max() - steps.min()) + 1
        mass = torch.zeros(size, self.heads, dtype=torch.float64)
        mass.index_add_(0, steps - lowest, weights[:, grid].double().T)
        chance = torch.zeros(size, dtype=torch.float64)
        chance.index_add_(0, steps - lowest, sight.chance[grid].double())
        queries = torch.bincount(steps - lowest, minlength=size)
        for at in range(size):
            here = self.distances.setdefault(at + lowest, Mass(self._zeros()))
            here.mass += mass[at]
            here.chance += float(chance[at])
            here.queries += int(queries[at])

    def count_spread(self, weights: Tensor, sight: Sight) -> None:
        """How evenly each head looks."""
        entropy = _entropies(weights[:, sight.chosen])
        possible = sight.seen[sight.chosen].sum(dim=1).log2()
        self.queries += entropy.shape[1]
        self.entropy += entropy.sum(dim=1)
        self.evenness += (entropy / possible).sum(dim=1)

    def count_apart(self, weights: Tensor, sight: Sight) -> None:
        """How differently each two heads look."""
        rows = weights[:, sight.chosen]  # (H, queries, S)
        entropy = _entropies(rows)
        self.compared += rows.shape[1]
        for one, other in combinations(range(self.heads), 2):
            middle = bits((rows[one].double() + rows[other].double()) / 2)
            divergence = middle - (entropy[one] + entropy[other]) / 2
            self.apart[one, other] += divergence.clamp(min=0.0).sqrt().sum()

    def _zeros(self) -> Tensor:
        return torch.zeros(self.heads, dtype=torch.float64)


def bits(weights: Tensor) -> Tensor:
    """Entropy along the last axis: 0 for one key, log₂ n for n keys alike."""
    return -torch.xlogy(weights, weights).sum(dim=-1) / torch.log(torch.tensor(2.0)).double()


def _entropies(rows: Tensor) -> Tensor:
    """(H, queries, S) -> (H, queries), head by head: many digits for one head at a time."""
    return torch.stack([bits(row.double()) for row in rows])
