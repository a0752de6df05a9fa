"""People's files as examples, and what is said about the ones that cannot be read."""

import csv
import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qkv.data import (
    LabelledText,
    Pair,
    ScoredPair,
    read_labelled,
    read_lines,
    read_pairs,
    read_scored,
    read_texts,
)
from qkv.data.table import table_rows
from qkv.errors import DataError

# Breaks a line for str.splitlines and for nobody here.
SEPARATORS = "\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029"


def put(folder: Path, name: str, content: str | bytes) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode("utf-8"))
    return path


def test_a_text_file_is_one_document_to_the_last_character(tmp_path: Path) -> None:
    text = f"one\n\n two{SEPARATORS}\tthree \n"
    assert read_texts([put(tmp_path, "a.txt", text)]) == [text]


def test_a_byte_order_mark_and_carriage_returns_are_dropped(tmp_path: Path) -> None:
    path = put(tmp_path, "a.txt", "\ufeffone\r\ntwo\rtwo\r\n")
    assert read_texts([path]) == ["one\ntwo\rtwo\n"]


def test_a_folder_is_all_its_texts_by_name_at_any_depth(tmp_path: Path) -> None:
    for name in ("b.txt", "a/z.TXT", "a/skipped.md", "c/d/e.txt"):
        put(tmp_path, name, name)
    assert read_texts([tmp_path]) == ["a/z.TXT", "b.txt", "c/d/e.txt"]


def test_a_pattern_is_every_file_it_matches_and_none_is_read_twice(tmp_path: Path) -> None:
    for name in ("b.txt", "a.txt", "in/c.txt", "a.csv"):
        put(tmp_path, name, name)
    assert read_texts([tmp_path / "*.txt"]) == ["a.txt", "b.txt"]
    assert read_texts([tmp_path / "**" / "*.txt"]) == ["a.txt", "b.txt", "in/c.txt"]
    assert read_texts([tmp_path / "b.txt", tmp_path / "*.txt"]) == ["b.txt", "a.txt"]


def test_a_name_with_brackets_that_exists_is_that_file(tmp_path: Path) -> None:
    assert read_texts([put(tmp_path, "a[1].txt", "one")]) == ["one"]


@pytest.mark.parametrize(
    ("name", "content", "column"),
    [
        ("t.jsonl", '{"id": 7, "text": "one"}\n\n{"text": "two", "id": 8}\n', None),
        ("t.jsonl", '{"body": "one"}\n{"body": "two"}', None),
        ("t.jsonl", '{"id": 7, "body": "one"}\n{"id": 8, "body": "two"}', "body"),
        ("t.jsonl", '{"id": 7, "body": "one"}\n{"body": "two", "id": 8}', "2"),
        ("t.csv", "one\ntwo\n", None),
        ("t.csv", "text\none\n\ntwo\n", None),
        ("t.csv", "id,Text\n7,one\n8,two\n", None),
        ("t.tsv", "id\tbody\n7\tone\n8\ttwo\n", "body"),
        ("t.tsv", "7\tone\n8\ttwo\n", "2"),
    ],
)
def test_each_row_of_a_table_is_a_document(
    name: str, content: str, column: str | None, tmp_path: Path
) -> None:
    assert read_texts([put(tmp_path, name, content)], text=column) == ["one", "two"]


TWO = [LabelledText("good, really", "yes"), LabelledText("bad", "no")]


