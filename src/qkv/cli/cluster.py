"""`qkv cluster`: clusters of similar texts, named by their words."""

import sys
import time
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from qkv.cli.flags import flags_of, spell_flags
from qkv.cli.options import Compile, Int8, Json, Threads, load_engine, warn_long
from qkv.cli.progress import CLEAR_LINE, TextProgress, print_stderr
from qkv.cli.train_args import Text

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from qkv.engine.cluster import Candidate, Clustering
    from qkv.engine.embed import CachedVectors

MAX_CANDIDATE_ROWS = 14  # of the numbers of clusters compared; --json has all of them

BAR_WIDTH = 24  # characters of the longest bar next to them


class Method(StrEnum):
    """The clustering algorithm."""

    kmeans = "kmeans"
    hdbscan = "hdbscan"


def cluster(
    model: Annotated[
        Path,
        typer.Argument(
            help="A bundle or a public checkpoint; with --vectors, the file instead.",
            show_default=False,
        ),
    ],
    file: Annotated[
        Path | None,
        typer.Argument(
            help="One text per line, or a table such as a .csv or .xlsx.", show_default=False
        ),
    ] = None,
    k: Annotated[
        int | None,
        typer.Option("-k", min=1, help="Number of clusters; by default it is chosen."),
    ] = None,
    method: Annotated[
        Method, typer.Option(help="hdbscan finds clusters of any shape, and outliers.")
    ] = Method.kmeans,
    text: Text = None,
    vectors: Annotated[
        Path | None,
        typer.Option("--vectors", help="Cluster these (.npy, a row per text); no model is needed."),
    ] = None,
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

    Without -k, every number from 2 to a tenth of the texts (100 at most) is compared: how clearly
    its clusters are separated, next to vectors without clusters. Names are the words that
    distinguish a cluster; the medoid is the text nearest its centre; the distance of a text is
    1 − cosine to its centre. Vectors are cached: a second look at the same texts is fast.

    \b
    Examples:
      qkv cluster runs/vectors questions.txt
      qkv cluster models/all-MiniLM-L6-v2 tickets.csv --text subject -k 12 -o report.html
      qkv cluster runs/vectors questions.txt --method hdbscan -o clusters.csv --json
      qkv cluster questions.txt --vectors questions.npy
    """
    from qkv.engine.cluster import check_cluster_args, check_output_paths, write_clustering
    from qkv.engine.cluster import cluster as cluster_vectors

    check_output_paths(output or ())
    model_path, texts_file = _paths(model, file, vectors)
    texts, lines = _read_file(texts_file, text)
    check_cluster_args(texts, k, method.value)
    if model_path is None:
        assert vectors is not None
        rows = _read_vectors(vectors, len(texts), lines)
    else:
        rows = _embed(model_path, texts, int8, threads, compile_)
    start = time.perf_counter()
    clustering = cluster_vectors(
        texts, rows, k=k, method=method.value, seed=seed, on_candidate=_show_candidate
    )
    if clustering.stability is not None:
        _print_selection(clustering)
    print_stderr(
        f"clusters found: {clustering.num_clusters:,}, in {time.perf_counter() - start:.1f} s"
    )
    flags = flags_of(cluster)
    for warning in clustering.warnings:
        print_stderr(f"note: {spell_flags(warning, flags)}")
    for path in output or ():
        title = f"Clusters of {texts_file.name}"
        write_clustering(clustering, rows, [path], title=title, seed=seed)
        print_stderr(f"wrote {path}")
    if json:
        _print_json(clustering)
    else:
        _print_table(clustering)


def _paths(model: Path, file: Path | None, vectors: Path | None) -> tuple[Path | None, Path]:
    """The model, None where the vectors are given, and the file of the texts."""
    from qkv.errors import UsageError

    if vectors is None:
        if file is None:
            raise UsageError(
                "name a model and a file of texts, as in: qkv cluster runs/vectors questions.txt; "
                "or the file alone with --vectors questions.npy"
            )
        return model, file
    if file is not None:
        raise UsageError(
            f"with --vectors no model is needed; leave {model} out: "
            f"qkv cluster {file} --vectors {vectors}"
        )
    return None, model


def _read_file(file: Path, text: str | None) -> tuple[list[str], list[int]]:
    """The texts in order, and the row of each; blank lines are skipped, with a note."""
    from qkv.data import is_table, read_lines, text_lines
    from qkv.errors import DataError

    if is_table(file) or text is not None or not file.exists() or file.is_dir():
        texts = read_lines([file], text)
        return texts, list(range(len(texts)))
    all_lines = list(text_lines(file))
    rows = [i for i, line in enumerate(all_lines) if line.strip()]
    if not rows:
        raise DataError(f"{file} is empty; it holds no lines")
    blank = len(all_lines) - len(rows)
    if blank == 1:
        print_stderr("note: 1 blank line skipped")
    elif blank > 1:
        print_stderr(f"note: {blank:,} blank lines skipped")
    return [all_lines[i] for i in rows], rows


def _read_vectors(path: Path, texts: int, rows: list[int]) -> "NDArray[np.float32]":
    """The vectors in a .npy file, a row for each text; rows of blank lines are left out."""
    import numpy as np

    from qkv.errors import DataError
    from qkv.files import os_error_reason

    try:
        vectors = np.load(path, mmap_mode="r", allow_pickle=False)
    except OSError as error:
        raise DataError(f"cannot read {path}: {os_error_reason(error)}") from error
    except (ValueError, EOFError):
        raise DataError(
            f"{path} is not a .npy file of numbers; make one with qkv embed -o or numpy.save"
        ) from None
    is_matrix = isinstance(vectors, np.ndarray) and vectors.ndim == 2
    if not is_matrix or vectors.dtype.kind not in "fiu":
        raise DataError(f"{path} must hold a matrix of numbers, a row for each text")
    if len(vectors) > texts and len(vectors) > rows[-1]:
        vectors = vectors[rows]
    if len(vectors) != texts:
        raise DataError(
            f"{path} has {len(vectors):,} rows for {texts:,} texts; it needs a row for each text"
        )
    print_stderr(f"{texts:,} vectors read from {path}")
    return np.asarray(vectors, np.float32)


def _embed(
    model: Path, texts: list[str], int8: bool, threads: int | None, compile_: bool
) -> "NDArray[np.float32]":
    """The vectors of the texts, from the cache if they are there."""
    from qkv.bundle import fingerprint
    from qkv.engine.embed import cache_entry, read_cached, write_cached

    options = {"long": "average", "int8": int8, "compile": compile_}
    entry = cache_entry(fingerprint(model), options, texts)
    result = read_cached(entry)
    if result is not None and len(result.vectors) == len(texts):
        print_stderr(f"{len(texts):,} vectors read from the cache: {entry}")
    else:
        result = _compute(model, texts, int8, threads, compile_)
        try:
            write_cached(entry, result)
        except OSError as error:
            print_stderr(f"note: vectors are not cached: {error.strerror or error}")
    if result.note:
        print_stderr(f"note: {result.note}")
    warn_long(result.long_texts, len(texts), "average")
    return result.vectors


def _compute(
    model: Path, texts: list[str], int8: bool, threads: int | None, compile_: bool
) -> "CachedVectors":
    from qkv.engine.embed import CachedVectors, embed, pooling_note

    engine = load_engine(model, int8, threads, compile_)
    start = time.perf_counter()
    progress = TextProgress(len(texts))
    result = embed(engine.optimized, engine.tokenizer, texts, long="average", progress=progress)
    progress.end()
    print_stderr(f"{len(texts):,} texts embedded, in {time.perf_counter() - start:.1f} s")
    return CachedVectors(result.vectors, result.long_texts, pooling_note(engine.model) or "")


def _show_candidate(candidate: "Candidate") -> None:
    """Overwrite the line of a terminal; the next line that is printed replaces it."""
    if sys.stderr.isatty():
        sys.stderr.write(f"{CLEAR_LINE}comparing numbers of clusters: {candidate.k}")
        sys.stderr.flush()


def _print_selection(clustering: "Clustering") -> None:
    """The numbers of clusters compared, with a bar for how clearly each is separated."""
    candidates = clustering.candidates
    table_rows = _thin(candidates, clustering.num_clusters)
    largest = max(1e-9, *(candidate.difference for candidate in candidates))
    print_stderr("clusters  silhouette  expected  difference")
    for each in table_rows:
        bar = "█" * round(BAR_WIDTH * max(0.0, each.difference) / largest)
        mark = " <- chosen" if each.k == clustering.num_clusters else ""
        print_stderr(
            f"{each.k:>8}  {each.silhouette:>10.3f}  {each.reference:>8.3f}  "
            f"{each.difference:>10.3f}  {bar}{mark}"
        )
    others = len(candidates) - len(table_rows)
    if others:
        print_stderr(f"{others} more numbers are in --json and on the page")
    print_stderr(
        f"two samples agree on {clustering.num_clusters} clusters by {clustering.stability:.2f} "
        "(stability: 1 is fully, 0 as by chance)"
    )


def _thin(candidates: "Sequence[Candidate]", k: int) -> "list[Candidate]":
    """A few of the candidates, evenly spaced, always with the chosen one."""
    step = -(-len(candidates) // MAX_CANDIDATE_ROWS)
    return [each for i, each in enumerate(candidates) if i % step == 0 or each.k == k]


def _print_json(clustering: "Clustering") -> None:
    """One object per text, then one with all clusters."""
    from json import dumps

    for index in range(len(clustering.texts)):
        typer.echo(dumps(clustering.row(index), ensure_ascii=False))
    last = {
        "clusters": [each.json() for each in clustering.clusters],
        "selection": clustering.selection_json(),
    }
    typer.echo(dumps(last, ensure_ascii=False))


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
