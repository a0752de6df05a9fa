"""The page in a real browser, offline: the trace's numbers, by mouse and by keyboard alone."""

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tests.interpret.page.pages import (
    SMALL,
    WORDS,
    by_attention,
    by_head,
    cells,
    displayed_number,
    make_trace,
    write_html,
)
from tests.model.odd_models import DECODERS, ENCODERS, TRANSLATORS

from qkv.interpret.page import Section

READ = """async (names) => {
  const read = [];
  for (const name of names) {
    const place = document.querySelector(`[data-step="${name}"]`);
    place.scrollIntoView({ block: "center" });
    while (!place.querySelector("[role=grid]")) await new Promise(requestAnimationFrame);
    const cells = (row) => [...row.querySelectorAll("[role=gridcell]")];
    const texts = (row) => cells(row).map((cell) => cell.textContent);
    read.push([...place.querySelectorAll("[role=row]")].slice(1).map(texts));
  }
  return read;
}"""
LEFT_OUT = (".seen", ".bias")  # told by the masked scores
HOSTILE = (
    "<img src=x onerror=window.hacked=1>",
    "</script><script>window.hacked=1</script>",
    "&lt;b&gt; \u2028 ${window.hacked=1}",
    "]]><!--",
    "\u202eabc",
)


def read(page: object, *names: str) -> list[list[list[str]]]:
    """Every cell of these steps, from the document."""
    return page.evaluate(READ, names)


def open_all(page: object) -> None:
    page.evaluate("for (const one of document.querySelectorAll('details')) one.open = true")
    page.wait_for_timeout(50)


def choose(page: object, attention: str, head: int) -> None:
    page.locator(f"#heads [data-head='{attention} {head}']").click()


@pytest.mark.slow
@pytest.mark.parametrize("config", [SMALL, TRANSLATORS["paper"]], ids=["decoder", "translator"])
def test_every_cell_of_every_step_is_the_trace_s(
    config: object, open_page: Callable, tmp_path: Path
) -> None:
    trace = make_trace(config)
    page = open_page(write_html(trace, tmp_path)).page
    compared = set()
    for attention, head in by_attention(trace):
        if config is not SMALL and head not in (0, 5):
            continue  # every head of the one, the first and the last of the other
        choose(page, attention, head)
        if head == 0:
            open_all(page)
        own = [name for name in trace if name.startswith(f"{attention}.") and by_head(trace, name)]
        layer = attention.rpartition(".")[0]
        others = [name for name in trace if name.startswith(f"{layer}.")] if head == 0 else []
        shown_now = [name for name in dict.fromkeys(own + others) if not name.endswith(LEFT_OUT)]
        for name, found in zip(shown_now, read(page, *shown_now), strict=True):
            assert found == cells(trace, name, head if name in own else 0), name
        compared.update(shown_now)
    ends = [name for name in trace if not re.match(r"(en|de)coder\.\d", name)]
    open_all(page)
    for name, found in zip(ends, read(page, *ends), strict=True):
        assert found == cells(trace, name, 0), name
    assert compared | set(ends) == {name for name in trace if not name.endswith(LEFT_OUT)}


def test_queries_and_keys_are_named_and_hidden_keys_are_hatched(
    open_page: Callable, tmp_path: Path
) -> None:
    trace = make_trace()
    page = open_page(write_html(trace, tmp_path)).page
    choose(page, "decoder.1.attention", 2)
    read(page, "decoder.1.attention.masked")
    grid = page.locator("[data-step='decoder.1.attention.masked'] [role=grid]")
    assert grid.locator(".corner").inner_text() == "query ↓ key →"
    assert tuple(grid.locator("[role=columnheader].name").all_inner_texts()) == WORDS
    assert tuple(grid.locator("[role=rowheader]").all_inner_texts()) == WORDS
    assert grid.get_attribute("aria-rowcount") == grid.get_attribute("aria-colcount") == "6"
    hidden = grid.locator(".hidden")
    assert hidden.all_inner_texts() == ["−∞"] * 10
    assert "gradient" in hidden.first.evaluate("(cell) => getComputedStyle(cell).backgroundImage")
    assert hidden.first.get_attribute("aria-label") == "−∞, hidden by the mask"
    read(page, "decoder.1.attention.weights")
    weights = page.locator("[data-step='decoder.1.attention.weights'] .hidden")
    assert weights.all_inner_texts() == ["0.0000"] * 10


