"""How many cores there are, and how many of them this process may use."""

import ctypes
import math
import os
import platform
import shlex
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

# FOLDED machine/cgroup: What a container may use of the machine: Linux's control groups, both
#   versions.
# FOLDED machine/cpu: The processor: its name, and the instructions that decide how fast a model
#   is on it.
# FOLDED machine/room: Memory and disk: how much there is, and how much of it is free for this
#   process.
# FOLDED machine/compiler: Whether there is a C++ compiler.
# FOLDED machine/reuse: Memory that a process keeps for its next work instead of giving it back
#   after each.
# FOLDED machine/speed: How fast this machine computes and reads memory, measured: the best of
#   many tries.

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


@dataclass(frozen=True)
class Cores:
    there: int  # as the system counts them: two for a core that runs two threads
    bound: int  # those this process is bound to
    share: float | None  # so many cores' worth of time, where a container is limited

    @property
    def usable(self) -> int:
        """How many threads can compute at once; one more would only wait."""
        return self.bound if self.share is None else min(self.bound, max(1, math.ceil(self.share)))


def cores() -> Cores:
    there = os.cpu_count() or 1
    bound = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else there
    return Cores(there, bound, allowed_cores())


# What each is called here, in torch, and by Linux; any of these names will do.
FEATURES: dict[str, tuple[str, ...]] = {
    "AVX2": ("avx2",),
    "AVX-512": ("avx512_f", "avx512f"),
    "VNNI": ("avx512_vnni", "avx_vnni"),
    "AMX": ("amx_tile", "amx_int8", "amx_bf16"),
    "bf16": ("avx512_bf16", "amx_bf16", "arm_bf16", "bf16"),
}


@dataclass(frozen=True)
class Cpu:
    name: str
    architecture: str
    physical: int | None  # cores, if that can be told from threads
    features: dict[str, bool]


def cpu(system: Path = Path("/")) -> Cpu:
    """The processor of this machine; without torch, what Linux says of it."""
    told = _told_by_linux(system)
    try:
        import torch

        seen: Mapping[str, object] = torch.cpu.get_capabilities()
    except (ImportError, OSError, AttributeError):
        seen = dict.fromkeys(told.get("flags", "").split(), True)
    physical = seen.get("num_physical_cores")
    return Cpu(
        name=told.get("model name") or _told_by_macos() or platform.processor() or "unknown",
        architecture=platform.machine(),
        physical=physical if isinstance(physical, int) else None,
        features={
            name: any(bool(seen.get(alias)) for alias in aliases)
            for name, aliases in FEATURES.items()
        },
    )


def _told_by_linux(system: Path) -> dict[str, str]:
    """The lines about the first core, by their names."""
    try:
        first = (system / "proc/cpuinfo").read_text("utf-8").split("\n\n")[0]
    except (OSError, UnicodeDecodeError):
        return {}
    rows = (line.split(":", 1) for line in first.split("\n") if ":" in line)
    return {name.strip(): value.strip() for name, value in rows}


def _told_by_macos() -> str:
    if platform.system() != "Darwin":
        return ""
    asked = ["/usr/sbin/sysctl", "-n", "machdep.cpu.brand_string"]
    try:
        ran = subprocess.run(asked, capture_output=True, text=True, timeout=5, check=True)
    except (OSError, subprocess.SubprocessError):
        return ""
    return ran.stdout.strip()


@dataclass(frozen=True)
class Room:
    """Bytes; None where the system does not say."""

    total: int | None
    free: int | None


def memory(system: Path = SYSTEM) -> Room:
    """Of the machine, or of the container if that has less."""
    room = _memory_of_linux(system) or Room(_pages(), None)
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


def _memory_of_linux(system: Path) -> Room | None:
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


COMPILERS = ("c++", "g++", "clang++")


def find_compiler() -> list[str] | None:
    """The command that CXX names, or the first compiler there is."""
    asked = shlex.split(os.environ.get("CXX", ""))
    for name, *more in [asked] if asked else [[name] for name in COMPILERS]:
        if found := shutil.which(name):
            return [found, *more]
    return None


M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4  # of glibc's malloc.h


def keep_memory() -> None:
    """Let the C library reuse freed tensors; measured, training steps of small models take 7 % less
    time, and many texts through an encoder 4 %.

    By default every large tensor is a fresh piece of memory that the system first fills with
    zeros. Where the C library is another one, nothing happens.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError, TypeError):
        return
    mallopt(M_MMAP_MAX, 0)
    mallopt(M_TRIM_THRESHOLD, 2**31 - 1)


SECONDS = 0.5  # for each measurement

LEAST = 3  # tries, however long they take


def rate(do: Callable[[], object], work: float, seconds: float = SECONDS) -> float:
    """So much of the work a second, in the quickest of all tries that this time allows."""
    do()  # the first is slower than all others
    end, tries, best = time.perf_counter() + seconds, 0, float("inf")
    while tries < LEAST or time.perf_counter() < end:
        start = time.perf_counter()
        do()
        best = min(best, time.perf_counter() - start)
        tries += 1
    return work / best


def matrix_speed(size: int = 1024, seconds: float = SECONDS) -> float:
    """GFLOP/s of a float32 matrix product."""
    import torch

    a, b = torch.randn(2, size, size)
    return rate(lambda: a @ b, 2 * size**3 / 1e9, seconds)


def reading_speed(megabytes: int = 256, seconds: float = SECONDS) -> float:
    """GB/s when a matrix is read once for one row, as it is when a model writes a token."""
    import torch

    columns = 4096
    matrix = torch.ones(megabytes * 1_000_000 // (4 * columns), columns)
    row = torch.ones(columns)
    return rate(lambda: torch.mv(matrix, row), matrix.nbytes / 1e9, seconds)
