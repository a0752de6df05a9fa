"""`qkv doctor`: what this machine has, how fast it is, and what is missing for what."""

import platform
import shlex
import shutil
import sys
from dataclasses import dataclass
from typing import Annotated

import typer

import qkv
from qkv.cli.progress import print_rows, print_stderr
from qkv.files.safe_io import cache_dir
from qkv.machine import (
    Capacity,
    Cores,
    Cpu,
    Package,
    best_throughput,
    cores,
    cpu,
    disk,
    matmul_gflops,
    memory,
    memory_bandwidth,
)
from qkv.machine import find_packages as look_for_packages
from qkv.machine.packages import EXTRAS
from qkv.machine.resources import find_compiler

# FOLDED cli/examination: What `qkv doctor` looks at: the machine, the packages, torch, and how
#   fast it all is.
# FOLDED cli/diagnosis: What an examination means: what is broken, what is missing for what, and
#   what to do.


def doctor(
    json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> int:
    """Look at this machine: what it has, how fast it is, and what is missing for what.

    Speeds are measured for about two seconds. The exit code is 1 if something that qkv needs is
    broken; what is only missing for some files or tools is told with the command to get it.

    \b
    Examples:
      qkv doctor
      qkv doctor --json
    """
    from dataclasses import asdict
    from json import dumps

    print_stderr("looking, and measuring for about two seconds")
    found = examine()
    told = diagnose(found)
    if json:
        typer.echo(dumps({"ok": not told.broken, **asdict(found), **asdict(told)}))
    else:
        print_rows([*_machine(found), *_software(found), *_speeds(found)])
        typer.echo("")
        for name, lines in asdict(told).items():
            for line in lines:
                typer.echo(f"{name.removesuffix('s')}: {line}")
        typer.echo(told.verdict)
    return 1 if told.broken else 0


def _machine(found: "MachineReport") -> list[tuple[str, str]]:
    cpu = found.cpu
    cores = found.cores
    if cpu.physical is None:
        physical = ""
    else:
        physical = f", {cpu.physical} physical"
    if cores.quota is None:
        share = ""
    else:
        share = f", {cores.quota:g} by the container's share"
    features = " · ".join(f"{name} {'yes' if has else 'no'}" for name, has in cpu.features.items())
    return [
        ("CPU", f"{cpu.name} ({cpu.architecture})"),
        ("cores", f"{cores.logical}{physical}; usable {cores.usable}{share}"),
        ("instructions", features),
        ("memory", _room(found.memory)),
        ("cache", f"{found.cache} (QKV_CACHE); disk {_room(found.cache_disk)}"),
        ("terminal", f"{found.encoding}, {found.columns} columns"),
    ]


def _software(found: "MachineReport") -> list[tuple[str, str]]:
    rows = [("Python", f"{found.python} ({found.executable})"), ("qkv", found.qkv)]
    if found.torch:
        torch = found.torch
        parts = " · ".join(
            f"{name} {'yes' if has else 'no'}"
            for name, has in (("MKL", torch.mkl), ("oneDNN", torch.onednn))
        )
        rows.append(("torch", f"{torch.version}, {torch.threads} threads · {parts}"))
        rows.append(("C++ compiler", found.compiler or "none; only --compile needs one"))
        rows.append(("other devices", ", ".join(torch.devices) or "none; all of qkv runs on a CPU"))
    return [*rows, *_extras(found)]


def _extras(found: "MachineReport") -> list[tuple[str, str]]:
    from qkv.machine.packages import DEVELOPMENT_EXTRAS, EXTRAS

    rows = []
    for title, group in (("extras", EXTRAS), ("to work on qkv", DEVELOPMENT_EXTRAS)):
        told = []
        for extra, purpose in group.items():
            members = [p for p in found.packages if p.extra == extra]
            there = sum(p.problem is None for p in members)
            whole = bool(members) and there == len(members)
            if whole:
                has = "yes"
            else:
                has = f"{there} of {len(members)} packages"
            told.append(f"{extra} ({purpose}) {has}")
        rows.append((title, " · ".join(told)))
    return rows


def _speeds(found: "MachineReport") -> list[tuple[str, str]]:
    speed = found.speed
    if speed is None:
        return [("speed", "not measured")]
    whole = "only with --compile"
    if speed.int8_gops is not None:
        whole = f"{speed.int8_gops:,.0f} GOP/s, as --int8 multiplies"
    return [
        ("float32", f"{speed.float32_gflops:,.0f} GFLOP/s"),
        ("int8", whole),
        ("reading", f"{speed.reading_gb:,.1f} GB/s, which bounds how fast tokens are written"),
    ]


def _room(room: "Capacity") -> str:

    if room.total is None:
        return "not told by this system"
    if room.free is None:
        free = ""
    else:
        free = f", {as_bytes(room.free)} free"
    return f"{as_bytes(room.total)}{free}"


SHOWN_BY_ALL = "−√×→ᵀ"  # what answers are written with besides letters

# of the product in 8 bits
ROWS = 512
SIZE = 1024


@dataclass(frozen=True)
class Torch:
    version: str
    threads: int
    mkl: bool
    onednn: bool
    devices: tuple[str, ...]  # besides the CPU


@dataclass(frozen=True)
class Speed:
    """Measured with all threads; None where there is nothing to measure."""

    float32_gflops: float
    int8_gops: float | None
    reading_gb: float  # a second


@dataclass(frozen=True)
class MachineReport:
    """All that was found."""

    python: str
    executable: str
    qkv: str
    cpu: Cpu
    cores: Cores
    memory: Capacity
    cache: str
    cache_disk: Capacity
    encoding: str
    shows_signs: bool  # the terminal: − and √ as they are
    columns: int
    packages: tuple[Package, ...]
    installed: bool  # qkv itself, with the list of what it needs
    compiler: str | None  # of C++, for --compile
    torch: Torch | None
    speed: Speed | None


def examine() -> MachineReport:
    """Look at everything; a part that is broken is left out, and said in `packages`."""
    found = _packages()
    works = not any(p.name == "torch" and p.problem for p in found or ())
    place = cache_dir()
    encoding = sys.stdout.encoding or "unknown"
    return MachineReport(
        python=platform.python_version(),
        executable=sys.executable,
        qkv=qkv.__version__,
        cpu=cpu(),
        cores=cores(),
        memory=memory(),
        cache=str(place),
        cache_disk=disk(place),
        encoding=encoding,
        shows_signs=_can_be_written(SHOWN_BY_ALL, encoding),
        columns=shutil.get_terminal_size((80, 24)).columns,
        packages=tuple(found or ()),
        installed=found is not None,
        compiler=" ".join(find_compiler() or ()) or None,
        torch=_torch() if works else None,
        speed=_speed() if works else None,
    )


def _packages() -> list[Package] | None:
    """None if qkv runs without being installed, so that nothing says what it needs."""
    from importlib.metadata import PackageNotFoundError

    try:
        return look_for_packages()
    except PackageNotFoundError:
        return None


def _torch() -> Torch | None:
    try:
        import torch
    except (ImportError, OSError):
        return None
    cuda = (torch.cuda.get_device_name(n) for n in range(torch.cuda.device_count()))
    devices = [f"cuda:{n} {name}" for n, name in enumerate(cuda)]
    if torch.backends.mps.is_available():
        devices.append("mps")
    return Torch(
        version=torch.__version__,
        threads=torch.get_num_threads(),
        mkl=bool(torch.backends.mkl.is_available()),  # type: ignore[no-untyped-call]
        onednn=bool(torch.backends.mkldnn.is_available()),  # type: ignore[no-untyped-call]
        devices=tuple(devices),
    )


def _speed() -> Speed | None:
    try:
        import torch

        from qkv.engine.optimized.linear import LinearWeights
        from qkv.engine.optimized.quantized import PackedQuantizedLinear, int8_supported
    except (ImportError, OSError):
        return None
    whole = None
    with torch.inference_mode():
        if int8_supported():
            product = PackedQuantizedLinear(LinearWeights(torch.randn(SIZE, SIZE), None))
            rows = torch.randn(ROWS, SIZE)
            whole = best_throughput(lambda: product(rows), 2 * ROWS * SIZE * SIZE / 1e9)
        return Speed(matmul_gflops(), whole, memory_bandwidth())


def _can_be_written(text: str, encoding: str) -> bool:
    try:
        text.encode(encoding)
    except (UnicodeEncodeError, LookupError):
        return False
    return True


FEW = 1_000_000_000  # bytes of free memory or disk that are worth a word

NO_CUDA = " --index-url https://download.pytorch.org/whl/cpu"  # else several gigabytes are fetched


@dataclass(frozen=True)
class Diagnosis:
    """Sentences; only what is broken keeps qkv from working."""

    broken: list[str]
    missing: list[str]
    notes: list[str]

    @property
    def verdict(self) -> str:
        if self.broken:
            return "qkv cannot work here until what is broken is mended."
        if self.missing:
            return "qkv works here: it trains, answers and explains; only what is named is missing."
        return "qkv works here, with everything it can make use of."


def diagnose(found: MachineReport) -> Diagnosis:
    return Diagnosis(_broken(found), _missing(found), _notes(found))


def _broken(found: MachineReport) -> list[str]:
    """What keeps qkv from working, each with the command that mends it."""
    if not found.installed:
        return [
            "qkv runs without being installed, so nothing says what it needs; in its checkout run: "
            f"{shlex.quote(found.executable)} -m pip install -c constraints.txt -e ."
        ]
    bad = [p for p in found.packages if p.extra is None and p.problem]
    return [f"{p.name}: {p.problem}; run: {_install(found, [p])}" for p in bad]


def _missing(found: MachineReport) -> list[str]:
    """For each extra that is not whole: the packages, what they are for, how to get them."""
    lines = []
    for extra, purpose in EXTRAS.items():
        absent = [p for p in found.packages if p.extra == extra and p.problem]
        if absent:
            names = ", ".join(p.name for p in absent)
            lines.append(f"{names}, for {purpose}; run: {_install(found, absent)}")
    return lines


def _notes(found: MachineReport) -> list[str]:
    """What works, but slower or less well than it could."""
    said = []
    usable = found.cores.usable
    if found.torch and found.torch.threads > usable:
        said.append(
            f"torch computes with {found.torch.threads} threads where {usable} can run at once; "
            f"set OMP_NUM_THREADS={usable}, or pass --threads {usable}"
        )
    if found.speed and found.speed.int8_gops is None:
        said.append(
            "torch multiplies in 8 bits only with AVX-512 VNNI, which is not here: --int8 needs "
            "--compile, and without it is taken for float32"
        )
    if found.compiler is None:
        said.append("there is no C++ compiler, which only --compile of a model's answers needs")
    if found.torch and not found.torch.onednn:
        said.append("this torch is built without oneDNN, so products are slower")
    for name, room in (("memory", found.memory), (f"disk at {found.cache}", found.cache_disk)):
        if room.free is not None and room.free < FEW:
            said.append(f"only {as_bytes(room.free)} of {name} are free")
    if not found.shows_signs:
        said.append(
            f"the terminal writes {found.encoding}, so − and √ become plain; "
            "set PYTHONIOENCODING=utf-8 if it can show them"
        )
    return said


def _install(found: MachineReport, wanted: list[Package]) -> str:
    names = " ".join(shlex.quote(p.requirement) for p in wanted)
    if any(p.name == "torch" for p in wanted):
        where = NO_CUDA
    else:
        where = ""
    return f"{shlex.quote(found.executable)} -m pip install {names}{where}"


def as_bytes(number: int) -> str:
    if number >= FEW:
        return f"{number / 1e9:,.1f} GB"
    return f"{number / 1e6:,.0f} MB"
