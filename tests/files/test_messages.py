"""Whatever stands in a file can be printed on one line."""

from typing import Any

import pytest

from qkv.files import one_line, short_repr, summarize_names

DEEP: list[Any] = []
for _ in range(100_000):
    DEEP = [DEEP]
HOSTILE = ["a\nb", "\x1b[2J", "\ud800", "x" * 10**6, 10**5000, DEEP, ["\r"] * 10**5, None, "\u202e"]


@pytest.mark.parametrize("value", HOSTILE, ids=range(len(HOSTILE)))
def test_a_hostile_value_is_shown_on_one_short_line(value: object) -> None:
    for text in (short_repr(value), summarize_names([str(type(value)), short_repr(value)])):
        assert text.isprintable()
        assert len(text) < 200
        text.encode()


@pytest.mark.parametrize("value", [v for v in HOSTILE if isinstance(v, str)], ids=str.__len__)
def test_what_another_program_says_is_one_short_line(value: str) -> None:
    for text in (one_line(value), one_line(ValueError(value))):
        assert text.isprintable()
        assert len(text) < 250
        text.encode()


def test_what_is_harmless_stays_as_it_is() -> None:
    assert (short_repr("a'b"), short_repr([1, "é"])) == ('"a\'b"', "[1, 'é']")
    assert one_line(ValueError("roles must\n  alternate é")) == "roles must alternate é"
    assert one_line(ValueError()) == "ValueError"
    assert summarize_names(["a", "b", "c", "d", "e"]) == "'a', 'b', 'c' and 2 more"
