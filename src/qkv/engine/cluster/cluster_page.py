"""Writes a clustering: one HTML page with a map for people, a CSV table for programs.

The page needs no network, no script and no other file. The map is t-SNE (van der Maaten and Hinton
2008) of the principal components, initialised with the first two: it keeps neighbours together,
while distances across the map mean little. Its running time grows fast with the number of points,
so of many texts a sample is drawn, every cluster's medoid included.

Colours are those of Okabe and Ito (2008), which people with any colour vision can tell apart, as
far as they show on light and on dark backgrounds. With more clusters than colours, shapes change
too; and each cluster has its number on the map, so that nothing depends on colour alone. The
legend next to the map has a line for each cluster; what a cluster holds opens on a click.
"""

import csv
import io
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray

from qkv.data import join_or
from qkv.engine.cluster.clustering import OUTLIERS, Cluster, Clustering
from qkv.engine.cluster.kmeans import Labels, Vectors, normalize, pca
from qkv.errors import UsageError
from qkv.files import atomic_write, write_error_message
from qkv.report import details, document, escape, paragraph, section, table

SUFFIXES = (".html", ".csv")

CSV_COLUMNS = ("text", "cluster", "distance", "name")

METHOD_DESCRIPTIONS = {
    "kmeans": "spherical k-means: each text belongs to the centroid it points along most",
    "hdbscan": "HDBSCAN: a dense region of texts is a cluster, a text between them an outlier",
}

MAX_OUTLIER_ROWS = 20

MAX_CELL_CHARACTERS = 300  # of a text in a table

MAX_SUMMARY_CHARACTERS = 70  # of the most typical text in a line

MAX_TITLE_CHARACTERS = 160  # of the text shown when the pointer is on its point

MAX_POINTS = 1_200

COMPONENTS = 50  # principal components that t-SNE starts from

MIN_TSNE_POINTS = 8  # with fewer points the first two components are the map

PERPLEXITY = 30

COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00")

# of the map, in SVG units
WIDTH = 720
HEIGHT = 540
MARGIN = 16
POINT_SIZE = 4.0

# of the curve over the numbers of clusters
CURVE_HEIGHT = 220
CURVE_MARGIN = 44

# The map and its legend, side by side where the page is wide enough.
LAYOUT = """<style>
main { max-width: 72rem; }
.with-legend { display: flex; flex-wrap: wrap; gap: 1rem; align-items: flex-start; }
.with-legend > svg { flex: 3 1 24rem; margin: 0; }
.legend { flex: 2 1 18rem; list-style: none; margin: 0; padding: 0; font-size: .9rem; }
.legend li {
  display: grid; grid-template-columns: 1rem 1.8rem 1fr auto; gap: .4rem; align-items: baseline;
  line-height: 1.35; padding: .1rem 0;
}
.legend svg { width: 1rem; height: 1rem; margin: 0; align-self: center; }
.legend b { text-align: right; }
.legend i { font-style: normal; color: var(--muted); font-variant-numeric: tabular-nums; }
details > summary { overflow-wrap: anywhere; padding: .12rem 0; }
</style>"""

Shape = Callable[[float, float], str]  # opening tag of a point at x, y


def check_output_paths(paths: Sequence[Path]) -> None:
    """Raise if one of these files cannot be written, before any work is done."""
    for path in paths:
        if path.suffix.lower() not in SUFFIXES:
            raise UsageError(f"cannot write {path}; the name must end in {join_or(SUFFIXES)}")
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
    """Write a page to each .html path and a table to each .csv path, atomically."""
    check_output_paths(paths)
    for path in paths:
        if path.suffix.lower() == ".csv":
            content = cluster_csv(clustering)
        else:
            content = cluster_page(clustering, vectors, title, seed)
        # A lone surrogate has no UTF-8 form and is written as its escape sequence.
        encoding = content.encode("utf-8", "backslashreplace")
        try:
            atomic_write(path, encoding)
        except OSError as error:
            raise UsageError(write_error_message(path, error)) from error


def cluster_csv(clustering: Clustering) -> str:
    """A row for each text, in order: text, cluster, distance, name of the cluster."""
    content = io.StringIO(newline="")
    # Quote every text: by default the csv module leaves a lone carriage return unquoted.
    writer = csv.writer(content, lineterminator="\n", quoting=csv.QUOTE_NONNUMERIC)
    writer.writerow(CSV_COLUMNS)
    for i in range(len(clustering.texts)):
        name = clustering.name_of(int(clustering.labels[i]))
        writer.writerow([*clustering.row(i).values(), name])
    return content.getvalue()


