"""The documentation as a site: built without a warning, whole, and asking no one for anything."""

import json
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
CONFIG = ROOT / "zensical.toml"

pytest.importorskip("zensical", reason="the site is built by the extra 'docs'")


def build(place: Path) -> subprocess.CompletedProcess[str]:
    """The site of the docs that stand in that folder, strictly."""
    return subprocess.run(
        [sys.executable, "-m", "zensical", "build", "--strict"],
        cwd=place, capture_output=True, text=True, timeout=120,
    )  # fmt: skip


def copied(place: Path) -> Path:
    shutil.copy(CONFIG, place)
    shutil.copytree(ROOT / "docs", place / "docs")
    return place


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = copied(tmp_path_factory.mktemp("site"))
    built = build(place)
    assert built.returncode == 0, built.stdout + built.stderr
    return place / "site"


def pages_of(nav: list[Any]) -> Iterator[str]:
    for entry in nav:
        if isinstance(entry, str):
            yield entry
        else:
            for inner in entry.values():
                yield from pages_of(inner)


def test_the_navigation_has_every_page_once() -> None:
    listed = list(pages_of(tomllib.loads(CONFIG.read_text("utf-8"))["project"]["nav"]))
    there = [page.relative_to(ROOT / "docs").as_posix() for page in (ROOT / "docs").rglob("*.md")]
    assert sorted(listed) == sorted(there)


@pytest.mark.slow
def test_every_page_is_built(site: Path) -> None:
    for page in (ROOT / "docs").rglob("*.md"):
        made = page.relative_to(ROOT / "docs").with_suffix(".html").as_posix()
        assert (site / made.replace("README.html", "index.html")).is_file()


@pytest.mark.slow
@pytest.mark.parametrize("wrong", ["[a](nowhere.md)", "[a](guide/train.md#no-such-part)"])
def test_a_broken_link_breaks_the_build(wrong: str, tmp_path: Path) -> None:
    place = copied(tmp_path)
    with (place / "docs" / "README.md").open("a", encoding="utf-8") as page:
        page.write(f"\n{wrong}\n")
    built = build(place)
    assert built.returncode != 0
    assert "does not exist" in built.stdout + built.stderr


def test_no_page_fetches_anything_from_elsewhere(site: Path) -> None:
    fetched = re.compile(
        r'<(?:script|img|iframe|source|link)\b[^>]*?\b(?:src|href)="?((?:https?:)?//[^"\s>]*)'
    )
    for page in site.rglob("*.html"):
        assert fetched.findall(page.read_text("utf-8")) == []
    for style in site.rglob("*.css"):
        assert re.findall(r"(?:@import|url\()\s*[\"']?https?:", style.read_text("utf-8")) == []


def test_the_search_knows_every_page(site: Path) -> None:
    items = json.loads((site / "search.json").read_text("utf-8"))["items"]
    known = {item["location"].partition("#")[0] for item in items}
    made = {page.relative_to(site).as_posix() for page in site.rglob("*.html")}
    assert made - known == {"404.html"}


@pytest.mark.slow
def test_the_search_answers_in_a_page_opened_as_a_file(site: Path) -> None:
    """No server, no network: the index and the search run in the page."""
    playwright = pytest.importorskip("playwright.sync_api", reason="needs a browser to search in")
    browser = shutil.which("chromium") or shutil.which("chromium-browser")
    if browser is None:
        pytest.skip("needs chromium to search in")
    asked = []
    with playwright.sync_playwright() as drivers:
        opened = drivers.chromium.launch(executable_path=browser, args=["--no-sandbox"])
        page = opened.new_page()
        page.on("request", lambda request: asked.append(request.url))
        page.goto((site / "how-it-works" / "attention.html").as_uri())
        page.keyboard.press("/")
        page.keyboard.type("speculative", delay=40)
        page.get_by_text("Guessing ahead").first.wait_for(timeout=30_000)
        opened.close()
    assert [url for url in asked if not url.startswith("file:")] == []
