"""Ordinary files that others wrote: nothing that hangs, leads elsewhere or fills the memory.

Within a directory a link is followed only to a file of the same directory, or, as in the cache of
Hugging Face, from `<model>/snapshots/<revision>/…` to `<model>/blobs/…`. Any other link could make
a downloaded model show a private file of this machine. A file that the user names is the user's
choice, wherever it leads: that is `anywhere`.

What is wrong is a BundleError, or the error the caller asks for.
"""

import errno
import os
import re
import stat
import tempfile
from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path

from qkv.errors import BundleError, QkvError

# FOLDED files/wording: How something found in a stranger's file is quoted in a message: on one
#   line, and not too long.
#
#   A value may be huge, nested, or hold characters that move the cursor or cannot be printed
#   at all.
# FOLDED files/replacing: A file that is replaced as a whole.
# FOLDED files/nearest: What somebody may have meant who named a file that is not there.
# FOLDED files/cache: Where things are kept that can be made again.

LONGEST = 80  # characters of a value

MESSAGE = 240  # of what another program says

WHAT_TO_DO = {
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT), "free some room, or choose another place"),
    **dict.fromkeys((errno.EACCES, errno.EPERM, errno.EROFS), "choose a folder you may write to"),
    errno.EFBIG: "it is larger than this system lets a file be",
}


def short_repr(found: object) -> str:
    """The value as Python writes it."""
    if isinstance(found, str):
        found = found[: LONGEST + 1]  # repr would first make a copy of all of it
    try:
        text = repr(found)
    except (ValueError, RecursionError):  # Python writes no number of more than 4,300 digits
        text = f"{type(found).__name__} too large to show"
    return _cut(text, LONGEST)


def one_line(said: object) -> str:
    """A text or the message of an error, without quotes."""
    text = " ".join(str(said)[: 2 * MESSAGE].split()) or type(said).__name__
    seen = (c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
    return _cut("".join(seen), MESSAGE)


def summarize_names(names: Sequence[str]) -> str:
    """The first three names, and how many more there are."""
    rest = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(short_repr(name) for name in names[:3]) + rest


def write_error_message(path: Path, error: Exception) -> str:
    """The sentence for something that could not be written there, and what to do about it."""
    number = getattr(error, "errno", None)
    if number is None and (said := re.search(r"\(os error (\d+)\)", str(error))):
        number = int(said[1])  # as libraries written in Rust say it
    hint = WHAT_TO_DO.get(number) if number is not None else None
    return f"cannot write {path}: {os_error_reason(error)}{f'; {hint}' if hint else ''}"


def os_error_reason(error: Exception) -> str:
    """Why the system refused, without the path, which the caller names."""
    return getattr(error, "strerror", None) or one_line(error)


def _cut(text: str, longest: int) -> str:
    return text if len(text) <= longest else f"{text[:longest]}…"


MAX_CONFIG_BYTES = 20 * 1024 * 1024  # bytes of a file with settings

MAX_VOCAB_BYTES = 200 * 1024 * 1024  # of a vocabulary

# A pipe would otherwise wait until somebody writes to it. Windows knows no such flag.
FLAGS = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)


def open_regular_file(path: Path, error: type[QkvError] = BundleError) -> int:
    """The number of the open file. What was opened is looked at, not the name."""
    try:
        number = os.open(path, FLAGS)
    except (OSError, ValueError) as why:  # ValueError: a zero byte in the name
        raise error(f"cannot read {path}: {os_error_reason(why)}") from why
    mode = os.fstat(number).st_mode
    if not stat.S_ISREG(mode):
        os.close(number)
        kind = "a directory" if stat.S_ISDIR(mode) else "a device or a pipe"
        raise error(f"{path} is {kind}; give an ordinary file")
    return number


