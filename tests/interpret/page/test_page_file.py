"""The file itself: exact numbers, nothing from outside, nothing that could act."""

import base64
import hashlib
import json
import re
import zlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from tests.interpret.page.pages import WORDS, make_trace, write_html
from tests.model.odd_models import DECODERS, ENCODERS, TRANSLATORS

from qkv.interpret.page import Section, render_page, size_budget, write_page
from qkv.interpret.page.attentions import attention_views
from qkv.interpret.page.payload import as_matrix
from qkv.interpret.page.tensor_chunks import TensorChunks, max_pool
from qkv.interpret.trace import NoMask, NoScale
from qkv.model import Classify, MultiHead, preset

ALL = {**ENCODERS, **{f"{n}, decoder": c for n, c in DECODERS.items()}, **TRANSLATORS}
FLOATS = arrays(
    np.float32,
    st.tuples(*[st.integers(1, 7)] * 3),
    elements=st.floats(width=32, allow_nan=True),
)


def page_data(document: str) -> dict:
    return json.loads(re.search(r'id="qkv-data">(.*?)</script>', document)[1])


def numbers(document: str, node: dict) -> np.ndarray:
    """The tensor as the file holds it."""
    texts = dict(re.findall(r"id=(p\d+)>([^<]*)</script>", document))
    raw = b"".join(base64.b64decode(texts[part["id"]]) for part in node["chunks"])
    return np.frombuffer(raw, "<f4").reshape(node["shape"])


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(ALL))
def test_a_page_of_every_kind_of_model_holds_every_number_exactly(name: str) -> None:
    trace = make_trace(ALL[name])
    document = render_page(trace)
    nodes = {node["name"]: node for node in page_data(document)["nodes"]}
    for step in trace:
        np.testing.assert_array_equal(
            numbers(document, nodes[step]), as_matrix(trace, step).astype(np.float32)
        )
    shown = {
        name
        for layer in page_data(document)["layers"]
        for group in layer["groups"]
        for name in group["names"]
    }
    shown |= {name for end in page_data(document)["outer"] for name in end["names"]}
    assert shown == {step for step in trace if not step.endswith((".seen", ".bias"))}


@given(FLOATS)
def test_parts_keep_every_bit_and_a_checksum(values: np.ndarray) -> None:
    parts = TensorChunks()
    raw = b"".join(base64.b64decode(parts.texts[part["id"]]) for part in parts.add_floats(values))
    assert raw == values.astype("<f4").tobytes()
    for part in parts.add_floats(values):
        assert part["crc"] == zlib.crc32(base64.b64decode(parts.texts[part["id"]]))


def test_a_large_tensor_is_split_between_heads() -> None:
    parts = TensorChunks().add_floats(np.zeros((7, 131, 257), np.float32))
    assert [(part["first"], part["count"]) for part in parts] == [(head, 1) for head in range(7)]
    parts = TensorChunks().add_floats(np.zeros((7, 31, 57), np.float32))
    assert [(part["first"], part["count"]) for part in parts] == [(0, 7)]


@given(arrays(np.float32, st.tuples(*[st.integers(1, 23)] * 3), elements=st.floats(0, 1, width=32)))
def test_pooling_takes_the_largest_of_each_block(weights: np.ndarray) -> None:
    coarse, (down, across) = max_pool(weights, 5)
    assert max(coarse.shape[1:]) <= 5
    for i in range(coarse.shape[1]):
        for j in range(coarse.shape[2]):
            block = weights[:, i * down : (i + 1) * down, j * across : (j + 1) * across]
            np.testing.assert_array_equal(coarse[:, i, j], block.max(axis=(1, 2)))


def test_nothing_comes_from_outside_and_only_our_script_may_run() -> None:
    document = render_page(make_trace())
    markup = re.sub(r"<script.*?</script>", "", document, flags=re.DOTALL)
    assert re.findall(r'(?:src|href|action)\s*=\s*"?([^"\s>]*)', markup) == ["#layer", "#checks"]
    assert "://" not in document
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', document)[1]
    assert policy.startswith("default-src 'none'; ")
    assert "unsafe" not in policy
    for tag in ("style", 'script type="module"'):
        inside = re.search(rf"<{tag}>(.*?)</{tag.split()[0]}>", document, re.DOTALL)[1]
        digest = base64.b64encode(hashlib.sha256(inside.encode()).digest()).decode()
        assert f"'sha256-{digest}'" in policy


def test_no_text_can_end_the_data_or_start_a_tag() -> None:
    words = ("</script>", "<img onerror=1>", "&amp;", "\u2028", "\ud800", "'\"")
    why = (Section(words[0], words[1], (words[2],), ((words[1],),), words[0]),)
    document = render_page(make_trace(words=words, outputs=words), why=why, title=words[1])
    assert "<img" not in document
    assert document.count("</script>") == document.count("<script")
    assert page_data(document)["tokens"]["text"] == list(words)
    data = re.search(r'id="qkv-data">(.*?)</script>', document)[1]
    assert data.isascii()


def test_a_text_that_cannot_be_encoded_is_written_all_the_same(tmp_path: Path) -> None:
    path = write_html(make_trace(words=("\ud800", "b", "c")), tmp_path)
    assert "?" in path.read_text("utf-8")


