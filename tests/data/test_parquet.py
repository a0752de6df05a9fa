"""Tables in Parquet, which need pyarrow, and what is said without it."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from qkv.data import (
    Documents,
    LabelledText,
    Pair,
    ScoredPair,
    read_labelled,
    read_lines,
    read_pairs,
    read_scored,
    read_texts,
)
from qkv.data.table import PARQUET_BATCH_ROWS
from qkv.errors import DataError

arrow = pytest.importorskip("pyarrow", reason="needs pyarrow: the extra qkv[parquet]")
parquet = pytest.importorskip("pyarrow.parquet", reason="needs pyarrow: the extra qkv[parquet]")


def put(folder: Path, columns: dict[str, Any], **options: Any) -> Path:
    path = folder / "a.parquet"
    parquet.write_table(arrow.table(columns), path, **options)
    return path


def test_it_is_a_table_like_any_other(tmp_path: Path) -> None:
    path = put(tmp_path, {"id": [1, 2], "text": ["one", "two\nlines"], "label": ["y", "n"]})
    assert read_labelled([path]) == [LabelledText("one", "y"), LabelledText("two\nlines", "n")]
    assert read_labelled([path], "text", "1") == [
        LabelledText("one", "1"),
        LabelledText("two\nlines", "2"),
    ]
    assert read_texts([path]) == read_lines([path]) == ["one", "two\nlines"]
    assert [piece.text for piece in Documents([path], text="3")] == ["y", "n"]


def test_pairs_and_scores_are_read(tmp_path: Path) -> None:
    path = put(tmp_path, {"en": ["a dog"], "de": ["ein Hund"], "score": [4.5]})
    assert read_pairs([path]) == [Pair("a dog", "ein Hund")]
    assert read_scored([path], "en", "de") == [ScoredPair("a dog", "ein Hund", 4.5)]


@pytest.mark.parametrize(
    ("kind", "values", "read"),
    [
        ("int64", [0, -7], ["0", "-7"]),
        ("uint8", [0, 255], ["0", "255"]),
        ("float64", [5.0, 0.1], ["5.0", "0.1"]),
        ("float32", [5.0, 0.1], ["5.0", "0.1"]),
        ("bool_", [True, False], ["true", "false"]),
        ("large_string", ["x", "y"], ["x", "y"]),
        ("string_view", ["x", "y"], ["x", "y"]),
    ],
)
def test_numbers_and_truths_are_written_as_json_does(
    kind: str, values: list[Any], read: list[str], tmp_path: Path
) -> None:
    labels = arrow.array(values, getattr(arrow, kind)())
    path = put(tmp_path, {"text": ["a", "b"], "label": labels})
    assert [row.label for row in read_labelled([path])] == read


def test_a_column_of_categories_is_a_column_of_texts(tmp_path: Path) -> None:
    labels = arrow.array(["x", "y", "x"]).dictionary_encode()
    path = put(tmp_path, {"text": ["a", "b", "c"], "label": labels})
    assert [row.label for row in read_labelled([path])] == ["x", "y", "x"]


def test_rows_are_counted_over_batches_and_groups(tmp_path: Path) -> None:
    count = 2 * PARQUET_BATCH_ROWS + 5
    texts = [f"text {i}" for i in range(count)]
    path = put(tmp_path, {"text": texts}, row_group_size=PARQUET_BATCH_ROWS // 3)
    assert read_texts([path]) == texts
    path = put(tmp_path, {"text": [*texts, None]}, row_group_size=PARQUET_BATCH_ROWS // 3)
    with pytest.raises(DataError, match=rf"row {count + 1}: text is empty; every row needs text"):
        read_texts([path])


@pytest.mark.parametrize("missing", [None, "", " ", float("nan")])
def test_an_empty_cell_is_named_with_its_row(missing: Any, tmp_path: Path) -> None:
    labels = ["y", missing] if isinstance(missing, str | None) else [1.0, missing]
    path = put(tmp_path, {"text": ["a", "b"], "label": labels})
    with pytest.raises(DataError, match=r"a\.parquet row 2: label is empty; every row needs"):
        read_labelled([path])


def test_a_column_that_cannot_be_a_text_is_refused(tmp_path: Path) -> None:
    path = put(tmp_path, {"text": [["a"], ["b"]], "label": [b"x", b"y"]})
    with pytest.raises(DataError, match=r'the column "text" holds list<.*>; texts are needed'):
        read_texts([path])
    with pytest.raises(DataError, match='the column "label" holds binary; texts are needed'):
        read_texts([path], text="label")


def test_columns_are_asked_for_by_the_names_there_are(tmp_path: Path) -> None:
    path = put(tmp_path, {"body": ["a"], "kind": ["b"], "more": ["c"]})
    with pytest.raises(DataError, match=r"which column holds the text\? pass text=NAME or NUMBER"):
        read_texts([path])
    with pytest.raises(DataError, match=r'a\.parquet: unknown column "boody"; did you mean "body"'):
        read_texts([path], text="boody")
    twice = arrow.table([arrow.array(["a"]), arrow.array(["b"])], names=["text", "text"])
    parquet.write_table(twice, path)
    with pytest.raises(DataError, match='several columns are named "text"; rename all but one'):
        read_texts([path], text="2")


@pytest.mark.parametrize("content", [b"", b"PAR1", b"text,label\ngood,1\n" * 9, b"PAR1" * 9])
def test_a_file_that_is_no_parquet_is_one_clear_line(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    path.write_bytes(content)
    with pytest.raises(
        DataError, match=r"a\.parquet: it is damaged or not a Parquet file"
    ) as caught:
        read_texts([path])
    assert "\n" not in str(caught.value)


def test_a_file_cut_short_or_damaged_inside_is_one_clear_line(tmp_path: Path) -> None:
    texts = [f"text {i * 7919}" for i in range(5_000)]
    path = put(tmp_path, {"text": texts}, compression="gzip", use_dictionary=False)
    content = path.read_bytes()
    path.write_bytes(content[:-20])
    with pytest.raises(DataError, match="is damaged or not a Parquet file"):
        read_texts([path])
    path.write_bytes(content[:100] + b"\xff" * 2_000 + content[2_100:])
    with pytest.raises(DataError, match="is damaged or not a Parquet file") as caught:
        read_texts([path])
    assert "\n" not in str(caught.value)


def test_an_empty_table_and_bytes_that_are_no_text_are_refused(tmp_path: Path) -> None:
    path = put(tmp_path, {"text": arrow.array([], arrow.string())})
    with pytest.raises(DataError, match="is empty; it holds no rows"):
        read_texts([path])
    broken = arrow.array([b"a", b"\xe9"]).view(arrow.string())
    with pytest.raises(DataError, match='"text" holds bytes that are not UTF-8 in one of the rows'):
        read_texts([put(tmp_path, {"text": broken})])


def test_without_pyarrow_the_extra_is_named_and_other_tables_are_read(tmp_path: Path) -> None:
    path = put(tmp_path, {"text": ["a", "b"]})
    (tmp_path / "b.csv").write_text("text\none\n")
    script = (
        "import sys\n"
        "from pathlib import Path\n"
        "sys.modules['pyarrow'] = None\n"
        "from qkv.data import read_texts\n"
        "print(read_texts([Path(sys.argv[2])]))\n"
        "try:\n"
        "    read_texts([Path(sys.argv[1])])\n"
        "except Exception as error:\n"
        "    print(type(error).__name__, error)\n"
    )
    command = [sys.executable, "-c", script, str(path), str(tmp_path / "b.csv")]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    said = re.escape(f"reading {path} needs pyarrow; install it with: pip install pyarrow")
    assert re.fullmatch(rf"\['one'\]\nDataError {said}\n", done.stdout)


def test_pyarrow_is_not_imported_for_other_tables() -> None:
    script = "import sys, qkv.data; print([m for m in ('pyarrow', 'torch') if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", script], check=True, capture_output=True, text=True
    )
    assert done.stdout == "[]\n"
