"""A real Chromium with the network off, or a skip that says why there is none."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


@pytest.fixture(scope="module")
def chromium() -> Iterator[object]:
    """The browser of this machine; for one module, since it holds on to the event loop."""
    driver = pytest.importorskip("playwright.sync_api", reason="needs playwright: qkv[test]")
    program = next(filter(None, map(shutil.which, NAMES)), None)
    if program is None:
        pytest.skip("needs a Chromium on the PATH, as in: apt-get install chromium")
    with driver.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=list(FLAGS))
        yield browser
        browser.close()


class Opened:
    """A page, with what it said and what it asked for."""

    def __init__(self, page: object) -> None:
        self.page, self.said, self.asked = page, [], []
        page.on("console", lambda message: self.said.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: self.said.append(f"error: {error}"))
        page.on("request", lambda request: self.asked.append(request.url))


@pytest.fixture
def opened(chromium: object) -> Iterator[Callable[..., Opened]]:
    """Opens a file from the disk, the network being off; checked: waits until its checks have run.

    Whatever a page says on the console, or asks of a network, fails the test.
    """
    contexts, pages = [], []

    def open_page(
        path: Path, width: int = 1280, dark: bool = False, checked: bool = True, **more: object
    ) -> Opened:
        context = chromium.new_context(
            viewport={"width": width, "height": 900},
            color_scheme="dark" if dark else "light",
            offline=True,
            reduced_motion="reduce",
            **more,
        )
        context.set_default_timeout(10_000)
        contexts.append(context)
        shown = Opened(context.new_page())
        pages.append((path, shown))
        shown.page.goto(path.as_uri())
        if checked:
            shown.page.wait_for_selector("[data-done=true]", state="attached", timeout=30_000)
        return shown

    yield open_page
    for context in contexts:
        context.close()
    for path, shown in pages:
        assert shown.said == []
        assert [url for url in shown.asked if url != path.as_uri()] == []