@pytest.mark.parametrize(
    ("name", "content", "text", "label"),
    [
        ("headerless.csv", '"good, really",yes\nbad,no\n', None, None),
        ("usual.csv", 'Text,Category\n"good, really",yes\nbad,no\n', None, None),
        ("turned.csv", 'label,text\nyes,"good, really"\nno,bad\n', None, None),
        ("wide.csv", 'id,text,label,title\n1,"good, really",yes,x\n2,bad,no,y\n', None, None),
        ("named.csv", 'a,b,c\n0,"good, really",yes\n0,bad,no\n', "b", "c"),
        ("half.csv", 'b,c\n"good, really",yes\nbad,no\n', "b", None),
        ("spaced.csv", 'text, label\n"good, really", yes\nbad, no\n', "text", "label"),
        ("numbers.csv", 'yes,"good, really"\nno,bad\n', "2", "1"),
        ("titled.csv", 'label,text\nyes,"good, really"\nno,bad\n', "2", "1"),
        ("windows.csv", '\ufefftext,label\r\n"good, really",yes\r\nbad,no\r\n', "text", "label"),
        ("plain.tsv", "good, really\tyes\nbad\tno", None, None),
        ("quoted.tsv", 'text\tlabel\n"good, really"\tyes\nbad\tno\n', None, None),
        (
            "rows.jsonl",
            '{"text": "good, really", "label": "yes"}\n{"label": "no", "text": "bad"}\n',
            None,
            None,
        ),
        (
            "other.jsonl",
            '{"a": "good, really", "b": "yes"}\n{"a": "bad", "b": "no"}\n',
            "a",
            None,
        ),
    ],
)
def test_labelled_texts_are_read_from_every_kind_of_table(
    name: str, content: str, text: str | None, label: str | None, tmp_path: Path
) -> None:
    assert read_labelled([put(tmp_path, name, content)], text, label) == TWO


def test_labels_of_json_may_be_numbers_and_truths(tmp_path: Path) -> None:
    path = put(tmp_path, "a.jsonl", '{"text": "a", "label": 0}\n{"text": "b", "label": true}\n')
    assert [row.label for row in read_labelled([path])] == ["0", "true"]


def test_a_quote_mark_in_an_unquoted_tsv_does_not_swallow_the_next_rows(tmp_path: Path) -> None:
    path = put(tmp_path, "a.tsv", '"so he said\t1\nnothing "much"\t0\n"well" he said "\t1\n')
    assert [row.text for row in read_labelled([path])] == [
        '"so he said',
        'nothing "much"',
        '"well" he said "',
    ]


def test_a_field_may_be_longer_than_the_csv_module_likes(tmp_path: Path) -> None:
    before = csv.field_size_limit()
    long = "word " * 40_000
    assert read_labelled([put(tmp_path, "a.csv", f"{long},1\nb,2\n")])[0].text == long
    assert csv.field_size_limit() == before


