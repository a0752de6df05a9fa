"""The machine's resources: cores, processor features, memory, disk, compiler, measured speed.

Inside a container the limits of its control group count, not the sizes of the machine.
"""

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

ROOT = Path("/")

# cgroup v1 writes a number of about this size where memory is not limited.
NO_MEMORY_LIMIT = 1 << 60

# The limit and the usage of memory: cgroup v2, then v1.
MEMORY_FILES = (
    ("memory.max", "memory.current"),
    ("memory.limit_in_bytes", "memory.usage_in_bytes"),
)


def cgroup_cpu_quota(root: Path = ROOT) -> float | None:
    """CPU time this process may use, in cores: the least of all its cgroups. None: no limit."""
    quotas = [_cpu_quota(group) for group in _cgroups(root, "cpu")]
    return min((quota for quota in quotas if quota is not None), default=None)


def cgroup_memory(root: Path = ROOT) -> tuple[int, int] | None:
    """The limit and the usage, in bytes, of the cgroup with the least left. None: no limit."""
    limits = []
    for group in _cgroups(root, "memory"):
        for limit_file, usage_file in MEMORY_FILES:
            limit = _read_int(group / limit_file)
            usage = _read_int(group / usage_file)
            if limit is not None and usage is not None and limit < NO_MEMORY_LIMIT:
                limits.append((limit, usage))
    return min(limits, key=lambda pair: pair[0] - pair[1], default=None)


def _cgroups(root: Path, controller: str) -> Iterator[Path]:
    """The cgroup of this process for a controller, and all groups that contain it."""
    cgroup_root = root / "sys/fs/cgroup"
    try:
        lines = (root / "proc/self/cgroup").read_text("utf-8").split("\n")
    except (OSError, UnicodeDecodeError):
        return
    for line in filter(None, lines):
        _, controllers, name = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        # v1 has a hierarchy for each controller, v2 (no controllers listed) one for all.
        top = cgroup_root
        if controllers:
            top = cgroup_root / controller
        group = top / name.strip("/")
        # A container often sees its own group as the top one, whatever it is called outside.
        for path in (group, *group.parents):
            if path.is_relative_to(top):
                yield path


def _cpu_quota(group: Path) -> float | None:
    """CPU time per scheduling period, in cores."""
    try:
        quota, period = (group / "cpu.max").read_text("utf-8").split()
        if quota == "max":
            return None
        return int(quota) / int(period)
    except (OSError, ValueError):  # no cgroup v2, so try v1
        pass
    quota_us = _read_int(group / "cpu.cfs_quota_us")
    period_us = _read_int(group / "cpu.cfs_period_us")
    if quota_us is None or period_us is None or quota_us <= 0:
        return None
    return quota_us / period_us


def _read_int(path: Path) -> int | None:
    try:
        return int(path.read_text("utf-8"))
    except (OSError, ValueError):  # absent, or "max"
        return None


@dataclass(frozen=True)
class Cores:
    logical: int  # as the system counts them: two for a core that runs two threads
    affinity: int  # those this process may run on
    quota: float | None  # a container's CPU time, in cores

    @property
    def usable(self) -> int:
        """How many threads can compute at once; one more would only wait."""
        if self.quota is None:
            return self.affinity
        return min(self.affinity, max(1, math.ceil(self.quota)))


def cores() -> Cores:
    """The cores of this machine, and how many of them this process may use."""
    logical = os.cpu_count() or 1
    affinity = logical
    if hasattr(os, "sched_getaffinity"):  # not on macOS and Windows
        affinity = len(os.sched_getaffinity(0))
    return Cores(logical, affinity, cgroup_cpu_quota())


# Instruction sets that decide how fast a model is, by their names in torch and in Linux.
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
    physical: int | None  # cores, where they can be told from hardware threads
    features: dict[str, bool]


def cpu(root: Path = ROOT) -> Cpu:
    """The processor of this machine; without torch, as /proc/cpuinfo describes it."""
    info = _linux_cpuinfo(root)
    try:
        import torch

        capabilities: Mapping[str, object] = torch.cpu.get_capabilities()
    except (ImportError, OSError, AttributeError):
        capabilities = dict.fromkeys(info.get("flags", "").split(), True)
    physical = capabilities.get("num_physical_cores")
    if not isinstance(physical, int):
        physical = None
    features = {
        name: any(bool(capabilities.get(alias)) for alias in aliases)
        for name, aliases in FEATURES.items()
    }
    return Cpu(
        name=info.get("model name") or _macos_cpu_name() or platform.processor() or "unknown",
        architecture=platform.machine(),
        physical=physical,
        features=features,
    )


TILE_INFO_LEAF = 0x1D  # of CPUID: the sizes of AMX tiles


