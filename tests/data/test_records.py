"""A table in, a table out: every column of every row, in each format."""

import datetime
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as arrow
import pytest
from pyarrow import parquet

from qkv.data import Column, Records, check_table_path, open_table, table_output, text_records
from qkv.errors import DataError, QkvError, UsageError

SUFFIXES = ("csv", "tsv", "tab", "jsonl", "parquet", "xlsx")
ROWS = [
    {"id": "7", "text": 'a "quoted", text', "note": "two\nlines"},
    {"id": "8", "text": "", "note": "tab\there; and = there"},
    {"id": "9", "text": "=1+1", "note": ""},
    {"id": "10", "text": '"begins with a quote', "note": "carriage\rreturn"},
]


def needs(suffix: str) -> None:
    if suffix == "xlsx":
        pytest.importorskip("openpyxl", reason="needs the extra excel")


def put(folder: Path, name: str, content: str) -> Path:
    path = folder / name
    path.write_text(content, "utf-8", newline="")
    return path


def save(path: Path, records: Records, results: Sequence[dict[str, Any]]) -> None:
    columns = [Column("label"), Column("probability", "number")]
    with table_output(path, records, columns) as table:
        texts = [text for text in table.texts() if text.strip()]
        for _, result in zip(texts, results, strict=True):
            table.add(result)


def as_texts(records: Records) -> list[dict[str, str]]:
    """The rows with None as an empty text, which a .csv cannot tell apart."""
    return [{name: cell or "" for name, cell in row.items()} for row in records]


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_every_format_returns_what_was_written(tmp_path: Path, suffix: str) -> None:
    needs(suffix)
    content = "".join(json.dumps(row) + "\n" for row in ROWS)
    source = open_table(put(tmp_path, "a.jsonl", content))
    path = tmp_path / f"b.{suffix}"
    results = [{"label": f"label {i}", "probability": 0.5} for i in range(3)]
    save(path, source, results)
    back = open_table(path)
    assert back.count == len(ROWS)
    assert [column.name for column in back.columns] == [
        "id",
        "text",
        "note",
        "label",
        "probability",
    ]
    rows = as_texts(back)
    assert [{name: row[name] for name in ROWS[0]} for row in rows] == ROWS
    assert [row["label"] for row in rows] == ["label 0", "", "label 1", "label 2"]
    assert [str(row["probability"]) for row in rows] == ["0.5", "", "0.5", "0.5"]


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_column_of_the_same_name_is_not_lost(tmp_path: Path, suffix: str) -> None:
    needs(suffix)
    source = open_table(put(tmp_path, "a.csv", "text,label\none,truth\n"))
    save(tmp_path / f"b.{suffix}", source, [{"label": "guess", "probability": 1.0}])
    (row,) = open_table(tmp_path / f"b.{suffix}")
    assert (row["label"], row["label_2"]) == ("truth", "guess")


def test_columns_without_a_name_of_their_own_get_one(tmp_path: Path) -> None:
    plain = open_table(put(tmp_path, "a.csv", "7,good\n8,bad\n"), text="2")
    assert list(plain) == [
        {"column_1": "7", "column_2": "good"},
        {"column_1": "8", "column_2": "bad"},
    ]
    twice = open_table(put(tmp_path, "b.csv", "text,a,a\none,x,y\n"))
    assert list(twice) == [{"text": "one", "a": "x", "a_2": "y"}]


def test_the_text_column_is_found_as_in_training(tmp_path: Path) -> None:
    assert open_table(put(tmp_path, "a.csv", "id,Review\n1,fine\n")).text == "Review"
    assert open_table(put(tmp_path, "b.csv", "id,body\n1,fine\n"), text="body").text == "body"
    pairs = put(tmp_path, "c.csv", "id,en,de\n1,one,eins\n")
    assert open_table(pairs, role="source").text == "en"
    assert open_table(put(tmp_path, "d.csv", "id,text\n1,one\n"), role="source").text == "text"
    with pytest.raises(DataError, match=r"which column holds the text\? pass text=NAME"):
        open_table(pairs)


