"""Bad rows are reported together or skipped with a list; labels that look wrong are pointed out."""

import re
from pathlib import Path

import pytest

from qkv.data import (
    BadRows,
    Documents,
    LabelledText,
    Pair,
    label_remarks,
    read_labelled,
    read_lines,
    read_pairs,
    read_scored,
)
from qkv.errors import DataError

MESSY = (
    'text,label\nfine,good\nno label,\none, two, three,bad\n"quoted" wrongly,bad\nterrible,bad\n'
)


def put(folder: Path, name: str, content: str) -> Path:
    path = folder / name
    path.write_text(content, "utf-8")
    return path


def test_all_bad_rows_are_in_one_message(tmp_path: Path) -> None:
    path = put(tmp_path, "a.csv", MESSY)
    with pytest.raises(DataError) as caught:
        read_labelled([path])
    assert str(caught.value) == (
        f"3 bad rows: {path} line 3: label is empty, line 4: 4 fields where line 1 has 2, "
        "line 5: a closing quote must end its field; every row needs text and label; put a field "
        "that holds a comma in double quotes; write a quote inside a field twice"
    )


def test_the_list_is_bounded_and_the_count_is_not(tmp_path: Path) -> None:
    path = put(tmp_path, "a.csv", "text,label\n" + ",x\n" * 1_234 + "a,x\n")
    with pytest.raises(DataError, match=r"1,234 bad rows: .* and 1,224 more; every row") as caught:
        read_labelled([path])
    assert str(caught.value).count("text is empty") == 10


def test_bad_rows_of_several_files_are_reported_together(tmp_path: Path) -> None:
    first = put(tmp_path, "a.jsonl", '{"text": "a", "label": "x"}\n{"text": "b", "label": ""}\n')
    second = put(tmp_path, "b.tsv", "text\tlabel\nc\ty\nd\n")
    expected = (
        f"{first} line 2: label is empty, {re.escape(str(second))} line 3: 1 field where line 1"
    )
    with pytest.raises(DataError, match=f"2 bad rows: {expected}"):
        read_labelled([first, second])


def test_skipped_rows_are_counted_and_listed(tmp_path: Path) -> None:
    bad_rows = BadRows(skip=True)
    path = put(tmp_path, "a.csv", MESSY)
    rows = read_labelled([path], bad_rows=bad_rows)
    assert rows == [LabelledText("fine", "good"), LabelledText("terrible", "bad")]
    (remark,) = bad_rows.remarks()
    assert remark.startswith(f"3 bad rows skipped: {path} line 3: label is empty, line 4: 4 fields")


def test_only_who_can_skip_rows_is_told_how(tmp_path: Path) -> None:
    path = put(tmp_path, "a.csv", MESSY)
    with pytest.raises(DataError, match="or pass skip_bad=True to leave such rows out"):
        read_labelled([path], bad_rows=BadRows(skip=False))


def test_every_kind_of_example_can_be_skipped(tmp_path: Path) -> None:
    scored = put(tmp_path, "a.csv", "source,target,score\na,b,1\nc,d,much\ne,f,\ng,h,2\n")
    bad_rows = BadRows(skip=True)
    assert [pair.score for pair in read_scored([scored], bad_rows=bad_rows)] == [1.0, 2.0]
    assert bad_rows.count == 2
    source = put(tmp_path, "a.en", "one\n\nthree\n")
    target = put(tmp_path, "a.de", "eins\nzwei\ndrei\n")
    pairs = read_pairs([], str(source), str(target), BadRows(skip=True))
    assert pairs == [Pair("one", "eins"), Pair("three", "drei")]
    table = put(tmp_path, "b.jsonl", '{"text": "a"}\nnot json\n{"text": "b"}\n')
    assert read_lines([table], bad_rows=BadRows(skip=True)) == ["a", "b"]
    documents = Documents([table], skip_bad=True)
    assert [chunk.text for chunk in documents] == ["a", "b"]
    assert documents.remarks == (f"1 bad row was skipped: {table} line 2: not JSON at character 1: "
                                 "Expecting value",)  # fmt: skip