def avoid_broken_amx(root: Path = ROOT) -> None:
    """Keep oneDNN from using AMX where a virtual machine shows it by half.

    Some show the flags but not the sizes of the tiles. oneDNN then configures tiles of size 0, and
    its first int8 or bf16 product kills the process (illegal instruction). oneDNN reads its limit
    once, at its first use, so this must be called before torch computes anything.
    """
    info = _linux_cpuinfo(root)
    has_amx = "amx_tile" in info.get("flags", "").split()
    if has_amx and int(info.get("cpuid level", TILE_INFO_LEAF)) < TILE_INFO_LEAF:
        os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX10_1_512")


def _linux_cpuinfo(root: Path) -> dict[str, str]:
    """The fields of the first core in /proc/cpuinfo."""
    try:
        first = (root / "proc/cpuinfo").read_text("utf-8").split("\n\n")[0]
    except (OSError, UnicodeDecodeError):
        return {}
    fields = (line.split(":", 1) for line in first.split("\n") if ":" in line)
    return {name.strip(): value.strip() for name, value in fields}


def _macos_cpu_name() -> str:
    if platform.system() != "Darwin":
        return ""
    command = ["/usr/sbin/sysctl", "-n", "machdep.cpu.brand_string"]
    try:
        result = subprocess.run(command, capture_output=True, text=True, timeout=5, check=True)
    except (OSError, subprocess.SubprocessError):
        return ""
    return result.stdout.strip()


@dataclass(frozen=True)
class Capacity:
    """Bytes of memory or disk; None where the system does not report them."""

    total: int | None
    free: int | None


def memory(root: Path = ROOT) -> Capacity:
    """The memory of the machine, or of the container if that has less."""
    machine = _linux_memory(root) or Capacity(_physical_memory(), None)
    cgroup = cgroup_memory(root)
    if cgroup is None:
        return machine
    limit, usage = cgroup
    if machine.total is not None and limit >= machine.total:
        return machine
    free = max(0, limit - usage)
    if machine.free is not None:
        free = min(free, machine.free)
    return Capacity(limit, free)


def disk(path: Path) -> Capacity:
    """The file system that holds this path, which need not exist yet."""
    for existing in (path.absolute(), *path.absolute().parents):
        try:
            usage = shutil.disk_usage(existing)
        except OSError:
            continue
        return Capacity(usage.total, usage.free)
    return Capacity(None, None)


def _linux_memory(root: Path) -> Capacity | None:
    kilobytes = {}
    try:
        for line in (root / "proc/meminfo").read_text("utf-8").split("\n"):
            name, _, value = line.partition(":")
            if value:
                kilobytes[name] = int(value.split()[0])
        return Capacity(kilobytes["MemTotal"] * 1024, kilobytes["MemAvailable"] * 1024)
    except (OSError, ValueError, KeyError):
        return None


def _physical_memory() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None


COMPILERS = ("c++", "g++", "clang++")


def find_compiler() -> list[str] | None:
    """The C++ compiler command: that of CXX, or the first there is."""
    command = shlex.split(os.environ.get("CXX", ""))
    candidates = [[name] for name in COMPILERS]
    if command:
        candidates = [command]
    for name, *arguments in candidates:
        path = shutil.which(name)
        if path is not None:
            return [path, *arguments]
    return None


# Parameters of glibc's mallopt, from malloc.h.
M_TRIM_THRESHOLD = -1
M_MMAP_MAX = -4


def reuse_freed_memory() -> None:
    """Let the C library reuse the memory of freed tensors instead of returning it.

    By default every large tensor is a fresh mapping, which the kernel first fills with zeros.
    Measured, training steps of small models take 7 % less time, and many texts through an encoder
    4 %. Without glibc nothing happens.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError, TypeError):
        return
    mallopt(M_MMAP_MAX, 0)
    mallopt(M_TRIM_THRESHOLD, 2**31 - 1)


MEASUREMENT_SECONDS = 0.5
MIN_REPEATS = 3  # however long they take


def best_throughput(
    run: Callable[[], object], work: float, seconds: float = MEASUREMENT_SECONDS
) -> float:
    """Work per second in the fastest of the runs that fit into this time.

    The minimum is the estimate least disturbed by whatever else the machine does.
    """
    run()  # warm-up
    end = time.perf_counter() + seconds
    repeats = 0
    best = float("inf")
    while repeats < MIN_REPEATS or time.perf_counter() < end:
        start = time.perf_counter()
        run()
        best = min(best, time.perf_counter() - start)
        repeats += 1
    return work / best


def matmul_gflops(size: int = 1024, seconds: float = MEASUREMENT_SECONDS) -> float:
    """GFLOP/s of a float32 matrix product."""
    import torch

    a, b = torch.randn(2, size, size)
    return best_throughput(lambda: a @ b, 2 * size**3 / 1e9, seconds)


def memory_bandwidth(megabytes: int = 256, seconds: float = MEASUREMENT_SECONDS) -> float:
    """GB/s of a matrix-vector product, which reads every weight once, as decoding a token does."""
    import torch

    columns = 4096
    matrix = torch.ones(megabytes * 1_000_000 // (4 * columns), columns)
    row = torch.ones(columns)
    return best_throughput(lambda: torch.mv(matrix, row), matrix.nbytes / 1e9, seconds)
