"""`qkv cluster`: groups of similar texts, named by their words."""

import time
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from qkv.cli.options import Compile, Int8, Json, ModelPath, Threads, load_engine
from qkv.cli.progress import TextProgress, print_stderr
from qkv.cli.train_args import Text

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from qkv.engine.cluster import Clustering
    from qkv.engine.engine import Engine


class Method(StrEnum):
    kmeans = "kmeans"
    hdbscan = "hdbscan"


def cluster(
    model: ModelPath,
    file: Annotated[
        Path,
        typer.Argument(
            help="One text a line, or a .csv, .tsv, .jsonl or .parquet.", show_default=False
        ),
    ],
    k: Annotated[
        int | None,
        typer.Option("-k", min=1, help="How many clusters; else a stable number is looked for."),
    ] = None,
    method: Annotated[
        Method, typer.Option(help="hdbscan finds clusters of any shape, and outliers.")
    ] = Method.kmeans,
    text: Text = None,
    seed: Annotated[int, typer.Option(min=0, help="The same one gives the same clusters.")] = 0,
    output: Annotated[
        list[Path] | None,
        typer.Option(
            "--output", "-o", help="A page (.html) or a table (.csv); may be given again."
        ),
    ] = None,
    json: Json = False,
    int8: Int8 = False,
    compile_: Compile = False,
    threads: Threads = None,
) -> None:
    """Group the texts of a file by what they mean, and name each group.

    \b
    Without -k, the largest number of clusters is taken on which two samples of the texts agree
    about as well as on any. Names are the words that set a cluster apart; the medoid is the text
    nearest its centre; the distance of a text is 1 − cosine to its centre.

    \b
    Examples:
      qkv cluster runs/vectors questions.txt
      qkv cluster models/all-MiniLM-L6-v2 tickets.csv --text subject -k 12 -o report.html
      qkv cluster runs/vectors questions.txt --method hdbscan -o clusters.csv --json
    """
    from qkv.engine.cluster import check_places, expect_possible, write_clustering
    from qkv.engine.cluster import cluster as find

    check_places(output or ())
    texts = _read(file, text)
    expect_possible(texts, k, method.value)
    vectors = _embedded(load_engine(model, int8, threads, compile_), texts)
    start = time.perf_counter()
    found = find(texts, vectors, k=k, method=method.value, seed=seed, tried=_told)
    print_stderr(f"clusters found: {found.found:,}, in {time.perf_counter() - start:.1f} s")
    for remark in found.remarks:
        print_stderr(f"note: {remark}")
    for path in output or ():
        write_clustering(found, vectors, [path], title=f"Clusters of {file.name}", seed=seed)
        print_stderr(f"wrote {path}")
    if json:
        _print_json(found)
    else:
        _show(found)


def _read(file: Path, text: str | None) -> list[str]:
    """The texts in order; lines without any are left out, and that is told."""
    from qkv.data.files import is_table, lines
    from qkv.data.read import read_lines
    from qkv.errors import DataError

    if is_table(file) or text is not None or not file.exists() or file.is_dir():
        return read_lines([file], text)
    found = list(lines(file))
    texts = [line for line in found if line.strip()]
    if not texts:
        raise DataError(f"{file} is empty; it holds no lines")
    if len(texts) < len(found):
        blank = len(found) - len(texts)
        print_stderr(f"note: {blank:,} blank line{'s' * (blank > 1)} left out")
    return texts


def _embedded(engine: "Engine", texts: list[str]) -> "NDArray[np.float32]":
    from qkv.cli.options import warn_long
    from qkv.engine.embed import embed
    from qkv.engine.embed.embedder import borrowed

    start = time.perf_counter()
    pace = TextProgress(len(texts))
    found = embed(engine.optimized, engine.tokenizer, texts, long="average", progress=pace)
    pace.end()
    if remark := borrowed(engine.model):
        print_stderr(f"note: {remark}")
    print_stderr(f"{len(texts):,} texts have a vector, in {time.perf_counter() - start:.1f} s")
    warn_long(found.long, len(texts), "average")
    return found.vectors


def _told(k: int, stability: float) -> None:
    print_stderr(f"{k:>4} clusters: stability {stability:.2f}")


def _print_json(found: "Clustering") -> None:
    from json import dumps

    for number in range(len(found.texts)):
        typer.echo(dumps(found.row(number), ensure_ascii=False))
    clusters = [each.json() for each in found.clusters]
    typer.echo(dumps({"clusters": clusters}, ensure_ascii=False))


def _show(found: "Clustering") -> None:
    """A line for each cluster, no longer than the terminal is wide."""
    import shutil

    from rich.cells import cell_len, set_cell_size

    from qkv.files import one_line

    rows = [
        (f"{c.id}", f"{c.size:,}", one_line(c.name), one_line(c.medoid)) for c in found.clusters
    ]
    rows.insert(0, ("id", "size", "name", "medoid"))
    ids, sizes, names, _ = (max(map(cell_len, column)) for column in zip(*rows, strict=True))
    room = shutil.get_terminal_size().columns
    names = min(names, max(12, room // 2))
    left = max(8, room - ids - sizes - names - 6)
    for id, size, name, medoid in rows:
        called = set_cell_size(name, names)
        if cell_len(medoid) <= left:
            shown = medoid
        else:
            shown = f"{set_cell_size(medoid, left - 1)}…"
        typer.echo(f"{id:>{ids}}  {size:>{sizes}}  {called}  {shown}")
