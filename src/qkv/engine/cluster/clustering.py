"""What was found: the cluster of each text, how far it lies from the centre, and what each is."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from qkv.engine.cluster.centres import Labels

OUTLIERS = -1  # the id of the texts that belong nowhere


@dataclass(frozen=True)
class Cluster:
    """Texts that belong together; the largest has the id 0."""

    id: int
    size: int
    name: str  # its distinctive words
    medoid: str  # the text nearest its centre
    nearest: tuple[int, ...]  # the numbers of a few texts, the medoid's first

    def json(self) -> dict[str, object]:
        return {"id": self.id, "size": self.size, "name": self.name, "medoid": self.medoid}


@dataclass(frozen=True, eq=False)
class Clustering:
    """A cluster for each text, in the order the texts were given.

    The distance is 1 − cosine to the centre of the text's cluster: 0 is the centre itself. Of a
    text that belongs nowhere it is that to the nearest centre.
    """

    texts: Sequence[str]
    labels: Labels  # (n,), the id of each text's cluster
    distances: NDArray[np.float64]  # (n,)
    clusters: tuple[Cluster, ...]  # by id, the outliers last
    outliers: tuple[int, ...]  # the numbers of texts that lie far out, the farthest first
    method: str
    stability: Mapping[int, float] = field(default_factory=dict)  # of each k tried, if k was chosen
    remarks: tuple[str, ...] = ()

    @property
    def found(self) -> int:
        """How many clusters there are, the outliers not counted."""
        return sum(each.id != OUTLIERS for each in self.clusters)

    def name_of(self, label: int) -> str:
        """The name of the cluster with this id."""
        return self.clusters[label].name  # -1, the outliers, is the last

    def row(self, number: int) -> dict[str, object]:
        """One text with its cluster and distance."""
        label, distance = int(self.labels[number]), float(self.distances[number])
        return {"text": self.texts[number], "cluster": label, "distance": round(distance, 6)}
