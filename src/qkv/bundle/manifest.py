"""Directories written atomically: staged, hashed, flushed, then renamed.

    staging/  files … fsync each  →  MANIFEST.json  →  fsync staging  →  rename  →  fsync parent

The previous directory is moved aside first and deleted last, so that at every moment one complete
copy exists on disk; `recover` puts it back if the machine stopped in between.
"""

import hashlib
import json
import os
import re
import shutil
import tempfile
import time
import tomllib
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any, TypeVar

from safetensors import SafetensorError

from qkv.errors import BundleError, ConfigError
from qkv.files import (
    closest_path,
    lexists,
    read_json,
    read_text,
    short_repr,
    write_error_message,
)
from qkv.text import TOKENIZER_COMPANIONS

MANIFEST = "MANIFEST.json"
CONFIG = "config.json"
RECIPE = "recipe.toml"  # of a training run
BEST = "checkpoints/best"  # in a run that is not finished: the bundle of its best weights so far

FORMAT = 1  # of the directory; readers reject newer ones
MAX_ATTEMPTS = 8  # to read a directory that is replaced meanwhile

T = TypeVar("T")


def publish(
    target: Path,
    write: Callable[[Path], None],
    may_replace: Collection[str] = (),
    carry_over: Collection[str] = (),
    with_manifest: bool = True,
) -> None:
    """Let `write` fill a staging directory, then put that in place of `target`.

    `may_replace` names files that may be there besides a bundle's own; `carry_over` names those of
    them that are moved into the new directory. Without manifest the result is for other programs.
    """
    target = _normalize(target)
    staging: Path | None = None
    try:
        recover(target)
        _check_replaceable(target, {*may_replace, *carry_over})
        target.parent.mkdir(parents=True, exist_ok=True)
        prefix = f"{_staging_prefix(target)}{os.getpid()}-"
        staging = Path(tempfile.mkdtemp(prefix=prefix, dir=target.parent))
        staging.chmod(0o755)
        write(staging)
        _flush_all(staging)
        if with_manifest:
            _write_manifest(staging)
        _swap(staging, target, carry_over)
    except (OSError, SafetensorError) as error:
        raise BundleError(write_error_message(target, error)) from error
    finally:
        if staging is not None:
            shutil.rmtree(staging, ignore_errors=True)


def read_stable(directory: Path, read: Callable[[], T]) -> T:
    """The result of `read`; it is repeated if the directory was replaced meanwhile."""
    for _ in range(MAX_ATTEMPTS):
        version = _version(directory)
        try:
            return read()
        except (BundleError, ConfigError, OSError) as error:
            if _version(directory) == version and not _backup_path(directory).exists():
                if isinstance(error, OSError):
                    raise BundleError(f"cannot read {directory}: {error}") from error
                raise
            time.sleep(0.02)
    return read()


def bundle_directory(directory: Path) -> Path:
    """Where the bundle in that directory is: in a run that is not finished, its best so far."""
    if (directory / MANIFEST).exists() or not (directory / RECIPE).is_file():
        return directory
    best = directory / BEST
    for candidate in (best, _backup_path(best)):  # the backup: a save was interrupted
        if (candidate / MANIFEST).is_file():
            return candidate
    return directory


def verify(directory: Path) -> dict[str, Any]:
    """The manifest, after checking the size and hash of every file it lists.

    There may be other files, such as a README, but none that a reader would take for the bundle's.
    """
    if not directory.is_dir():
        raise BundleError(_missing_message(directory))
    manifest = _read_manifest(directory)
    for name in TOKENIZER_COMPANIONS:
        if name not in manifest["files"] and lexists(directory / name):
            raise BundleError(
                f"{directory / name} is not part of the bundle: its manifest does not list it; "
                "move it away"
            )
    for name, expected in manifest["files"].items():
        _verify_file(directory, name, expected)
    return manifest


def recover(target: Path) -> None:
    """Undo an interrupted save: put back the previous directory, delete staging directories."""
    target = _normalize(target)
    backup = _backup_path(target)
    if backup.is_dir():
        if (target / MANIFEST).is_file():
            shutil.rmtree(backup)
        else:
            if target.is_dir() and not any(target.iterdir()):
                target.rmdir()
            if not target.exists():
                backup.rename(target)
    prefix = _staging_prefix(target)
    for staging in target.parent.glob(f"{prefix}*"):
        process = staging.name.removeprefix(prefix).partition("-")[0]
        if not _is_running(process):  # another process may still be writing to its own
            shutil.rmtree(staging, ignore_errors=True)


