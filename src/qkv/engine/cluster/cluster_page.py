"""The clusters as one HTML page: no network, no script, nothing beside it needed."""

import csv
import io
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray

from qkv.data.files import join_or
from qkv.engine.cluster.clustering import OUTLIERS, Cluster, Clustering
from qkv.engine.cluster.kmeans import Labels, Vectors, normalize, principal
from qkv.errors import UsageError
from qkv.files import atomic_write, write_error_message
from qkv.report.html import document, escape, paragraph, section, table

# FOLDED engine/cluster/picture: The map as a picture that stands inside a page: a sign for each
#   text, its words when pointed at.
#
#   Colours that people with any kind of colour vision tell apart (Okabe and Ito 2008), of
#   these only
#   the ones that show on light and on dark paper. Where there are more clusters than colours,
#   shapes
#   go on; and the number of each cluster stands on it, so that nothing depends on colour
#   alone.
# FOLDED engine/cluster/places: Where each text stands on a map of two dimensions: alike is
#   near, as far as a plane allows.
#
#   t-SNE (van der Maaten and Hinton 2008) of the principal components, from their first two:
#   it keeps
#   neighbours together, while distances across the map mean little. Its time grows fast with
#   the
#   number of points, so of many texts a sample is shown, every cluster's medoid among them.
# FOLDED engine/cluster/write: The files of a clustering: a page for people, a table for
#   programs; each whole or not at all.

COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00")

WIDTH = 720
HEIGHT = 540
EDGE = 16
SIZE = 4.0

TITLE = 160  # characters of a text that are shown when it is pointed at

Shape = Callable[[float, float], str]


def _path(*corners: tuple[float, float]) -> Shape:
    def drawn(x: float, y: float) -> str:
        points = "L".join(f"{x + SIZE * i:.1f} {y + SIZE * j:.1f}" for i, j in corners)
        return f'<path d="M{points}Z">'

    return drawn


SHAPES: tuple[tuple[str, Shape], ...] = (
    ("circle", lambda x, y: f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{SIZE * 0.9:.1f}">'),
    ("square", _path((-0.8, -0.8), (0.8, -0.8), (0.8, 0.8), (-0.8, 0.8))),
    ("triangle", _path((0, -1.1), (1.1, 0.9), (-1.1, 0.9))),
    ("diamond", _path((0, -1.25), (1.25, 0), (0, 1.25), (-1.25, 0))),
)


def scatter_svg(clustering: Clustering, shown: Labels, at: Vectors) -> str:
    """The shown texts (n,) at their places (n, 2), as SVG."""
    x = EDGE + at[:, 0] * (WIDTH - 2 * EDGE)
    y = EDGE + at[:, 1] * (HEIGHT - 2 * EDGE)
    labels = clustering.labels[shown]
    signs = []
    numbers = []
    for each in clustering.clusters:
        inside = np.flatnonzero(labels == each.id)
        drawn = [
            _sign(each.id, float(x[i]), float(y[i]), _title(clustering, int(shown[i])))
            for i in inside
        ]
        signs.append(f'<g fill="{_colour(each.id)}">\n' + "\n".join(drawn) + "\n</g>")
        if each.id != OUTLIERS:
            middle = float(np.median(x[inside])), float(np.median(y[inside]))
            numbers.append(f'<text x="{middle[0]:.1f}" y="{middle[1]:.1f}">{each.id}</text>')
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-labelledby="map">\n'
        f'<g stroke="var(--paper)" stroke-width=".6">\n{chr(10).join(signs)}\n</g>\n'
        '<g fill="var(--ink)" stroke="var(--paper)" stroke-width="4" paint-order="stroke" '
        'font-size="17" font-weight="700" text-anchor="middle" dominant-baseline="central" '
        f'pointer-events="none">\n{chr(10).join(numbers)}\n</g>\n</svg>'
    )


