"""Libraries are compiled once for a machine, by one process and without warnings."""

import ctypes
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.kernels.native import needs_compiler

from qkv.errors import UsageError
from qkv.kernels import build, inference, training
from qkv.kernels.library import Library
from qkv.machine import resources as compiler

SMALL = ("small", ("abi.cpp",))  # compiles in a moment


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("QKV_CACHE", str(tmp_path))
    monkeypatch.delenv("QKV_KERNEL_CACHE", raising=False)
    return tmp_path / "kernels"


@needs_compiler
def test_it_is_compiled_once_and_leaves_nothing_else(cache: Path) -> None:
    first = build.compile_library(*SMALL)
    written = first.stat().st_mtime_ns
    assert build.compile_library(*SMALL) == first
    assert first.stat().st_mtime_ns == written
    assert list(cache.iterdir()) == [first]


@needs_compiler
def test_the_directory_of_libraries_can_be_set_by_itself(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("QKV_KERNEL_CACHE", str(tmp_path / "shared"))
    assert build.compile_library(*SMALL).parent == tmp_path / "shared"
    assert not cache.exists()


@needs_compiler
@pytest.mark.skipif(os.name != "posix", reason="there is no lock elsewhere")
def test_processes_that_need_a_library_at_once_compile_it_once(cache: Path, tmp_path: Path) -> None:
    """The compiler is a script that counts its calls."""
    real = compiler.find_compiler()
    assert real is not None
    script = tmp_path / "counting++"
    script.write_text(f'#!/bin/sh\necho "$@" >> "{tmp_path}/calls"\nexec {" ".join(real)} "$@"\n')
    script.chmod(0o755)
    code = "from qkv.kernels.build import compile_library; compile_library('small', ('abi.cpp',))"
    environment = {**os.environ, "CXX": str(script)}
    processes = [subprocess.Popen([sys.executable, "-c", code], env=environment) for _ in range(3)]
    assert [process.wait() for process in processes] == [0, 0, 0]
    calls = (tmp_path / "calls").read_text().splitlines()
    assert sum("-shared" in call for call in calls) == 1


@needs_compiler
def test_other_flags_are_another_library(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = build.compile_library(*SMALL)
    monkeypatch.setattr(build, "FLAGS", (*build.FLAGS, "-g0"))
    second = build.compile_library(*SMALL)
    assert second != first
    monkeypatch.setenv("QKV_KERNEL_FLAGS", "-g0 -DMORE=1")
    assert build.compile_library(*SMALL) not in (first, second)
    assert len(list(cache.iterdir())) == 3


def test_without_a_compiler_the_error_names_what_to_install(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiler, "COMPILERS", ("no-such-compiler",))
    monkeypatch.delenv("CXX", raising=False)
    with pytest.raises(UsageError, match=r"needs a C\+\+ compiler.*leave compile out"):
        build.compile_library(*SMALL)
    monkeypatch.setenv("CXX", "not-there++")
    with pytest.raises(UsageError, match=r"CXX names not-there\+\+"):
        build.compile_library(*SMALL)


@needs_compiler
def test_a_compiler_that_fails_is_quoted_and_leaves_nothing(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build, "FLAGS", (*build.FLAGS, "-Dlong=nonsense"))
    with pytest.raises(UsageError, match=r"failed: .*error"):
        build.compile_library(*SMALL)
    assert list(cache.iterdir()) == []


@needs_compiler
@pytest.mark.skipif(os.name != "posix", reason="a file in the way is another error elsewhere")
def test_a_cache_that_cannot_be_written_is_named(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "taken").write_text("a file, not a directory")
    monkeypatch.setenv("QKV_CACHE", str(tmp_path / "taken"))
    with pytest.raises(UsageError, match=r"stores compiled kernels in .*QKV_CACHE"):
        build.compile_library(*SMALL)


@needs_compiler
@pytest.mark.parametrize("module", [inference, training], ids=["inference", "training"])
def test_there_are_no_warnings(
    module: object, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("QKV_KERNEL_FLAGS", "-Wall -Wextra -Werror -O1")
    build.compile_library("warnings", module.SOURCES)  # type: ignore[attr-defined]


def test_every_source_belongs_to_a_library() -> None:
    sources = {str(path.relative_to(build.FOLDER)) for path in build.FOLDER.rglob("*.cpp")}
    assert sources == {*inference.SOURCES, *training.SOURCES}


def test_no_two_sources_or_headers_have_the_same_name() -> None:
    names = [path.name for kind in ("*.cpp", "*.h") for path in build.FOLDER.rglob(kind)]
    assert len(names) == len(set(names))


@needs_compiler
@pytest.mark.skipif(shutil.which("nm") is None, reason="needs nm to list symbols")
@pytest.mark.skipif(sys.platform != "linux", reason="nm lists other things elsewhere")
@pytest.mark.parametrize("module", [inference, training], ids=["inference", "training"])
def test_only_functions_with_the_prefix_are_exported(module: object) -> None:
    name = str(module.__name__).rpartition(".")[2]  # type: ignore[attr-defined]
    path = build.compile_library(name, module.SOURCES)  # type: ignore[attr-defined]
    listing = subprocess.run(
        ["nm", "-D", "--defined-only", path], capture_output=True, text=True, check=True
    )
    exported = [line.split()[-1] for line in listing.stdout.splitlines()]
    assert exported
    assert all(symbol.startswith("qkv_") for symbol in exported)
    declared = set[str]()
    for source in module.SOURCES:  # type: ignore[attr-defined]
        text = (build.FOLDER / source).read_text("utf-8")
        declared.update(re.findall(r"QKV_EXPORT .*?(qkv_\w+)\(", text))
    assert set(exported) == declared


@needs_compiler
def test_a_struct_of_another_size_is_refused() -> None:
    path = build.compile_library(*SMALL)

    class Strides(ctypes.Structure):
        _fields_ = (("batch", ctypes.c_long), ("head", ctypes.c_long))

    with pytest.raises(RuntimeError, match="struct Strides has 24 bytes in C"):
        Library(path, [Strides])


@needs_compiler
def test_an_unknown_activation_ends_the_process_with_a_message() -> None:
    code = (
        "import torch; from qkv.kernels import *; k = inference_kernels();"
        "k.linear(PackedMatrix.of(k.pack(torch.ones(2, 3)), None, 2), torch.ones(4, 3), 99)"
    )
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert process.returncode < 0
    assert "qkv kernels: unknown activation: 99" in process.stderr
