"""The same walk in four formats; hostile words stay words."""

import json as decoder
from dataclasses import replace

import pytest

from qkv.interpret.attention_walk import check_answers, walk
from qkv.interpret.examples import EXAMPLES, POEM, notes_worksheet
from qkv.interpret.render.formats import render_json, render_latex, render_markdown
from qkv.interpret.render.sections import WalkView, cell_lines
from qkv.interpret.render.terminal_text import render_text

MASKED = replace(POEM, causal=True)


def strict(document: str) -> dict:
    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    return decoder.loads(document, parse_constant=refuse)


def test_json_has_all_digits_and_the_fields_of_the_contract() -> None:
    steps = strict(render_json(WalkView(walk(POEM))))["steps"]
    for step in steps:
        assert {"name", "equation", "rows", "columns", "value"} <= step.keys()
    values = {step["name"]: step["value"] for step in steps}
    assert values["weights"] == walk(POEM)["weights"].value.tolist()


def test_minus_infinity_in_json_is_a_string_that_float_reads() -> None:
    steps = {s["name"]: s["value"] for s in strict(render_json(WalkView(walk(MASKED))))["steps"]}
    assert steps["masked"][0][1] == "-Infinity"
    assert float(steps["masked"][0][1]) == float("-inf")


def test_minus_infinity_is_shown_as_such_in_every_format() -> None:
    view = WalkView(walk(MASKED))
    assert "−∞" in render_text(view, 80)
    assert "−∞" in render_markdown(view)
    assert r"-\infty" in render_latex(view)


@pytest.mark.parametrize("name", EXAMPLES)
@pytest.mark.parametrize("width", [40, 80, 200])
def test_text_is_never_wider_than_the_screen(name: str, width: int) -> None:
    page = render_text(WalkView(walk(EXAMPLES[name])), width)
    lines = page.split("\n")
    assert max(map(len, lines)) <= width
    assert all(line == line.rstrip() for line in lines)


def test_a_table_wider_than_the_screen_is_folded_and_keeps_every_number() -> None:
    wide, narrow = (render_text(WalkView(walk(EXAMPLES["factored"])), width) for width in (200, 40))
    assert narrow.count("\n") > wide.count("\n")
    words = [{word for word in page.split() if word.strip("=")} for page in (wide, narrow)]
    assert words[0] == words[1]


def test_wrong_answers_are_marked_in_the_table_and_told_below_it() -> None:
    sheet = notes_worksheet()
    steps = walk(sheet)
    view = WalkView(steps, mistakes=tuple(check_answers(steps, sheet.answers)))
    for page in (render_text(view, 80), render_markdown(view)):
        assert page.count("1.1070✗") == 1
        assert "is written 0.11 but is 4.41 × 0.54" in page
    assert r"1.1070^{\times}" in render_latex(view)


def test_hostile_words_stay_text_in_markdown_and_latex() -> None:
    words = ("a|b", "*<img src=x>*", r"\input{/etc/passwd} $x_1$ & 50 % #^~")
    view = WalkView(walk(replace(POEM, tokens=words)))
    page = render_markdown(view)
    assert r"a\|b" in page
    assert "<img" not in page.replace(r"\<img", "")
    paper = render_latex(view)
    assert r"\input" not in paper
    assert r"a\textbar{}b" in paper
    assert r"\textbackslash{}input\{/etc/passwd\} \$x\_1\$ \& 50 \% \#" in paper


def test_only_the_asked_steps_are_shown_with_their_numbers_of_the_whole() -> None:
    page = render_text(WalkView(walk(POEM), steps=("weights", "scores")), 80)
    assert [line[:3] for line in page.split("\n") if line[:1].isdigit()] == ["8. ", "10."]


def test_wide_characters_stay_in_their_columns() -> None:
    from rich.cells import cell_len

    page = render_text(
        WalkView(walk(replace(POEM, tokens=("詩", "を", "書く"))), steps=("weights",)), 80
    )
    table = page.split("\n\n")[2].split("\n")
    assert len({cell_len(line.rstrip("~")) for line in table[1:] if not line.endswith("~")}) == 1


def test_a_cell_of_joined_heads_is_copied_from_the_head_it_names() -> None:
    view = WalkView(walk(EXAMPLES["heads"]), steps=("output",))
    assert cell_lines(view, "write", "o4") == [
        "output(write, o4) = column 2 of head2.output = 0.7209"
    ]
