"""Memory and disk: how much there is, and how much of it is free for this process."""

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from qkv.machine.cgroup import SYSTEM, allowed_memory


@dataclass(frozen=True)
class Room:
    """Bytes; None where the system does not say."""

    total: int | None
    free: int | None


def memory(system: Path = SYSTEM) -> Room:
    """Of the machine, or of the container if that has less."""
    room = _told_by_linux(system) or Room(_pages(), None)
    limit = allowed_memory(system)
    if limit is None or (room.total is not None and limit[0] >= room.total):
        return room
    left = max(0, limit[0] - limit[1])
    return Room(limit[0], left if room.free is None else min(left, room.free))


def disk(place: Path) -> Room:
    """Of the file system that holds this place, or will once it is made."""
    for there in (place.absolute(), *place.absolute().parents):
        try:
            found = shutil.disk_usage(there)
        except OSError:
            continue
        return Room(found.total, found.free)
    return Room(None, None)


def _told_by_linux(system: Path) -> Room | None:
    try:
        lines = (system / "proc/meminfo").read_text("utf-8").split("\n")
        kilobytes = {name: int(rest.split()[0]) for name, _, rest in map(_parted, lines) if rest}
        return Room(kilobytes["MemTotal"] * 1024, kilobytes["MemAvailable"] * 1024)
    except (OSError, ValueError, KeyError):
        return None


def _parted(line: str) -> tuple[str, str, str]:
    return line.partition(":")


def _pages() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None
