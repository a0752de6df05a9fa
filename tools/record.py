"""Record what the program prints about the models of a tour, for README and docs.

    qkv tour && python tools/record.py tour

The output of a trained model differs a little from machine to machine, so it cannot be regenerated
in a test. Each command is run as it is shown, and its output goes to docs/recorded, from where
README and docs include it. Pictures go into docs/pictures.
"""

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).resolve().parents[1]
RECORDED = ROOT / "docs" / "recorded"
PICTURES = ROOT / "docs" / "pictures"

REVIEW = "The film was excellent, even though the coffee was not memorable."
COMMANDS = {
    "classify": 'qkv classify tour/sentiment "The hotel was never dull." "The film was not good."',
    "why": f'qkv explain "{REVIEW}" --model tour/sentiment --why',
    "generate": 'qkv generate tour/language "Return the value of" --temperature 0.6 --seed 5 '
    "--max-tokens 50",
    "translate": 'qkv translate tour/translation "The doctor moved to Rome in May 2031."',
    "heads": "qkv inspect tour/language --heads",
    "walk": 'qkv explain "Return the value" --model tour/language --layer 1 --steps weights',
    "check": "qkv check tour/translation",
}
EXPLAIN = 'qkv explain "Return the value of the name" --model tour/language'


def main() -> None:
    """Runs every command in the parent of the tour's folder."""
    tour = Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else ROOT / "tour"
    RECORDED.mkdir(exist_ok=True)
    for name, command in COMMANDS.items():
        output = run(command, tour.parent)
        (RECORDED / f"{name}.txt").write_text(f"$ {command}\n{output}", encoding="utf-8")
        print(f"recorded {name}")
    run(f"{EXPLAIN} -o {shlex.quote(str(PICTURES / 'heads.svg'))}", tour.parent)
    with TemporaryDirectory() as folder:
        page = Path(folder) / "page.html"
        run(f"{EXPLAIN} --layer 1 -o {shlex.quote(str(page))}", tour.parent)
        photograph(page, PICTURES / "page.png", "[data-step$='attention.weights']")
    print("drew heads.svg and page.png")


def photograph(page: Path, picture: Path, at: str | None = None) -> None:
    """A screenshot of the page, scrolled to the element that matches the selector `at`."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        browser = driver.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-gpu"]
        )
        tab = browser.new_page(viewport={"width": 1180, "height": 760})
        tab.goto(page.as_uri())
        if at is not None:
            tab.locator(at).first.scroll_into_view_if_needed()
            tab.wait_for_timeout(400)
            tab.locator(f"{at} [data-at='4,3']").first.hover()
        tab.wait_for_timeout(600)
        tab.screenshot(path=picture)
        browser.close()


def run(command: str, folder: Path) -> str:
    """Its standard output, at 80 columns."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    env = {**os.environ, "PATH": path, "COLUMNS": "80"}
    process = subprocess.run(
        shlex.split(command), cwd=folder, env=env, capture_output=True, text=True, check=True
    )
    return "\n".join(line.rstrip() for line in process.stdout.splitlines()) + "\n"


if __name__ == "__main__":
    main()