def _read_manifest(directory: Path) -> dict[str, Any]:
    if not (directory / MANIFEST).exists():
        raise BundleError(not_a_model_message(directory))
    manifest = read_json(directory / MANIFEST)
    format = manifest.get("format", FORMAT)
    if not isinstance(format, int) or format > FORMAT:
        raise BundleError(
            f"{directory} has format {short_repr(format)}, this qkv reads up to {FORMAT}; update it"
        )
    if not isinstance(manifest.get("files"), dict):
        raise BundleError(f"{directory / MANIFEST} lists no files; the bundle is damaged")
    return manifest


def _check_replaceable(target: Path, own_names: set[str]) -> None:
    """Raises unless the target is empty, or a bundle without anybody else's files in it."""
    if target.is_symlink() or (target.exists() and not target.is_dir()):
        raise BundleError(f"{target} is not a directory; choose another path for the bundle")
    if not target.is_dir():
        return
    names = {path.name for path in target.iterdir()} - own_names
    if not names:
        return
    if MANIFEST not in names:
        raise BundleError(f"{target} holds other files; choose another path for the bundle")
    for name in sorted(names - {MANIFEST} - _read_manifest(target)["files"].keys()):
        if not name.startswith("."):
            raise BundleError(
                f"{target} holds {name}, which is not part of the bundle; move it away"
            )


def _flush_all(staging: Path) -> None:
    """Give every file the usual permissions, and wait until all are on the disk."""
    for path in staging.rglob("*"):
        mode = 0o644
        if path.is_dir():
            mode = 0o755
        path.chmod(mode)
        _flush(path)
    _flush(staging)


def _write_manifest(staging: Path) -> None:
    files = {
        path.name: {"bytes": path.stat().st_size, "sha256": sha256_of(path)}
        for path in sorted(staging.iterdir())
    }
    manifest = staging / MANIFEST
    manifest.write_text(
        json.dumps({"format": FORMAT, "files": files}, indent=2) + "\n", encoding="utf-8"
    )
    manifest.chmod(0o644)
    _flush(manifest)
    _flush(staging)


def _swap(staging: Path, target: Path, moves: Collection[str]) -> None:
    # Two renames, because no portable call exchanges directories. After a crash between them the
    # backup is complete, and `recover` puts it back.
    backup = _backup_path(target)
    if target.exists():
        target.rename(backup)
    try:
        staging.rename(target)
    except OSError:
        recover(target)
        raise
    _flush(target.parent)
    for name in moves:
        if (backup / name).exists():
            (backup / name).rename(target / name)
    shutil.rmtree(backup, ignore_errors=True)


def _verify_file(directory: Path, name: str, expected: Any) -> None:
    path = directory / name
    # A name with a slash could point outside the directory.
    if Path(name).name != name or not isinstance(expected, dict):
        raise BundleError(
            f"{directory / MANIFEST} names {short_repr(name)}, which is not a file of a bundle"
        )
    if not path.is_file():
        raise BundleError(f"{path} is missing; the bundle is incomplete")
    # The size comes first: it shows a truncated file without reading all of it.
    size = path.stat().st_size
    if size != expected.get("bytes"):
        raise BundleError(
            f"{path} has {size} bytes, its manifest says {short_repr(expected.get('bytes'))}"
        )
    if sha256_of(path) != expected.get("sha256"):
        raise BundleError(f"{path} does not have the sha256 its manifest says; it was changed")


def _missing_message(directory: Path) -> str:
    backup = _backup_path(directory)
    if backup.is_dir():
        return (
            f"{directory} is missing, but an interrupted save left it complete in {backup}; rename "
            "it"
        )
    return not_a_model_message(directory)


def _backup_path(target: Path) -> Path:
    target = _normalize(target)
    return target.with_name(f".{target.name}.old")