texts = st.text(st.characters(exclude_categories=["Cs"]), min_size=1).filter(str.strip)


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".jsonl"])
@given(rows=st.lists(st.tuples(texts, texts), min_size=2))
def test_what_was_written_is_read(
    suffix: str, rows: list[tuple[str, str]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    if suffix == ".tsv":
        rows = [(a.replace("\t", "⇥"), b.replace("\t", "⇥")) for a, b in rows]
    path = tmp_path_factory.mktemp("written") / f"rows{suffix}"
    with path.open("w", encoding="utf-8", newline="") as file:
        if suffix == ".jsonl":
            file.writelines(json.dumps({"source": a, "target": b}) + "\n" for a, b in rows)
        else:
            delimiter = "\t" if suffix == ".tsv" else ","
            csv.writer(file, delimiter=delimiter).writerows([("source", "target"), *rows])
    assert read_pairs([path]) == [Pair(*row) for row in rows]


def test_titles_of_another_job_are_no_pair(tmp_path: Path) -> None:
    """Reviews given to a translator: their header is not the first pair to learn."""
    (tmp_path / "reviews.csv").write_text("text,label\ngood,1\nbad,0\n")
    with pytest.raises(DataError, match=r"which column holds the source\? pass source=NAME"):
        read_pairs([str(tmp_path / "reviews.csv")])


def test_pairs_come_from_tables_and_a_header_may_name_languages(tmp_path: Path) -> None:
    pairs = [Pair("a dog", "ein Hund"), Pair("a cat", "eine Katze")]
    plain = put(tmp_path, "plain.tsv", "a dog\tein Hund\na cat\teine Katze\n")
    titled = put(tmp_path, "titled.csv", "en,de\na dog,ein Hund\na cat,eine Katze\n")
    assert read_pairs([plain]) == read_pairs([titled]) == pairs
    assert read_pairs([titled], source="de", target="en") == [
        Pair(p.target, p.source) for p in pairs
    ]
    assert read_pairs([plain, titled]) == pairs * 2


def test_parallel_files_stay_parallel_whatever_stands_in_a_line(tmp_path: Path) -> None:
    source = put(tmp_path, "a.en", f"a{SEPARATORS}dog\r\na cat")
    target = put(tmp_path, "a.de", "ein Hund\neine Katze\n")
    assert read_pairs([], str(source), str(target)) == [
        Pair(f"a{SEPARATORS}dog", "ein Hund"),
        Pair("a cat", "eine Katze"),
    ]


MALFORMED = {
    "not UTF-8": ("a.csv", b"text,label\ngood,1\nb\xe9,0\n", "line 3: byte 2 of the line, 0xe9"),
    "UTF-16": ("a.csv", "text,label\n".encode("utf-16"), "line 1: this is UTF-16"),
    "no text": ("a.csv", "good,1\n,0\n", "line 2: text is empty; every row needs text and label"),
    "no label": ("a.csv", 'good,1\n"two\nlines",1\nbad, \n', "line 4: label is empty"),
    "null": ("a.jsonl", '{"text": "a", "label": null}\n', "line 1: label is empty"),
    "too few fields": ("a.tsv", "good\t1\nbad\n", "line 2: 1 field where line 1 has 2"),
    "too many fields": ("a.csv", "good,1\nbad, bad,0\n", "line 2: 3 fields where line 1 has 2"),
    "open quote": ("a.csv", 'good,1\n"bad,0\n', "line 2: a quote is opened here and never closed"),
    "closed early": ("a.csv", 'good,1\n"bad" x,0\n', "line 2: a closing quote must end its field"),
    "old Macintosh": (
        "a.csv",
        "good,1\rbad,0\r",
        "line 1: a field without quotes holds a carriage return",
    ),
    "not JSON": ("a.jsonl", '{"text": "a", "label": 1}\n{"text"\n', "line 2: not JSON at"),
    "too deep": ("a.jsonl", "[" * 100_000, "line 1: JSON that is too deeply nested"),
    "a list": ("a.jsonl", '["a", 1]\n', "line 1: a row must be one JSON object"),
    "a list for a text": ("a.jsonl", '{"text": [1], "label": 1}\n', 'line 1: "text" is a list'),
    "half a character": ("a.jsonl", '{"text": "\\ud800", "label": 1}', "holds a lone surrogate"),
    "a field that stops": (
        "a.jsonl",
        '{"text": "a", "label": 1}\n{"text": "b", "lable": 1}\n',
        'line 2: unknown column "label"; did you mean "lable"?',
    ),
    "empty": ("a.csv", "", "is empty; it holds no rows"),
    "only a header": ("a.csv", "text,label\n", "is empty; it holds no rows"),
    "one class": ("a.csv", "good,1\nbetter,1\n", 'every row has the label "1" (2 in all)'),
    "three columns": ("a.csv", "7,good,1\n", "line 1: which column holds the text? pass text="),
    "untitled fields": ("a.jsonl", '{"a": "x", "b": "y"}', "pass text=NAME or NUMBER (columns: a"),
    "label first": (
        "a.tsv",
        "".join(f"{i % 2}\tsentence {i}\n" for i in range(11)),
        "2 different texts have 11 different labels; if the label comes first, pass text=2",
    ),
    "not a table": ("a.ods", "PK", "needs .csv, .tsv, .tab, .jsonl, .parquet or .xlsx; save its"),
}  # fmt: skip


@pytest.mark.parametrize("case", MALFORMED)
def test_a_malformed_table_is_one_clear_line(case: str, tmp_path: Path) -> None:
    name, content, said = MALFORMED[case]
    path = put(tmp_path, name, content)
    with pytest.raises(DataError, match=re.escape(said)) as caught:
        read_labelled([path])
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "label", "said"),
    [
        (
            "txet",
            "label",
            'line 1: unknown column "txet"; did you mean "text"? (columns: id, text, label, label)',
        ),
        ("qqq", None, 'unknown column "qqq"; known: id, text, label, label'),
        ("text", "9", "there is no column 9 for the label; columns count from 1 to 4"),
        ("0", None, "there is no column 0 for the text"),
        ("text", "2", "text and label are both column 2; name two"),
        ("text", "label", '2 columns are named "label"; give its number instead'),
    ],
)
def test_a_column_that_is_not_there_is_named_beside_those_that_are(
    text: str, label: str | None, said: str, tmp_path: Path
) -> None:
    path = put(tmp_path, "a.csv", "id,text,label,label\n1,good,1,x\n2,bad,0,y\n")
    with pytest.raises(DataError, match=re.escape(said)):
        read_labelled([path], text, label)


