"""A trace in a file: every number as it was, readable by anything that reads safetensors."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from tests.model.odd_models import ALL, DECODERS, GROUPED, decoder

from qkv.errors import DataError
from qkv.interpret.trace import AblateHead, TokenizedInput, Trace, capture_trace, check_recompute
from qkv.model import Rope, Translator, build

IDS = [3, 7, 1, 14, 12]


@pytest.mark.parametrize("name", sorted(ALL))
def test_what_is_saved_is_loaded_bit_for_bit_and_proves_itself(name: str, tmp_path: Path) -> None:
    model = build(ALL[name], seed=1)
    pair = isinstance(model, Translator)
    reading = (
        TokenizedInput.from_ids(source=IDS, target=IDS)
        if pair
        else TokenizedInput.from_ids(text=IDS)
    )
    trace = capture_trace(model, reading, metadata={"model": "odd"})
    trace.save(tmp_path / "t.safetensors", parameters=True)
    loaded = Trace.load(tmp_path / "t.safetensors")
    assert list(loaded) == list(trace)
    for key in trace:
        assert torch.equal(loaded[key], trace[key])
        assert loaded[key].dtype == trace[key].dtype
        assert loaded.node(key) == trace.node(key)
    assert (loaded.tokens, loaded.metadata, loaded.rows) == (
        trace.tokens,
        trace.metadata,
        trace.rows,
    )
    assert loaded.graph.layers == trace.graph.layers
    assert check_recompute(loaded) == check_recompute(trace)


def test_infinity_and_nan_survive(tmp_path: Path) -> None:
    model = build(DECODERS["gpt"])
    with torch.no_grad():
        model.embedding.weight[3] = float("nan")
    trace = capture_trace(model, TokenizedInput.from_ids(text=[1, 2, 3]))
    trace.save(tmp_path / "t.safetensors")
    masked = Trace.load(tmp_path / "t.safetensors")["decoder.0.attention.masked"]
    assert bool((masked[0, 0, 0, 1:] == -torch.inf).all())
    assert bool(masked[0, 0, 2].isnan().all())
    assert check_recompute(Trace.load(tmp_path / "t.safetensors")).ok


def test_rows_and_edits_are_remembered(tmp_path: Path) -> None:
    trace = capture_trace(
        build(DECODERS["gpt"]),
        TokenizedInput.from_ids(text=IDS),
        rows=[-1],
        edits=[AblateHead("decoder", 0, 1)],
    )
    trace.save(tmp_path / "t.safetensors")
    loaded = Trace.load(tmp_path / "t.safetensors")
    assert loaded.rows == {"text": (4,)}
    assert loaded.edits == ("decoder.0.attention without head 1",)
    assert loaded.overrides == {"decoder.0.attention.mixed"}


def test_another_program_reads_the_values_and_the_graph(tmp_path: Path) -> None:
    capture_trace(build(DECODERS["gpt"]), TokenizedInput.from_ids(text=IDS)).save(
        tmp_path / "t.safetensors"
    )
    with safe_open(tmp_path / "t.safetensors", framework="np") as file:
        weights = file.get_tensor("decoder.0.attention.weights")
        graph = json.loads(file.metadata()["trace"])["nodes"]
    assert weights.sum(axis=-1) == pytest.approx(1.0)
    node = next(node for node in graph if node["name"] == "decoder.0.attention.weights")
    assert node["inputs"] == ["decoder.0.attention.masked"]
    assert node["equation"] == "softmax of each row"


def test_what_is_no_trace_is_refused(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no")
    with pytest.raises(DataError, match="cannot read a trace from"):
        Trace.load(tmp_path / "text")
    with pytest.raises(DataError, match="cannot read a trace from"):
        Trace.load(tmp_path / "nowhere")
    save_file({"a": torch.zeros(2)}, tmp_path / "other.safetensors")
    with pytest.raises(DataError, match="is a safetensors file but holds no trace"):
        Trace.load(tmp_path / "other.safetensors")
    damaged = {"format": "qkv-trace-1", "trace": '{"nodes": []}'}
    save_file({"a": torch.zeros(2)}, tmp_path / "damaged.safetensors", damaged)
    with pytest.raises(DataError, match="is damaged"):
        Trace.load(tmp_path / "damaged.safetensors")


def test_a_trace_written_by_qkv_0_1_loads_under_the_names_of_today() -> None:
    old = Trace.load(Path(__file__).with_name("qkv_0_1.safetensors"))
    model = build(decoder(attention=GROUPED, position=Rope()), seed=1)
    edits = [AblateHead("decoder", 0, 1)]
    ids = TokenizedInput.from_ids(text=[3, 7, 1])
    new = capture_trace(model, ids, metadata={"model": "odd"}, edits=edits)
    for one, other in zip(old.graph, new.graph, strict=True):
        assert replace(one, hook_point=other.hook_point) == other  # modules have other names now
    assert (old.graph.aliases, old.graph.layers) == (new.graph.aliases, new.graph.layers)
    assert list(old) == list(new)
    for name in new:
        torch.testing.assert_close(old[name], new[name])
    assert (old.tokens, old.metadata, old.edits) == (new.tokens, new.metadata, new.edits)
    assert old.overrides == new.overrides