def _normalize(target: Path) -> Path:
    """Absolute and without "..", which would not resolve while the directory is moved aside."""
    normal = Path(os.path.abspath(target))  # noqa: PTH100  resolve() would follow a link
    if not normal.name:
        raise BundleError(f"{target} cannot be a bundle; give a directory with a name")
    return normal


def _staging_prefix(target: Path) -> str:
    return f".{target.name}.new-"


def _is_running(process: str) -> bool:
    try:
        os.kill(int(process), 0)  # signal 0 is not delivered, only the process is looked up
    except (ProcessLookupError, ValueError):
        return False
    except PermissionError:  # it runs, as another user
        return True
    return True


def _version(directory: Path) -> tuple[Path, int, int] | None:
    """A value that changes whenever the bundle in the directory is replaced."""
    bundle = bundle_directory(directory)
    try:
        status = bundle.stat()
    except OSError:
        return None
    return bundle, status.st_ino, status.st_mtime_ns


def sha256_of(path: Path) -> str:
    """The hex digest of a file's content."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _flush(path: Path) -> None:
    """fsync: until this returns, the bytes may be in the operating system's cache only."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError:
        if not path.is_dir():  # some file systems cannot flush a directory
            raise
    finally:
        os.close(descriptor)


WEIGHT_SUFFIXES = {
    ".safetensors",
    ".gguf",
    ".bin",
    ".pt",
    ".pth",
    ".ckpt",
    ".h5",
    ".onnx",
    ".msgpack",
}
HUB_NAME = re.compile(r"[\w.-]+/[\w.-]+")  # owner/model


def not_a_model_message(path: Path) -> str:
    """One sentence about a path that is neither a bundle nor a public checkpoint."""
    if not path.exists():
        return _nonexistent_message(path)
    if not path.is_dir():
        return _file_message(path)
    return _directory_message(path)


def _nonexistent_message(path: Path) -> str:
    problem = f"{path} is not a directory that exists"
    closest = closest_path(path)
    if closest is not None:
        return f'{problem}; did you mean "{closest}"?'
    if HUB_NAME.fullmatch(str(path)) and not path.parent.is_dir():
        return (
            f"{problem}; train one with qkv train, or download one from a hub first: hf download "
            f"{path} --local-dir {path.name}"
        )
    return f"{problem}; give the directory of a model made by qkv train, or of a downloaded one"


def _file_message(path: Path) -> str:
    suffix = path.suffix.lower()
    if suffix == ".gguf":
        return f"{path} does not begin like a GGUF file; it is damaged, so get it again"
    if suffix in WEIGHT_SUFFIXES or path.name in (MANIFEST, CONFIG):
        return f"{path} is not a directory but a file of one; give the directory: {path.parent}"
    return f"{path} is not a directory but a file; give the directory of a model, or a .gguf file"


def _job(directory: Path) -> str:
    """What the unfinished run in the directory trains for, as its recipe says."""
    try:
        recipe = tomllib.loads(read_text(directory / RECIPE))
        return str(recipe["task"]["kind"])
    except (BundleError, tomllib.TOMLDecodeError, KeyError, TypeError):
        return "JOB"


def _directory_message(directory: Path) -> str:
    names = sorted(entry.name for entry in directory.iterdir())
    if not names:
        return f"{directory} is not a model: it is empty; give the directory of one"
    if RECIPE in names:
        return (
            f"{directory} is not a model yet: nothing of its training was saved so far; continue "
            f"it with: qkv train {_job(directory)} -o {directory} --resume"
        )
    models = [name for name in names if _is_model(directory / name)]
    if models:
        others = ""
        if len(models) > 1:
            others = f" or {len(models) - 1} others in it"
        return f"{directory} is not a model but holds some; give {directory / models[0]}{others}"
    weights = [name for name in names if Path(name).suffix.lower() in WEIGHT_SUFFIXES]
    if weights and CONFIG not in names:
        return (
            f"{directory} is not a model: it holds weights ({weights[0]}) but no {CONFIG}, which "
            "describes them; put the one they came with next to them"
        )
    return (
        f"{directory} is not a model: it has neither the {MANIFEST} of a bundle nor the {CONFIG} "
        "of a public checkpoint"
    )


def _is_model(path: Path) -> bool:
    return path.is_dir() and ((path / MANIFEST).exists() or (path / CONFIG).exists())