def test_what_is_not_there_is_said_with_the_nearest_name(tmp_path: Path) -> None:
    put(tmp_path, "reviews.csv", "good,1\nbad,0\n")
    with pytest.raises(DataError, match=r'there is no file .*; did you mean ".*reviews\.csv"\?'):
        read_labelled([tmp_path / "review.csv"])
    with pytest.raises(DataError, match="there is no file"):
        read_texts([tmp_path / "nowhere" / "zzz"])
    with pytest.raises(DataError, match="no file matches"):
        read_texts([tmp_path / "*.txt"])
    with pytest.raises(DataError, match=r"holds no \.txt file"):
        read_texts([tmp_path])
    with pytest.raises(DataError, match="is a folder; name"):
        read_labelled([tmp_path])
    with pytest.raises(DataError, match="no file was given"):
        read_texts([])


def test_a_text_without_words_or_with_a_column_asked_for_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="is empty; it holds no text"):
        read_texts([put(tmp_path, "a.txt", " \n\n")])
    with pytest.raises(DataError, match='plain text and has no column body; leave text="body" out'):
        read_texts([put(tmp_path, "b.txt", "words")], text="body")


def test_parallel_files_that_do_not_fit_are_one_clear_line(tmp_path: Path) -> None:
    three, two = put(tmp_path, "a.en", "a\nb\nc\n"), put(tmp_path, "a.de", "a\nb\n")
    with pytest.raises(DataError, match=r"a\.en has 3 lines but .*a\.de has 2; parallel"):
        read_pairs([], str(three), str(two))
    with pytest.raises(DataError, match=r"b\.de line 2: the line is empty"):
        read_pairs([], str(two), str(put(tmp_path, "b.de", "a\n \n")))
    with pytest.raises(DataError, match=r"c\.de is empty"):
        read_pairs([], str(two), str(put(tmp_path, "c.de", "")))
    with pytest.raises(DataError, match=r"there is no file .*a\.fr"):
        read_pairs([], str(three), str(tmp_path / "a.fr"))
    with pytest.raises(DataError, match="need both source=FILE and target=FILE"):
        read_pairs([], str(three))
    with pytest.raises(DataError, match=r"is not a table; give .* source=FILE and target=FILE"):
        read_pairs([three, two])


def test_lines_are_texts_and_blank_ones_are_none(tmp_path: Path) -> None:
    plain = put(tmp_path, "a.txt", f"\ufeffone\r\n\n \t\n two{SEPARATORS} \nthree")
    table = put(tmp_path, "b.csv", 'id,text\n7,"four\nlines"\n8,five\n')
    assert read_lines([plain]) == ["one", f" two{SEPARATORS} ", "three"]
    assert read_lines([table, plain]) == ["four\nlines", "five", *read_lines([plain])]
    assert read_lines([table], text="id") == ["7", "8"]
    assert read_lines([tmp_path]) == read_lines([plain])


def test_lines_that_cannot_be_read_are_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"a\.txt is empty; it holds no lines"):
        read_lines([put(tmp_path, "a.txt", " \n\n")])
    with pytest.raises(DataError, match='plain text and has no column body; leave text="body" out'):
        read_lines([put(tmp_path, "b.txt", "words")], text="body")
    with pytest.raises(DataError, match=r"c\.txt line 2: byte 1 of the line, 0xe9, is not UTF-8"):
        read_lines([put(tmp_path, "c.txt", b"a\n\xe9\n")])