def test_a_file_of_bad_rows_only_is_an_error_all_the_same(tmp_path: Path) -> None:
    path = put(tmp_path, "a.csv", "text,label\na,\nb,\n")
    with pytest.raises(DataError, match=r"2 bad rows: .* line 2: label is empty, line 3: label"):
        read_labelled([path], bad_rows=BadRows(skip=True))


def test_a_quote_that_swallows_the_rest_of_the_file_is_never_skipped(tmp_path: Path) -> None:
    path = put(tmp_path, "a.csv", 'text,label\na,x\n"b,y\nc,x\nd,y\n')
    with pytest.raises(DataError, match="line 3: a quote is opened here and never closed"):
        read_labelled([path], bad_rows=BadRows(skip=True))


@pytest.mark.parametrize("separator", [";", "\t", ","])
def test_the_separator_of_a_csv_is_recognised(tmp_path: Path, separator: str) -> None:
    rows = [("text", "label"), ('"a; b, c\td"', "x"), ("plain, and; simple", "y")]
    if separator == ",":
        rows[2] = ('"plain, and; simple"', "y")
    if separator == ";":
        rows[2] = ("plain, and simple", "y")
    path = put(tmp_path, "a.csv", "".join(f"{separator.join(row)}\n" for row in rows))
    first, second = read_labelled([path])
    assert first == LabelledText("a; b, c\td", "x")
    assert second.label == "y"


def test_semicolons_in_sentences_are_no_separators(tmp_path: Path) -> None:
    one_column = put(tmp_path, "a.csv", "text\nfirst; second\nthird; fourth\n")
    assert read_lines([one_column]) == ["first; second", "third; fourth"]
    two_columns = put(tmp_path, "b.csv", "a; b,x\nc; d,y\n")
    assert read_labelled([two_columns])[0] == LabelledText("a; b", "x")


def test_an_uneven_row_of_a_csv_names_its_separator(tmp_path: Path) -> None:
    path = put(tmp_path, "a.csv", "text;label\na;x\nb;y\nc;y\nd\n")
    with pytest.raises(DataError, match=r"line 5: 1 field .* holds a semicolon in double quotes"):
        read_labelled([path])


def test_tab_is_another_name_for_tsv(tmp_path: Path) -> None:
    path = put(tmp_path, "a.tab", 'text\tlabel\n"Hi" she said\tx\nno\ty\n')
    assert read_labelled([path])[0] == LabelledText('"Hi" she said', "x")


def test_labels_that_look_like_typos_are_pointed_out() -> None:
    labels = ["positive"] * 40 + ["negative"] * 40
    labels += ["Positive", "postive", "negatvie", "negative "] + ["neutral"] * 9
    remarks = label_remarks(labels)
    assert [re.findall('"([^"]*)"', remark) for remark in remarks] == [
        ["Positive", "positive"],
        ["negative ", "negative"],
        ["postive", "positive"],
        ["negatvie", "negative"],
    ]
    assert remarks[0] == (
        'the label "Positive" (1) looks like "positive" (40); if it is a typo, correct it'
    )


def test_labels_that_occur_once_are_pointed_out() -> None:
    assert label_remarks(["a", "a", "b"]) == [
        'the label "b" occurs once; it cannot be learned and validated'
    ]
    (remark,) = label_remarks(["x", "x", *"abcdefg"])
    assert remark.startswith("7 labels occur once")
    assert remark.endswith('"a", "b", "c", "d", "e" and 2 more')


def test_labels_that_are_meant_are_left_alone() -> None:
    labels = ["1"] * 50 + ["2"] * 3 + ["class 1"] * 50 + ["class 2"] * 2 + ["cat"] * 60
    labels += ["car"] * 2 + ["lend"] * 10 + ["send"] * 10
    assert label_remarks(labels) == []