def cluster_page(clustering: Clustering, vectors: ArrayLike, title: str, seed: int) -> str:
    """The HTML page: a map, the clusters, the outliers, and the method."""
    indices = sample_indices(clustering, seed)
    positions = map_positions(np.asarray(vectors)[indices], seed)
    sections = (
        LAYOUT,
        section("Map", _map_figure(clustering, indices, positions)),
        section("Clusters", *_cluster_details(clustering)),
        section("Outliers", _outlier_table(clustering)),
        section("Number of clusters", *_selection(clustering)),
        section("How it was done", *_method_notes(clustering, seed)),
    )
    return document("cluster", title, _summary(clustering), sections)


def _summary(clustering: Clustering) -> str:
    texts = _plural(len(clustering.texts), "text")
    clusters = _plural(clustering.num_clusters, "cluster")
    outliers = _plural(len(clustering.outliers), "outlier")
    return f"{texts} in {clusters}; {outliers}."


def _plural(count: int, noun: str) -> str:
    if count == 1:
        return f"1 {noun}"
    return f"{count:,} {noun}s"


def _map_figure(clustering: Clustering, indices: Labels, positions: Vectors) -> str:
    count = len(clustering.texts)
    subset = f"All {count:,} texts"
    if len(indices) < count:
        subset = f"{len(indices):,} of {count:,} texts"
    words = (
        f"{subset}, similar ones near each other; larger distances mean little. Numbers are those "
        "of the clusters below. Hover over a symbol to read its text."
    )
    caption = f'<figcaption id="map">{escape(words)}</figcaption>'
    svg = scatter_svg(clustering, indices, positions)
    return (
        f'<figure>\n<div class="with-legend">\n{svg}\n{_legend(clustering)}\n</div>\n'
        f"{caption}\n</figure>"
    )


def _legend(clustering: Clustering) -> str:
    """A line for each cluster: its symbol and number, its name and the number of its texts."""
    lines = []
    for cluster in clustering.clusters:
        symbol = (
            '<svg viewBox="0 0 12 12" aria-hidden="true">'
            f'<g fill="{_colour(cluster.id)}">{_symbol(cluster.id, 6, 6)}</g></svg>'
        )
        number = _number(cluster)
        name = f'<span dir="auto">{escape(_shorten(cluster.name, MAX_SUMMARY_CHARACTERS))}</span>'
        lines.append(f"<li>{symbol}<b>{number}</b>{name}<i>{cluster.size:,}</i></li>")
    return '<ul class="legend">\n' + "\n".join(lines) + "\n</ul>"


def _cluster_details(clustering: Clustering) -> list[str]:
    """One line for each cluster, largest first, with its typical texts behind it."""
    return [_cluster_detail(clustering, cluster) for cluster in clustering.clusters]


def _cluster_detail(clustering: Clustering, cluster: Cluster) -> str:
    medoid = _shorten(cluster.medoid, MAX_SUMMARY_CHARACTERS)
    summary = f"{_number(cluster)} · {cluster.name} · {_plural(cluster.size, 'text')} · “{medoid}”"
    typical = dict.fromkeys(clustering.texts[i] for i in cluster.nearest)  # without duplicates
    rows = [(_shorten(text, MAX_CELL_CHARACTERS),) for text in typical]
    title = f"Texts nearest the centre of {_number(cluster)}, the most typical first"
    return details(summary, table(title, ("text",), rows))


def _number(cluster: Cluster) -> str:
    if cluster.id == OUTLIERS:
        return "–"
    return f"{cluster.id}"


def _outlier_table(clustering: Clustering) -> str:
    outliers = clustering.outliers
    if not outliers:
        return ""
    rows = []
    for i in outliers[:MAX_OUTLIER_ROWS]:
        text = _shorten(clustering.texts[i], MAX_CELL_CHARACTERS)
        name = clustering.name_of(int(clustering.labels[i]))
        rows.append((text, name, f"{clustering.distances[i]:.3f}"))
    subset = f"All {len(outliers)}"
    if len(outliers) > MAX_OUTLIER_ROWS:
        subset = f"The {MAX_OUTLIER_ROWS} farthest of {len(outliers):,}"
    return table(f"{subset} texts that fit least", ("text", "in", "distance"), rows, texts=2)


