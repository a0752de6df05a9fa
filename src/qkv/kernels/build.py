"""The C++ kernels as shared libraries, compiled for this machine once and cached.

The name of a library holds a hash of everything it depends on: its sources, the compiler, the flags
and the features of the CPU. So one cache directory can serve many versions and machines, and any
number of processes at the same time.

    QKV_KERNEL_CACHE   where libraries are stored, instead of `kernels` in qkv's cache directory
    QKV_KERNEL_FLAGS   more compiler flags, for sanitizers and debugging
"""

import hashlib
import os
import platform
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from qkv.errors import UsageError
from qkv.files import cache_dir
from qkv.machine import find_compiler

FOLDER = Path(__file__).parent

# Sums may be taken in any order, which lets the compiler vectorize them. Not -ffast-math, which
# would also assume that no number is infinite or NaN: those have to show in the result.
FLAGS = (
    "-std=c++17",
    "-O3",
    "-march=native",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-fassociative-math",
    "-fno-signed-zeros",
    "-fno-strict-aliasing",
    "-fPIC",
    "-fvisibility=hidden",
)
# By default compilers avoid the widest registers, as early CPUs that had them lowered their clock.
if platform.machine() in ("x86_64", "AMD64"):
    VECTOR_FLAGS: tuple[str, ...] = ("-mprefer-vector-width=512",)
else:
    VECTOR_FLAGS = ()
# Apple's compiler comes without OpenMP.
OPENMP_FLAGS: tuple[str, ...] = () if sys.platform == "darwin" else ("-fopenmp",)


def compile_library(name: str, sources: tuple[str, ...]) -> Path:
    """Returns the path of the library made of these sources; compiles it if it is not cached."""
    compiler = _find_compiler()
    extra = shlex.split(os.environ.get("QKV_KERNEL_FLAGS", ""))
    command = [*compiler, *FLAGS, *VECTOR_FLAGS, *OPENMP_FLAGS, *extra]
    paths = [FOLDER / source for source in sources]
    target = _cache_directory() / f"{name}-{_fingerprint(compiler, command, paths)}.so"
    if target.is_file():
        return target
    with _locked(target.parent):
        # Another process may have compiled it while this one waited for the lock.
        if not target.is_file():
            _compile(command, paths, target)
    return target


def _find_compiler() -> list[str]:
    compiler = find_compiler()
    if compiler:
        return compiler
    problem = "there is none on the PATH"
    if os.environ.get("CXX"):
        problem = f"CXX names {os.environ['CXX']}, which cannot be found"
    raise UsageError(
        f"compile=True needs a C++ compiler, and {problem}; install g++ or clang++, or leave "
        "compile out"
    )


def _cache_directory() -> Path:
    directory = os.environ.get("QKV_KERNEL_CACHE")
    if directory:
        return Path(directory)
    return cache_dir() / "kernels"


def _fingerprint(compiler: list[str], command: list[str], sources: list[Path]) -> str:
    """A hash of the flags, the sources, and the compiler's own macros for this CPU."""
    digest = hashlib.sha256(" ".join(command).encode())
    for path in sorted(FOLDER.rglob("*.h")) + sources:
        digest.update(path.read_bytes())
    # With -march=native these list the compiler's version and every feature of the CPU.
    digest.update(_run([*compiler, "-march=native", "-dM", "-E", "-x", "c++", os.devnull]))
    return digest.hexdigest()[:16]


@contextmanager
def _locked(directory: Path) -> Iterator[None]:
    """Holds a lock on the directory, so that no two processes compile the same library at once."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _cannot_write(directory, error) from None
    try:
        import fcntl
    except ImportError:  # Windows: at worst it is compiled twice, and either result is good
        yield
        return
    handle = os.open(directory, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)  # which also unlocks


def _compile(command: list[str], sources: list[Path], target: Path) -> None:
    """Compiles the sources in parallel and links them.

    Everything is written to a temporary directory and moved at the end, so that nobody ever opens
    half a library.
    """
    try:
        temporary = tempfile.TemporaryDirectory(dir=target.parent)
    except OSError as error:
        raise _cannot_write(target.parent, error) from None
    with temporary as folder:
        objects = [Path(folder) / f"{source.stem}.o" for source in sources]

        def compile_one(source: Path, output: Path) -> None:
            _run([*command, "-c", str(source), "-o", str(output)])

        with ThreadPoolExecutor(os.cpu_count()) as pool:
            list(pool.map(compile_one, sources, objects))
        library = Path(folder) / target.name
        _run([*command, "-shared", *map(str, objects), "-o", str(library)])
        library.replace(target)


def _run(command: list[str]) -> bytes:
    process = subprocess.run(command, capture_output=True, check=False)
    if process.returncode:
        lines = process.stderr.decode("utf-8", "replace").splitlines()
        message = next((line for line in lines if "error" in line), "it printed no error")
        raise UsageError(f"compile=True: {command[0]} failed: {message}; leave compile out")
    return process.stdout


def _cannot_write(directory: Path, error: OSError) -> UsageError:
    return UsageError(
        f"compile=True stores compiled kernels in {directory}, but {error.strerror}; set QKV_CACHE "
        "to a directory that can be written"
    )
