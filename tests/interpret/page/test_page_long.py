"""Long texts never freeze the page: weights are pooled, rows worked out when looked at."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.interpret.page.pages import displayed_number, make_trace, write_html
from tests.model.odd_models import decoder

from qkv.interpret.page.tensor_chunks import max_pool
from qkv.interpret.trace import Trace
from qkv.model import LayerNorm, MultiHead, ReLU, Rope

LENGTH, LAYERS, HEADS = 512, 12, 12
MAX_BYTES = 2 << 20
TASKS = "disabled-by-default-devtools.timeline"  # of the browser: every stretch of work
KEPT = ("ids", "*.query*", "*.key*", "*.value", "*.weights", "*.mixed", "output", "probabilities")


@pytest.fixture(scope="module")
def long_trace() -> Trace:
    config = decoder(
        layers=LAYERS,
        width=48,
        attention=MultiHead(heads=HEADS, head_width=16, qk_norm=LayerNorm()),
        feed_forward=ReLU(width=7),
        position=Rope(),
    ).model_copy(update={"length": LENGTH})
    words = tuple(f"w{at}" for at in range(LENGTH))
    return make_trace(config, words, keep=KEPT)


@pytest.fixture(scope="module")
def long_page(long_trace: Trace, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_html(long_trace, tmp_path_factory.mktemp("long"), max_bytes=MAX_BYTES)


def test_the_file_keeps_to_its_room(long_page: Path) -> None:
    assert long_page.stat().st_size < MAX_BYTES * 4 / 3 + HEADS * LAYERS * 64 * 64 * 6 + (1 << 20)


@pytest.mark.slow
def test_a_long_text_is_pooled_with_a_badge_and_never_freezes(
    long_trace: Trace, long_page: Path, open_page: Callable, chromium: Any
) -> None:
    chromium.start_tracing(categories=["__metadata", TASKS])
    try:
        look_through(open_page(long_page).page, long_trace)
    finally:
        seen = chromium.stop_tracing()
    spent = milliseconds_at_work(json.loads(seen)["traceEvents"])
    assert len(spent) > 100
    assert max(spent) < 400  # 141 when this was written


def milliseconds_at_work(events: list[dict[str, Any]]) -> list[float]:
    """What each stretch took in which a page could not answer: of its thread, not of the clock.

    So it hardly depends on what else the machine has to do meanwhile. For one in some thousands the
    browser notes no time of the thread; the clock's stands in, which is never less.
    """
    pages = {
        (event["pid"], event["tid"])
        for event in events
        if event["name"] == "thread_name" and event["args"]["name"] == "CrRendererMain"
    }
    return [
        event.get("tdur", event["dur"]) / 1000
        for event in events
        if event["name"] == "RunTask"
        and event["ph"] == "X"  # a whole one: what has begun when the browser stops has no end yet
        and (event["pid"], event["tid"]) in pages
    ]


def look_through(page: Any, long_trace: Trace) -> None:
    """Opens a head, asks for all of its cells, and walks about in them."""
    loaded = page.evaluate("performance.getEntriesByType('navigation')[0].loadEventEnd")
    assert loaded < 4000  # 0.6 s on a quiet machine
    assert page.locator("#heads button").count() == LAYERS * HEADS
    page.locator("#heads [data-head='decoder.11.attention 7']").click()
    place = page.locator("[data-step='decoder.11.attention.weights']")
    place.scroll_into_view_if_needed()
    weights = long_trace["decoder.11.attention.weights"][0].numpy()
    coarse, block = max_pool(weights, 64)
    assert block == (8, 8)
    assert place.locator(".badge").first.inner_text() == "pooled 8 × 8"
    for at in ("0,0", "3,2", "9,0"):
        i, j = map(int, at.split(","))
        assert place.locator(f"[data-at='{at}']").inner_text() == displayed_number(coarse[7, i, j])
    assert place.locator("[role=gridcell]").count() < 1000
    place.get_by_role("button", name="show every cell").click()
    assert place.locator("[role=grid]").get_attribute("aria-rowcount") == str(LENGTH + 1)
    place.locator("[data-at='0,0']").focus()
    page.keyboard.press("Control+End")
    for _ in range(12):
        page.keyboard.press("PageUp")
        page.keyboard.press("ArrowLeft")
    assert place.locator("[role=gridcell]").count() < 1000
    compare_what_is_in_sight(place, weights[7])
    assert page.locator("#cell .line").count() > 0


def compare_what_is_in_sight(place: object, weights: object) -> None:
    """The rows that the page worked out by itself are the trace's, to the last figure or nearly."""
    seen = place.evaluate(
        "(one) => [...one.querySelectorAll('[data-at]')].map((c) => [c.dataset.at, c.textContent])"
    )
    assert len(seen) > 100
    for at, text in seen:
        i, j = map(int, at.split(","))
        assert abs(float(text) - float(weights[i, j])) < 1e-4


def test_a_layer_that_is_left_out_says_how_to_have_it(
    long_trace: Trace, long_page: Path, open_page: Callable
) -> None:
    page = open_page(long_page, checked=False).page
    rows = page.locator("#heads tbody th").all_inner_texts()
    coarse = [row.split()[1] for row in rows if "pooled only" in row]
    assert 0 < len(coarse) < LAYERS
    layer = int(coarse[0])
    page.locator(f"#heads [data-head='decoder.{layer}.attention 0']").click()
    told = page.locator(f"[data-step='decoder.{layer}.attention.query']")
    told.locator("p").wait_for()
    assert f'keep=["decoder.{layer}.*"]' in told.inner_text()
    assert torch.isfinite(long_trace[f"decoder.{layer}.attention.query"]).all()
