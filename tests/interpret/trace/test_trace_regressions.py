"""What a trace must not do: pass over NaN, forget an edit, keep an old name, or take all memory."""

from pathlib import Path
from typing import Any

import pytest
import torch
from tests.model.odd_models import DECODERS, ENCODERS

from qkv.errors import UsageError
from qkv.interpret.head_walk import locate_head, walk_head
from qkv.interpret.trace import (
    AblateHead,
    NoMask,
    ReplaceToken,
    SetValue,
    TokenizedInput,
    build_graph,
    capture_trace,
    check_recompute,
)
from qkv.interpret.trace.capture import check_memory
from qkv.model import build

TEXT = TokenizedInput.from_ids(text=[3, 7, 1, 14, 12])


def test_a_number_that_is_none_fails_the_checks() -> None:
    model = build(DECODERS["gpt"], seed=3)
    with torch.no_grad():
        model.decoder.get_submodule("1").attention.query.weight[0, 0] = float("nan")
        answer = model.eval()(torch.tensor([TEXT.ids["text"]]))
    checks = {check.name: check for check in capture_trace(model, TEXT, served=answer).checks}
    assert not checks["softmax rows sum to 1"].ok
    assert checks["softmax rows sum to 1"].location == "decoder.1.attention.weights"
    assert not checks["answer = the served model's"].ok


@pytest.mark.parametrize(
    ("edit", "name"),
    [
        (NoMask(), "decoder.0.attention.weights"),
        (AblateHead("decoder", 0, 1), "decoder.0.attention.mixed"),
    ],
    ids=str,
)
def test_what_an_edit_set_is_not_computed_without_it(edit: Any, name: str) -> None:
    layers = capture_trace(build(DECODERS["gpt"]), TEXT, keep=["layers"], edits=[edit])
    with pytest.raises(UsageError, match="was set by an edit and not kept"):
        layers.on_demand(name)


def test_a_replaced_token_goes_by_its_new_name() -> None:
    trace = capture_trace(build(DECODERS["gpt"]), TEXT, edits=[ReplaceToken(-1, 9, "nine")])
    assert trace.tokens["text"] == ("3", "7", "1", "14", "nine")


def test_a_changed_layer_may_go_by_its_second_name() -> None:
    model = build(DECODERS["gpt"], seed=3)
    trace = capture_trace(model, TEXT, edits=[SetValue("decoder.0", (0, 1, 2), 9.0)])
    assert trace.overrides == {build_graph(model).resolve("decoder.0")}
    assert check_recompute(trace).ok


def test_rows_that_cannot_be_had_are_refused() -> None:
    model = build(DECODERS["gpt"], seed=3)
    with pytest.raises(UsageError, match="rows is empty"):
        capture_trace(model, TEXT, rows=[])
    layers = capture_trace(model, TEXT, keep=["layers"])
    with pytest.raises(UsageError, match="has no queries to choose among"):
        layers.on_demand("decoder.1.attention.key", rows=[1])
    with pytest.raises(UsageError, match="a walk needs every query"):
        walk_head(capture_trace(model, TEXT, rows=[-1]), locate_head(build_graph(model), 6))


def test_every_kind_of_value_counts_for_the_memory_it_takes() -> None:
    model = build(DECODERS["gpt"])
    long = TokenizedInput({"text": [1] * 20_000_000}, {"text": ()})
    with pytest.raises(UsageError, match="keep some of them"):
        check_memory([build_graph(model)["output"]], model, long, {})
    check_memory([build_graph(model)["decoder.0.attention.weights"]], model, long, {"text": (1,)})


def test_a_model_with_a_scale_of_its_own_is_told_so() -> None:
    model = build(DECODERS["alibi"], seed=3)
    model.decoder.get_submodule("0").attention.core.scale = 0.3
    step = walk_head(capture_trace(model, TEXT), locate_head(build_graph(model), 6))["scaled"]
    assert step.equation == "scores × 0.3"
    assert "√" not in step.equation


@pytest.mark.parametrize("ending", ["svg", "html", "safetensors"])
def test_an_encoder_is_drawn_and_a_closed_place_is_one_line(
    ending: str, qkv: Any, tmp_path: Path
) -> None:
    from qkv.bundle import Bundle
    from qkv.text import Tokenizer

    tokenizer = Tokenizer.train("bytes", ["any text"], 300)
    config = ENCODERS["classifier"]
    table = config.embedding.model_copy(update={"vocabulary": tokenizer.vocab_size})
    Bundle(build(config.model_copy(update={"embedding": table})), tokenizer).save(tmp_path / "m")
    asked = ["explain", "any text", "--model", tmp_path / "m"]
    assert qkv(*asked, "-o", tmp_path / f"x.{ending}")[0] == 0
    code, _, err = qkv(*asked, "-o", f"/proc/x.{ending}")
    assert code == 2
    assert err.startswith("qkv: cannot write /proc/x")


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (["--why", "--no-mask"], "leave --no-mask out"),
        (["--why", "--format", "latex"], "leave --format out"),
        (["--label", "good"], "add --why"),
        (["--replace=--3=x"], "POSITION=TOKEN"),
    ],
)
def test_options_that_say_nothing_together_are_refused(
    given: list[str], words: str, qkv: Any, shared: Path
) -> None:
    model = shared / "models" / "stories260K"
    code, out, err = qkv("explain", "Once upon", "--model", model, *given)
    assert (code, out) == (2, "")
    assert words in err
