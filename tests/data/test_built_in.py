"""The corpora that need no download: size, balance, and the same every time."""

import hashlib
import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from qkv.data import (
    BUILT_IN,
    LabelledText,
    Pair,
    built_in,
    read_labelled,
    read_pairs,
    read_texts,
    write_built_in,
)
from qkv.data.built_in import Docstring, beginnings, docstrings, pages
from qkv.data.synthetic import ADJECTIVES, EFFECTS
from qkv.errors import DataError


@pytest.fixture(scope="module")
def found() -> list[Docstring]:
    """All docstrings of this Python, read once."""
    return docstrings()


@pytest.fixture(scope="module")
def reviews() -> list[LabelledText]:
    return built_in("classify")


@pytest.fixture(scope="module")
def pairs() -> list[Pair]:
    return built_in("translate")


def test_reviews_are_many_distinct_and_balanced(reviews: list[LabelledText]) -> None:
    assert len({row.text for row in reviews}) == len(reviews) >= 6_000
    counts = Counter(row.label for row in reviews)
    assert set(counts) == {"negative", "positive"}
    assert abs(counts["negative"] - counts["positive"]) <= 0.1 * len(reviews)


@pytest.mark.parametrize("word", ["not", "never", "hardly", "but", "although", "very", "truly"])
def test_reviews_negate_contrast_and_intensify(word: str, reviews: list[LabelledText]) -> None:
    labels = Counter(row.label for row in reviews if word in row.text.lower().split())
    assert min(labels["negative"], labels["positive"]) > 100


def test_no_word_gives_the_label_of_a_review_away(reviews: list[LabelledText]) -> None:
    counts: dict[str, Counter[str]] = {}
    for row in reviews:
        for word in set(re.findall(r"\w+", row.text.lower())):
            counts.setdefault(word, Counter())[row.label] += 1
    for word, labels in counts.items():
        assert max(labels.values()) < 0.8 * labels.total() or labels.total() < 100, word


def verdict(text: str) -> str:
    """Read a review as a person would: the main clause counts, and a denial turns it around."""
    text = text.lower().rstrip(".")
    main = text.partition(", even though ")[0].rpartition(", but ")[2]
    if "although " in main:
        main = main.rpartition(", ")[2]
    main = main.partition(" and ")[0]
    words = main.split()
    (meant,) = {
        label
        for label in ("negative", "positive")
        if set(ADJECTIVES[label]) & set(words)
        or any(form in main for forms in EFFECTS[label] for form in forms)
    }
    if {"not", "never", "hardly"} & set(words):
        return "negative" if meant == "positive" else "positive"
    return meant


def test_every_label_is_what_the_sentence_says(reviews: list[LabelledText]) -> None:
    assert [row for row in reviews if verdict(row.text) != row.label] == []


def test_pairs_are_many_and_no_sentence_has_two_translations(pairs: list[Pair]) -> None:
    assert len(pairs) >= 10_000
    assert len({pair.source for pair in pairs}) == len(pairs)
    assert len(set(pairs)) == len(pairs)
    for pair in pairs:
        assert not re.search(r"[{}\s]{2}|[{}]|[^\S ]", pair.source + pair.target), pair
        assert pair.source[-1] == pair.target[-1]


@pytest.mark.parametrize(
    ("english", "german"),
    [("Wednesday", "Mittwoch"), ("March", "März"), ("kilometers", "Kilometer"), ("€", "€")],
)
def test_words_of_dates_and_amounts_are_translated(
    english: str, german: str, pairs: list[Pair]
) -> None:
    having = [pair for pair in pairs if english in re.findall(r"\w+|€", pair.source)]
    assert len(having) > 100
    assert all(german in pair.target for pair in having)


def test_numbers_keep_their_digits_and_change_their_marks(pairs: list[Pair]) -> None:
    towns = [pair for pair in pairs if pair.source.startswith("The town has")]
    assert any("," in pair.source for pair in towns)
    for pair in towns:
        assert (
            re.findall(r"[\d.,]+\d", pair.source.replace(",", "."))[:1]
            == (re.findall(r"[\d.,]+\d", pair.target)[:1])
        )


