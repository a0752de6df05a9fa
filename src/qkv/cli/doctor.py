"""`qkv doctor`: check this machine: hardware, packages and speed, and what is missing for what.

`examine` collects the facts, `diagnose` turns them into sentences, `doctor` prints both.
"""

import platform
import shlex
import shutil
import sys
from dataclasses import dataclass
from typing import Annotated

import typer

import qkv
from qkv.cli.progress import print_rows, print_stderr
from qkv.files import cache_dir
from qkv.machine import (
    DEVELOPMENT_EXTRAS,
    EXTRAS,
    Capacity,
    Cores,
    Cpu,
    Package,
    best_throughput,
    cores,
    cpu,
    disk,
    find_compiler,
    find_packages,
    matmul_gflops,
    memory,
    memory_bandwidth,
)

SYMBOLS = "−√×→ᵀ"  # what output contains besides letters

# Shape of the int8 product that is timed: (ROWS, SIZE) times (SIZE, SIZE).
ROWS = 512
SIZE = 1024

LOW_BYTES = 1_000_000_000  # of free memory or disk: less is worth a note

# Without this index pip downloads several gigabytes of CUDA libraries.
CPU_INDEX = " --index-url https://download.pytorch.org/whl/cpu"


def doctor(
    json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> int:
    """Check this machine: hardware, packages and speed.

    Speeds are measured for about two seconds. The exit code is 1 if something that qkv needs is
    broken. What only some files or tools need is listed with the command that installs it.

    \b
    Examples:
      qkv doctor
      qkv doctor --json
    """
    from dataclasses import asdict
    from json import dumps

    print_stderr("checking, and measuring for about two seconds")
    report = examine()
    diagnosis = diagnose(report)
    if json:
        ok = not diagnosis.broken
        typer.echo(dumps({"ok": ok, **asdict(report), **asdict(diagnosis)}))
    else:
        print_rows([*_machine_rows(report), *_software_rows(report), *_speed_rows(report)])
        typer.echo("")
        for name, lines in asdict(diagnosis).items():
            for line in lines:
                typer.echo(f"{name.removesuffix('s')}: {line}")
        typer.echo(diagnosis.verdict)
    if diagnosis.broken:
        return 1
    return 0


def _machine_rows(report: "MachineReport") -> list[tuple[str, str]]:
    cpu = report.cpu
    cores = report.cores
    core_count = f"{cores.logical}"
    if cpu.physical is not None:
        core_count += f", {cpu.physical} physical"
    core_count += f"; usable {cores.usable}"
    if cores.quota is not None:
        core_count += f", {cores.quota:g} by the container's quota"
    return [
        ("CPU", f"{cpu.name} ({cpu.architecture})"),
        ("cores", core_count),
        ("instructions", _yes_no(cpu.features)),
        ("memory", _format_capacity(report.memory)),
        ("cache", f"{report.cache} (QKV_CACHE); disk {_format_capacity(report.cache_disk)}"),
        ("terminal", f"{report.encoding}, {report.columns} columns"),
    ]


def _software_rows(report: "MachineReport") -> list[tuple[str, str]]:
    rows = [("Python", f"{report.python} ({report.executable})"), ("qkv", report.qkv)]
    if report.torch:
        torch = report.torch
        libraries = _yes_no({"MKL": torch.mkl, "oneDNN": torch.onednn})
        devices = ", ".join(torch.devices)
        rows.append(("torch", f"{torch.version}, {torch.threads} threads · {libraries}"))
        rows.append(("C++ compiler", report.compiler or "none; only --compile needs one"))
        rows.append(("other devices", devices or "none; all of qkv runs on a CPU"))
    rows.append(("extras", _extras_line(report, EXTRAS)))
    rows.append(("to work on qkv", _extras_line(report, DEVELOPMENT_EXTRAS)))
    return rows


def _extras_line(report: "MachineReport", extras: dict[str, str]) -> str:
    """How many packages of each extra are installed."""
    parts = []
    for extra, purpose in extras.items():
        packages = [package for package in report.packages if package.extra == extra]
        installed = sum(package.problem is None for package in packages)
        state = f"{installed} of {len(packages)} packages"
        if packages and installed == len(packages):
            state = "yes"
        parts.append(f"{extra} ({purpose}) {state}")
    return " · ".join(parts)


def _speed_rows(report: "MachineReport") -> list[tuple[str, str]]:
    speed = report.speed
    if speed is None:
        return [("speed", "not measured")]
    int8 = "only with --compile"
    if speed.int8_gops is not None:
        int8 = f"{speed.int8_gops:,.0f} GOP/s, with --int8"
    return [
        ("float32", f"{speed.float32_gflops:,.0f} GFLOP/s"),
        ("int8", int8),
        ("reading", f"{speed.reading_gb:,.1f} GB/s, which bounds how fast tokens are generated"),
    ]


def _yes_no(features: dict[str, bool]) -> str:
    parts = []
    for name, available in features.items():
        if available:
            parts.append(f"{name} yes")
        else:
            parts.append(f"{name} no")
    return " · ".join(parts)


def _format_capacity(capacity: "Capacity") -> str:
    if capacity.total is None:
        return "not reported by this system"
    if capacity.free is None:
        return format_bytes(capacity.total)
    return f"{format_bytes(capacity.total)}, {format_bytes(capacity.free)} free"


def format_bytes(count: int) -> str:
    if count >= 1_000_000_000:
        return f"{count / 1e9:,.1f} GB"
    return f"{count / 1e6:,.0f} MB"


@dataclass(frozen=True)
class TorchBuild:
    """The installed torch."""

    version: str
    threads: int
    mkl: bool
    onednn: bool
    devices: tuple[str, ...]  # besides the CPU


@dataclass(frozen=True)
class Speed:
    """Throughput with all threads; None where the machine lacks the instructions."""

    float32_gflops: float
    int8_gops: float | None
    reading_gb: float  # per second


@dataclass(frozen=True)
class MachineReport:
    """The facts about this machine; the fields are those of `qkv doctor --json`."""

    python: str
    executable: str
    qkv: str
    cpu: Cpu
    cores: Cores
    memory: Capacity
    cache: str
    cache_disk: Capacity
    encoding: str
    shows_signs: bool  # whether the terminal can show − and √
    columns: int
    packages: tuple[Package, ...]
    installed: bool  # False if qkv runs from a checkout, without package metadata
    compiler: str | None  # of C++, for --compile
    torch: TorchBuild | None
    speed: Speed | None


def examine() -> MachineReport:
    """Collect the facts; without a working torch, `torch` and `speed` are None."""
    packages = _installed_packages()
    torch_works = not any(p.name == "torch" and p.problem for p in packages or ())
    torch_build = None
    speed = None
    if torch_works:
        torch_build = _torch_build()
        speed = _measure_speed()
    cache = cache_dir()
    encoding = sys.stdout.encoding or "unknown"
    return MachineReport(
        python=platform.python_version(),
        executable=sys.executable,
        qkv=qkv.__version__,
        cpu=cpu(),
        cores=cores(),
        memory=memory(),
        cache=str(cache),
        cache_disk=disk(cache),
        encoding=encoding,
        shows_signs=_can_encode(SYMBOLS, encoding),
        columns=shutil.get_terminal_size((80, 24)).columns,
        packages=tuple(packages or ()),
        installed=packages is not None,
        compiler=" ".join(find_compiler() or ()) or None,
        torch=torch_build,
        speed=speed,
    )


def _installed_packages() -> list[Package] | None:
    """None if qkv runs without being installed: then no metadata lists its requirements."""
    from importlib.metadata import PackageNotFoundError

    try:
        return find_packages()
    except PackageNotFoundError:
        return None


def _torch_build() -> TorchBuild | None:
    try:
        import torch
    except (ImportError, OSError):
        return None
    devices = []
    for index in range(torch.cuda.device_count()):
        devices.append(f"cuda:{index} {torch.cuda.get_device_name(index)}")
    if torch.backends.mps.is_available():
        devices.append("mps")
    return TorchBuild(
        version=torch.__version__,
        threads=torch.get_num_threads(),
        mkl=bool(torch.backends.mkl.is_available()),  # type: ignore[no-untyped-call]
        onednn=bool(torch.backends.mkldnn.is_available()),  # type: ignore[no-untyped-call]
        devices=tuple(devices),
    )


def _measure_speed() -> Speed | None:
    try:
        import torch

        from qkv.engine.optimized import LinearWeights, PackedQuantizedLinear, int8_supported
    except (ImportError, OSError):
        return None
    int8_gops = None
    with torch.inference_mode():
        if int8_supported():
            linear = PackedQuantizedLinear(LinearWeights(torch.randn(SIZE, SIZE), None))
            rows = torch.randn(ROWS, SIZE)
            int8_gops = best_throughput(lambda: linear(rows), 2 * ROWS * SIZE * SIZE / 1e9)
        return Speed(matmul_gflops(), int8_gops, memory_bandwidth())


def _can_encode(text: str, encoding: str) -> bool:
    try:
        text.encode(encoding)
    except (UnicodeEncodeError, LookupError):
        return False
    return True


@dataclass(frozen=True)
class Diagnosis:
    """Sentences about a machine; only what is broken keeps qkv from working."""

    broken: list[str]
    missing: list[str]
    notes: list[str]

    @property
    def verdict(self) -> str:
        if self.broken:
            return "qkv cannot work here until what is broken is fixed."
        if self.missing:
            return "qkv works here: it trains, runs and explains models; only the above is missing."
        return "qkv works here, with everything it can use."


def diagnose(report: MachineReport) -> Diagnosis:
    """What is broken, missing or worth a note, each with what to do about it."""
    return Diagnosis(_broken(report), _missing(report), _notes(report))


def _broken(report: MachineReport) -> list[str]:
    """What keeps qkv from working, each with the command that fixes it."""
    if not report.installed:
        return [
            "qkv runs without being installed, so its requirements are unknown; in its checkout "
            f"run: {shlex.quote(report.executable)} -m pip install -c constraints.txt -e ."
        ]
    lines = []
    for package in report.packages:
        if package.extra is None and package.problem:
            command = _install_command(report, [package])
            lines.append(f"{package.name}: {package.problem}; run: {command}")
    return lines


def _missing(report: MachineReport) -> list[str]:
    """For each incomplete extra: the packages, what they are for, and how to install them."""
    lines = []
    for extra, purpose in EXTRAS.items():
        absent = [p for p in report.packages if p.extra == extra and p.problem]
        if absent:
            names = ", ".join(package.name for package in absent)
            lines.append(f"{names}, for {purpose}; run: {_install_command(report, absent)}")
    return lines


def _notes(report: MachineReport) -> list[str]:
    """What works, but slower or less well than it could."""
    notes = []
    usable = report.cores.usable
    if report.torch and report.torch.threads > usable:
        notes.append(
            f"torch computes with {report.torch.threads} threads where {usable} can run at once; "
            f"set OMP_NUM_THREADS={usable}, or pass --threads {usable}"
        )
    if report.speed and report.speed.int8_gops is None:
        notes.append(
            "torch multiplies int8 only with AVX-512 VNNI, which this CPU lacks: --int8 needs "
            "--compile, and without it runs in float32"
        )
    if report.compiler is None:
        notes.append("there is no C++ compiler; only --compile needs one")
    if report.torch and not report.torch.onednn:
        notes.append("this torch is built without oneDNN, so matrix products are slower")
    capacities = {"memory": report.memory, f"disk at {report.cache}": report.cache_disk}
    for name, capacity in capacities.items():
        if capacity.free is not None and capacity.free < LOW_BYTES:
            notes.append(f"only {format_bytes(capacity.free)} of {name} are free")
    if not report.shows_signs:
        notes.append(
            f"the encoding of the terminal is {report.encoding}, so − and √ are replaced by ASCII; "
            "set PYTHONIOENCODING=utf-8 if it can show them"
        )
    return notes


def _install_command(report: MachineReport, packages: list[Package]) -> str:
    requirements = " ".join(shlex.quote(package.requirement) for package in packages)
    command = f"{shlex.quote(report.executable)} -m pip install {requirements}"
    if any(package.name == "torch" for package in packages):
        command += CPU_INDEX
    return command
