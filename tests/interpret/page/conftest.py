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


class OpenPage:
    """A page, with its console messages and the URLs it requested."""

    def __init__(self, page: object) -> None:
        self.page = page
        self.messages = []
        self.requests = []
        page.on("console", lambda message: self.messages.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: self.messages.append(f"error: {error}"))
        page.on("request", lambda request: self.requests.append(request.url))


@pytest.fixture
def open_page(chromium: object) -> Iterator[Callable[..., OpenPage]]:
    """Opens a file from the disk, offline; checked: waits until its checks have run.

    Any message on the console and any request to a network fails the test.
    """
    contexts = []
    pages = []

    def open_file(
        path: Path, width: int = 1280, dark: bool = False, checked: bool = True, **more: object
    ) -> OpenPage:
        context = chromium.new_context(
            viewport={"width": width, "height": 900},
            color_scheme="dark" if dark else "light",
            offline=True,
            reduced_motion="reduce",
            **more,
        )
        context.set_default_timeout(10_000)
        contexts.append(context)
        page = OpenPage(context.new_page())
        pages.append((path, page))
        page.page.goto(path.as_uri())
        if checked:
            page.page.wait_for_selector("[data-done=true]", state="attached", timeout=30_000)
        return page

    yield open_file
    for context in contexts:
        context.close()
    for path, page in pages:
        assert page.messages == []
        assert [url for url in page.requests if url != path.as_uri()] == []
