"""Reading files that others wrote, and replacing files atomically.

Only regular files of limited size are read, so that nothing hangs or fills the memory. Within a
model's directory a symlink is followed only to a file of the same directory, or, as in the Hugging
Face cache, from `<model>/snapshots/<revision>/…` to `<model>/blobs/…`; any other link could make a
downloaded model expose a private file of this machine. A file that the user names may be a link to
anywhere: that is `follow_symlinks`.

Problems raise a BundleError, or the error class the caller passes. What a message quotes from a
file is put on one line and cut short, since it may be huge or hold unprintable characters.
"""

import errno
import os
import re
import stat
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path

from qkv.errors import BundleError, QkvError, UsageError

MAX_REPR_CHARACTERS = 80
MAX_MESSAGE_CHARACTERS = 240  # of another program's message

REMEDIES = {
    errno.ENOSPC: "free some space, or choose another directory",
    errno.EDQUOT: "free some space, or choose another directory",
    errno.EACCES: "choose a directory you may write to",
    errno.EPERM: "choose a directory you may write to",
    errno.EROFS: "choose a directory you may write to",
    errno.EFBIG: "it is larger than this system lets a file be",
}


def short_repr(value: object) -> str:
    """The repr of a value, abbreviated if it is long."""
    if isinstance(value, str):
        value = value[: MAX_REPR_CHARACTERS + 1]  # repr would first copy all of it
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # Python formats no integer of more than 4,300 digits
        text = f"{type(value).__name__} too large to show"
    return _truncate(text, MAX_REPR_CHARACTERS)


def one_line(message: object) -> str:
    """A text, or the message of an error, on one line and without unprintable characters."""
    text = " ".join(str(message)[: 2 * MAX_MESSAGE_CHARACTERS].split()) or type(message).__name__
    printable = (c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
    return _truncate("".join(printable), MAX_MESSAGE_CHARACTERS)


def summarize_names(names: Sequence[str]) -> str:
    """The first three names, and how many more there are."""
    text = ", ".join(short_repr(name) for name in names[:3])
    if len(names) > 3:
        text += f" and {len(names) - 3} more"
    return text


def check_output_path(path: Path, extensions: tuple[str, ...]) -> None:
    """Raise a UsageError unless the path has one of these extensions and its folder exists."""
    if path.suffix.lower() not in extensions:
        known = ", ".join(extensions)
        raise UsageError(f'cannot write "{path.name}"; end it with one of {known}')
    if path.is_dir():
        raise UsageError(f"{path} is a folder; name a file in it")
    if not path.parent.is_dir():
        raise UsageError(f"{path.parent} is not a folder; make it first")


def write_error_message(path: Path, error: Exception) -> str:
    """One sentence about a path that could not be written, and what to do about it."""
    code = getattr(error, "errno", None)
    if code is None:
        # Libraries written in Rust put the number into the message only.
        match = re.search(r"\(os error (\d+)\)", str(error))
        code = int(match[1]) if match else 0
    message = f"cannot write {path}: {os_error_reason(error)}"
    remedy = REMEDIES.get(code)
    if remedy:
        message += f"; {remedy}"
    return message


def os_error_reason(error: Exception) -> str:
    """Why the system refused, without the path, which the caller names."""
    return getattr(error, "strerror", None) or one_line(error)


def _truncate(text: str, max_length: int) -> str:
    if len(text) <= max_length:
        return text
    return f"{text[:max_length]}…"


MAX_CONFIG_BYTES = 20 * 1024 * 1024
MAX_VOCAB_BYTES = 200 * 1024 * 1024

# Opening a pipe would otherwise block until somebody writes to it. Windows has no such flag.
OPEN_FLAGS = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)


def open_regular_file(path: Path, error: type[QkvError] = BundleError) -> int:
    """The descriptor of an opened regular file.

    The check is on what was opened: a check of the name could be outdated by then.
    """
    try:
        descriptor = os.open(path, OPEN_FLAGS)
    except (OSError, ValueError) as cause:  # ValueError: a zero byte in the name
        raise error(f"cannot read {path}: {os_error_reason(cause)}") from cause
    mode = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(mode):
        os.close(descriptor)
        kind = "a directory" if stat.S_ISDIR(mode) else "a device or a pipe"
        raise error(f"{path} is {kind}; give an ordinary file")
    return descriptor