def test_what_fits_goes_in_by_importance(tmp_path: Path) -> None:
    trace = make_trace()
    attentions = attention_views(trace)
    everything = sum(size_budget.stored_bytes(trace, name) for name in trace)
    assert size_budget.select_values(trace, attentions, everything) == set(trace)
    little = size_budget.select_values(trace, attentions, everything // 3)
    assert sum(size_budget.stored_bytes(trace, name) for name in little) <= everything // 3
    assert {each.name("weights") for each in attentions} <= little
    small, large = tmp_path / "small.html", tmp_path / "large.html"
    write_page(trace, small, max_bytes=everything // 3)
    write_page(trace, large)
    assert small.stat().st_size < large.stat().st_size


def test_layers_are_taken_from_both_ends_and_then_between() -> None:
    trace = make_trace(ALL["paper"])
    attentions = attention_views(trace)
    order = size_budget.spread_out(attentions)
    assert order[:2] == [attentions[-1], attentions[0]]
    assert sorted(each.prefix for each in order) == sorted(each.prefix for each in attentions)
    assert size_budget.spread_out([]) == []


def test_labels_are_named_and_the_likeliest_comes_first() -> None:
    config = ENCODERS["classifier"]
    assert isinstance(config.output, Classify)
    trace = make_trace(config, outputs=config.output.labels)
    output = page_data(render_page(trace))["output"]
    (position,) = output["positions"]
    probabilities = trace["probabilities"][0]
    assert position["best"][0]["name"] == config.output.labels[int(probabilities.argmax())]
    assert position["best"][0]["probability"] == pytest.approx(float(probabilities.max()))


def test_an_edited_pass_says_so_and_its_rows_are_not_worked_out_from_others() -> None:
    trace = make_trace(edits=[NoMask(), NoScale()])
    document = render_page(trace)
    assert document.count('class="edit"') == 2
    assert not any(each["computable"] for each in page_data(document)["attentions"])


def test_a_section_without_numbers_is_words_alone() -> None:
    words = (("layer 1", "cat"), ("layer 2", "dog"))
    document = render_page(make_trace(), why=(Section("Layers", "", ("after", "says"), words),))
    assert "<h2>Layers</h2>" in document
    assert 'class="number"' not in re.search(r"<h2>Layers.*?</section>", document, re.DOTALL)[0]


def test_patterns_tell_where_a_head_looks() -> None:
    trace = make_trace(DECODERS["alibi"])
    name = "decoder.0.attention.weights"
    weights = torch.zeros_like(trace[name])
    weights[0, :, 0, 0] = 1.0
    weights[0, 0, 1:, 0] = 1.0
    for at in range(1, weights.shape[2]):
        weights[0, 1, at, at - 1] = 1.0
        weights[0, 2, at, at] = 1.0
        weights[0, 3, at, : at + 1] = 1.0 / (at + 1)
    edited = replace(trace, tensors={**trace.tensors, name: weights})
    patterns = page_data(render_page(edited))["attentions"][0]["patterns"]
    assert [pattern.split(" (")[0] for pattern in patterns[:3]] == ["first", "before", "itself"]
    assert isinstance(DECODERS["alibi"].decoder.attention, MultiHead)


def test_a_trace_that_kept_little_shows_what_there_is() -> None:
    trace = make_trace(keep=["*.feed_forward.up", "decoder.1.attention.mixed"])
    data = page_data(render_page(trace))
    assert [each["prefix"] for each in data["attentions"]] == ["decoder.1.attention"]
    assert data["output"] is None
    ends = {end["title"]: end["names"] for end in data["outer"]}
    assert ends == {"Decoder, layer 0": ["decoder.0.feed_forward.up"]}


@pytest.mark.parametrize("name", ["classify-small", "language-small", "embed-small"])
def test_the_page_of_six_tokens_is_well_below_a_megabyte(name: str, tmp_path: Path) -> None:
    config = preset(name)
    if isinstance(config.output, Classify):
        output = config.output.model_copy(update={"labels": ("bad", "good")})
        config = config.model_copy(update={"output": output})
    words = ("where", "is", "my", "new", "card", "please")
    path = write_html(make_trace(config, words), tmp_path)
    assert path.stat().st_size < 900_000
    data = page_data(path.read_text("utf-8"))
    stored = {node["name"] for node in data["nodes"] if node.get("chunks")}
    for attention in data["attentions"]:
        assert {attention["query"], attention["key"]} <= stored


def test_a_longer_text_may_have_a_larger_page() -> None:
    trace = make_trace()
    assert size_budget.page_budget(trace) == size_budget.SHORT_TEXT_BYTES
    longer = replace(trace, tokens={"text": WORDS * 20})
    assert size_budget.page_budget(longer) == size_budget.MAX_BYTES


def test_matrices_that_do_not_fit_leave_those_of_the_open_layer() -> None:
    trace = make_trace()
    matrices = [name for name, value in trace.parameters.items() if value.dim() == 2]
    everything = sum(4 * value.numel() for value in trace.parameters.values())
    assert set(matrices) <= set(size_budget.select_parameters(trace, trace, everything))
    selection = size_budget.select_parameters(trace, trace, everything - 1, "decoder.1.")
    kept = [name for name in selection if name in matrices]
    assert kept
    assert all(name.startswith("decoder.1.") for name in kept)


def test_the_words_of_an_attribution_are_coloured_by_their_effect() -> None:
    text = (("not ", 0.0), ("good", -2.0), (" but ", 0.0), ("fine", 1.0), ("ish", 0.01))
    document = render_page(make_trace(), why=(Section("Why", text=text, legend="Blue is for."),))
    assert '<mark class="against level-5" title="−2.0000">good</mark>' in document
    assert '<mark class="for level-2" title="1.0000">fine</mark>ish</p>' in document
    assert "Blue is for." in document
