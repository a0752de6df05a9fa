"""Only an ordinary file of the right place and size is read; all else is one line at once."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from qkv.errors import BundleError, DataError
from qkv.files import (
    MAX_CONFIG_BYTES,
    check_inside_directory,
    lexists,
    open_regular_file,
    read_bytes,
    read_text,
)


def refused(path: Path, **given: object) -> str:
    with pytest.raises(DataError) as caught:
        read_text(path, DataError, **given)  # type: ignore[arg-type]
    assert str(caught.value).isprintable()
    return str(caught.value)


def test_a_file_is_read_whole(tmp_path: Path) -> None:
    for content in ("", "a", "é\r\n\0"):
        (tmp_path / "a").write_bytes(content.encode())
        assert read_text(tmp_path / "a") == content


def test_what_is_wrong_is_the_error_that_is_asked_for(tmp_path: Path) -> None:
    for read in (read_bytes, read_text, check_inside_directory, open_regular_file):
        for error in (BundleError, DataError):
            with pytest.raises(error, match=r"cannot read .*nothing: No such file"):
                read(tmp_path / "nothing", error)


@pytest.mark.parametrize(
    ("make", "says"),
    [(Path.mkdir, "is a directory"), (os.mkfifo, "is a device or a pipe; give an ordinary file")],
)
def test_what_is_no_file_is_refused_and_left_closed(
    make: Callable[[Path], None], says: str, tmp_path: Path
) -> None:
    make(tmp_path / "a")
    next_number = os.dup(0)
    os.close(next_number)
    assert says in refused(tmp_path / "a")
    assert os.dup(0) == next_number
    os.close(next_number)


def test_names_with_a_zero_byte_are_refused(tmp_path: Path) -> None:
    for anywhere in (False, True):
        with pytest.raises(BundleError, match="cannot read"):
            read_bytes(tmp_path / "a\0b", follow_symlinks=anywhere)


def test_a_file_too_large_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    os.truncate(tmp_path / "a", MAX_CONFIG_BYTES)
    assert len(read_bytes(tmp_path / "a")) == MAX_CONFIG_BYTES
    os.truncate(tmp_path / "a", MAX_CONFIG_BYTES + 1)
    assert "has 20,971,521 bytes; at most 20,971,520 are read" in refused(tmp_path / "a")
    assert "at most 7 are read" in refused(tmp_path / "a", max_bytes=7)


def test_what_is_not_utf_8_is_told_with_its_byte(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"abc\xff")
    assert "is not UTF-8 text (byte 3)" in refused(tmp_path / "a")


def model(tmp_path: Path) -> tuple[Path, Path]:
    """A revision of a cached model with a folder in it, and its blobs."""
    revision, blobs = tmp_path / "m" / "snapshots" / "0123", tmp_path / "m" / "blobs"
    (revision / "1_Pooling" / "deep").mkdir(parents=True)
    blobs.mkdir()
    (blobs / "f00d").write_text("text")
    return revision, blobs


@pytest.mark.parametrize("folder", [".", "1_Pooling", "1_Pooling/deep"])
def test_a_cached_model_leads_to_its_blobs_from_any_depth(folder: str, tmp_path: Path) -> None:
    revision, blobs = model(tmp_path)
    (revision / folder / "a").symlink_to(blobs / "f00d")
    assert read_text(revision / folder / "a") == "text"
    (blobs / "beef").symlink_to("/etc/hostname")
    (revision / folder / "b").symlink_to(blobs / "beef")
    assert "leads out of the model's directory" in refused(revision / folder / "b")


def test_only_blobs_of_the_same_model_and_only_below_a_revision(tmp_path: Path) -> None:
    revision, blobs = model(tmp_path / "one")
    _, others = model(tmp_path / "two")
    (revision / "a").symlink_to(others / "f00d")
    (revision.parent / "b").symlink_to(blobs / "f00d")
    (revision / "c").symlink_to(revision.parent / "d")
    (revision.parent / "d").write_text("beside the revision")
    for path in (revision / "a", revision.parent / "b", revision / "c"):
        assert "leads out" in refused(path)


def test_a_link_within_the_directory_is_followed_and_others_if_the_user_names_them(
    tmp_path: Path,
) -> None:
    (tmp_path / "model" / "files").mkdir(parents=True)
    (tmp_path / "model" / "files" / "one").write_text("inside")
    (tmp_path / "private").write_text("outside")
    (tmp_path / "model" / "a").symlink_to("files/one")
    (tmp_path / "model" / "b").symlink_to("../private")
    assert read_text(tmp_path / "model" / "a") == "inside"
    assert str(tmp_path / "private") in refused(tmp_path / "model" / "b")
    assert read_text(tmp_path / "model" / "b", follow_symlinks=True) == "outside"


def test_a_folder_may_be_asked_for_too(tmp_path: Path) -> None:
    """A file is judged by the folder it is in, which may itself be a link."""
    (tmp_path / "model" / "1_Pooling").mkdir(parents=True)
    (tmp_path / "model" / "2_Pooling").symlink_to(tmp_path)
    assert check_inside_directory(tmp_path / "model" / "1_Pooling").is_dir()
    with pytest.raises(BundleError, match="leads out"):
        check_inside_directory(tmp_path / "model" / "2_Pooling")


def test_a_link_that_leads_nowhere_is_there_and_refused(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("nothing")
    (tmp_path / "b").symlink_to("b")
    for name in ("a", "b"):
        assert lexists(tmp_path / name)
        assert "is a link that leads nowhere" in refused(tmp_path / name)
    assert not lexists(tmp_path / "c")
