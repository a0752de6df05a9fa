"""The directory of a run: what is in it, and what can be read or changed without its data.

    recipe.toml  tokenizer.json  metrics.jsonl
    checkpoints/step-00000400/   the state of the run, to resume it
    checkpoints/best/            a bundle of the best weights so far, which `qkv.load` opens

When the run is finished the directory itself is the bundle, with a report.
"""

import json
import math
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from qkv.bundle import BEST, CONFIG, MANIFEST, TOKENIZER, WEIGHTS, publish, verify
from qkv.errors import TrainingError
from qkv.files import read_json, write_error_message
from qkv.legacy import upgrade
from qkv.text import TOKENIZER_COMPANIONS
from qkv.training.recipe import Recipe

if TYPE_CHECKING:
    from qkv.training.run import Run

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

RECIPE = "recipe.toml"
METRICS = "metrics.jsonl"
CHECKPOINTS = "checkpoints"

RUN_FILES = (RECIPE, METRICS, TOKENIZER, *TOKENIZER_COMPANIONS)  # also before it is finished

LOCK = f"{CHECKPOINTS}/lock"  # held by the process that trains
OLD_MANIFEST = f"{CHECKPOINTS}/finished.json"  # of a bundle whose files are being deleted


def begin(run: "Run") -> None:
    """Makes the directory, with all that another process needs to resume the run."""
    path = run.directory
    try:
        path.mkdir(parents=True, exist_ok=True)
        run.tokenizer.save(path / TOKENIZER)
        (path / RECIPE).write_text(run.recipe.toml(), encoding="utf-8")  # last: all is there
    except OSError as error:
        raise TrainingError(write_error_message(path, error)) from error


@contextmanager
def lock(directory: Path) -> Iterator[None]:
    """Inside, no other process can train or finish the run in that directory.

    The system releases it when this process ends, however that happens.
    """
    if fcntl is None:
        yield
        return
    path = directory / LOCK
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = path.open("a", encoding="utf-8")
    except OSError as error:
        raise TrainingError(write_error_message(path, error)) from error
    with file:
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError):
            raise TrainingError(
                f"another process is training the run in {directory}; stop that one first, or use "
                "its best model so far"
            ) from None
        except OSError:  # a file system without locks
            pass
        yield


def write_recipe(directory: Path, recipe: Recipe) -> None:
    """Replaces the recipe of the run, atomically."""
    staging = directory / CHECKPOINTS / RECIPE
    try:
        staging.parent.mkdir(parents=True, exist_ok=True)
        staging.write_text(recipe.toml(), encoding="utf-8")
        staging.replace(directory / RECIPE)
    except OSError as error:
        raise TrainingError(write_error_message(directory / RECIPE, error)) from error


def unfinish(directory: Path) -> None:
    """Makes a finished run one that can be trained: its bundle becomes the best so far.

    At every moment `qkv.load` opens one of the two. The report is deleted.
    """
    files = verify(directory)["files"]
    names = {CONFIG, WEIGHTS, *RUN_FILES} - {METRICS}

    def copy(staging: Path) -> None:
        for name in names & files.keys():
            shutil.copyfile(directory / name, staging / name)

    publish(directory / BEST, copy)
    (directory / MANIFEST).rename(directory / OLD_MANIFEST)
    delete_leftovers(directory)


def delete_leftovers(directory: Path) -> None:
    """Deletes what only a finished run has; a process that did so may have been killed."""
    manifest = directory / OLD_MANIFEST
    if not manifest.exists():
        return
    for name in read_json(manifest)["files"]:
        if name not in RUN_FILES:
            (directory / name).unlink(missing_ok=True)
    manifest.unlink()


def read_summary(metrics: Path) -> dict[str, Any]:
    """The summary in the last line of a finished run's metrics.jsonl; empty if there is none."""
    if not metrics.is_file():
        return {}
    lines = metrics.read_text("utf-8").split("\n")
    last = lines[-2] if len(lines) > 1 else lines[0]
    try:
        summary = json.loads(last).get("summary", {})
    except (ValueError, AttributeError, RecursionError):
        raise TrainingError(f"{metrics} does not end with a line of JSON; it is damaged") from None
    if not isinstance(summary, dict):
        return {}
    return upgrade(METRICS, summary)


def count_evaluations(directory: Path) -> int:
    """How often the validation split was evaluated so far, before a resume too."""
    return sum("validation" in fields for fields in read_log(directory / METRICS))


def read_log(metrics: Path) -> list[dict[str, Any]]:
    """The lines of metrics.jsonl, without a summary and without a last line that was cut short."""
    if not metrics.exists():
        return []
    lines = []
    for line in metrics.read_text("utf-8").split("\n")[:-1]:
        fields = upgrade(METRICS, json.loads(line))
        if "summary" not in fields:
            lines.append(fields)
    return lines


def read_scores(metrics: Path, step: int | None) -> dict[str, float]:
    """The validation scores after that step; empty if it was not evaluated."""
    scores: dict[str, float] = {}
    for line in read_log(metrics):
        if line["step"] == step:
            scores = line.get("validation", scores)
    return scores


def append_metrics(directory: Path, line: dict[str, Any]) -> None:
    path = directory / METRICS
    try:
        with path.open("a", encoding="utf-8") as file:
            file.write(_json_line(line))
    except OSError as error:
        raise TrainingError(f"cannot write {path}: {error.strerror or error}") from error


def write_log(metrics: Path, lines: Iterable[dict[str, Any]]) -> None:
    metrics.write_text("".join(map(_json_line, lines)), encoding="utf-8")


def _json_line(line: dict[str, Any]) -> str:
    return json.dumps(_without_nan(line), allow_nan=False) + "\n"


def _without_nan(value: Any) -> Any:
    """JSON has no NaN and no infinity; they are written as strings, as in "nan"."""
    if isinstance(value, dict):
        return {name: _without_nan(inner) for name, inner in value.items()}
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value
