"""The C++ beside this file as a library of this machine, compiled once and kept in the cache."""

import hashlib
import os
import platform
import subprocess
import sys
import tempfile
from pathlib import Path

from qkv.errors import UsageError
from qkv.files.safe_io import cache_dir
from qkv.machine.resources import find_compiler

FOLDER = Path(__file__).parent
SOURCES = ("attend.cpp", "products.cpp", "rows.cpp", "step.cpp", "texts.cpp", "whole.cpp")
# Sums may be taken in any order, which lets them be taken many at a time; that a number may be
# infinite or none at all is never forgotten.
FLAGS = (
    "-std=c++17", "-O3", "-march=native", "-fno-math-errno", "-fno-trapping-math",
    "-fassociative-math", "-fno-signed-zeros", "-fno-strict-aliasing", "-shared", "-fPIC",
)  # fmt: skip
# Compilers shy away from the widest registers of some CPUs, which once clocked down for them.
WIDEST = ("-mprefer-vector-width=512",) if platform.machine() in ("x86_64", "AMD64") else ()
THREADS = () if sys.platform == "darwin" else ("-fopenmp",)  # Apple's compiler comes without


def library(name: str = "loops", sources: tuple[str, ...] = SOURCES) -> Path:
    """Where the library is; if it was never compiled for this machine, it is now."""
    compiler = _compiler()
    command = [*compiler, *FLAGS, *WIDEST, *THREADS]
    paths = [FOLDER / source for source in sources]
    target = cache_dir() / "native" / f"{name}-{_fingerprint(compiler, command, paths)}.so"
    if not target.is_file():
        _compile([*command, *map(str, paths)], target)
    return target


def _compiler() -> list[str]:
    found, asked = find_compiler(), os.environ.get("CXX")
    if found:
        return found
    wanted = f"CXX names {asked}, which" if asked else "there is no C++ compiler here, and it"
    raise UsageError(
        f"--compile needs a C++ compiler: {wanted} cannot be found; install g++ or clang++, or "
        "leave --compile out"
    )


def _fingerprint(compiler: list[str], command: list[str], sources: list[Path]) -> str:
    """Of all that the library depends on: the text, the compiler, and what this CPU can do."""
    found = hashlib.sha256(" ".join(command).encode())
    for path in sorted(FOLDER.rglob("*.h")) + sources:
        found.update(path.read_bytes())
    found.update(_run([*compiler, "-march=native", "-dM", "-E", "-x", "c++", os.devnull]))
    return found.hexdigest()[:16]


def _compile(command: list[str], target: Path) -> None:
    """Into another file first, so that nobody ever opens half a library."""
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        handle, fresh = tempfile.mkstemp(suffix=".so", dir=target.parent)
    except OSError as error:
        raise UsageError(
            f"--compile keeps what it compiled in {target.parent}, but {error.strerror}; set "
            "QKV_CACHE to a directory that can be written"
        ) from None
    os.close(handle)
    try:
        _run([*command, "-o", fresh])
        Path(fresh).replace(target)
    finally:
        Path(fresh).unlink(missing_ok=True)


def _run(command: list[str]) -> bytes:
    ran = subprocess.run(command, capture_output=True, check=False)
    if ran.returncode:
        said = ran.stderr.decode("utf-8", "replace").splitlines()
        why = next((line for line in said if "error" in line), "it said nothing")
        raise UsageError(f"--compile: {command[0]} failed: {why}; leave --compile out")
    return ran.stdout
