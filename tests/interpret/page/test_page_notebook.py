"""A trace in a notebook: the page in a frame of its own, a table where frames are taken out."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.interpret.page.pages import WORDS, cells, make_trace

from qkv.interpret.page import mimebundle
from qkv.interpret.trace import Trace

# What a page around the frame might do to it, if it could.
AROUND = """<!DOCTYPE html><html><head><style>* { color: red !important; font-size: 40px; }</style>
</head><body><div id="output_area">HERE</div></body></html>"""


def in_frame(page: object, trace: Trace) -> None:
    """The frame has run its checks and shows the trace's weights."""
    frame = page.frame_locator("iframe").first
    frame.locator("#checks-summary[data-done=true]").wait_for(state="attached")
    assert frame.locator("#checks-summary").inner_text().startswith("✓")
    frame.locator("#heads [data-head='decoder.1.attention 3']").click()
    place = frame.locator("[data-step='decoder.1.attention.weights']")
    place.scroll_into_view_if_needed()
    place.locator("[role=gridcell]").first.wait_for()  # drawn once it is in sight
    texts = place.locator("[role=gridcell]").all_inner_texts()
    expected = cells(trace, "decoder.1.attention.weights", 3)
    assert texts == [cell for row in expected for cell in row]


def test_the_object_says_itself_in_text_and_html() -> None:
    trace = make_trace()
    bundle = trace._repr_mimebundle_()
    assert bundle == mimebundle(trace)
    assert bundle["text/plain"] == repr(trace)
    assert bundle["text/html"].startswith("<iframe ")


def test_the_page_works_in_a_frame_that_may_only_run_scripts(
    open_page: Callable, tmp_path: Path
) -> None:
    trace = make_trace()
    path = tmp_path / "cell.html"
    path.write_text(AROUND.replace("HERE", mimebundle(trace)["text/html"]), "utf-8")
    page = open_page(path, checked=False).page
    in_frame(page, trace)
    frame = page.frames[1]
    assert frame.evaluate("self.origin") == "null"  # a stranger to the page around it
    assert frame.evaluate("getComputedStyle(document.body).color") != "rgb(255, 0, 0)"


def test_where_frames_are_taken_out_the_table_remains() -> None:
    html = mimebundle(make_trace())["text/html"]
    left = re.sub(r"<iframe.*?</iframe>", "", html, flags=re.DOTALL)
    assert "<script" not in left
    assert left.count("<table>") == 2
    for word in WORDS:
        assert f">{word}</th>" in left


@pytest.mark.filterwarnings("ignore::DeprecationWarning:nbconvert", "ignore::FutureWarning")
def test_a_real_notebook_shows_it(open_page: Callable, tmp_path: Path) -> None:
    nbformat = pytest.importorskip("nbformat", reason="pip install 'qkv[test]'")
    exporter = pytest.importorskip(
        "nbconvert.exporters", reason="pip install 'qkv[test]'"
    ).HTMLExporter(template_name="basic")
    trace = make_trace()
    cell = nbformat.v4.new_code_cell("trace", id="one")
    cell.outputs = [nbformat.v4.new_output("display_data", data=trace._repr_mimebundle_())]
    document, _ = exporter.from_notebook_node(nbformat.v4.new_notebook(cells=[cell]))
    path = tmp_path / "notebook.html"
    path.write_text(document, "utf-8")
    in_frame(open_page(path, checked=False).page, trace)