def check_inside_directory(path: Path, error: type[QkvError] = BundleError) -> Path:
    """The same path; raises if it is a symlink that leads out of the model's directory."""
    try:
        target = path.resolve(strict=True)
    except (OSError, RuntimeError, ValueError) as cause:  # RuntimeError: links in a circle
        if path.is_symlink():
            raise error(f"{path} is a link that leads nowhere; get the file again") from None
        raise error(f"cannot read {path}: {os_error_reason(cause)}") from cause
    directory = path.parent.resolve()
    allowed = [directory]
    for parent in directory.parents:
        if parent.name == "snapshots":
            allowed.append(parent.parent / "blobs")
            break
    if not any(target.is_relative_to(folder) for folder in allowed):
        raise error(
            f"{path} is a link that leads out of the model's directory, to {target}; put the file "
            "itself there"
        )
    return path


def lexists(path: Path) -> bool:
    """Whether there is a file or a link; a dangling link is refused when read, not ignored."""
    return path.exists() or path.is_symlink()


def read_bytes(
    path: Path,
    error: type[QkvError] = BundleError,
    max_bytes: int = MAX_CONFIG_BYTES,
    follow_symlinks: bool = False,
) -> bytes:
    """The content of a regular file of at most `max_bytes`."""
    if not follow_symlinks:
        check_inside_directory(path, error)
    descriptor = open_regular_file(path, error)
    with os.fdopen(descriptor, "rb") as file:
        size = os.fstat(descriptor).st_size
        if size > max_bytes:
            raise error(f"{path} has {size:,} bytes; at most {max_bytes:,} are read")
        try:
            content = file.read(size + 1)
        except OSError as cause:
            raise error(f"cannot read {path}: {os_error_reason(cause)}") from cause
    if len(content) != size:
        raise error(f"{path} changed while it was read; try again once it is complete")
    return content


def read_text(
    path: Path,
    error: type[QkvError] = BundleError,
    max_bytes: int = MAX_CONFIG_BYTES,
    follow_symlinks: bool = False,
) -> str:
    """The content of a UTF-8 file of at most `max_bytes`."""
    try:
        return read_bytes(path, error, max_bytes, follow_symlinks).decode("utf-8")
    except UnicodeDecodeError as cause:
        raise error(f"{path} is not UTF-8 text (byte {cause.start})") from cause


def atomic_write(path: Path, content: bytes) -> None:
    """Write a file so that readers see the old content or all of the new one.

    If it fails, as on a full disk, the old file is untouched.
    """
    with atomic_path(path) as staging:
        staging.write_bytes(content)


@contextmanager
def atomic_path(path: Path) -> Iterator[Path]:
    """A file next to `path` to write to; it replaces `path` at the end, but not after an error."""
    target = path.resolve()
    descriptor, name = tempfile.mkstemp(prefix=f".{target.name}-", dir=target.parent)
    os.close(descriptor)
    staging = Path(name)
    try:
        yield staging
        with staging.open("rb+") as file:
            os.fsync(file.fileno())
        staging.chmod(_file_mode(target))
        staging.replace(target)
    finally:
        staging.unlink(missing_ok=True)


def _file_mode(path: Path) -> int:
    """The permissions of the existing file, or the default for a new one."""
    if path.exists():
        return stat.S_IMODE(path.stat().st_mode)
    mask = os.umask(0)  # the only way to read it is to set it
    os.umask(mask)
    return 0o666 & ~mask


def closest_path(path: Path) -> Path | None:
    """The entry of the same directory with the most similar name, if one is similar.

    Stems are compared: two names are not similar because both end in .txt, but somebody who asks
    for reviews.txt may mean reviews.csv.
    """
    try:
        entries = sorted(entry for entry in path.parent.iterdir() if entry.name[:1] != ".")
    except OSError:
        return None
    by_stem: dict[str, Path] = {}
    for entry in sorted(entries, key=lambda entry: entry.suffix != path.suffix):
        by_stem.setdefault(entry.stem.lower(), entry)
    matches = get_close_matches(path.stem.lower(), by_stem, n=1, cutoff=0.7)
    if not matches:
        return None
    return path.with_name(by_stem[matches[0]].name)


def suggest_path(path: Path) -> str:
    """The end of a sentence about a missing file: what may be meant, or nothing."""
    if not path.parent.is_dir():
        return f"; there is no folder {path.parent} either"
    closest = closest_path(path)
    return "" if closest is None else f'; did you mean "{closest}"?'


def cache_dir() -> Path:
    """The directory for things that can be recomputed: QKV_CACHE, or qkv in the user's cache."""
    if own := os.environ.get("QKV_CACHE"):
        return Path(own)
    if user_cache := os.environ.get("XDG_CACHE_HOME"):
        return Path(user_cache) / "qkv"
    return Path("~/.cache/qkv").expanduser()
