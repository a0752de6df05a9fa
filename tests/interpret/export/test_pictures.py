"""Pictures of heads: the same bytes each time, legible whatever the tokens, with their origin."""

import json
import re
import xml.etree.ElementTree as ET
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from tests.interpret.export.tiny_traces import ABOUT, HOSTILE, decoder_trace, translator_trace

from qkv.errors import UsageError
from qkv.interpret.export import draw_head, draw_heads
from qkv.interpret.export.drawing import fonts_for, replace_missing_characters
from qkv.interpret.export.pictures import all_attention_weights, max_pool_square, panel_grids
from qkv.interpret.trace import NoMask, Trace

WEIGHTS = ("*.weights",)


@pytest.fixture(scope="module")
def trace() -> Trace:
    return decoder_trace(keep=WEIGHTS)


def origin(path: Path) -> dict[str, str]:
    """The provenance that stands in a picture's file."""
    if path.suffix == ".png":
        with Image.open(path) as picture:
            return json.loads(picture.text["Comment"])
    if path.suffix == ".svg":
        fields = ET.parse(path).getroot().find(".//{http://purl.org/dc/elements/1.1/}description")
        assert fields is not None
        return json.loads(fields.text or "")
    values = re.search(rb"/Subject \((.*?)(?<!\\)\) *[/>\n]", path.read_bytes(), re.DOTALL)
    assert values is not None
    return json.loads(re.sub(rb"\\([()\\])", rb"\1", values[1]))


@pytest.mark.parametrize("ending", [".png", ".svg", ".pdf"])
def test_a_picture_is_the_same_each_time_and_tells_its_origin(trace, tmp_path, ending) -> None:
    one, two = tmp_path / f"one{ending}", tmp_path / f"two{ending}"
    draw_head(trace, 1, 2, one)
    draw_head(trace, 1, 2, two)
    assert one.read_bytes() == two.read_bytes()
    fields = origin(one)
    assert fields["sha256"] == ABOUT["sha256"]
    assert fields["text"] == " ".join(HOSTILE)
    assert fields["value"] == "decoder.1.attention.weights"
    assert fields["head"] == "2"
    assert fields["checks"] == "1 of 1 checks passed"


@pytest.mark.parametrize("ending", [".png", ".svg", ".pdf"])
def test_all_heads_are_drawn_in_every_format(trace, tmp_path, ending) -> None:
    one, two = tmp_path / f"one{ending}", tmp_path / f"two{ending}"
    draw_heads(trace, one)
    draw_heads(trace, two)
    assert one.read_bytes() == two.read_bytes()
    assert origin(one)["model"] == "tiny"


def test_an_encoder_decoder_has_three_kinds_of_attention(tmp_path: Path) -> None:
    trace = translator_trace()
    parts = panel_grids(all_attention_weights(trace), None, None)
    kinds = ["encoder attention", "decoder attention", "cross attention"]
    assert [part.kind for part in parts] == kinds
    assert parts[2].panel == (4, 7)
    draw_heads(trace, tmp_path / "heads.png")
    draw_head(trace, 0, 1, tmp_path / "cross.png", "cross")
    assert origin(tmp_path / "cross.png")["value"] == "decoder.0.cross.weights"


def test_a_mosaic_holds_every_head_at_its_place(trace: Trace) -> None:
    (part,) = panel_grids(all_attention_weights(trace), [1], [2, 0])
    n = len(HOSTILE)
    assert (part.layers, part.heads) == ((1,), (2, 0))
    weights = trace["decoder.1.attention.weights"][0].numpy()
    assert np.array_equal(part.weights[:n, :n], weights[2])
    assert np.array_equal(part.weights[:n, -n:], weights[0])
    assert np.isnan(part.weights[:, n]).all()  # the gap
    assert np.array_equal(part.seen[:n, :n], np.tri(n, dtype=bool))
    assert part.columns == [(n - 1) / 2, n + 1 + (n - 1) / 2]