def _sign(label: int, x: float, y: float, title: str) -> str:
    name, shape = SHAPES[max(0, label) // len(COLOURS) % len(SHAPES)]
    end = "circle" if name == "circle" else "path"
    return f"{shape(x, y)}<title>{title}</title></{end}>"


def _colour(label: int) -> str:
    if label == OUTLIERS:
        return "var(--muted)"
    return COLOURS[label % len(COLOURS)]


def _title(clustering: Clustering, number: int) -> str:
    label = int(clustering.labels[number])
    text = " ".join(clustering.texts[number].split())
    if len(text) <= TITLE:
        cut = text
    else:
        cut = f"{text[:TITLE]}…"
    if label == OUTLIERS:
        where = "outlier"
    else:
        where = f"{label}: {clustering.name_of(label)}"
    return escape(f"{cut} ({where})")


POINTS = 1_200

MAP_WIDTH = 50  # principal components

FEWEST = 8  # points below which the first two components are the map

NEIGHBOURS = 30  # t-SNE's perplexity


def sample_indices(clustering: Clustering, seed: int) -> NDArray[np.int64]:
    """The numbers of the texts that are shown, in order."""
    count = len(clustering.texts)
    drawn = np.random.default_rng(seed).permutation(count)[:POINTS]
    return np.union1d(drawn, [each.nearest[0] for each in clustering.clusters])


def map_positions(vectors: ArrayLike, seed: int) -> Vectors:
    """A place for each vector (n, D): (n, 2), each from 0 to 1."""
    few = principal(normalize(np.asarray(vectors, np.float32)), MAP_WIDTH)
    first = np.zeros((len(few), 2), np.float32)
    first[:, : few.shape[1]] = few[:, :2]
    spread = float(first[:, 0].std())
    flat = len(few) < FEWEST or spread < 1e-6
    return _framed(first if flat else _tsne(few, first / spread * 1e-4, seed))


def _tsne(vectors: Vectors, start: Vectors, seed: int) -> Vectors:
    from sklearn.manifold import TSNE  # type: ignore[import-untyped]
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    near = min(NEIGHBOURS, (len(vectors) - 1) / 3)
    method = TSNE(2, init=start, perplexity=near, learning_rate="auto", random_state=seed)
    with threadpool_limits(1):  # so that sums are in the same order each time
        return np.asarray(method.fit_transform(vectors), np.float32)


def _framed(points: Vectors) -> Vectors:
    low = points.min(axis=0)
    high = points.max(axis=0)
    return np.asarray((points - low) / np.maximum(high - low, 1e-9), np.float32)


FAR = 20  # texts that lie far out and are shown

LONGEST = 300  # characters of a text in a table

METHODS = {
    "kmeans": "spherical k-means: each text belongs to the centre it points along most",
    "hdbscan": "HDBSCAN: where texts lie densely is a cluster, what lies between is an outlier",
}


def page(clustering: Clustering, vectors: ArrayLike, title: str, seed: int) -> str:
    """The whole page: a map, the clusters, what lies far out, and how it was done."""
    shown = sample_indices(clustering, seed)
    at = map_positions(np.asarray(vectors)[shown], seed)
    sections = (
        section("Map", _figure(clustering, shown, at)),
        section("Clusters", _clusters(clustering)),
        section("Far out", _far_out(clustering)),
        section("How it was done", *_how(clustering, seed)),
    )
    return document("cluster", title, _verdict(clustering), sections)


def _verdict(clustering: Clustering) -> str:
    count = len(clustering.texts)
    found = clustering.num_clusters
    far = len(clustering.outliers)
    if count == 1:
        texts = "1 text"
    else:
        texts = f"{count:,} texts"
    if found == 1:
        clusters = "1 cluster"
    else:
        clusters = f"{found:,} clusters"
    if far == 1:
        lie = "1 lies far out"
    else:
        lie = f"{far:,} lie far out"
    return f"{texts} in {clusters}; {lie}."


def _figure(clustering: Clustering, shown: Labels, at: Vectors) -> str:
    count = len(clustering.texts)
    if len(shown) < count:
        part = f"{len(shown):,} of {count:,} texts"
    else:
        part = f"All {count:,} texts"
    words = (
        f"{part}, alike ones near each other; the larger distances mean little. Numbers are those "
        "of the clusters below. Point at a sign to read its text."
    )
    caption = f'<figcaption id="map">{escape(words)}</figcaption>'
    return f"<figure>\n{scatter_svg(clustering, shown, at)}\n{caption}\n</figure>"


def _clusters(clustering: Clustering) -> str:
    columns = ("cluster", "name", "most typical text", "others near the centre", "texts")
    rows = [_row(clustering, each) for each in clustering.clusters]
    return table("Largest first", columns, rows, texts=4)


def _row(clustering: Clustering, each: Cluster) -> tuple[str, ...]:
    others = dict.fromkeys(clustering.texts[i] for i in each.nearest)
    near = [_cut(text) for text in others if text != each.medoid]
    if each.id == OUTLIERS:
        number = "–"
    else:
        number = f"{each.id}"
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
    if len(far) <= FAR:
        all_of = f"All {len(far)}"
    else:
        all_of = f"The {FAR} farthest of {len(far):,}"
    return table(f"{all_of} texts that fit least", ("text", "in", "distance"), rows, texts=2)


def _how(clustering: Clustering, seed: int) -> list[str]:
    """The method, the seed, the numbers that were tried, and what is worth knowing."""
    parts = [
        paragraph(f"By {METHODS[clustering.method]}. Seed {seed}."),
        paragraph("Distance is 1 − cosine to the centre of the cluster: 0 is the centre itself."),
        *map(paragraph, clustering.warnings),
    ]
    if clustering.stability:
        rows = [(f"{k}", f"{value:.3f}") for k, value in clustering.stability.items()]
        title = "How far two samples agree on so many clusters (1 is fully, 0 as by chance)"
        parts.append(table(title, ("clusters", "stability"), rows))
    return parts


def _cut(text: str) -> str:
    line = " ".join(text.split())
    if len(line) <= LONGEST:
        return line
    return f"{line[:LONGEST]}…"


ENDINGS = (".html", ".csv")

COLUMNS = ("text", "cluster", "distance", "name")


def check_output_paths(paths: Sequence[Path]) -> None:
    """Refuse what cannot be written, before any work is done."""
    for path in paths:
        if path.suffix.lower() not in ENDINGS:
            raise UsageError(f"cannot write {path}; the name must end in {join_or(ENDINGS)}")
        if path.is_dir():
            raise UsageError(f"{path} is a folder; name a file in it")
        if not path.parent.is_dir():
            raise UsageError(f"there is no folder {path.parent}; make it first")


def write_clustering(
    clustering: Clustering,
    vectors: ArrayLike,
    paths: Sequence[Path],
    *,
    title: str = "Clusters",
    seed: int = 0,
) -> None:
    """One file at each place, as its ending says; an old one stays until the new one is whole."""
    check_output_paths(paths)
    for path in paths:
        if path.suffix.lower() == ".csv":
            content = cluster_table(clustering)
        else:
            content = page(clustering, vectors, title, seed)
        # A lone surrogate, which has no UTF-8 form, is shown as its code.
        plain = content.encode("utf-8", "backslashreplace")
        try:
            atomic_write(path, plain)
        except OSError as error:
            raise UsageError(write_error_message(path, error)) from error


def cluster_table(clustering: Clustering) -> str:
    """text, cluster, distance and name, a row for each text in the order they were given."""
    content = io.StringIO(newline="")
    # All texts in quotes: left to choose, the module forgets them around a carriage return.
    writer = csv.writer(content, lineterminator="\n", quoting=csv.QUOTE_NONNUMERIC)
    writer.writerow(COLUMNS)
    for number in range(len(clustering.texts)):
        row = clustering.row(number)
        name = clustering.name_of(int(clustering.labels[number]))
        writer.writerow([*row.values(), name])
    return content.getvalue()