def _method_notes(clustering: Clustering, seed: int) -> list[str]:
    """The method, the seed, the warnings, and the stability of each number of clusters."""
    notes = [
        paragraph(f"By {METHOD_DESCRIPTIONS[clustering.method]}. Seed {seed}."),
        paragraph("Distance is 1 − cosine to the centre of the cluster: 0 is the centre itself."),
    ]
    notes += [paragraph(warning) for warning in clustering.warnings]
    return notes


def _selection(clustering: Clustering) -> list[str]:
    """Each number of clusters that was compared, as a curve and a table; nothing if k was set."""
    if clustering.stability is None:
        return []
    words = (
        "The silhouette tells how much nearer a text is to its own cluster than to the next one, "
        "from −1 to 1; expected is its value for vectors without clusters that have the same mean "
        "and covariance. The smallest number is taken whose difference is close to the largest. "
        f"Stability: two samples of the texts agree on {clustering.num_clusters} clusters by "
        f"{clustering.stability:.2f} (1 is fully, 0 as by chance)."
    )
    rows = []
    for candidate in clustering.candidates:
        values = (candidate.silhouette, candidate.reference, candidate.difference)
        rows.append((f"{candidate.k}", *(f"{value:.3f}" for value in values)))
    columns = ("clusters", "silhouette", "expected", "difference")
    numbers = table("Every number compared", columns, rows)
    caption = "Difference for each number of clusters; the line marks the number taken."
    figure = (
        f"<figure>\n{selection_svg(clustering)}\n"
        f'<figcaption id="selection">{escape(caption)}</figcaption>\n</figure>'
    )
    return [paragraph(words), figure, details(f"All {len(rows)} numbers", numbers)]


def selection_svg(clustering: Clustering) -> str:
    """The difference of each candidate over k, which has a logarithmic axis."""
    candidates = clustering.candidates
    logs = np.log([candidate.k for candidate in candidates])
    differences = np.array([candidate.difference for candidate in candidates])
    low = min(0.0, float(differences.min()))
    high = max(1e-9, float(differences.max()))
    span = max(1e-9, float(logs[-1] - logs[0]))
    x = CURVE_MARGIN + (logs - logs[0]) / span * (WIDTH - 2 * CURVE_MARGIN)
    y = (
        CURVE_HEIGHT
        - CURVE_MARGIN
        - (differences - low) / (high - low) * (CURVE_HEIGHT - 2 * CURVE_MARGIN)
    )
    points = " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(x, y, strict=True))
    chosen = min(range(len(x)), key=lambda i: abs(candidates[i].k - clustering.num_clusters))
    labels = []
    for i in sorted({0, chosen, len(x) - 1}):
        labels.append(f'<text x="{x[i]:.1f}" y="{CURVE_HEIGHT - 8}">{candidates[i].k}</text>')
    return (
        f'<svg viewBox="0 0 {WIDTH} {CURVE_HEIGHT}" role="img" aria-labelledby="selection">\n'
        f'<line x1="{x[chosen]:.1f}" x2="{x[chosen]:.1f}" y1="{CURVE_MARGIN - 12}" '
        f'y2="{CURVE_HEIGHT - CURVE_MARGIN}" stroke="var(--validation)" stroke-width="2"/>\n'
        f'<polyline points="{points}" fill="none" stroke="var(--training)" stroke-width="2.5"/>\n'
        f'<g fill="var(--ink)" font-size="16" text-anchor="middle">{"".join(labels)}</g>\n'
        '<g fill="var(--muted)" font-size="14">'
        f'<text x="4" y="{CURVE_MARGIN - 2}">{high:.2f}</text>'
        f'<text x="4" y="{CURVE_HEIGHT - CURVE_MARGIN}">{low:.2f}</text></g>\n</svg>'
    )


def _shorten(text: str, max_characters: int) -> str:
    line = " ".join(text.split())
    if len(line) <= max_characters:
        return line
    return f"{line[:max_characters]}…"


def sample_indices(clustering: Clustering, seed: int) -> NDArray[np.int64]:
    """The sorted indices of the texts on the map: a random sample and every medoid."""
    count = len(clustering.texts)
    sample = np.random.default_rng(seed).permutation(count)[:MAX_POINTS]
    return np.union1d(sample, [cluster.nearest[0] for cluster in clustering.clusters])


