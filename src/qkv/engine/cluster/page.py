"""The clusters as one HTML page: no network, no script, nothing beside it needed."""

import numpy as np
from numpy.typing import ArrayLike

from qkv.engine.cluster.centres import Labels, Vectors
from qkv.engine.cluster.clustering import OUTLIERS, Cluster, Clustering
from qkv.engine.cluster.picture import picture
from qkv.engine.cluster.places import places, sampled
from qkv.report.document import document
from qkv.report.markup import escaped, paragraph, section, table

FAR = 20  # texts that lie far out and are shown
LONGEST = 300  # characters of a text in a table
METHODS = {
    "kmeans": "spherical k-means: each text belongs to the centre it points along most",
    "hdbscan": "HDBSCAN: where texts lie densely is a cluster, what lies between is an outlier",
}


def page(clustering: Clustering, vectors: ArrayLike, title: str, seed: int) -> str:
    """The whole page: a map, the clusters, what lies far out, and how it was done."""
    shown = sampled(clustering, seed)
    at = places(np.asarray(vectors)[shown], seed)
    sections = (
        section("Map", _figure(clustering, shown, at)),
        section("Clusters", _clusters(clustering)),
        section("Far out", _far_out(clustering)),
        section("How it was done", *_how(clustering, seed)),
    )
    return document("cluster", title, _verdict(clustering), sections)


def _verdict(clustering: Clustering) -> str:
    count, found, far = len(clustering.texts), clustering.found, len(clustering.outliers)
    texts = "1 text" if count == 1 else f"{count:,} texts"
    clusters = "1 cluster" if found == 1 else f"{found:,} clusters"
    lie = "1 lies far out" if far == 1 else f"{far:,} lie far out"
    return f"{texts} in {clusters}; {lie}."


def _figure(clustering: Clustering, shown: Labels, at: Vectors) -> str:
    count = len(clustering.texts)
    part = f"{len(shown):,} of {count:,} texts" if len(shown) < count else f"All {count:,} texts"
    words = (
        f"{part}, alike ones near each other; the larger distances mean little. Numbers are those "
        "of the clusters below. Point at a sign to read its text."
    )
    caption = f'<figcaption id="map">{escaped(words)}</figcaption>'
    return f"<figure>\n{picture(clustering, shown, at)}\n{caption}\n</figure>"


def _clusters(clustering: Clustering) -> str:
    columns = ("cluster", "name", "most typical text", "others near the centre", "texts")
    rows = [_row(clustering, each) for each in clustering.clusters]
    return table("Largest first", columns, rows, texts=4)


def _row(clustering: Clustering, each: Cluster) -> tuple[str, ...]:
    others = dict.fromkeys(clustering.texts[i] for i in each.nearest)
    near = [_cut(text) for text in others if text != each.medoid]
    number = "–" if each.id == OUTLIERS else f"{each.id}"
    return number, each.name, _cut(each.medoid), "\n".join(near), f"{each.size:,}"


def _far_out(clustering: Clustering) -> str:
    far = clustering.outliers
    if not far:
        return ""
    rows = [
        (
            _cut(clustering.texts[i]),
            clustering.name_of(int(clustering.labels[i])),
            f"{clustering.distances[i]:.3f}",
        )
        for i in far[:FAR]
    ]
    all_of = f"All {len(far)}" if len(far) <= FAR else f"The {FAR} farthest of {len(far):,}"
    return table(f"{all_of} texts that fit least", ("text", "in", "distance"), rows, texts=2)


def _how(clustering: Clustering, seed: int) -> list[str]:
    """The method, the seed, the numbers that were tried, and what is worth knowing."""
    parts = [
        paragraph(f"By {METHODS[clustering.method]}. Seed {seed}."),
        paragraph("Distance is 1 − cosine to the centre of the cluster: 0 is the centre itself."),
        *map(paragraph, clustering.remarks),
    ]
    if clustering.stability:
        rows = [(f"{k}", f"{value:.3f}") for k, value in clustering.stability.items()]
        title = "How far two samples agree on so many clusters (1 is fully, 0 as by chance)"
        parts.append(table(title, ("clusters", "stability"), rows))
    return parts


def _cut(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= LONGEST else f"{line[:LONGEST]}…"
