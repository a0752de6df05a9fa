"""A head of a model as a walk: the model's own numbers, each again by hand, in every format."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.model.odd_models import ALL, DECODERS, TRANSLATORS
from torch import Tensor, nn

from qkv.errors import QkvError, UsageError
from qkv.interpret.head_walk import head_value_names, locate_head, walk_head
from qkv.interpret.render.sections import Crop, WalkView, cell_lines
from qkv.interpret.render.terminal_text import render_text
from qkv.interpret.trace import TokenizedInput, Trace, build_graph, capture_trace
from qkv.model import Model, Translator, build

IDS = [3, 7, 1, 14, 12, 5, 9]


def reading(model: Model) -> TokenizedInput:
    if isinstance(model, Translator):
        return TokenizedInput.from_ids(source=IDS, target=IDS[:4])
    return TokenizedInput.from_ids(text=IDS)


@pytest.mark.parametrize("name", sorted(ALL))
@pytest.mark.parametrize("head", [0, 4])
def test_every_head_of_every_model_can_be_walked_through(name: str, head: int) -> None:
    """walk_head itself computes each step by hand and refuses to differ."""
    model = build(ALL[name], seed=3)
    graph = build_graph(model)
    sides = [{}]
    if isinstance(model, Translator):
        sides += [{"cross": True}, {"side": "encoder"}]
    for side in sides:
        location = locate_head(graph, 6, 0, head, **side)
        trace = capture_trace(model, reading(model), keep=head_value_names(graph, location))
        walk = walk_head(trace, location)
        weights = trace[f"{location.name}.weights"][0, head].numpy()
        np.testing.assert_array_equal(walk["weights"].value, weights)
        np.testing.assert_array_equal(
            walk["output"].value, trace[f"{location.name}.mixed"][0, head]
        )
        names = [step.name for step in walk]
        assert names[0] == "x"
        assert {"q", "k", "v", "scores", "weights", "output"} <= set(names)


@pytest.mark.parametrize("name", ["llama", "gpt", "neox", "gemma", "alibi", "notes", "yarn"])
def test_every_cell_can_tell_its_arithmetic(name: str) -> None:
    model = build(DECODERS[name], seed=3)
    location = locate_head(build_graph(model), 6, 0, 2)
    walk = walk_head(capture_trace(model, reading(model)), location)
    view = WalkView(walk, mark_rounding=False)
    for step in walk:
        (line,) = cell_lines(look_at(view, step.name), step.rows[-1], step.columns[0])
        number = float(
            line.rpartition(" = ")[2]
            .split(";")[0]
            .split(" (")[0]
            .replace("−", "-")
            .replace("∞", "inf")
        )
        assert number == pytest.approx(step.value[-1, 0], abs=0.02), line


def look_at(view: WalkView, name: str) -> WalkView:
    return WalkView(view.walk, 4, (name,), mark_rounding=False)


def test_numbers_that_are_not_the_models_are_refused() -> None:
    model = build(DECODERS["gpt"], seed=3)
    trace = capture_trace(model, reading(model))
    broken = {
        **trace.tensors,
        "decoder.0.attention.weights": trace["decoder.0.attention.weights"] + 0.1,
    }
    bad = Trace(trace.graph, broken, trace.parameters, trace.tokens)
    with pytest.raises(QkvError, match=r"weights of the model is 0\.1 away"):
        walk_head(bad, locate_head(trace.graph, 6))


def test_a_long_text_is_cropped_and_says_what_is_left_out() -> None:
    model = build(DECODERS["gpt"], seed=3)
    walk = walk_head(capture_trace(model, reading(model)), locate_head(build_graph(model), 6))
    text = render_text(
        WalkView(walk, 4, ("weights",), crop=Crop((5, 6), (0, 2), 3), mark_rounding=False), 80
    )
    assert "… 5 rows and 5 columns are not shown; these columns hold at most" in text
    assert len(text.splitlines()) < 16
    assert all(len(line) <= 80 for line in text.splitlines())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"layer": 7}, "layer=7 does not exist; the decoder has layers 0 to 1"),
        ({"head": 6}, "head=6 does not exist; there are heads 0 to 5"),
        ({"cross": True}, "no cross attention"),
        ({"side": "encoder"}, "this model has no encoder"),
    ],
)
def test_a_head_that_is_not_there_is_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        locate_head(build_graph(build(DECODERS["gpt"])), 6, **arguments)


def test_a_translators_two_sides_have_layers_of_their_own() -> None:
    graph = build_graph(build(TRANSLATORS["paper"]))
    assert locate_head(graph, 6, 1, 2).name == "decoder.1.attention"
    assert locate_head(graph, 6, 1, 2, cross=True).name == "decoder.1.cross"
    assert locate_head(graph, 6, 1, 2, side="encoder").name == "encoder.1.attention"


class Doubled(nn.Module):
    """A module that is not from the package and brings no operation."""

    def forward(self, x: Tensor) -> Tensor:
        return 2 * x


class Wrapped(nn.Module):
    def __init__(self, projection: nn.Module) -> None:
        super().__init__()
        self.projection = projection

    def forward(self, x: Tensor) -> Tensor:
        return self.projection(x)


def test_a_module_from_outside_is_shown_in_the_walk_but_not_opened() -> None:
    model = build(DECODERS["gpt"], seed=3)
    attention = model.decoder.get_submodule("0.attention")
    attention.key_norm = Doubled()
    attention.value = Wrapped(attention.value)
    walk = walk_head(capture_trace(model, reading(model)), locate_head(build_graph(model), 6))
    k, normed = walk["k"].value, walk["k_normed"].value
    np.testing.assert_allclose(normed, 2 * k, rtol=1e-6)
    view = WalkView(walk)
    (line,) = cell_lines(look_at(view, "k_normed"), "1", "1")
    assert line.endswith("(computed by Doubled, not opened)")
    (line,) = cell_lines(look_at(view, "v"), "1", "1")
    assert line.endswith("(computed by Wrapped, not opened)")
    assert "w_v" not in [step.name for step in walk]
    (line,) = cell_lines(look_at(view, "output"), "1", "1")
    assert " × " in line


def test_an_attention_from_outside_has_no_heads_to_walk_through() -> None:
    model = build(DECODERS["gpt"], seed=3)
    model.decoder.get_submodule("0").attention = Doubled()
    message = r"decoder\.0\.attention has no heads to walk through: computed by Doubled, not opened"
    with pytest.raises(UsageError, match=message):
        locate_head(build_graph(model), 6)
    assert locate_head(build_graph(model), 6, layer=1).name == "decoder.1.attention"


@pytest.fixture
def command(shared: Path) -> list[str]:
    return ["explain", "Once upon a time", "--model", str(shared / "models" / "stories260K")]


def test_the_command_tells_the_same_numbers_in_every_format(command: list[str], qkv: Any) -> None:
    at = ["--layer", "2", "--head", "3"]
    code, out, _ = qkv(*command, *at, "--json", "--top", "0")
    document = json.loads(out)
    assert code == 0
    steps = {step["name"]: step for step in document["steps"]}
    weight = steps["weights"]["value"][4][1]
    assert steps["weights"]["rows"] == ["<s>", "Once", "upon", "a", "time"]
    assert document["answer"]["positions"][-1]["best"][0]["name"] == ","
    assert all(check["ok"] for check in document["checks"])
    assert document["about"]["text"] == "Once upon a time"
    for format in ("text", "markdown", "latex"):
        code, out, _ = qkv(*command, *at, "--format", format, "--steps", "weights")
        assert code == 0
        assert f"{weight:.4f}" in out
    code, out, _ = qkv(*command, *at, "--cell", "time,once", "--steps", "weights")
    assert out.startswith("weights(time, Once) = e^")
    assert out.rstrip().endswith(f"= {weight:.4f}")


def test_what_if_shows_the_difference(command: list[str], qkv: Any) -> None:
    code, out, _ = qkv(*command, "--head-off", "2.3", "--no-mask", "--replace", "2=a", "--json")
    changed = json.loads(out)["changed"]
    assert code == 0
    assert changed["edits"] == [
        "no mask",
        "decoder.2.attention without head 3",
        "a at position 2 of the text",
    ]
    assert changed["layers"]["decoder.4"] > 0.1
    before, after = changed["answers"][0]["before"], changed["answers"][0]["after"]
    assert before != after
    assert "What if: no mask" in qkv(*command, "--no-mask")[1]


@pytest.mark.parametrize("edit", ["--no-scale", "--no-mask", "--no-position", "--head-off=0.0"])
def test_a_head_can_be_walked_through_under_any_edit(
    command: list[str], qkv: Any, edit: str
) -> None:
    code, out, err = qkv(*command, edit)
    assert (code, err) == (0, "")
    assert "What if: " in out


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--head-off", "x"], "LAYER.HEAD"),
        (["--replace", "2"], "POSITION=TOKEN"),
        (["--replace", "2=unbelievably"], "puts one token in the place of another"),
        (["--layer", "99"], "layers 0 to 4"),
        (["--target", "x"], "only an encoder–decoder has a target"),
        (["-o", "page.xyz"], "end it with one of"),
        (["-o", "page.csv"], "name it with --tensor"),
        (["-o", "nowhere/page.html"], "is not a folder; make it first"),
        (["--example", "poem"], "exclude each other"),
        (["--cell", "no,where"], "no step has a cell"),
    ],
)
def test_what_is_asked_wrongly_is_explained(
    command: list[str], qkv: Any, options: list[str], message: str
) -> None:
    code, out, err = qkv(*command, *options)
    assert code == 2
    assert message in err
    assert not out


def test_a_text_needs_a_model_and_a_model_a_text(qkv: Any, command: list[str]) -> None:
    assert "name one, as in --model" in qkv("explain", "a text")[2]
    assert "a model needs a text" in qkv("explain", *command[2:])[2]


@pytest.mark.parametrize("name", ["page.html", "heads.png", "heads.svg", "heads.pdf"])
def test_files_are_written_by_their_ending(
    command: list[str], qkv: Any, tmp_path: Path, name: str
) -> None:
    code, _, err = qkv(*command, "-o", str(tmp_path / name))
    assert code == 0
    assert f"wrote {tmp_path / name}" in err
    assert (tmp_path / name).stat().st_size > 1000


def test_one_value_and_one_head_can_be_had_as_a_file(
    command: list[str], qkv: Any, tmp_path: Path
) -> None:
    value = "decoder.2.attention.weights"
    for ending in ("csv", "npy", "md", "tex"):
        path = tmp_path / f"weights.{ending}"
        assert qkv(*command, "-o", str(path), "--tensor", value, "--head", "3")[0] == 0
        assert path.exists()
    assert np.load(tmp_path / "weights.npy").shape == (5, 5)
    assert qkv(*command, "-o", str(tmp_path / "t.safetensors"))[0] == 0
    trace = Trace.load(tmp_path / "t.safetensors")
    np.testing.assert_array_equal(np.load(tmp_path / "weights.npy"), trace[value][0, 3])
    assert qkv(*command, "--layer", "1", "--head", "2", "-o", str(tmp_path / "one.svg"))[0] == 0


def test_reasons_come_with_trust(command: list[str], qkv: Any, tmp_path: Path) -> None:
    code, out, _ = qkv(*command, "--why", "--against", " there")
    assert code == 0
    assert "rather than “ there”" in out
    assert "\ntrust " in out
    document = json.loads(qkv(*command, "--why", "--json")[1])
    assert document["faithfulness"]["occlusion"]["draws"] >= 10
    assert qkv(*command, "--why", "-o", str(tmp_path / "why.html"))[0] == 0
    assert "rather than" in (tmp_path / "why.html").read_text("utf-8")