def map_positions(vectors: ArrayLike, seed: int) -> Vectors:
    """A position on the map for each vector (n, D): (n, 2), between 0 and 1."""
    reduced = pca(normalize(np.asarray(vectors, np.float32)), COMPONENTS)
    plane = np.zeros((len(reduced), 2), np.float32)
    plane[:, : reduced.shape[1]] = reduced[:, :2]
    deviation = float(plane[:, 0].std())
    if len(reduced) >= MIN_TSNE_POINTS and deviation >= 1e-6:
        # t-SNE wants an initialisation with a standard deviation of 1e-4.
        plane = _tsne(reduced, plane / deviation * 1e-4, seed)
    low = plane.min(axis=0)
    high = plane.max(axis=0)
    return np.asarray((plane - low) / np.maximum(high - low, 1e-9), np.float32)


def _tsne(vectors: Vectors, init: Vectors, seed: int) -> Vectors:
    from sklearn.manifold import TSNE  # type: ignore[import-untyped]
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    perplexity = min(PERPLEXITY, (len(vectors) - 1) / 3)
    method = TSNE(2, init=init, perplexity=perplexity, learning_rate="auto", random_state=seed)
    with threadpool_limits(1):  # so that sums are added in the same order each time
        return np.asarray(method.fit_transform(vectors), np.float32)


def scatter_svg(clustering: Clustering, indices: Labels, positions: Vectors) -> str:
    """The map as SVG: the texts with these indices (n,) at these positions (n, 2)."""
    x = MARGIN + positions[:, 0] * (WIDTH - 2 * MARGIN)
    y = MARGIN + positions[:, 1] * (HEIGHT - 2 * MARGIN)
    labels = clustering.labels[indices]
    groups = []
    numbers = []
    for cluster in clustering.clusters:
        members = np.flatnonzero(labels == cluster.id)
        points = []
        for i in members:
            title = _point_title(clustering, int(indices[i]))
            points.append(_point(cluster.id, float(x[i]), float(y[i]), title))
        groups.append(f'<g fill="{_colour(cluster.id)}">\n' + "\n".join(points) + "\n</g>")
        if cluster.id != OUTLIERS:
            center_x = float(np.median(x[members]))
            center_y = float(np.median(y[members]))
            numbers.append(f'<text x="{center_x:.1f}" y="{center_y:.1f}">{cluster.id}</text>')
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-labelledby="map">\n'
        f'<g stroke="var(--paper)" stroke-width=".6">\n{chr(10).join(groups)}\n</g>\n'
        '<g fill="var(--ink)" stroke="var(--paper)" stroke-width="4" paint-order="stroke" '
        'font-size="17" font-weight="700" text-anchor="middle" dominant-baseline="central" '
        f'pointer-events="none">\n{chr(10).join(numbers)}\n</g>\n</svg>'
    )


def _polygon(*corners: tuple[float, float]) -> Shape:
    def shape(x: float, y: float) -> str:
        points = "L".join(
            f"{x + POINT_SIZE * dx:.1f} {y + POINT_SIZE * dy:.1f}" for dx, dy in corners
        )
        return f'<path d="M{points}Z">'

    return shape


SHAPES: tuple[tuple[str, Shape], ...] = (
    ("circle", lambda x, y: f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{POINT_SIZE * 0.9:.1f}">'),
    ("square", _polygon((-0.8, -0.8), (0.8, -0.8), (0.8, 0.8), (-0.8, 0.8))),
    ("triangle", _polygon((0, -1.1), (1.1, 0.9), (-1.1, 0.9))),
    ("diamond", _polygon((0, -1.25), (1.25, 0), (0, 1.25), (-1.25, 0))),
)


def _point(label: int, x: float, y: float, title: str) -> str:
    return _symbol(label, x, y, f"<title>{title}</title>")


def _symbol(label: int, x: float, y: float, content: str = "") -> str:
    """The shape of a cluster at x, y."""
    name, shape = SHAPES[max(0, label) // len(COLOURS) % len(SHAPES)]
    element = "circle" if name == "circle" else "path"
    return f"{shape(x, y)}{content}</{element}>"


def _colour(label: int) -> str:
    if label == OUTLIERS:
        return "var(--muted)"
    return COLOURS[label % len(COLOURS)]


def _point_title(clustering: Clustering, index: int) -> str:
    label = int(clustering.labels[index])
    cluster = "outlier"
    if label != OUTLIERS:
        cluster = f"{label}: {clustering.name_of(label)}"
    return escape(f"{_shorten(clustering.texts[index], MAX_TITLE_CHARACTERS)} ({cluster})")
