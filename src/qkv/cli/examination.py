"""What `qkv doctor` looks at: the machine, the packages, torch, and how fast it all is."""

import platform
import shutil
import sys
from dataclasses import dataclass

import qkv
from qkv.files.cache import cache_home
from qkv.machine import (
    Cores,
    Cpu,
    Package,
    Room,
    cores,
    cpu,
    disk,
    matrix_speed,
    memory,
    rate,
    reading_speed,
)
from qkv.machine import packages as look_for_packages
from qkv.machine.compiler import find_compiler

SHOWN_BY_ALL = "−√×→ᵀ"  # what answers are written with besides letters
ROWS, SIZE = 512, 1024  # of the product in 8 bits


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
class Examination:
    """All that was found."""

    python: str
    executable: str
    qkv: str
    cpu: Cpu
    cores: Cores
    memory: Room
    cache: str
    cache_disk: Room
    encoding: str
    shows_signs: bool  # the terminal: − and √ as they are
    columns: int
    packages: tuple[Package, ...]
    installed: bool  # qkv itself, with the list of what it needs
    compiler: str | None  # of C++, for --compile
    torch: Torch | None
    speed: Speed | None


def examine() -> Examination:
    """Look at everything; a part that is broken is left out, and said in `packages`."""
    found = _packages()
    works = not any(p.name == "torch" and p.trouble for p in found or ())
    place, encoding = cache_home(), sys.stdout.encoding or "unknown"
    return Examination(
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

        from qkv.engine.quick.int8 import PackedInt8, int8_works
        from qkv.engine.quick.linear import Matrix
    except (ImportError, OSError):
        return None
    whole = None
    with torch.inference_mode():
        if int8_works():
            product = PackedInt8(Matrix(torch.randn(SIZE, SIZE), None))
            rows = torch.randn(ROWS, SIZE)
            whole = rate(lambda: product(rows), 2 * ROWS * SIZE * SIZE / 1e9)
        return Speed(matrix_speed(), whole, reading_speed())


def _can_be_written(text: str, encoding: str) -> bool:
    try:
        text.encode(encoding)
    except (UnicodeEncodeError, LookupError):
        return False
    return True