def check_inside_directory(path: Path, error: type[QkvError] = BundleError) -> Path:
    """The same path, if it does not lead out of the model's own directory."""
    try:
        target = path.resolve(strict=True)
    except (OSError, RuntimeError, ValueError) as why:  # RuntimeError: links in a circle
        if path.is_symlink():
            raise error(f"{path} is a link that leads nowhere; get the file again") from None
        raise error(f"cannot read {path}: {os_error_reason(why)}") from why
    home = path.parent.resolve()
    caches = [folder.parent / "blobs" for folder in home.parents if folder.name == "snapshots"]
    if not any(target.is_relative_to(folder) for folder in [home, *caches[:1]]):
        raise error(
            f"{path} is a link that leads out of the model's directory, to {target}; put the file "
            "itself there"
        )
    return path


def lexists(path: Path) -> bool:
    """Also a link that leads nowhere, which is refused when read rather than passed over."""
    return path.exists() or path.is_symlink()


def read_bytes(
    path: Path,
    error: type[QkvError] = BundleError,
    max_bytes: int = MAX_CONFIG_BYTES,
    follow_symlinks: bool = False,
) -> bytes:
    """All of a file that is no larger than that many bytes."""
    number = open_regular_file(
        path if follow_symlinks else check_inside_directory(path, error), error
    )
    with os.fdopen(number, "rb") as file:
        size = os.fstat(number).st_size
        if size > max_bytes:
            raise error(f"{path} has {size:,} bytes; at most {max_bytes:,} are read")
        try:
            content = file.read(size + 1)
        except OSError as why:
            raise error(f"cannot read {path}: {os_error_reason(why)}") from why
    if len(content) != size:
        raise error(f"{path} was changed while it was read; try again once it is whole")
    return content


def read_text(
    path: Path,
    error: type[QkvError] = BundleError,
    max_bytes: int = MAX_CONFIG_BYTES,
    follow_symlinks: bool = False,
) -> str:
    try:
        return read_bytes(path, error, max_bytes, follow_symlinks).decode("utf-8")
    except UnicodeDecodeError as why:
        raise error(f"{path} is not UTF-8 text (byte {why.start})") from why


def atomic_write(path: Path, content: bytes) -> None:
    """A reader sees the old file or the whole new one, and a full disk leaves the old one."""
    target = path.resolve()
    handle, name = tempfile.mkstemp(prefix=f".{target.name}-", dir=target.parent)
    staged = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        staged.chmod(_mode(target))
        staged.replace(target)
    finally:
        staged.unlink(missing_ok=True)


def _mode(path: Path) -> int:
    """What may be done with the file: as before, or what is usual for a new one."""
    if path.exists():
        return stat.S_IMODE(path.stat().st_mode)
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask


def closest_path(path: Path) -> Path | None:
    """The entry of the same folder whose name is most alike, if one is; endings count for little.

    Two names are not alike because both end in .txt; but reviews.txt is meant for reviews.csv.
    """
    try:
        entries = sorted(entry for entry in path.parent.iterdir() if entry.name[:1] != ".")
    except OSError:
        return None
    stems: dict[str, Path] = {}
    for entry in sorted(entries, key=lambda entry: entry.suffix != path.suffix):
        stems.setdefault(entry.stem.lower(), entry)
    near = get_close_matches(path.stem.lower(), stems, n=1, cutoff=0.7)
    return path.with_name(stems[near[0]].name) if near else None


def suggest_path(path: Path) -> str:
    """The end of a sentence about a file that is not there: what may be meant, or nothing."""
    if not path.parent.is_dir():
        return f"; there is no folder {path.parent} either"
    near = closest_path(path)
    return "" if near is None else f'; did you mean "{near}"?'


def cache_dir() -> Path:
    """QKV_CACHE if that is set, else where programs keep such things."""
    if chosen := os.environ.get("QKV_CACHE"):
        return Path(chosen)
    if shared := os.environ.get("XDG_CACHE_HOME"):
        return Path(shared) / "qkv"
    return Path("~/.cache/qkv").expanduser()