def test_by_keyboard_alone_one_reaches_a_head_a_step_and_a_cell(
    open_page: Callable, tmp_path: Path
) -> None:
    trace = make_trace()
    page = open_page(write_html(trace, tmp_path)).page
    press(page, "Tab", until="#heads button")
    press(page, "Control+Home")
    page.keyboard.press("PageUp")
    page.keyboard.press("Home")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowRight")
    assert focused(page, "dataset.head") == "decoder.1.attention 1"
    page.keyboard.press("Enter")
    assert page.locator("#layer-title").inner_text() == "Layer 1, head 1, step by step"
    press(page, "Tab", until="[data-step='decoder.1.attention.scores'] [data-at]")
    for key in ("End", "Home", "ArrowDown", "PageDown", "ArrowUp", "ArrowRight"):
        page.keyboard.press(key)
    assert focused(page, "dataset.at") == "3,1"
    value = trace["decoder.1.attention.scores"][0, 1, 3, 1].item()
    assert page.locator("#cell .cell-name").inner_text() == "scores(poem, a)"
    assert page.locator("#cell .result").inner_text() == displayed_number(value)
    products = page.locator(".terms tbody tr td:last-child").all_inner_texts()
    q = trace["decoder.1.attention.query_rotated"][0, 1, 3]
    k = trace["decoder.1.attention.key_rotated"][0, 0, 1]
    assert products == [displayed_number(product) for product in (q.double() * k.double()).tolist()]
    assert page.locator(".terms tfoot td").inner_text() == displayed_number(value)
    page.keyboard.press("Escape")
    assert page.locator("#cell .result").count() == 0


def press(page: object, key: str, until: str | None = None) -> None:
    """A key, again and again until what has the focus matches."""
    for _ in range(80):
        page.keyboard.press(key)
        if until is None or page.evaluate("(what) => document.activeElement.matches(what)", until):
            return
    raise AssertionError(f"{until} is not reached with {key}")


def focused(page: object, what: str) -> str:
    return page.evaluate(f"document.activeElement.{what}")


def test_pointing_at_a_weight_shows_its_exponentials(open_page: Callable, tmp_path: Path) -> None:
    trace = make_trace()
    page = open_page(write_html(trace, tmp_path)).page
    choose(page, "decoder.0.attention", 4)
    read(page, "decoder.0.attention.weights")
    page.locator("[data-step='decoder.0.attention.weights'] [data-at='2,1']").hover()
    masked = trace["decoder.0.attention.masked"][0, 4, 2].double()
    powers = masked.exp()
    assert page.locator("#cell .cell-name").inner_text() == "weights(short, a)"
    told = page.locator("#cell .line").first.inner_text()
    assert told.endswith(
        f"{displayed_number(powers[1])} ÷ {displayed_number(powers.sum())} = "
        f"{displayed_number(powers[1] / powers.sum())}"
    )
    assert page.locator(".terms tbody tr.chosen th").inner_text() == "a"
    assert page.locator(".terms tfoot td").inner_text() == displayed_number(powers.sum())


# Together they make every operation there is.
ODD = {
    "bert": ENCODERS["bert"],
    "first vector, dense": ENCODERS["first vector, dense"],
    "notes": ENCODERS["notes"],
    "gemma": DECODERS["gemma"],
    "alibi": DECODERS["alibi"],
    "no positions": DECODERS["no positions"],
    "t5": TRANSLATORS["t5"],
}


STEPS = "[...document.querySelectorAll('[data-step]')].map((place) => place.dataset.step)"
WORK = """async (names) => {
  const told = [];
  const texts = (what) => [...document.querySelectorAll(what)].map((one) => one.textContent);
  for (const name of names) {
    const place = document.querySelector(`[data-step="${name}"]`);
    place.scrollIntoView({ block: "center" });
    while (!place.querySelector("[role=grid]")) await new Promise(requestAnimationFrame);
    for (const at of ["0,0", "3,1", "2,4"]) {
      const cell = place.querySelector(`[data-at="${at}"]`);
      if (!cell) continue;
      cell.focus();
      const [result] = texts("#cell .result");
      told.push([name, result, texts("#cell .line"), texts(".terms tfoot td")]);
    }
  }
  return told;
}"""


@pytest.mark.slow
@pytest.mark.parametrize("name", ODD)
def test_the_arithmetic_of_every_step_leads_to_its_number(
    name: str, open_page: Callable, tmp_path: Path
) -> None:
    trace = make_trace(ODD[name])
    page = open_page(write_html(trace, tmp_path)).page
    open_all(page)
    told = page.evaluate(WORK, page.evaluate(STEPS))
    assert len(told) > 10
    for step, result, lines, totals in told:
        ends = [line.rpartition("= ")[2] for line in lines if "= " in line] or totals
        assert not ends or any(near(end, result) for end in ends), (step, result, lines, totals)
    assert sum(bool(totals) for *_, totals in told) > 5


def near(one: str, other: str) -> bool:
    a, b = (float(text.replace("−", "-").replace("∞", "inf")) for text in (one, other))
    return a == b or abs(a - b) < 2e-4


