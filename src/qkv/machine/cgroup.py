"""What a container may use of the machine: Linux's control groups, both versions."""

from collections.abc import Iterator
from pathlib import Path

SYSTEM = Path("/")
NO_LIMIT = 1 << 60  # version 1 writes a number like this where there is no limit on memory


def allowed_cores(system: Path = SYSTEM) -> float | None:
    """So many cores' worth of time, the least of all groups this process is in; None: no limit."""
    found = [share for group in _groups(system, "cpu") if (share := _share(group)) is not None]
    return min(found, default=None)


def allowed_memory(system: Path = SYSTEM) -> tuple[int, int] | None:
    """Bytes allowed and bytes used by the group with the least left; None: no limit."""
    found = []
    for group in _groups(system, "memory"):
        for most, now in (
            ("memory.max", "memory.current"),
            ("memory.limit_in_bytes", "memory.usage_in_bytes"),
        ):
            limit, used = (_number(group / name) for name in (most, now))
            if limit is not None and used is not None and limit < NO_LIMIT:
                found.append((limit, used))
    return min(found, key=lambda pair: pair[0] - pair[1], default=None)


def _groups(system: Path, controller: str) -> Iterator[Path]:
    """The group of this process and all groups around it."""
    root = system / "sys/fs/cgroup"
    try:
        lines = (system / "proc/self/cgroup").read_text("utf-8").split("\n")
    except (OSError, UnicodeDecodeError):
        return
    for line in filter(None, lines):
        _, controllers, name = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        top = root / controller if controllers else root
        group = top / name.strip("/")
        # A container often sees its own group as the top one, whatever it is called outside.
        yield from (place for place in (group, *group.parents) if place.is_relative_to(top))


def _share(group: Path) -> float | None:
    """Time on the cores in each period, as a number of cores."""
    try:
        quota, period = (group / "cpu.max").read_text("utf-8").split()
        return None if quota == "max" else int(quota) / int(period)
    except (OSError, ValueError):
        pass
    both = [_number(group / f"cpu.cfs_{name}_us") for name in ("quota", "period")]
    if both[0] is None or both[1] is None or both[0] <= 0:
        return None
    return both[0] / both[1]


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text("utf-8"))
    except (OSError, ValueError):  # absent, or "max"
        return None
