"""The readers on real data sets: every row is there, and nothing is split too often."""

from pathlib import Path

import pytest

from qkv.data import overlap, read_labelled, read_lines, read_pairs, read_scored, read_texts


@pytest.mark.parametrize(("part", "count"), [("train", 6_920), ("dev", 872), ("test", 1_821)])
def test_sst2_has_all_its_sentences_without_a_header(shared: Path, part: str, count: int) -> None:
    rows = read_labelled([shared / "data" / "sst2" / f"{part}.tsv"])
    assert len(rows) == count
    assert {row.label for row in rows} == {"0", "1"}


@pytest.mark.parametrize(("part", "count"), [("train", 10_003), ("test", 3_080)])
def test_banking77_has_all_its_intents_with_a_header(shared: Path, part: str, count: int) -> None:
    path = shared / "data" / "banking77" / f"{part}.csv"
    rows = read_labelled([path])
    assert len(rows) == count
    assert len({row.label for row in rows}) == 77
    assert read_labelled([path], "text", "category") == read_labelled([path], "1", "2") == rows


@pytest.mark.parametrize(
    ("part", "count"), [("train", 29_000), ("val", 1_014), ("test_2016", 1_000)]
)
def test_multi30k_stays_parallel(shared: Path, part: str, count: int) -> None:
    source, target = (str(shared / "data" / "multi30k" / f"{part}.{x}") for x in ("en", "de"))
    assert len(read_pairs([], source, target)) == count


def test_sentence_pairs_with_a_score_are_asked_for_by_number(shared: Path) -> None:
    assert len(read_pairs([shared / "data" / "stsb" / "dev.csv"], "1", "2")) == 1_500


@pytest.mark.parametrize(("part", "count"), [("train", 5_749), ("dev", 1_500), ("test", 1_379)])
def test_stsb_has_all_its_scored_pairs(shared: Path, part: str, count: int) -> None:
    rows = read_scored([shared / "data" / "stsb" / f"{part}.csv"])
    assert len(rows) == count
    assert {row.score for row in rows} >= {0.0, 5.0}
    assert all(0 <= row.score <= 5 for row in rows)


def test_names_are_lines(shared: Path) -> None:
    assert len(read_lines([shared / "data" / "names"])) == 32_033


def test_articles_and_names_are_documents(shared: Path) -> None:
    data = shared / "data"
    (articles,) = read_texts([data / "wikitext2" / "valid.txt"])
    (names,) = read_texts([data / "names"])
    assert len(articles) == 1_144_748
    assert len(names.split("\n")) == 32_033


def test_the_leaks_of_sst2_are_found(shared: Path) -> None:
    train, test = (
        [row.text for row in read_labelled([shared / "data" / "sst2" / f"{part}.tsv"])]
        for part in ("train", "test")
    )
    assert len(overlap(train, test)) == len(set(train) & set(test))