def test_hostile_tokens_are_text(open_page: Callable, tmp_path: Path) -> None:
    trace = make_trace(words=HOSTILE, outputs=HOSTILE)
    why = (Section(HOSTILE[0], HOSTILE[1], (HOSTILE[2], "n"), ((HOSTILE[1], 0.5),), HOSTILE[3]),)
    path = write_html(trace, tmp_path, why=why)
    page = open_page(path).page
    choose(page, "decoder.0.attention", 0)
    read(page, "decoder.0.attention.weights")
    grid = page.locator("[data-step='decoder.0.attention.weights'] [role=rowheader]")
    assert [one.text_content() for one in grid.all()] == list(HOSTILE)
    open_all(page)
    page.locator("[data-step='decoder.0.attention.weights'] [data-at='1,1']").focus()
    assert page.locator("#cell .cell-name").text_content() == f"weights({HOSTILE[1]}, {HOSTILE[1]})"
    assert page.evaluate("window.hacked") is None
    assert page.locator("img").count() == 0
    assert page.locator("h1").text_content() == " ".join(HOSTILE)


def test_nan_and_infinity_survive_and_turn_the_checks_red(
    open_page: Callable, tmp_path: Path
) -> None:
    name = "decoder.1.attention.weights"
    trace = make_trace()
    broken = trace[name].clone()
    broken[0, 3, 2, 0] = torch.nan
    trace = replace(trace, tensors={**trace.tensors, name: broken})
    page = open_page(write_html(trace, tmp_path)).page
    choose(page, "decoder.1.attention", 3)
    assert read(page, name) == [cells(trace, name, 3)]
    assert page.locator("#checks-summary").inner_text().startswith("✗")
    assert "decoder.1.attention.weights, head 3, row 3 (short)" in page.inner_text("#checks-list")


@pytest.mark.slow
@pytest.mark.parametrize(("width", "dark"), [(1280, False), (390, True)])
def test_axe_finds_nothing_serious(
    width: int, dark: bool, open_page: Callable, tmp_path: Path
) -> None:
    axe = pytest.importorskip(
        "axe_playwright_python.sync_playwright", reason="pip install 'qkv[test]'"
    )
    why = (Section("Why", "Because.", ("word", "moves"), (("poem", 0.4), ("a", 0.1)), "0.4 of 1"),)
    page = open_page(write_html(make_trace(), tmp_path, why=why), width, dark).page
    page.locator("details").first.locator("summary").click()
    choose(page, "decoder.0.attention", 0)
    read(page, "decoder.0.attention.weights")
    page.locator("[data-step$='attention.weights'] [data-at='2,1']").focus()
    found = axe.Axe().run(page).response["violations"]
    assert [
        (one["id"], one["nodes"][0]["html"])
        for one in found
        if one["impact"] in ("serious", "critical")
    ] == []


def test_without_scripts_there_is_a_plain_table(open_page: Callable, tmp_path: Path) -> None:
    trace = make_trace()
    page = open_page(write_html(trace, tmp_path), checked=False, java_script_enabled=False).page
    assert page.get_by_role("heading", name="Without scripts").is_visible()
    rows = page.locator("noscript table").last.locator("tbody tr").count()
    assert rows == len(WORDS)
    assert not page.locator("#heads").is_visible()


def test_only_the_last_queries_may_have_been_kept(open_page: Callable, tmp_path: Path) -> None:
    trace = make_trace(rows=[-1, 1])
    page = open_page(write_html(trace, tmp_path)).page
    choose(page, "decoder.0.attention", 1)
    for step in ("scores", "masked", "weights", "mixed"):
        name = f"decoder.0.attention.{step}"
        assert read(page, name) == [cells(trace, name, 1)]
    grid = page.locator("[data-step='decoder.0.attention.weights'] [role=rowheader]")
    assert sorted(grid.all_inner_texts()) == ["a", "today"]
    hatched = page.locator("[data-step='decoder.0.attention.weights'] .hidden")
    assert hatched.count() == 3  # "a" may not see the three words after it, "today" sees all
    assert page.locator("#checks-summary").inner_text().startswith("✓")


def test_a_trace_without_attention_shows_what_there_is(open_page: Callable, tmp_path: Path) -> None:
    trace = make_trace(keep=["*.feed_forward.up", "output"])
    page = open_page(write_html(trace, tmp_path)).page
    assert page.locator("#heads, #layer").count() == 0
    open_all(page)
    for name in trace:
        assert read(page, name) == [cells(trace, name, 0)]


def test_another_head_can_be_chosen_beside_the_steps(open_page: Callable, tmp_path: Path) -> None:
    trace = make_trace(TRANSLATORS["paper"])
    page = open_page(write_html(trace, tmp_path)).page
    page.get_by_label("attention", exact=True).select_option("Cross attention")
    page.get_by_label("layer", exact=True).select_option(label="1")
    page.get_by_label("head", exact=True).select_option(label="4")
    assert page.inner_text("#layer-title") == "Decoder: layer 1, head 4, step by step"
    name = "decoder.1.cross.weights"
    assert read(page, name) == [cells(trace, name, 4)]
    pressed = page.locator("#heads [aria-pressed=true]")
    assert pressed.get_attribute("data-head") == "decoder.1.cross 4"
