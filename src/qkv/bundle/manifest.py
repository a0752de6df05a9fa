"""A directory that is either whole or not there: staged, hashed, flushed, then renamed.

    staging/  files … fsync each  →  MANIFEST.json  →  fsync staging  →  rename  →  fsync parent

What stood there before is moved aside first and deleted last, so that at every moment one whole
copy exists on disk; `recover` puts it back if the machine stopped in between.
"""

import hashlib
import json
import os
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any, TypeVar

from safetensors import SafetensorError

from qkv.errors import BundleError, ConfigError
from qkv.files import lexists, read_json, short_repr, write_error_message
from qkv.files.safe_io import closest_path
from qkv.text.tokenizer import TOKENIZER_COMPANIONS

# FOLDED bundle/no_model: What stands where a model was looked for and there is none, and what
#   to do about it.

_MANIFEST_NAME, _CONFIG_NAME = "MANIFEST.json", "config.json"

RECIPE = "recipe.toml"  # of a training

_WEIGHTS_NAME = (
    ".safetensors",
    ".gguf",
    ".bin",
    ".pt",
    ".pth",
    ".ckpt",
    ".h5",
    ".onnx",
    ".msgpack",
)

ON_A_HUB = re.compile(r"[\w.-]+/[\w.-]+")  # somebody/some-model


def no_model(place: Path) -> str:
    """One sentence for a path that is neither a bundle nor a public checkpoint."""
    if not place.exists():
        return _absent_no_model(place)
    return _no_directory(place) if not place.is_dir() else _no_model_in(place)


def _absent_no_model(place: Path) -> str:
    said = f"{place} is not a directory that exists"
    near = closest_path(place)
    if near is not None:
        return f'{said}; did you mean "{near}"?'
    if ON_A_HUB.fullmatch(str(place)) and not place.parent.is_dir():
        return (
            f"{said}; one of your own is made by qkv train, and one from a hub is fetched first, "
            f"as with: hf download {place} --local-dir {place.name}"
        )
    return f"{said}; give that of a model made by qkv train, or of a downloaded one"


def _no_directory(place: Path) -> str:
    if place.suffix.lower() == ".gguf":
        return f"{place} does not begin as a GGUF file does; it is damaged, so get it again"
    if place.suffix.lower() in _WEIGHTS_NAME or place.name in (_MANIFEST_NAME, _CONFIG_NAME):
        return f"{place} is not a directory but a file of one; give the directory: {place.parent}"
    return f"{place} is not a directory but a file; give the directory of a model, or a .gguf file"


def _no_model_in(place: Path) -> str:
    names = sorted(entry.name for entry in place.iterdir())
    if not names:
        return f"{place} is no model: it is empty; give the directory of one"
    if RECIPE in names:
        return (
            f"{place} is no model yet: its training has not ended; go on with: qkv train JOB -o "
            f"{place} --resume"
        )
    inside = [name for name in names if _is_model(place / name)]
    if inside:
        more = f" or {len(inside) - 1} others in it" if len(inside) > 1 else ""
        return f"{place} is no model but holds some; give {place / inside[0]}{more}"
    weights = [name for name in names if Path(name).suffix.lower() in _WEIGHTS_NAME]
    if weights and _CONFIG_NAME not in names:
        return (
            f"{place} is no model: it holds weights ({weights[0]}) but no {_CONFIG_NAME}, which "
            "says what they are; put the one they came with beside them"
        )
    return (
        f"{place} is no model: it has neither the {_MANIFEST_NAME} of a bundle nor the "
        f"{_CONFIG_NAME} of a public checkpoint"
    )


def _is_model(place: Path) -> bool:
    return place.is_dir() and ((place / _MANIFEST_NAME).exists() or (place / _CONFIG_NAME).exists())


MANIFEST = _MANIFEST_NAME

FORMAT = 1  # of the directory; a reader refuses what is newer than itself

T = TypeVar("T")


def publish(
    target: Path,
    write: Callable[[Path], None],
    may_replace: Collection[str] = (),
    carry_over: Collection[str] = (),
    with_manifest: bool = True,
) -> None:
    """Let `write` fill a fresh directory, and put it in the place of `target` once it is whole.

    `replaces` names what may stand there besides a bundle; `moves` names what of it is kept, by
    being moved into the new directory. Not `sealed`, it gets no manifest, for other programs.
    """
    target = _normal(target)
    staging: Path | None = None
    try:
        recover(target)
        _check_place(target, {*may_replace, *carry_over})
        target.parent.mkdir(parents=True, exist_ok=True)
        prefix = f"{_staging_prefix(target)}{os.getpid()}-"
        staging = Path(tempfile.mkdtemp(prefix=prefix, dir=target.parent))
        staging.chmod(0o755)
        write(staging)
        _flush_all(staging)
        if with_manifest:
            _seal(staging)
        _swap(staging, target, carry_over)
    except (OSError, SafetensorError) as error:
        raise BundleError(write_error_message(target, error)) from error
    finally:
        if staging is not None:
            shutil.rmtree(staging, ignore_errors=True)


