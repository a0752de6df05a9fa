"""A file that is replaced is the old one or the whole new one, and keeps who may read it."""

import os
from pathlib import Path

import pytest

from qkv.files import atomic_write


def test_a_new_file_has_the_usual_mode_and_an_old_one_keeps_its_own(tmp_path: Path) -> None:
    path = tmp_path / "a"
    before = os.umask(0o027)
    try:
        atomic_write(path, b"one")
    finally:
        os.umask(before)
    assert path.stat().st_mode & 0o777 == 0o640
    path.chmod(0o600)
    atomic_write(path, b"two")
    assert path.read_bytes() == b"two"
    assert path.stat().st_mode & 0o777 == 0o600
    assert list(tmp_path.iterdir()) == [path]


def test_what_cannot_be_written_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    folder = tmp_path / "a"
    folder.mkdir()
    with pytest.raises(OSError, match="irectory"):
        atomic_write(folder, b"x")
    assert list(tmp_path.iterdir()) == [folder]
