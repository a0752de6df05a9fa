"""Parts from outside the package: they register by kind, build, round-trip and are traced."""

import json
from typing import Literal

import pytest
import torch
from torch import Tensor, nn

from qkv.attention import Mask
from qkv.bundle import Bundle
from qkv.errors import ConfigError
from qkv.interpret.trace import TokenizedInput, capture_trace
from qkv.interpret.trace.recompute import run_checks
from qkv.model import (
    AttentionConfig,
    DecoderOnly,
    Embedding,
    FeedForwardConfig,
    LayerNorm,
    MultiHead,
    NormConfig,
    Position,
    PositionConfig,
    ReLU,
    Rope,
    Sizes,
    Stack,
    build,
    cost,
    read_config,
)

V, D, T = 19, 12, 7


class Doubled(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(width))

    def forward(self, x: Tensor) -> Tensor:
        return 2.0 * x + self.weight


class DoublingNorm(NormConfig):
    kind: Literal["doubling"] = "doubling"

    def build(self, width: int) -> nn.Module:
        return Doubled(width)


class TanhFeedForward(FeedForwardConfig):
    kind: Literal["tanh_mlp"] = "tanh_mlp"
    width: int

    def build(self, model_width: int, dropout: float) -> nn.Module:
        up = nn.Linear(model_width, self.width)
        return nn.Sequential(up, nn.Tanh(), nn.Linear(self.width, model_width))


class Shift(PositionConfig):
    kind: Literal["shift"] = "shift"
    step: float = 0.5

    def build(self, sizes: Sizes) -> Position:
        return ShiftPosition(self.step)


class ShiftPosition(Position):
    def __init__(self, step: float) -> None:
        super().__init__()
        self.step = step

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        return x + self.step * positions[..., None].to(x.dtype)

    def mask(self, dtype: torch.dtype) -> Mask:
        return Mask.full()


def decoder(**parts: object) -> DecoderOnly:
    fields = {"attention": MultiHead(heads=3), "feed_forward": ReLU(width=17), "position": Rope()}
    stack = Stack(layers=2, width=D, **{**fields, **parts})  # type: ignore[arg-type]
    return DecoderOnly(length=T, embedding=Embedding(vocabulary=V), decoder=stack)


OWN = {
    "norm": {"norm": DoublingNorm()},
    "feed-forward": {"feed_forward": TanhFeedForward(width=5)},
    "position": {"position": Shift(step=0.25)},
}


@pytest.mark.parametrize("name", OWN)
def test_a_part_from_outside_builds_runs_and_survives_json(name: str) -> None:
    config = decoder(**OWN[name])
    text = config.model_dump_json()
    assert read_config(text) == config
    model = build(config).eval()
    ids = torch.arange(T)[None]
    cache = model.empty_cache(1)  # type: ignore[operator]
    with torch.no_grad():
        logits = model(ids)
        steps = [model(ids[:, t : t + 1], cache=cache) for t in range(T)]
    torch.testing.assert_close(torch.cat(steps, dim=1), logits)
    assert config.parameters() == sum(p.numel() for p in model.parameters())
    assert cost(config, T).forward_flops > 0


@pytest.mark.parametrize("name", OWN)
def test_a_part_from_outside_is_saved_and_loaded(name: str, tmp_path) -> None:
    model = build(decoder(**OWN[name])).eval()
    Bundle(model).save(tmp_path / "model")
    again = Bundle.load(tmp_path / "model").model
    ids = torch.arange(T)[None]
    assert again.config == model.config
    assert torch.equal(again(ids), model(ids))


def test_a_norm_without_an_operation_is_an_opaque_step() -> None:
    model = build(decoder(norm=DoublingNorm())).eval()
    trace = capture_trace(model, TokenizedInput.from_ids(text=[1, 2, 3]))
    operation = trace.graph.nodes["decoder.0.attention_in"].operation
    assert operation.equation == "computed by Doubled, not opened"
    assert not operation.recomputable


class ScaledShift(PositionConfig):
    kind: Literal["scaled_shift"] = "scaled_shift"

    def build(self, sizes: Sizes) -> Position:
        return ScaledShiftPosition()


class ScaledShiftPosition(ShiftPosition):
    """Biases the scores too, in a way no operation of the package knows."""

    def __init__(self) -> None:
        super().__init__(0.25)

    def mask(self, dtype: torch.dtype) -> Mask:
        return Mask.bias(torch.linspace(0.0, 1.0, T * T, dtype=dtype).reshape(T, T))


class EmbeddedShift(PositionConfig):
    kind: Literal["embedded_shift"] = "embedded_shift"

    def build(self, sizes: Sizes) -> Position:
        return EmbeddedShiftPosition()


class EmbeddedShiftPosition(Position):
    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        return x + 0.25 * positions[..., None].to(x.dtype)


def test_positions_without_an_operation_are_an_opaque_step() -> None:
    """Added to the embeddings they are a step of their own, and attention is opened."""
    model = build(decoder(position=EmbeddedShift())).eval()
    trace = capture_trace(model, TokenizedInput.from_ids(text=[1, 2, 3]))
    operation = trace.graph.nodes["decoder.position"].operation
    assert operation.equation == "computed by EmbeddedShiftPosition, not opened"
    assert "decoder.0.attention.scores" in trace.graph.nodes
    assert all(check.ok for check in run_checks(trace))


def test_attention_with_foreign_scores_is_one_opaque_step() -> None:
    model = build(decoder(position=ScaledShift())).eval()
    trace = capture_trace(model, TokenizedInput.from_ids(text=[*range(T)]))
    operation = trace.graph.nodes["decoder.0.attention"].operation
    assert operation.equation == "computed by Attention, not opened"
    assert "decoder.0.attention.scores" not in trace.graph.nodes
    assert all(check.ok for check in run_checks(trace))


def test_an_unknown_kind_names_the_remedy() -> None:
    fields = json.loads(decoder().model_dump_json())
    fields["decoder"]["norm"] = {"kind": "of_another_package"}
    with pytest.raises(ConfigError, match="import that package first"):
        read_config(json.dumps(fields))
    fields["decoder"]["norm"] = {"kind": "layer_nrom"}
    with pytest.raises(ConfigError, match='did you mean "layer_norm"'):
        read_config(json.dumps(fields))


def test_fields_of_a_part_from_outside_are_validated() -> None:
    with pytest.raises(ConfigError, match='unknown field "stepp"; did you mean "step"'):
        Shift(stepp=1.0)
    fields = json.loads(decoder(position=Shift()).model_dump_json())
    fields["decoder"]["position"]["step"] = "far"
    with pytest.raises(ConfigError, match="step"):
        read_config(json.dumps(fields))


def test_a_kind_that_is_taken_is_refused_and_a_cell_run_twice_is_not() -> None:
    with pytest.raises(ConfigError, match='kind "layer_norm" of Another is taken by'):

        class Another(NormConfig):
            kind: Literal["layer_norm"] = "layer_norm"

    def define() -> type[NormConfig]:
        class Cell(NormConfig):
            kind: Literal["cell"] = "cell"

            def build(self, width: int) -> nn.Module:
                return nn.Identity()

        return Cell

    define()
    second = define()
    assert NormConfig.variants()["cell"] is second
    assert decoder(norm=second()).decoder.norm == second()


def test_families_list_their_variants() -> None:
    assert NormConfig.variants()["layer_norm"] is LayerNorm
    assert set(AttentionConfig.variants()) >= {"multi_head", "block_diagonal"}