SCORED = [ScoredPair("a dog, big", "a hound", 4.75), ScoredPair("a cat", "the sea", 0.0)]


@pytest.mark.parametrize(
    ("name", "content", "columns"),
    [
        ("bare.csv", '"a dog, big",a hound,4.75\na cat,the sea,0\n', ()),
        ("bare.tsv", "a dog, big\ta hound\t4.75\na cat\tthe sea\t 0.0 \n", ()),
        ("usual.csv", 'sentence1,sentence2,score\n'
         '"a dog, big",a hound,4.75\na cat,the sea,0\n', ()),
        ("turned.tsv", "Similarity\tB\tA\n4.75\ta hound\ta dog, big\n0\tthe sea\ta cat\n", ()),
        ("glue.tsv", "i\tsentence1\tsentence2\tlabel\n"
         "1\ta dog, big\ta hound\t4.75\n2\ta cat\tthe sea\t0e0\n", ()),
        ("named.tsv", "x\ty\tz\na dog, big\ta hound\t4.75\na cat\tthe sea\t0\n", ("x", "y", "z")),
        ("numbers.tsv", "4.75\ta dog, big\ta hound\n0\ta cat\tthe sea\n", ("2", "3", "1")),
        ("rows.jsonl", '{"score": 4.75, "source": "a dog, big", "target": "a hound"}\n'
         '{"source": "a cat", "target": "the sea", "score": 0}\n', ()),
    ],
)  # fmt: skip
def test_scored_pairs_are_read_from_every_kind_of_table(
    name: str, content: str, columns: tuple[str, ...], tmp_path: Path
) -> None:
    assert read_scored([put(tmp_path, name, content)], *columns) == SCORED


@pytest.mark.parametrize("score", ["high", "nan", "inf", "-Infinity", "1e999", "3,8", "true"])
def test_a_score_that_is_no_finite_number_is_named_with_its_line(
    score: str, tmp_path: Path
) -> None:
    path = put(tmp_path, "a.tsv", f"a\tb\tscore\none\ttwo\t1\n\none\ttwo\t{score}\n")
    said = f'a.tsv line 4: the score "{score}" is not a number; every row needs a finite number'
    with pytest.raises(DataError, match=re.escape(said)):
        read_scored([path])


def test_scored_tables_that_cannot_be_read_are_one_clear_line(tmp_path: Path) -> None:
    header = put(tmp_path, "a.csv", "left,right,points\none,two,1\n")
    with pytest.raises(
        DataError, match=r'line 1: the score "points" is not a number; if this is a'
    ):
        read_scored([header])
    wide = put(tmp_path, "b.csv", "one,two,3,4\n")
    with pytest.raises(DataError, match=r"which column holds the source\? pass source=NAME or"):
        read_scored([wide])
    with pytest.raises(DataError, match=r"which column holds the score\? pass score=NAME or"):
        read_scored([wide], "1", "2")
    empty = put(tmp_path, "c.csv", "one,two,3\none,,3\n")
    with pytest.raises(
        DataError, match="line 2: target is empty; every row needs source, target, "
    ):
        read_scored([empty])


def test_letters_are_titles_only_beside_a_score(tmp_path: Path) -> None:
    assert read_pairs([put(tmp_path, "a.csv", "a,b\nc,d\n")]) == [Pair("a", "b"), Pair("c", "d")]


def test_a_csv_is_read_row_by_row_also_beside_another(tmp_path: Path) -> None:
    long = "word " * 40_000
    paths = [put(tmp_path, f"{name}.csv", f"a,1\n{long},2\nb,3\n") for name in "xyz"]
    before = csv.field_size_limit()
    streams = [table_rows(path, {"text": "1", "label": "2"}) for path in paths]
    first = list(zip(*streams, strict=True))
    assert [rows[0][1] for rows in first] == [("a", "1"), (long, "2"), ("b", "3")]
    assert csv.field_size_limit() == before
