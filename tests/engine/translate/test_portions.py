"""Texts are cut where it does the least harm, and every character stays where it was."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qkv.engine.translate.segments import (
    Segment,
    join_segments,
    split_at_spaces,
    split_clauses,
    split_line,
    split_lines,
    split_sentences,
)

ROOM = 11

# Texts with everything that could be a place to cut.
TEXTS = st.text(alphabet="abC1 .,?!…\n\r\t;:—-。！、日؟।\"”'\u2028", max_size=60)


def fits(text: str) -> bool:
    return len(text) <= ROOM


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("He came. She left! Why? So…  Well.", ["He came.", "She left!", "Why?", "So…", "Well."]),
        ("Dr. Smith met J. R. Doe. He was late.", ["Dr. Smith met J. R. Doe.", "He was late."]),
        ("It costs 3.14 euros. See No. 5. Or Fig. 2.", 2),
        ("Am 2. Mai kam Ludwig XIV. Er blieb, z.B. hier. Dann ging er.", 2),
        ("That was in 1999. Then came 2000.", ["That was in 1999.", "Then came 2000."]),
        ("“Is it?” he asked. “Yes!” She left.", ["“Is it?” he asked.", "“Yes!”", "She left."]),
        ("He said no. She (Anna et al. in Rome) wept... We know.", 3),
        ("你好。再见！「好。」走吧", ["你好。", "再见！", "「好。」", "走吧"]),
        ("كيف حالك؟ أنا بخير. شكرا۔ نعم", ["كيف حالك؟", "أنا بخير.", "شكرا۔", "نعم"]),
        ("यह है। वह भी॥ ठीक", ["यह है।", "वह भी॥", "ठीक"]),
        ("see www.example.org for v1.2.3 of it", 1),
    ],
)
def test_sentences_end_where_people_would_say(text: str, expected: list[str] | int) -> None:
    found = [sentence.strip() for sentence in split_sentences(text)]
    assert (len(found) if isinstance(expected, int) else found) == expected


def test_clauses_end_at_commas_and_dashes_but_not_in_numbers() -> None:
    found = [
        part.strip() for part in split_clauses("he paid 1,000.50, came; saw: and — well – won，好")
    ]
    assert found == ["he paid 1,000.50,", "came;", "saw:", "and —", "well –", "won，", "好"]


@settings(max_examples=300, deadline=None)
@given(text=TEXTS)
def test_no_way_to_cut_loses_a_character(text: str) -> None:
    for way in (split_sentences, split_clauses, split_at_spaces):
        pieces = way(text)
        assert "".join(pieces) == text
        assert all(pieces)


@settings(max_examples=300, deadline=None)
@given(text=TEXTS)
def test_portions_said_unchanged_give_the_text_back(text: str) -> None:
    portions = [
        p
        for line in split_lines(text)
        for p in (split_line(line, fits) if len(line.text) > ROOM else [line])
    ]
    for portion in portions:
        assert fits(portion.text)
        assert portion.text.strip()
        assert text[portion.start :].startswith(portion.text)
    said, starts = join_segments(portions, [portion.text for portion in portions])
    # Only the space that sentences of Chinese lack may be new.
    assert said.replace(" ", "") == (text if portions else "").replace(" ", "")
    assert [said[at:].startswith(p.text) for at, p in zip(starts, portions, strict=True)] == [
        True
    ] * len(portions)


def test_the_only_line_of_a_text_stays_as_it_is() -> None:
    assert split_lines("  a b ") == [Segment("  a b ", 0)]
    assert split_lines("a\n b ") == [Segment("a", 0), Segment("b", 3, "\n ", " ")]


def test_as_many_words_as_fit_stay_together() -> None:
    line = Segment("one two three four, five six seven eight nine ten", 5, "<", ">")
    found = split_line(line, fits)
    assert [portion.text for portion in found] == [
        "one two", "three four,", "five six", "seven eight", "nine ten",
    ]  # fmt: skip
    assert [portion.start for portion in found] == [5, 13, 25, 34, 46]
    assert (found[0].before, found[-1].after) == ("<", ">")


def test_a_run_without_any_space_is_cut_at_characters() -> None:
    assert [p.text for p in split_line(Segment("ab" * 13, 0), fits)] == [
        "ab" * 5 + "a",
        "ba" * 5 + "b",
        "abab",
    ]


def test_sentences_get_the_space_that_chinese_lacks() -> None:
    portions = split_line(Segment("你好你好。再见再见！好好好。", 0), fits)
    assert join_segments(portions, ["Hello.", "Goodbye!", "Fine."])[0] == "Hello. Goodbye! Fine."
    assert join_segments(portions, ["你。", "好。", "好"])[0] == "你。好。好"


def test_a_very_long_text_is_cut_in_a_time_that_grows_with_its_length() -> None:
    """Counted in characters looked at: no portion is tried with all that is left."""
    for unit in ("word ", "one, ", "x"):
        looked = 0

        def counted(text: str) -> bool:
            nonlocal looked
            looked += len(text)
            return fits(text)

        text = unit * 4000
        assert (
            "".join(p.before + p.text + p.after for p in split_line(Segment(text, 0), counted))
            == text
        )
        assert looked < 20 * len(text)
