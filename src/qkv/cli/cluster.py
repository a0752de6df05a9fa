"""`qkv cluster`: clusters of similar texts, named by their words."""

import time
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from qkv.cli.flags import flags_of, spell_flags
from qkv.cli.options import Compile, Int8, Json, ModelPath, Threads, load_engine, warn_long
from qkv.cli.progress import TextProgress, print_stderr
from qkv.cli.train_args import Text

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from qkv.engine import Engine
    from qkv.engine.cluster import Clustering


class Method(StrEnum):
    """The clustering algorithm."""

    kmeans = "kmeans"
    hdbscan = "hdbscan"


def cluster(
    model: ModelPath,
    file: Annotated[
        Path,
        typer.Argument(
            help="One text per line, or a table such as a .csv or .xlsx.", show_default=False
        ),
    ],
    k: Annotated[
        int | None,
        typer.Option("-k", min=1, help="Number of clusters; by default a stable one is searched."),
    ] = None,
    method: Annotated[
        Method, typer.Option(help="hdbscan finds clusters of any shape, and outliers.")
    ] = Method.kmeans,
    text: Text = None,
    seed: Annotated[int, typer.Option(min=0, help="Same seed, same clusters.")] = 0,
    output: Annotated[
        list[Path] | None,
        typer.Option("--output", "-o", help="A page (.html) or a table (.csv); repeatable."),
    ] = None,
    json: Json = False,
    int8: Int8 = False,
    compile_: Compile = False,
    threads: Threads = None,
) -> None:
    """Cluster the texts of a file by meaning, and name each cluster.

    Without -k, the largest number of clusters is used on which two samples of the texts agree
    about as well as on any other. Names are the words that distinguish a cluster; the medoid is the
    text nearest its centre; the distance of a text is 1 − cosine to its centre.

    \b
    Examples:
      qkv cluster runs/vectors questions.txt
      qkv cluster models/all-MiniLM-L6-v2 tickets.csv --text subject -k 12 -o report.html
      qkv cluster runs/vectors questions.txt --method hdbscan -o clusters.csv --json
    """
    from qkv.engine.cluster import check_cluster_args, check_output_paths, write_clustering
    from qkv.engine.cluster import cluster as cluster_vectors

    check_output_paths(output or ())
    texts = _read_file(file, text)
    check_cluster_args(texts, k, method.value)
    vectors = _embed(load_engine(model, int8, threads, compile_), texts)
    start = time.perf_counter()
    clustering = cluster_vectors(
        texts, vectors, k=k, method=method.value, seed=seed, on_candidate=_print_stability
    )
    print_stderr(
        f"clusters found: {clustering.num_clusters:,}, in {time.perf_counter() - start:.1f} s"
    )
    flags = flags_of(cluster)
    for warning in clustering.warnings:
        print_stderr(f"note: {spell_flags(warning, flags)}")
    for path in output or ():
        write_clustering(clustering, vectors, [path], title=f"Clusters of {file.name}", seed=seed)
        print_stderr(f"wrote {path}")
    if json:
        _print_json(clustering)
    else:
        _print_table(clustering)


def _read_file(file: Path, text: str | None) -> list[str]:
    """The texts in order; blank lines are skipped, with a note."""
    from qkv.data import is_table, read_lines, text_lines
    from qkv.errors import DataError

    if is_table(file) or text is not None or not file.exists() or file.is_dir():
        return read_lines([file], text)
    all_lines = list(text_lines(file))
    texts = [line for line in all_lines if line.strip()]
    if not texts:
        raise DataError(f"{file} is empty; it holds no lines")
    blank = len(all_lines) - len(texts)
    if blank == 1:
        print_stderr("note: 1 blank line skipped")
    elif blank > 1:
        print_stderr(f"note: {blank:,} blank lines skipped")
    return texts


def _embed(engine: "Engine", texts: list[str]) -> "NDArray[np.float32]":
    from qkv.engine.embed import embed, pooling_note

    start = time.perf_counter()
    progress = TextProgress(len(texts))
    result = embed(engine.optimized, engine.tokenizer, texts, long="average", progress=progress)
    progress.end()
    note = pooling_note(engine.model)
    if note:
        print_stderr(f"note: {note}")
    print_stderr(f"{len(texts):,} texts embedded, in {time.perf_counter() - start:.1f} s")
    warn_long(result.long_texts, len(texts), "average")
    return result.vectors


def _print_stability(k: int, stability: float) -> None:
    print_stderr(f"{k:>4} clusters: stability {stability:.2f}")


def _print_json(clustering: "Clustering") -> None:
    """One object per text, then one with all clusters."""
    from json import dumps

    for index in range(len(clustering.texts)):
        typer.echo(dumps(clustering.row(index), ensure_ascii=False))
    clusters = [each.json() for each in clustering.clusters]
    typer.echo(dumps({"clusters": clusters}, ensure_ascii=False))


def _print_table(clustering: "Clustering") -> None:
    """One line per cluster, no longer than the terminal is wide."""
    import shutil

    from rich.cells import cell_len, set_cell_size

    from qkv.files import one_line

    rows = [("id", "size", "name", "medoid")]
    for each in clustering.clusters:
        rows.append((f"{each.id}", f"{each.size:,}", one_line(each.name), one_line(each.medoid)))
    id_width, size_width, name_width, _ = (
        max(map(cell_len, column)) for column in zip(*rows, strict=True)
    )
    # The name gets at most half of the terminal, the medoid what remains.
    terminal_width = shutil.get_terminal_size().columns
    name_width = min(name_width, max(12, terminal_width // 2))
    medoid_width = max(8, terminal_width - id_width - size_width - name_width - 6)
    for id, size, name, medoid in rows:
        padded_name = set_cell_size(name, name_width)
        if cell_len(medoid) > medoid_width:
            medoid = f"{set_cell_size(medoid, medoid_width - 1)}…"
        typer.echo(f"{id:>{id_width}}  {size:>{size_width}}  {padded_name}  {medoid}")