def read_stable(directory: Path, read: Callable[[], T]) -> T:
    """What `read` makes of the directory; read again if it was replaced meanwhile."""
    for _ in range(8):
        before = _stamp(directory)
        try:
            return read()
        except (BundleError, ConfigError, OSError) as error:
            if _stamp(directory) == before and not _aside(directory).exists():
                if isinstance(error, OSError):
                    raise BundleError(f"cannot read {directory}: {error}") from error
                raise
            time.sleep(0.02)
    return read()


def verify(directory: Path) -> dict[str, Any]:
    """The manifest, after checking the size and hash of every file it lists.

    Other files may lie about, such as a README, but none that would be read.
    """
    if not directory.is_dir():
        raise BundleError(_absent(directory))
    manifest = _read_manifest(directory)
    for name in TOKENIZER_COMPANIONS:
        if name not in manifest["files"] and lexists(directory / name):
            raise BundleError(
                f"{directory / name} is no part of the bundle: its manifest does not list it; move "
                "it away"
            )
    for name, facts in manifest["files"].items():
        _verify_file(directory, name, facts)
    return manifest


def recover(target: Path) -> None:
    """Put back what an interrupted save had moved aside, and clear away what it left unfinished."""
    target = _normal(target)
    aside = _aside(target)
    if aside.is_dir():
        if (target / MANIFEST).is_file():
            shutil.rmtree(aside)
        else:
            if target.is_dir() and not any(target.iterdir()):
                target.rmdir()
            if not target.exists():
                aside.rename(target)
    for left in target.parent.glob(f"{_staging_prefix(target)}*"):
        if not _alive(left.name.removeprefix(_staging_prefix(target)).partition("-")[0]):
            shutil.rmtree(left, ignore_errors=True)


def _read_manifest(directory: Path) -> dict[str, Any]:
    if not (directory / MANIFEST).exists():
        raise BundleError(no_model(directory))
    manifest = read_json(directory / MANIFEST)
    made = manifest.get("format", FORMAT)
    if not isinstance(made, int) or made > FORMAT:
        raise BundleError(
            f"{directory} has format {short_repr(made)}, this qkv reads up to {FORMAT}; update it"
        )
    if not isinstance(manifest.get("files"), dict):
        raise BundleError(f"{directory / MANIFEST} lists no files; the bundle is damaged")
    return manifest


def _check_place(target: Path, ours: set[str]) -> None:
    """Only an empty directory or a bundle with nothing of somebody else's in it is replaced."""
    if target.is_symlink() or (target.exists() and not target.is_dir()):
        raise BundleError(f"{target} is not a directory; choose another place for the bundle")
    found = {path.name for path in target.iterdir()} - ours if target.is_dir() else set()
    if not found:
        return
    if MANIFEST not in found:
        raise BundleError(f"{target} holds other files; choose another place for the bundle")
    for name in sorted(found - {MANIFEST} - _read_manifest(target)["files"].keys()):
        if not name.startswith("."):
            raise BundleError(
                f"{target} holds {name}, which is no part of the bundle; move it away"
            )


def _flush_all(staging: Path) -> None:
    for path in staging.rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)
        _flush(path)
    _flush(staging)


def _seal(staging: Path) -> None:
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
    aside = _aside(target)
    if target.exists():
        target.rename(aside)
    try:
        staging.rename(target)
    except OSError:
        recover(target)
        raise
    _flush(target.parent)
    for name in moves:
        if (aside / name).exists():
            (aside / name).rename(target / name)
    shutil.rmtree(aside, ignore_errors=True)


def _verify_file(directory: Path, name: str, facts: Any) -> None:
    path = directory / name
    if Path(name).name != name or not isinstance(facts, dict):
        raise BundleError(
            f"{directory / MANIFEST} names {short_repr(name)}, which is no file of a bundle"
        )
    if not path.is_file():
        raise BundleError(f"{path} is missing; the bundle is incomplete")
    size = path.stat().st_size
    if size != facts.get("bytes"):
        raise BundleError(
            f"{path} has {size} bytes, its manifest says {short_repr(facts.get('bytes'))}"
        )
    if sha256_of(path) != facts.get("sha256"):
        raise BundleError(f"{path} does not have the sha256 its manifest says; it was changed")


def _absent(directory: Path) -> str:
    aside = _aside(directory)
    if aside.is_dir():
        return (
            f"{directory} is missing, but an interrupted save left it whole in {aside}; rename it"
        )
    return no_model(directory)


def _aside(target: Path) -> Path:
    target = _normal(target)
    return target.with_name(f".{target.name}.old")


def _normal(target: Path) -> Path:
    """Absolute and without "..", which would lead nowhere while the directory is moved aside."""
    normal = Path(os.path.abspath(target))  # noqa: PTH100  resolve() would follow a link
    if not normal.name:
        raise BundleError(f"{target} cannot be a bundle; give a directory with a name")
    return normal


def _staging_prefix(target: Path) -> str:
    return f".{target.name}.new-"


def _alive(process: str) -> bool:
    try:
        os.kill(int(process), 0)
    except (ProcessLookupError, ValueError):
        return False
    except PermissionError:
        return True
    return True


def _stamp(directory: Path) -> tuple[int, int] | None:
    """Changes whenever the directory is replaced."""
    try:
        found = directory.stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns


def sha256_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _flush(path: Path) -> None:
    """Until this returns, the operating system may still hold the bytes in memory."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError:
        if not path.is_dir():  # some file systems cannot flush a directory
            raise
    finally:
        os.close(descriptor)
