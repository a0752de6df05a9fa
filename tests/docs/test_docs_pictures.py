"""The pictures of the docs are the ones the program draws today."""

import base64
import io
import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import pictures

ROOT = Path(__file__).parents[2]
RASTER = re.compile(r'xlink:href="data:image/png;base64,([^"]*)"', re.S)
REMARKS = re.compile(r"<metadata>.*?</metadata>", re.S)
NUMBER = re.compile(r"-?\d+\.\d+")


@pytest.mark.slow
@pytest.mark.parametrize("name", pictures.FIGURES)
def test_a_picture_is_the_one_the_program_draws(name: str, tmp_path: Path) -> None:
    import matplotlib

    if f"Matplotlib v{matplotlib.__version__}" not in _kept("lemma"):
        pytest.skip("the committed pictures were drawn by another version of matplotlib")
    pictures.FIGURES[name](tmp_path / "new.svg")
    new, kept = (tmp_path / "new.svg").read_text("utf-8"), _kept(name)
    lines = [NUMBER.sub("#", RASTER.sub("", REMARKS.sub("", text))) for text in (new, kept)]
    assert lines[0] == lines[1], "run: make docs"
    places = [[float(n) for n in NUMBER.findall(REMARKS.sub("", text))] for text in (new, kept)]
    assert places[0] == pytest.approx(places[1], abs=1e-3)
    for one, other in zip(RASTER.findall(new), RASTER.findall(kept), strict=True):
        assert np.abs(_pixels(one) - _pixels(other)).max() <= 3


def test_every_picture_is_shown_somewhere() -> None:
    pages = [page.read_text("utf-8") for page in (ROOT / "docs").rglob("*.md")]
    for name in pictures.FIGURES:
        assert any(f"pictures/{name}.svg" in page for page in pages), name


def _kept(name: str) -> str:
    return (pictures.PICTURES / f"{name}.svg").read_text("utf-8")


def _pixels(encoded: str) -> np.ndarray:
    image = Image.open(io.BytesIO(base64.b64decode(encoded)))
    return np.asarray(image.convert("RGBA")).astype(int)
