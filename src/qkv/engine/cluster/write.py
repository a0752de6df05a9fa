"""The files of a clustering: a page for people, a table for programs; each whole or not at all."""

import csv
import io
from collections.abc import Sequence
from pathlib import Path

from numpy.typing import ArrayLike

from qkv.data.endings import either
from qkv.engine.cluster.clustering import Clustering
from qkv.engine.cluster.page import page
from qkv.errors import UsageError
from qkv.files import replace_file, unwritten

ENDINGS = (".html", ".csv")
COLUMNS = ("text", "cluster", "distance", "name")


def check_places(paths: Sequence[Path]) -> None:
    """Refuse what cannot be written, before any work is done."""
    for path in paths:
        if path.suffix.lower() not in ENDINGS:
            raise UsageError(f"cannot write {path}; the name must end in {either(ENDINGS)}")
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
    check_places(paths)
    for path in paths:
        if path.suffix.lower() == ".csv":
            content = table(clustering)
        else:
            content = page(clustering, vectors, title, seed)
        # A lone surrogate, which has no UTF-8 form, is shown as its code.
        plain = content.encode("utf-8", "backslashreplace")
        try:
            replace_file(path, plain)
        except OSError as error:
            raise UsageError(unwritten(path, error)) from error


def table(clustering: Clustering) -> str:
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