@pytest.mark.slow
def test_the_language_corpus_is_pythons_documentation(
    found: list[Docstring], tmp_path: Path
) -> None:
    path, made = tmp_path / "python.txt", pages(found)
    count = write_built_in("language", path)
    (text,) = read_texts([path])
    assert text.endswith("\n" + "\n".join(made))  # sources read a second time: the same
    assert count > len(made) + 50
    assert 2e6 <= len(text) <= 8e6
    assert all(document.strip() for document in made)
    (page,) = (page for page in made if page.startswith("JSON (JavaScript Object Notation)"))
    assert "\n\nload(fp, *, cls=None" in page


def test_first_sentences_carry_the_package_they_come_from(found: list[Docstring]) -> None:
    rows = beginnings(found)
    counts = Counter(row.label for row in rows)
    assert {"json", "asyncio", "email"} <= set(counts)
    assert not {"test", "idlelib", "lib2to3"} & set(counts)
    assert min(counts.values()) >= 20
    assert len({row.text for row in rows}) == len(rows) > 3_000
    assert all(row.text == " ".join(row.text.split()) for row in rows)


def test_docstrings_are_read_without_running_anything(tmp_path: Path) -> None:
    (tmp_path / "b.py").write_text(
        '"""Module b. It has more."""\nraise SystemExit("run")\n'
        "if 1:\n    class A(int, str):\n        async def go(self, x=1, *y):\n"
        '            """Go \\d."""\n            def no(): "Inner."\n'
    )
    (tmp_path / "a.py").write_text("this is no Python")
    (tmp_path / "test").mkdir()
    (tmp_path / "test" / "c.py").write_text('"""Skipped."""')
    assert docstrings(tmp_path) == [
        Docstring("b.py", "", "Module b. It has more."),
        Docstring("b.py", "A.go(self, x=1, *y)", "Go \\d."),
        Docstring("b.py", "A.go.no()", "Inner."),
    ]


def test_a_python_without_sources_says_so(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="there are no Python sources in"):
        docstrings(tmp_path)


def test_a_corpus_that_does_not_exist_is_named_beside_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r'unknown corpus "clasify"; did you mean "classify"\?'):
        built_in("clasify")
    with pytest.raises(DataError, match="unknown corpus"):
        write_built_in("clasify", tmp_path / "a.tsv")
    assert set(BUILT_IN) == {"language", "classify", "translate", "embed"}


@pytest.mark.parametrize("suffix", [".tsv", ".csv", ".jsonl"])
def test_written_reviews_are_read_back(
    suffix: str, reviews: list[LabelledText], tmp_path: Path
) -> None:
    path = tmp_path / f"reviews{suffix}"
    assert write_built_in("classify", path) == len(reviews)
    assert read_labelled([path]) == reviews


def test_written_pairs_are_read_back(pairs: list[Pair], tmp_path: Path) -> None:
    path = tmp_path / "dates.csv"
    assert write_built_in("translate", path) == len(pairs)
    assert read_pairs([path]) == pairs


@pytest.mark.slow
def test_docstrings_survive_a_tsv(found: list[Docstring], tmp_path: Path) -> None:
    path = tmp_path / "embed.tsv"
    assert write_built_in("embed", path) == len(beginnings(found))
    assert read_labelled([path]) == beginnings(found)
    assert [file.name for file in tmp_path.iterdir()] == ["embed.tsv"]


@pytest.mark.parametrize(
    ("name", "file", "said"),
    [
        ("language", "a.csv", "the name must end in .txt or .jsonl"),
        ("classify", "a.txt", "the name must end in .csv, .tsv or .jsonl"),
        ("classify", "no/a.csv", "there is no folder"),
        ("classify", "folder.csv", "is a folder"),
    ],
)
def test_a_place_that_cannot_be_written_is_refused_at_once(
    name: str, file: str, said: str, tmp_path: Path
) -> None:
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(DataError, match=re.escape(said)):
        write_built_in(name, tmp_path / file)


@pytest.mark.parametrize("name", ["classify", "translate"])
def test_another_process_makes_the_same_corpus_and_needs_no_torch(name: str) -> None:
    program = (
        "import sys, hashlib; from qkv.data import built_in; assert 'torch' not in sys.modules;"
        f"print(hashlib.sha256(repr(built_in({name!r})).encode()).hexdigest())"
    )
    environment = {**os.environ, "PYTHONHASHSEED": "7", "PYTHONIOENCODING": "utf-8"}
    run = [sys.executable, "-c", program]
    made = subprocess.run(run, env=environment, capture_output=True, text=True, check=True).stdout
    assert made.strip() == hashlib.sha256(repr(built_in(name)).encode()).hexdigest()