def test_a_bad_table_is_refused_before_any_row_is_read(tmp_path: Path) -> None:
    path = put(tmp_path, "a.csv", "id,text\n1,one\n2\n3,three\n4,four,4\n")
    with pytest.raises(DataError, match=r"2 bad rows: .* line 3: 1 field .*, line 5: 3 fields"):
        open_table(path)
    half = put(tmp_path, "b.jsonl", '{"text": "a"}\n{"text": \n{"txt": "b"}\n')
    with pytest.raises(DataError, match=r"2 bad rows: .* line 2: not JSON .*, line 3: unknown"):
        open_table(half)
    with pytest.raises(DataError, match="is empty; it holds no rows"):
        open_table(put(tmp_path, "c.csv", "id,text\n"))


def test_half_a_character_in_any_column_is_refused(tmp_path: Path) -> None:
    path = put(tmp_path, "a.jsonl", '{"text": "a"}\n{"text": "b", "note": ["\\ud800"]}\n')
    with pytest.raises(DataError, match="line 2: 'note' holds a lone surrogate"):
        open_table(path)


def test_objects_with_other_fields_fill_the_columns_they_have(tmp_path: Path) -> None:
    content = '{"text": "a", "n": 1}\n{"text": "b", "tags": ["x", {"y": 2}], "n": 0.5}\n'
    records = open_table(put(tmp_path, "a.jsonl", content))
    save(tmp_path / "b.csv", records, [{"label": "l", "probability": 1.0}] * 2)
    assert (tmp_path / "b.csv").read_text("utf-8") == (
        'text,n,tags,label,probability\na,1,,l,1.0\nb,0.5,"[""x"", {""y"": 2}]",l,1.0\n'
    )
    save(tmp_path / "b.jsonl", records, [{"label": "l", "probability": 1.0}] * 2)
    first, second = (tmp_path / "b.jsonl").read_text("utf-8").splitlines()
    assert json.loads(first) == {"text": "a", "n": 1, "label": "l", "probability": 1.0}
    assert json.loads(second)["tags"] == ["x", {"y": 2}]
    save(tmp_path / "b.parquet", records, [{"label": "l", "probability": 1.0}] * 2)
    table = parquet.read_table(tmp_path / "b.parquet")
    assert table.schema.field("n").type == arrow.float64()
    assert table.column("tags").to_pylist() == [None, '["x", {"y": 2}]']


def test_a_parquet_file_keeps_its_types(tmp_path: Path) -> None:
    day = datetime.date(2024, 5, 2)
    columns = {
        "text": ["a", None],
        "day": [day, None],
        "vector": arrow.array([[1.0, 2.0], [3.0, 4.0]], arrow.list_(arrow.float32(), 2)),
        "kind": arrow.array(["x", "y"]).dictionary_encode(),
        "count": arrow.array([1, None], arrow.int16()),
    }
    parquet.write_table(arrow.table(columns), tmp_path / "a.parquet")
    source = open_table(tmp_path / "a.parquet")
    save(tmp_path / "b.parquet", source, [{"label": "l", "probability": 0.25}])
    before = parquet.read_table(tmp_path / "a.parquet")
    after = parquet.read_table(tmp_path / "b.parquet")
    assert after.select(before.column_names).cast(before.schema).equals(before)
    assert after.column("label").to_pylist() == ["l", None]
    save(tmp_path / "b.csv", source, [{"label": "l", "probability": 0.25}])
    assert (tmp_path / "b.csv").read_text("utf-8").splitlines()[1:] == [
        'a,2024-05-02,"[1.0, 2.0]",x,1,l,0.25',
        ',,"[3.0, 4.0]",y,,,',
    ]


def test_the_separator_of_a_csv_is_kept(tmp_path: Path) -> None:
    source = open_table(put(tmp_path, "a.csv", "id;text\n1;one, two\n2;x\n"))
    save(tmp_path / "b.csv", source, [{"label": "l", "probability": 1.0}] * 2)
    assert (tmp_path / "b.csv").read_text("utf-8").splitlines()[1] == "1;one, two;l;1.0"


def test_after_an_error_there_is_no_file_and_an_old_one_is_as_it_was(tmp_path: Path) -> None:
    for suffix in ("csv", "jsonl", "parquet"):
        path = put(tmp_path, f"a.{suffix}", "old")
        with pytest.raises(ValueError, match="is shorter"):
            save(path, text_records(["a", "b"]), [{"label": "l", "probability": 0.5}])
        assert path.read_text("utf-8") == "old"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.csv", "a.jsonl", "a.parquet"]


