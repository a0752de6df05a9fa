"""A file that is replaced as a whole."""

import os
import stat
import tempfile
from pathlib import Path


def replace_file(path: Path, content: bytes) -> None:
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
