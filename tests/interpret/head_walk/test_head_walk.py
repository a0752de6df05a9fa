"""A head of a model as a walk: the model's own numbers, each again by hand, in every format."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.model.odd_models import ALL, DECODERS, TRANSLATORS

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
    found = build_graph(model)
    sides = [{}]
    if isinstance(model, Translator):
        sides += [{"cross": True}, {"side": "encoder"}]
    for side in sides:
        place = locate_head(found, 6, 0, head, **side)
        trace = capture_trace(model, reading(model), keep=head_value_names(found, place))
        walk = walk_head(trace, place)
        weights = trace[f"{place.name}.weights"][0, head].numpy()
        np.testing.assert_array_equal(walk["weights"].value, weights)
        np.testing.assert_array_equal(walk["output"].value, trace[f"{place.name}.mixed"][0, head])
        names = [step.name for step in walk]
        assert names[0] == "x"
        assert {"q", "k", "v", "scores", "weights", "output"} <= set(names)


@pytest.mark.parametrize("name", ["llama", "gpt", "neox", "gemma", "alibi", "notes", "yarn"])
def test_every_cell_can_tell_its_arithmetic(name: str) -> None:
    model = build(DECODERS[name], seed=3)
    place = locate_head(build_graph(model), 6, 0, 2)
    walk = walk_head(capture_trace(model, reading(model)), place)
    look = WalkView(walk, mark_rounding=False)
    for step in walk:
        (line,) = cell_lines(look_at(look, step.name), step.rows[-1], step.columns[0])
        said = float(
            line.rpartition(" = ")[2]
            .split(";")[0]
            .split(" (")[0]
            .replace("−", "-")
            .replace("∞", "inf")
        )
        assert said == pytest.approx(step.value[-1, 0], abs=0.02), line


def look_at(look: WalkView, name: str) -> WalkView:
    return WalkView(look.walk, 4, (name,), mark_rounding=False)


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
    shown = render_text(
        WalkView(walk, 4, ("weights",), crop=Crop((5, 6), (0, 2), 3), mark_rounding=False), 80
    )
    assert "… 5 rows and 5 columns are not shown; these columns hold at most" in shown
    assert len(shown.splitlines()) < 16
    assert all(len(line) <= 80 for line in shown.splitlines())


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"layer": 7}, "layer 7 is asked for; the decoder has layers 0 to 1"),
        ({"head": 6}, "head 6 is asked for; there are heads 0 to 5"),
        ({"cross": True}, "no cross attention"),
        ({"side": "encoder"}, "this model has no encoder"),
    ],
)
def test_a_head_that_is_not_there_is_refused(asked: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        locate_head(build_graph(build(DECODERS["gpt"])), 6, **asked)


def test_a_translators_two_sides_have_layers_of_their_own() -> None:
    found = build_graph(build(TRANSLATORS["paper"]))
    assert locate_head(found, 6, 1, 2).name == "decoder.1.attention"
    assert locate_head(found, 6, 1, 2, cross=True).name == "decoder.1.cross"
    assert locate_head(found, 6, 1, 2, side="encoder").name == "encoder.1.attention"


@pytest.fixture
def story(shared: Path) -> list[str]:
    return ["explain", "Once upon a time", "--model", str(shared / "models" / "stories260K")]


def test_the_command_tells_the_same_numbers_in_every_format(story: list[str], qkv: Any) -> None:
    at = ["--layer", "2", "--head", "3"]
    code, out, _ = qkv(*story, *at, "--json", "--top", "0")
    told = json.loads(out)
    assert code == 0
    steps = {step["name"]: step for step in told["steps"]}
    weight = steps["weights"]["value"][4][1]
    assert steps["weights"]["rows"] == ["<s>", "Once", "upon", "a", "time"]
    assert told["answer"]["positions"][-1]["best"][0]["name"] == ","
    assert all(check["ok"] for check in told["checks"])
    assert told["about"]["text"] == "Once upon a time"
    for format in ("text", "markdown", "latex"):
        code, out, _ = qkv(*story, *at, "--format", format, "--steps", "weights")
        assert code == 0
        assert f"{weight:.4f}" in out
    code, out, _ = qkv(*story, *at, "--cell", "time,once", "--steps", "weights")
    assert out.startswith("weights(time, Once) = e^")
    assert out.rstrip().endswith(f"= {weight:.4f}")


def test_what_if_shows_the_difference(story: list[str], qkv: Any) -> None:
    code, out, _ = qkv(*story, "--head-off", "2.3", "--no-mask", "--replace", "2=a", "--json")
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
    assert "What if: no mask" in qkv(*story, "--no-mask")[1]


@pytest.mark.parametrize("edit", ["--no-scale", "--no-mask", "--no-position", "--head-off=0.0"])
def test_a_head_can_be_walked_through_under_any_edit(story: list[str], qkv: Any, edit: str) -> None:
    code, out, err = qkv(*story, edit)
    assert (code, err) == (0, "")
    assert "What if: " in out


@pytest.mark.parametrize(
    ("given", "words"),
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
    story: list[str], qkv: Any, given: list[str], words: str
) -> None:
    code, out, err = qkv(*story, *given)
    assert code == 2
    assert words in err
    assert not out


def test_a_text_needs_a_model_and_a_model_a_text(qkv: Any, story: list[str]) -> None:
    assert "name one, as in --model" in qkv("explain", "a text")[2]
    assert "a model needs a text" in qkv("explain", *story[2:])[2]


@pytest.mark.parametrize("name", ["page.html", "heads.png", "heads.svg", "heads.pdf"])
def test_files_are_written_by_their_ending(
    story: list[str], qkv: Any, tmp_path: Path, name: str
) -> None:
    code, _, err = qkv(*story, "-o", str(tmp_path / name))
    assert code == 0
    assert f"wrote {tmp_path / name}" in err
    assert (tmp_path / name).stat().st_size > 1000


def test_one_value_and_one_head_can_be_had_as_a_file(
    story: list[str], qkv: Any, tmp_path: Path
) -> None:
    value = "decoder.2.attention.weights"
    for ending in ("csv", "npy", "md", "tex"):
        path = tmp_path / f"weights.{ending}"
        assert qkv(*story, "-o", str(path), "--tensor", value, "--head", "3")[0] == 0
        assert path.exists()
    assert np.load(tmp_path / "weights.npy").shape == (5, 5)
    assert qkv(*story, "-o", str(tmp_path / "t.safetensors"))[0] == 0
    trace = Trace.load(tmp_path / "t.safetensors")
    np.testing.assert_array_equal(np.load(tmp_path / "weights.npy"), trace[value][0, 3])
    assert qkv(*story, "--layer", "1", "--head", "2", "-o", str(tmp_path / "one.svg"))[0] == 0


def test_reasons_come_with_trust(story: list[str], qkv: Any, tmp_path: Path) -> None:
    code, out, _ = qkv(*story, "--why", "--against", " there")
    assert code == 0
    assert "rather than “ there”" in out
    assert "\ntrust " in out
    told = json.loads(qkv(*story, "--why", "--json")[1])
    assert told["faithfulness"]["occlusion"]["draws"] >= 10
    assert qkv(*story, "--why", "-o", str(tmp_path / "why.html"))[0] == 0
    assert "rather than" in (tmp_path / "why.html").read_text("utf-8")
