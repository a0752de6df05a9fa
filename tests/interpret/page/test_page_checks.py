"""The Checks panel turns red, with the place, when a number in the file is not the trace's."""

import base64
import json
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tests.interpret.page.pages import make_trace, write_html


def part_of(document: str, name: str) -> str:
    """The id of the part that holds the first numbers of a tensor."""
    told = json.loads(re.search(r'id="qkv-data">(.*?)</script>', document)[1])
    if name == "the mask":
        return told["masks"][0]["id"]
    return next(node for node in told["nodes"] if node["name"] == name)["chunks"][0]["id"]


def corrupted(document: str, name: str, spoil: Callable[[bytes], bytes]) -> str:
    """The document with the bytes of that part spoilt."""
    pattern = re.compile(rf"(id={part_of(document, name)}>)([^<]*)(</script>)")
    raw = base64.b64decode(pattern.search(document)[2])
    spoilt = base64.b64encode(spoil(raw)).decode()
    return pattern.sub(lambda found: found[1] + spoilt + found[3], document)


def first_number(value: float) -> Callable[[bytes], bytes]:
    return lambda raw: np.float32(value).tobytes() + raw[4:]


def one_bit(raw: bytes) -> bytes:
    return bytes([raw[0] ^ 1]) + raw[1:]


def test_all_is_green_when_nothing_is_wrong(open_page: Callable, tmp_path: Path) -> None:
    page = open_page(write_html(make_trace(), tmp_path)).page
    assert re.fullmatch(r"✓ all \d+ checks hold", page.inner_text("#checks-summary"))
    assert page.inner_text("#checks-badge") == page.inner_text("#checks-summary")
    assert page.locator(".checks .fails").count() == 0
    for name in ("rows of weights sum to 1", "fused = explicit", "probabilities = softmax(logits)"):
        assert name in page.inner_text("#checks-list")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "spoil", "check"),
    [
        ("decoder.0.attention.weights", first_number(0.5), "rows of weights sum to 1"),
        ("decoder.0.attention.masked", first_number(9.0), ""),
        ("decoder.0.attention.scores", first_number(9.0), "scores = q · kᵀ"),
        ("decoder.0.attention.mixed", first_number(9.0), "fused = explicit"),
        ("decoder.0.attention.value", first_number(9.0), "fused = explicit"),
        ("probabilities", first_number(0.9), "probabilities = softmax(logits)"),
        ("served", first_number(9.0), "answer = the served model's"),
        ("decoder.1.feed_forward.up", one_bit, "every tensor is as it was written"),
        ("decoder.1.attention.query.weight", one_bit, "every tensor is as it was written"),
        ("the mask", one_bit, "every tensor is as it was written"),
    ],
)
def test_a_corrupted_tensor_turns_the_panel_red_with_its_place(
    name: str, spoil: Callable, check: str, open_page: Callable, tmp_path: Path
) -> None:
    path = write_html(make_trace(), tmp_path)
    path.write_text(corrupted(path.read_text("utf-8"), name, spoil), "utf-8")
    page = open_page(path).page
    assert page.inner_text("#checks-summary").startswith("✗")
    assert page.inner_text("#checks-badge").startswith("✗")
    assert "red" in page.get_attribute("#checks", "class")
    failed = {
        one.locator("strong").inner_text(): one for one in page.locator(".checks .fails").all()
    }
    assert f"first at {name}" in failed["every tensor is as it was written"].inner_text()
    assert check in failed or not check
    if check == "rows of weights sum to 1":
        assert f"first at {name}, head 0, row 1 (write)" in failed[check].inner_text()


def test_a_part_that_is_not_even_base64_is_red_and_no_more(
    open_page: Callable, tmp_path: Path
) -> None:
    path = write_html(make_trace(), tmp_path)
    document = path.read_text("utf-8")
    part = part_of(document, "decoder.1.feed_forward_join")
    path.write_text(re.sub(rf"(id={part}>)....", r"\1!!!!", document), "utf-8")
    page = open_page(path).page
    assert page.inner_text("#checks-summary").startswith("✗ 1 of")
    assert "first at decoder.1.feed_forward_join" in page.inner_text("#checks-list")
    page.locator("#heads [data-head='decoder.1.attention 0']").click()
    page.get_by_text("Feed-forward", exact=False).last.click()
    shown = page.locator("[data-step='decoder.1.feed_forward_join'] [role=gridcell]")
    shown.first.wait_for()
    assert set(shown.all_inner_texts()) == {"NaN"}