def test_numbers_that_json_does_not_have_are_null_or_texts(tmp_path: Path) -> None:
    columns = [Column("vector"), Column("score", "number")]
    with table_output(tmp_path / "a.jsonl", text_records(["a"]), columns) as table:
        list(table.texts())
        table.add({"vector": np.array([0.1, 2], np.float32), "score": math.nan})
    row = json.loads((tmp_path / "a.jsonl").read_text("utf-8"))
    assert row == {"text": "a", "vector": [0.1, 2.0], "score": None}


def test_memory_is_not_filled_with_rows_that_were_written(tmp_path: Path) -> None:
    path = put(tmp_path, "a.csv", "text\n" + "word\n" * 500)
    with table_output(tmp_path / "b.csv", open_table(path), [Column("label")]) as table:
        for _ in table.texts():
            assert table.next_row == table.rows + 1
            table.add({"label": "l"})
            assert len(table._queue.waiting) == 0
    assert open_table(tmp_path / "b.csv").count == 500


@pytest.mark.parametrize(
    ("name", "error", "said"),
    [
        ("a.txt", UsageError, "must end in .csv, .tsv, .tab, .jsonl, .parquet or .xlsx"),
        ("no/a.csv", DataError, "there is no folder"),
        ("folder.csv", UsageError, "is a folder; name a file in it"),
        ("old.csv", UsageError, "exists; pass force=True to overwrite it"),
    ],
)
def test_a_path_that_cannot_be_written_is_refused(
    tmp_path: Path, name: str, error: type[QkvError], said: str
) -> None:
    (tmp_path / "folder.csv").mkdir()
    put(tmp_path, "old.csv", "old")
    with pytest.raises(error, match=said.replace(".", r"\.")):
        check_table_path(tmp_path / name)


def test_an_excel_sheet_keeps_numbers_dates_and_odd_texts(tmp_path: Path) -> None:
    openpyxl = pytest.importorskip("openpyxl", reason="needs the extra excel")
    book = openpyxl.Workbook()
    moment = datetime.datetime(2024, 5, 2, 13, 30)
    for row in (["text", "n", "when"], ["a\x0bb", 7, moment], [None], [12, 0.5, None], [None]):
        book.active.append([openpyxl.cell.cell.ILLEGAL_CHARACTERS_RE.sub("_x000B_", cell)
                            if isinstance(cell, str) else cell for cell in row])  # fmt: skip
    book.create_sheet("Notes")
    book.save(tmp_path / "a.xlsx")
    source = open_table(tmp_path / "a.xlsx")
    assert source.count == 2
    assert source.remarks == (
        f'{tmp_path / "a.xlsx"} has 2 sheets; only the first, "Sheet", is read',
    )
    assert list(source.texts())[1] == "12"
    save(tmp_path / "b.xlsx", source, [{"label": "=l\x07", "probability": 0.5}] * 2)
    first, second = openpyxl.load_workbook(tmp_path / "b.xlsx").active.iter_rows(min_row=2)
    assert [cell.value for cell in first][1:3] == [7, moment]
    assert first[3].data_type == "s"
    assert first[3].value == "=l_x0007_"
    assert [cell.value for cell in second][:3] == [12, 0.5, None]


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04", b"text,label\na,b\n"])
def test_a_file_that_is_no_workbook_is_one_clear_line(tmp_path: Path, content: bytes) -> None:
    pytest.importorskip("openpyxl", reason="needs the extra excel")
    (tmp_path / "a.xlsx").write_bytes(content)
    with pytest.raises(DataError, match=r"it is damaged or not an \.xlsx file .*; save its sheet"):
        open_table(tmp_path / "a.xlsx")


def test_a_cell_that_excel_would_cut_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("openpyxl", reason="needs the extra excel")
    source = text_records(["a" * 40_000])
    with pytest.raises(DataError, match=r'row 2: "text" has 40,000 characters, but a cell of an'):
        save(tmp_path / "b.xlsx", source, [{"label": "l", "probability": 0.5}])
    assert list(tmp_path.iterdir()) == []


def test_without_openpyxl_the_extra_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "openpyxl", None)
    (tmp_path / "a.xlsx").write_bytes(b"PK\x03\x04")
    with pytest.raises(DataError, match=r"needs openpyxl; install it with: pip install 'qkv\[exc"):
        open_table(tmp_path / "a.xlsx")
    with pytest.raises(DataError, match=r"writing an \.xlsx file needs openpyxl"):
        check_table_path(tmp_path / "b.xlsx")
