"""The page of a worksheet in a real browser, offline: every number and its arithmetic."""

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from qkv.interpret import check_answers, example, notes_worksheet, walk
from qkv.interpret.page import render_walk_page
from qkv.interpret.render import WalkView, cell_arithmetic, sections

HOSTILE = ("</script><img src=x onerror=window.hacked=1>", "${window.hacked=1}", "&lt;b&gt;")


def write(view: WalkView, folder: Path, **more: object) -> Path:
    path = folder / "walk.html"
    path.write_text(render_walk_page(view, **more), "utf-8")
    return path


def test_the_page_asks_for_nothing_and_names_its_script_by_hash() -> None:
    document = render_walk_page(WalkView(walk(example("poem"))))
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', document)
    assert policy
    assert policy[1].startswith("default-src 'none'; script-src 'sha256-")
    assert "http" not in document.replace("http-equiv", "")
    assert len(document) < 100_000


def test_every_cell_shows_its_number_and_its_arithmetic(
    open_page: Callable, tmp_path: Path
) -> None:
    view = WalkView(walk(replace(example("heads"), causal=True)))
    page = open_page(write(view, tmp_path), checked=False).page
    for section in sections(view):
        root = page.locator(f"#step-{section.step.name.replace('.', '-')}")
        cells = root.locator("[role=gridcell]").all_text_contents()
        assert cells == [cell for row in section.table.cells for cell in row]
        root.locator("[data-at='0,1']").click()
        line = cell_arithmetic(view.walk, section.step, 0, 1, view.precision)
        assert page.locator("#cell .line").all_text_contents() == [line]
        assert page.locator("#cell .result").text_content() == section.table.cells[0][1]


def test_the_keyboard_reaches_every_cell(open_page: Callable, tmp_path: Path) -> None:
    page = open_page(write(WalkView(walk(example("poem"))), tmp_path), checked=False).page
    page.locator("#step-weights [data-at='0,0']").focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("End")
    assert "weights(a, poem)" in page.locator("#cell").inner_text()
    page.keyboard.press("Escape")
    assert page.locator("#cell .result").count() == 0


def test_wrong_answers_are_marked_and_words_stay_words(open_page: Callable, tmp_path: Path) -> None:
    sheet = replace(notes_worksheet(), tokens=HOSTILE)
    steps = walk(sheet)
    view = WalkView(steps, mistakes=tuple(check_answers(steps, sheet.answers)))
    page = open_page(write(view, tmp_path), checked=False).page
    assert page.locator(".cell.wrong").all_text_contents() == ["1.1070✗", "−0.2978✗", "0.1049✗"]
    assert page.evaluate("window.hacked") is None
    headers = page.locator("#step-q [role=rowheader]").all_text_contents()
    assert headers == list(HOSTILE)


def test_the_solution_of_a_blank_cell_is_behind_a_click(
    open_page: Callable, tmp_path: Path
) -> None:
    view = WalkView(walk(example("poem")), blanks=frozenset({("weights", 0, 0)}))
    page = open_page(write(view, tmp_path), checked=False).page
    cell = page.locator("#step-weights [data-at='0,0']")
    assert cell.text_content() == "?"
    cell.click()
    assert "0.3564" not in page.locator("#cell").inner_text()
    page.locator("#cell summary").click()
    assert page.locator("#cell").inner_text().endswith("= 0.3564")


def test_without_scripts_the_tables_are_there(chromium: object, tmp_path: Path) -> None:
    context = chromium.new_context(java_script_enabled=False, offline=True)
    page = context.new_page()
    page.goto(write(WalkView(walk(example("poem"))), tmp_path).as_uri())
    assert "0.3564" in page.locator("noscript").inner_text()
    context.close()


def test_a_plot_is_shown_inside_the_page(open_page: Callable, tmp_path: Path) -> None:
    svg = b'<svg xmlns="http://www.w3.org/2000/svg" width="30" height="20"></svg>'
    path = write(WalkView(walk(example("poem"))), tmp_path, svg=svg, derivation="a < b")
    page = open_page(path, checked=False).page
    assert page.evaluate("document.querySelector('.plot').naturalWidth") == 30
    assert page.locator(".derivation").text_content() == "a < b"
