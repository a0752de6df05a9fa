"""The graph is found in the module tree; computing every operation again in NumPy proves it."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.model.odd_models import ALL, DECODERS, ENCODERS, TRANSLATORS
from torch import nn

from qkv.errors import UsageError
from qkv.interpret.trace import TokenizedInput, Trace, build_graph, capture_trace, check_recompute
from qkv.interpret.trace.operations import Operation, ScaleBy
from qkv.interpret.trace.recompute import captured_value, deviation, to_numpy
from qkv.model import Model, Translator, build

IDS = [3, 7, 1, 14, 12, 5, 7, 3, 9, 2, 11]


def reading(model: Model, length: int = 11) -> TokenizedInput:
    ids = IDS[:length]
    if isinstance(model, Translator):
        return TokenizedInput.from_ids(source=ids, target=ids[:5])
    return TokenizedInput.from_ids(text=ids)


@pytest.fixture(params=sorted(ALL))
def model(request: pytest.FixtureRequest) -> Model:
    return build(ALL[request.param], seed=3)


def test_every_operation_gives_its_output_again_in_numpy(model: Model) -> None:
    trace = capture_trace(model, reading(model))
    named = [node for node in trace.nodes if not node.is_input]
    for node in named:
        assert deviation(trace.recompute(node.name), captured_value(trace, node.name)) <= 1e-5, node
    assert len(named) > 15
    assert check_recompute(trace).ok
    assert all(check.ok for check in trace.checks)


def test_the_last_value_is_the_models_own_answer_and_all_have_the_axes_they_say(
    model: Model,
) -> None:
    trace = capture_trace(model, reading(model))
    ids = [torch.tensor([row]) for row in reading(model).ids.values()]
    with torch.no_grad():
        assert torch.equal(trace["output"], model.eval()(*ids))
    for node in trace.nodes:
        assert len(node.axes) == trace[node.name].dim() or node.title in ("cos", "sin", "bias")
        for axis, sequence in node.sequences.items():
            assert trace[node.name].shape[node.axes.index(axis)] == len(trace.tokens[sequence])


def test_some_rows_alone_are_the_rows_of_the_whole(model: Model) -> None:
    whole, some = (capture_trace(model, reading(model), rows=rows) for rows in (None, [-1, 2]))
    assert check_recompute(some).ok
    assert all(check.ok for check in some.checks)
    assert list(some.rows.values()) == [(len(list(some.tokens.values())[-1]) - 1, 2)]
    for node in some.nodes:
        expected = to_numpy(whole[node.name])
        if node.by_row:
            rows = some.rows.get(node.sequences["T"], range(expected.shape[-2]))
            expected = expected[..., list(rows), :]
        assert deviation(to_numpy(some[node.name]), expected) <= 1e-6


def test_any_row_can_be_had_later_from_what_enters_each_layer(model: Model) -> None:
    whole = capture_trace(model, reading(model))
    layers = capture_trace(model, reading(model), keep=["layers"])
    assert len(layers) < len(whole) / 3
    for node in whole.nodes:
        if node.is_input or "T" not in node.axes:
            continue
        value = to_numpy(whole[node.name])
        axis = value.ndim - len(node.axes) + node.axes.index("T")
        value_on_demand = layers.on_demand(node.name, rows=[1, -1])
        assert deviation(value_on_demand, np.take(value, [1, -1], axis=axis)) <= 1e-4, node.name


def test_only_what_is_asked_for_is_kept_and_nothing_is_left_on_the_model(model: Model) -> None:
    model.train()
    stack = "encoder" if hasattr(model, "encoder") else "decoder"
    trace = capture_trace(
        model, reading(model), keep=[f"{stack}.0.attention.weights", f"{stack}.0"]
    )
    layer = build_graph(model).resolve(f"{stack}.0")
    assert set(trace) == {f"{stack}.0.attention.weights", layer}
    assert f"{stack}.0" in trace
    assert hooks(model) == 0
    assert all(part.training for part in model.modules())
    with pytest.raises(UsageError, match="was not kept; trace again with keep="):
        trace[f"{stack}.0.attention.scores"]


@pytest.mark.slow
def test_names_mirror_the_module_tree(model: Model) -> None:
    modules = dict(model.named_modules())
    for node in build_graph(model):
        if node.hook_point is not None:
            assert node.hook_point.module in modules
        for given in node.inputs:
            known = given in build_graph(model).nodes
            assert known or given in dict(model.named_parameters(remove_duplicate=False))


def test_every_step_of_a_layer_is_there() -> None:
    trace = capture_trace(build(TRANSLATORS["paper"], seed=0), reading(build(TRANSLATORS["paper"])))
    steps = ["query", "key", "value", "scores", "scaled", "masked", "weights", "mixed", "joined"]
    for layer in range(2):
        for place in ("encoder.{}.attention", "decoder.{}.attention", "decoder.{}.cross"):
            for step in steps:
                assert f"{place.format(layer)}.{step}" in trace
        for step in ("attention_join", "cross_join", "feed_forward_join", "attention_out"):
            assert f"decoder.{layer}.{step}" in trace
        for step in ("up", "activation", "down"):
            assert f"decoder.{layer}.feed_forward.{step}" in trace
    for step in ("embedding", "decoder.position", "output", "probabilities"):
        assert step in trace
    equations = {node.name: node.equation for node in trace.nodes}
    assert equations["decoder.0.cross.scaled"] == "scores ÷ √5"
    assert trace.node("decoder.0.cross.scores").sequences == {"T": "target", "S": "source"}
    assert trace.node("decoder.0.attention.masked").equation == "scores, −∞ where not seen"


def test_layers_that_share_a_block_are_told_apart() -> None:
    trace = capture_trace(build(ENCODERS["albert"], seed=0), TokenizedInput.from_ids(text=IDS))
    weights = [name for name in trace if name.endswith("attention.weights")]
    assert len(weights) == ENCODERS["albert"].encoder.layers > ENCODERS["albert"].encoder.blocks
    assert not torch.equal(trace[weights[0]], trace[weights[1]])
    assert trace.node(weights[1]).hook_point.call == 1


def test_a_wrong_wish_is_answered_with_what_there_is() -> None:
    model = build(DECODERS["gpt"])
    with pytest.raises(UsageError, match=r"decoder\.0\.attention\.weight.* did you mean"):
        capture_trace(model, TokenizedInput.from_ids(text=IDS), keep=["decoder.0.attention.weight"])
    with pytest.raises(UsageError, match="row 11 is out of range: the text has 11 positions"):
        capture_trace(model, TokenizedInput.from_ids(text=IDS), rows=[11])
    with pytest.raises(UsageError, match="the text is empty"):
        capture_trace(model, TokenizedInput.from_ids(text=[]))
    with pytest.raises(UsageError, match="is an input, not computed"):
        capture_trace(model, TokenizedInput.from_ids(text=IDS)).recompute("ids")


def test_too_much_is_refused_before_it_is_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("qkv.interpret.trace.capture.MAX_BYTES", 60_000)
    model = build(DECODERS["gpt"])
    with pytest.raises(UsageError, match=r"keep some of them.*or some queries"):
        capture_trace(model, TokenizedInput.from_ids(text=IDS))
    assert "decoder.0.attention.weights" in capture_trace(
        model, TokenizedInput.from_ids(text=IDS), rows=[-1]
    )


def test_hooks_go_away_when_a_pass_fails() -> None:
    model = build(DECODERS["gpt"])
    with pytest.raises(Exception, match="token ids go from 0"):
        capture_trace(model, TokenizedInput.from_ids(text=[1, 999]))
    assert hooks(model) == 0


def test_a_trace_is_a_mapping_with_a_short_name() -> None:
    trace = capture_trace(build(DECODERS["gpt"]), TokenizedInput.from_ids(text=IDS))
    assert isinstance(trace, Trace)
    assert len(list(trace)) == len(trace) == len(trace.nodes)
    assert f"{len(trace)} values" in repr(trace)


def hooks(model: nn.Module) -> int:
    return sum(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules())


def test_one_page_builds_the_graph_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, qkv: Any, shared: Path
) -> None:
    from qkv.interpret.trace import model_graph

    builders: list[Any] = []

    class Counted(model_graph.GraphBuilder):
        def __init__(self) -> None:
            super().__init__()
            builders.append(self)

    monkeypatch.setattr(model_graph, "GraphBuilder", Counted)
    model = shared / "models" / "stories260K"
    page = tmp_path / "page.html"
    assert qkv("explain", "Once upon", "--model", model, "--no-scale", "-o", page)[0] == 0
    assert len(builders) == 1


class Squeezed(nn.Module):
    """A feed-forward from outside the package, without an operation of its own."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.inner(x))


class Doubled(nn.Module):
    """A feed-forward from outside the package that says what it computes."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return 2.0 * x

    def trace_operation(self) -> tuple[Operation, tuple[str, ...]]:
        return ScaleBy(2.0), ()


def test_a_module_from_outside_is_one_opaque_step_or_the_operation_it_brings() -> None:
    model = build(DECODERS["gpt"], seed=3)
    first, second = (model.decoder.get_submodule(str(layer)) for layer in (0, 1))
    first.feed_forward = Squeezed(first.feed_forward)
    second.feed_forward = Doubled()
    trace = capture_trace(model, TokenizedInput.from_ids(text=IDS))
    assert trace.node("decoder.0.feed_forward").equation == "computed by Squeezed, not opened"
    assert "decoder.0.feed_forward.up" not in trace.graph.nodes
    assert trace.node("decoder.1.feed_forward").operation == ScaleBy(2.0)
    assert check_recompute(trace).ok
    with pytest.raises(UsageError, match="cannot be recomputed"):
        trace.recompute("decoder.0.feed_forward")