def test_what_is_hidden_is_known_without_the_mask_and_an_edit_is_believed() -> None:
    (grids, _) = all_attention_weights(decoder_trace(keep=WEIGHTS))
    assert np.array_equal(grids.seen, np.tri(len(HOSTILE), dtype=bool))
    (grids, _) = all_attention_weights(decoder_trace(keep=WEIGHTS, edits=[NoMask()]))
    assert grids.seen.all()
    (grids, _) = all_attention_weights(decoder_trace(keep=WEIGHTS, rows=[-1, 1]))
    assert grids.rows == (len(HOSTILE) - 1, 1)
    assert grids.seen.sum(axis=1).tolist() == [len(HOSTILE), 2]


def test_hidden_cells_are_hatched(trace: Trace, tmp_path: Path) -> None:
    draw_head(trace, 0, 0, tmp_path / "head.svg")
    assert "<pattern" in (tmp_path / "head.svg").read_text("utf-8")


def test_a_long_text_is_drawn_with_some_of_its_tokens(tmp_path: Path) -> None:
    trace = decoder_trace([f"w{i}" for i in range(199)], keep=WEIGHTS)
    draw_head(trace, 0, 0, tmp_path / "head.png")
    (part,) = panel_grids(all_attention_weights(trace), None, None)
    assert part.pooled == 2
    assert part.panel == (100, 100)
    weights = trace["decoder.0.attention.weights"][0, 0].numpy()
    assert part.weights[3, 1] == weights[6:8, 2:4].max()


def test_the_largest_of_squares_is_taken_and_the_last_may_be_smaller() -> None:
    grid = np.arange(15).reshape(3, 5)
    assert max_pool_square(grid, 2).tolist() == [[6, 8, 9], [11, 13, 14]]


def test_a_letter_that_no_font_has_is_written_as_its_number() -> None:
    fonts = fonts_for(["plain", "Größe", "\U0010fffd\ue123"])
    assert fonts[0] == "DejaVu Sans"
    assert replace_missing_characters("Größe $x$ \ue123", fonts[:1]) == "Größe $x$ ‹e123›"


def test_a_users_settings_do_not_change_a_picture(trace: Trace, tmp_path: Path) -> None:
    import matplotlib as mpl

    draw_head(trace, 0, 0, tmp_path / "one.png")
    with mpl.rc_context({"font.size": 31, "axes.facecolor": "red", "text.color": "green"}):
        draw_head(trace, 0, 0, tmp_path / "two.png")
        assert mpl.rcParams["font.size"] == 31
    assert (tmp_path / "one.png").read_bytes() == (tmp_path / "two.png").read_bytes()


@pytest.mark.parametrize(
    ("layer", "head", "file", "attention", "said"),
    [
        (5, 0, "x.png", None, "no weights of layer 5 were kept, only of 0, 1"),
        (0, 9, "x.png", None, "has heads 0 to 2"),
        (0, 0, "x.gif", None, ".png, .svg, .pdf"),
        (0, 0, "x.png", "cross", 'no weights of "cross" attention'),
    ],
)
def test_mistakes_are_told(trace, tmp_path, layer, head, file, attention, said) -> None:
    with pytest.raises(UsageError, match=said):
        draw_head(trace, layer, head, tmp_path / file, attention)


def test_a_trace_without_weights_cannot_be_drawn(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no weights were kept"):
        draw_heads(decoder_trace(keep=["output"]), tmp_path / "x.png")
    with pytest.raises(UsageError, match=r"no weights of layers \[7\] were kept, only of \[0, 1\]"):
        draw_heads(decoder_trace(keep=WEIGHTS), tmp_path / "x.png", layers=[7])


def test_rows_of_cross_attention_are_named_by_the_token_written_there(tmp_path: Path) -> None:
    trace = translator_trace()
    read = trace.tokens["target"]
    (first, *_) = [each for each in all_attention_weights(trace) if each.kind == "cross attention"]
    assert first.query_tokens[:-1] == read[1:]
    written_last = int(trace["output"][0, -1].argmax())
    assert first.query_tokens[-1] == trace.output_name(written_last)
    assert trace.query_tokens("decoder.0.attention.weights") == read
    draw_head(trace, 0, 1, tmp_path / "cross.svg")
    assert "word written" in (tmp_path / "cross.svg").read_text("utf-8")
