"""Documents that are read anew each time, and the part of them that is held out."""

import hashlib
import os
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qkv.data import DocumentChunk, Documents, read_texts, split, split_documents
from qkv.data.documents import CHUNK_LENGTH, join_chunks
from qkv.errors import DataError

LONG = "".join(f"line {i} of a long text\n" for i in range(CHUNK_LENGTH // 7))


def put(folder: Path, name: str, content: str) -> Path:
    path = folder / name
    path.write_text(content, encoding="utf-8", newline="")
    return path


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    return [
        put(tmp_path, "a.txt", f"\ufeff{LONG}"),
        put(tmp_path, "b.csv", 'id,text\n1,"two\nlines, quoted"\n2,x\n'),
        put(tmp_path, "c.tsv", 'text\tlabel\n"so he said\ty\nthree\tn\n'),
        put(tmp_path, "d.jsonl", '{"text": "four"}\n\n{"text": "five"}\n'),
        put(tmp_path, "e.txt", "windows\r\nlines\r\n"),
    ]


def test_they_are_what_read_texts_reads_however_often_they_are_read(files: list[Path]) -> None:
    documents = Documents(files)
    for _ in range(2):
        assert list(join_chunks(documents)) == read_texts(files)
    assert documents.documents == 8
    assert documents.characters == sum(map(len, read_texts(files)))


def test_a_long_text_comes_in_pieces_and_a_row_in_one(files: list[Path]) -> None:
    chunks = list(Documents(files))
    assert sum(chunk.document == 0 for chunk in chunks) > 2
    assert [chunk.document for chunk in chunks if chunk.last] == list(range(8))
    assert all(b.document - a.document == a.last for a, b in pairwise(chunks))


def test_texts_in_memory_have_the_same_face_and_the_same_name(files: list[Path]) -> None:
    texts = read_texts(files)
    documents = Documents.of(texts)
    assert list(documents) == [DocumentChunk(text, i, True) for i, text in enumerate(texts)]
    assert documents.sha256 == Documents(files).sha256


def test_the_name_tells_where_one_document_ends_and_the_next_begins() -> None:
    def name(*texts: str) -> str:
        return Documents.of(texts).sha256

    assert len({name("ab"), name("a", "b"), name("b", "a"), name("ab", ""), name("", "ab")}) == 5
    assert name("é") == hashlib.sha256("é".encode() + (2).to_bytes(8, "big")).hexdigest()


def test_a_column_can_be_asked_for_of_tables_only(files: list[Path], tmp_path: Path) -> None:
    table = put(tmp_path, "t.csv", "body,title\nlong,short\n")
    assert [chunk.text for chunk in Documents([table], text="body")] == ["long"]
    with pytest.raises(DataError, match=r"a\.txt is plain text and has no column body"):
        Documents([table, files[0]], text="body")


@pytest.mark.parametrize("content", ["", " \n\n\t\n", "\n" * (CHUNK_LENGTH + 1)])
def test_a_file_without_words_is_refused(tmp_path: Path, content: str) -> None:
    path = put(tmp_path, "a.txt", content)
    with pytest.raises(DataError, match="is empty; it holds no text"):
        list(Documents([path]))


def test_a_row_far_down_is_named_when_it_is_reached(tmp_path: Path) -> None:
    path = put(tmp_path, "a.csv", "text,label\n" + "one,1\n" * 1_000 + ",1\n")
    stream = iter(Documents([path]))
    assert next(stream).text == "one"
    with pytest.raises(DataError, match="line 1002: text is empty"):
        list(stream)


def test_a_file_that_changes_or_goes_away_is_noticed(tmp_path: Path) -> None:
    path = put(tmp_path, "a.txt", LONG)
    documents = Documents([path])
    stream = iter(documents)
    next(stream)
    with path.open("a") as file:
        file.write("more\n")
    with pytest.raises(DataError, match=r"a\.txt was changed while it was in use; start again"):
        list(stream)
    path.unlink()
    with pytest.raises(DataError, match=r"a\.txt was changed while it was in use"):
        list(documents)


def test_what_can_be_read_only_once_is_refused(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(DataError, match="pipe can be read only once; write it to a file first"):
        Documents([pipe])


@given(
    texts=st.lists(st.text("ab \n", max_size=9), min_size=2, max_size=17),
    fraction=st.floats(0.01, 0.99),
    seed=st.integers(0, 2**40),
)
def test_several_documents_are_parted_as_split_does(
    texts: list[str], fraction: float, seed: int
) -> None:
    train, validation = split_documents(Documents.of(texts), fraction, seed)
    for _ in range(2):
        assert ([*join_chunks(train)], [*join_chunks(validation)]) == split(texts, seed, fraction)


@given(text=st.text("ab \n", min_size=1, max_size=99), fraction=st.floats(1e-18, 0.9999))
def test_the_end_of_an_only_document_is_held_out_to_the_character(
    text: str, fraction: float
) -> None:
    train, validation = split_documents(Documents.of([text]), fraction, seed=3)
    cut = int(len(text) * (1.0 - fraction))
    assert [*join_chunks(train)] == [text[:cut]]
    assert [*join_chunks(validation)] == [text[cut:]]


@pytest.mark.parametrize("fraction", [0.1, 0.37, 0.5, 0.999, 1e-6])
def test_a_long_only_document_is_parted_between_and_inside_its_pieces(
    tmp_path: Path, fraction: float
) -> None:
    documents = Documents([put(tmp_path, "a.txt", LONG)])
    cut = int(len(LONG) * (1.0 - fraction))
    train, validation = split_documents(documents, fraction, seed=3)
    assert [*join_chunks(train)] == [LONG[:cut]]
    assert [*join_chunks(validation)] == [LONG[cut:]]


def test_a_cut_that_falls_between_two_pieces_leaves_no_empty_one(tmp_path: Path) -> None:
    documents = Documents([put(tmp_path, "a.txt", LONG)])
    first = len(next(iter(documents)).text)
    fraction = 1 - (first + 0.5) / len(LONG)
    train, validation = map(list, split_documents(documents, fraction, seed=3))
    assert [(len(chunk.text), chunk.last) for chunk in train] == [(first, True)]
    assert all(chunk.text for chunk in validation)
    assert "".join(chunk.text for chunk in validation) == LONG[first:]


def test_the_keys_of_parts_name_their_content() -> None:
    def keys(texts: list[str], fraction: float, seed: int) -> set[str]:
        return {side.key for side in split_documents(Documents.of(texts), fraction, seed)}

    a, b = ["a", "b", "c"], ["a", "b", "d"]
    every = [keys(a, 0.1, 1), keys(a, 0.1, 2), keys(a, 0.5, 1), keys(b, 0.1, 1)]
    assert len(set().union(*every)) == 8
    assert keys(a, 0.1, 1) == every[0]


@pytest.mark.parametrize("fraction", [0.0, 1.0, -1.0, float("nan")])
@pytest.mark.parametrize("texts", [["a b"], ["a", "b"]])
def test_a_share_that_is_none_is_refused(texts: list[str], fraction: float) -> None:
    with pytest.raises(DataError, match="must be between 0 and 1"):
        split_documents(Documents.of(texts), fraction, 0)


def test_nothing_cannot_be_parted() -> None:
    with pytest.raises(DataError, match="cannot split 0 examples"):
        split_documents(Documents.of([]), 0.1, 0)
