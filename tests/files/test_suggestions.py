"""What is offered to somebody who named a file that is not there."""

from pathlib import Path

import pytest

from qkv.files import write_error_message
from qkv.files.safe_io import closest_path, suggest_path

THERE = ("reviews.csv", "reviews.tsv", "book.txt", "Tickets.txt", ".hidden.txt")
MEANT = {
    "reviews.txt": "reviews.csv",  # another ending
    "reviews.tsv": "reviews.tsv",  # its own ending first
    "reveiws.tsv": "reviews.tsv",
    "boook.txt": "book.txt",
    "tickets.txt": "Tickets.txt",
    "hidden.txt": None,
    "quite-other.txt": None,  # the same ending does not make two names alike
}


@pytest.mark.parametrize("name", MEANT)
def test_the_nearest_name_is_that_of_the_stem(tmp_path: Path, name: str) -> None:
    for there in THERE:
        (tmp_path / there).touch()
    meant = MEANT[name]
    assert closest_path(tmp_path / name) == (None if meant is None else tmp_path / meant)


def test_a_folder_that_is_not_there_is_said(tmp_path: Path) -> None:
    said = suggest_path(tmp_path / "no" / "book.txt")
    assert said == f"; there is no folder {tmp_path / 'no'} either"


def test_a_refused_write_says_what_to_do() -> None:
    place = Path("a.npy")
    full = write_error_message(place, OSError(28, "No space left on device"))
    assert full == (
        "cannot write a.npy: No space left on device; free some space, or choose another directory"
    )
    rust = write_error_message(place, ValueError("I/O error: Permission denied (os error 13)"))
    assert rust.endswith("; choose a directory you may write to")
    assert write_error_message(place, OSError(5, "Input/output error")) == (
        "cannot write a.npy: Input/output error"
    )
