"""The loops are compiled once for a machine, and what is missing for it is said in one line."""

import os
from pathlib import Path

import pytest
from tests.kernels.native import needs_compiler

from qkv.errors import UsageError
from qkv.kernels import build
from qkv.machine import resources as compiler


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("QKV_CACHE", str(tmp_path))
    return tmp_path / "native"


@pytest.mark.slow
@needs_compiler
def test_it_is_compiled_once_and_leaves_nothing_else(cache: Path) -> None:
    first = build.library()
    written = first.stat().st_mtime_ns
    assert build.library() == first
    assert first.stat().st_mtime_ns == written
    assert list(cache.iterdir()) == [first]


@pytest.mark.slow
@needs_compiler
def test_other_flags_are_another_library(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = build.library()
    monkeypatch.setattr(build, "FLAGS", (*build.FLAGS, "-g0"))
    assert build.library() != first
    assert len(list(cache.iterdir())) == 2


def test_without_a_compiler_it_says_what_to_do(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiler, "COMPILERS", ("no-such-compiler",))
    monkeypatch.delenv("CXX", raising=False)
    with pytest.raises(UsageError, match=r"needs a C\+\+ compiler.*leave --compile out"):
        build.library()
    monkeypatch.setenv("CXX", "not-there++")
    with pytest.raises(UsageError, match=r"CXX names not-there\+\+"):
        build.library()


@pytest.mark.slow
@needs_compiler
def test_a_compiler_that_fails_is_quoted_and_leaves_nothing(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build, "FLAGS", (*build.FLAGS, "-Dlong=nonsense"))
    with pytest.raises(UsageError, match=r"failed: .*error"):
        build.library()
    assert list(cache.iterdir()) == []


@needs_compiler
@pytest.mark.skipif(os.name != "posix", reason="a file in the way is another thing there")
def test_a_cache_that_cannot_be_written_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "taken").write_text("a file, not a directory")
    monkeypatch.setenv("QKV_CACHE", str(tmp_path / "taken"))
    with pytest.raises(UsageError, match=r"keeps what it compiled in .*QKV_CACHE"):
        build.library()
