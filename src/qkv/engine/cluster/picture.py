"""The map as a picture that stands inside a page: a sign for each text, its words when pointed at.

Colours that people with any kind of colour vision tell apart (Okabe and Ito 2008), of these only
the ones that show on light and on dark paper. Where there are more clusters than colours, shapes
go on; and the number of each cluster stands on it, so that nothing depends on colour alone.
"""

from collections.abc import Callable

import numpy as np

from qkv.engine.cluster.centres import Labels, Vectors
from qkv.engine.cluster.clustering import OUTLIERS, Clustering
from qkv.report.markup import escaped

COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00")
WIDTH, HEIGHT, EDGE, SIZE = 720, 540, 16, 4.0
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


def picture(clustering: Clustering, shown: Labels, at: Vectors) -> str:
    """The shown texts (n,) at their places (n, 2), as SVG."""
    x = EDGE + at[:, 0] * (WIDTH - 2 * EDGE)
    y = EDGE + at[:, 1] * (HEIGHT - 2 * EDGE)
    labels = clustering.labels[shown]
    signs, numbers = [], []
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
    return "var(--muted)" if label == OUTLIERS else COLOURS[label % len(COLOURS)]


def _title(clustering: Clustering, number: int) -> str:
    label, text = int(clustering.labels[number]), " ".join(clustering.texts[number].split())
    cut = text if len(text) <= TITLE else f"{text[:TITLE]}…"
    where = "outlier" if label == OUTLIERS else f"{label}: {clustering.name_of(label)}"
    return escaped(f"{cut} ({where})")
