"""A sweep of activation patches, in Python and on the command line: the same numbers."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import qkv as package
from qkv.cli.options import PATCH_PARTS
from qkv.errors import UsageError
from qkv.interpret.glass_box import GlassBox
from qkv.interpret.patching import PARTS
from qkv.interpret.trace import AblateHead, PatchActivation, compare_traces
from qkv.model import (
    Classify,
    DecoderOnly,
    Embedding,
    EncoderDecoder,
    EncoderOnly,
    Learned,
    MultiHead,
    ReLU,
    Rope,
    Stack,
    TextVector,
    build,
)
from qkv.text import Tokenizer

CLEAN = "the cat ran"
CORRUPTED = "the dog ran"
TOKENIZER = Tokenizer.train("characters", [CLEAN, CORRUPTED, "a big blue"], 40)
TABLE = Embedding(vocabulary=TOKENIZER.vocab_size)


def stack(**more: object) -> Stack:
    parts: dict[str, object] = {
        "layers": 2,
        "width": 12,
        "attention": MultiHead(heads=3),
        "feed_forward": ReLU(width=17),
        "position": Learned(),
    }
    return Stack(**parts | more)  # type: ignore[arg-type]


CONFIGS = {
    "decoder": DecoderOnly(length=23, embedding=TABLE, decoder=stack(position=Rope())),
    "classifier": EncoderOnly(
        length=23, embedding=TABLE, encoder=stack(), output=Classify(labels=("a", "b", "c"))
    ),
    "embedder": EncoderOnly(length=23, embedding=TABLE, encoder=stack(), output=TextVector()),
    "translator": EncoderDecoder(length=23, embedding=TABLE, encoder=stack(), decoder=stack()),
}


def box(name: str) -> GlassBox:
    return GlassBox(package.Bundle(build(CONFIGS[name], seed=3).eval(), TOKENIZER))


@pytest.mark.parametrize("name", CONFIGS)
def test_each_cell_is_one_patch(name: str) -> None:
    model = box(name)
    target = "a big" if name == "translator" else None
    sweep = model.patch_sweep(CLEAN, CORRUPTED, target=target)
    assert sweep.values.shape == (2, len(sweep.labels))
    assert sweep.clean != sweep.corrupted
    clean = model.trace(CLEAN, target=target)
    layer = sweep.names[1]

    def output(trace: object) -> float:
        return float(trace["output"].sum())  # type: ignore[index]

    sums = model.patch_sweep(CLEAN, CORRUPTED, output, target=target)
    patch = PatchActivation(layer, clean, positions=5)
    patched = model.trace(CORRUPTED, target=target, edits=[patch])
    assert sums.values[1, 5] == output(patched)
    assert sums.metric == "output"
    same = [i for i, (a, b) in enumerate(zip(CLEAN, CORRUPTED, strict=True)) if a == b]
    if name == "decoder":  # nothing before the first difference sees it
        np.testing.assert_array_equal(sweep.recovered[:, same[:4]], 0)
        # The last position of the last layer decides alone.
        assert sweep.recovered[-1, -1] == 1.0


def test_equal_texts_recover_nothing_and_say_so() -> None:
    sweep = box("decoder").patch_sweep(CLEAN, CLEAN)
    assert np.isnan(sweep.recovered).all()
    assert "do not differ" in repr(sweep)


def test_parts_and_heads_are_swept_too() -> None:
    model = box("translator")
    sweep = model.patch_sweep(CLEAN, CORRUPTED, part="heads", target="a big")
    assert sweep.values.shape == (2, 3)
    assert sweep.labels == ("head 0", "head 1", "head 2")
    sweep = model.patch_sweep(CLEAN, CORRUPTED, part="cross", target="a big", positions=[0, -1])
    assert sweep.names == ("decoder.0.cross.output", "decoder.1.cross.output")
    assert sweep.columns == (0, len(model.trace(CLEAN, target="a big").tokens["target"]) - 1)
    sweep = model.patch_sweep(CLEAN, CORRUPTED, part="feed_forward", side="decoder", target="a")
    assert sweep.names[0] == "decoder.0.feed_forward.down"
    assert PATCH_PARTS == PARTS


def test_an_answer_can_be_named() -> None:
    judge = box("classifier")
    sweep = judge.patch_sweep(CLEAN, CORRUPTED, answer="b", against="c")
    logits = judge.trace(CLEAN)["output"][0]
    assert sweep.clean == pytest.approx(float(logits[1] - logits[2]))
    assert sweep.metric == "logit difference “b” − “c”"
    writer = box("decoder")
    assert "“g” − “t”" in writer.patch_sweep(CLEAN, CORRUPTED, answer="g", against="t").metric


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"corrupted": "a dog"}, "the clean text has 11 tokens and the corrupted one 5"),
        ({"part": "residul"}, 'did you mean "residual"'),
        ({"part": "cross"}, 'part="cross" does not suit'),
        ({"part": "heads", "positions": [1]}, "leave positions out"),
        ({"positions": [99]}, "position 99 does not exist; the text has positions 0 to 10"),
        ({"side": "encoder"}, "this model has no encoder; it has decoder"),
        ({"answer": "g", "against": "g"}, "are both “g”"),
        ({"metric": len, "answer": "g"}, "leave metric out"),
    ],
)
def test_a_sweep_that_cannot_be_made_says_why(arguments: dict[str, object], message: str) -> None:
    arguments = {"clean": CLEAN, "corrupted": CORRUPTED} | arguments
    with pytest.raises(UsageError, match=message):
        box("decoder").patch_sweep(**arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize("suffix", [".png", ".svg", ".pdf"])
def test_a_sweep_is_drawn_the_same_each_time(tmp_path: Path, suffix: str) -> None:
    sweep = box("decoder").patch_sweep(CLEAN, CORRUPTED)
    sweep.draw(tmp_path / f"one{suffix}")
    sweep.draw(tmp_path / f"two{suffix}")
    picture = (tmp_path / f"one{suffix}").read_bytes()
    assert picture == (tmp_path / f"two{suffix}").read_bytes()
    if suffix == ".svg":
        assert "clean" in picture.decode()
    html = sweep._repr_html_()
    assert html.count("<tr>") == 3
    assert "decoder.1" in html


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("models")
    for name in ("decoder", "translator"):
        box(name).bundle.save(path / name)
    return path


def test_the_command_sweeps_as_python_does(qkv: Callable, folder: Path, tmp_path: Path) -> None:
    command = ["explain", CORRUPTED, "--model", folder / "decoder", "--patch-from", CLEAN]
    code, out, err = qkv(*command, "--patch-sweep", "residual", "--json")
    assert (code, err) == (0, "")
    expected = package.load(folder / "decoder").patch_sweep(CLEAN, CORRUPTED).json()
    document = json.loads(out)
    assert list(document) == list(expected)
    np.testing.assert_allclose(document["values"], expected["values"], atol=1e-6)
    code, out, _ = qkv(*command, "--patch-sweep", "heads", "--token", "g", "--against", "t")
    assert code == 0
    assert "metric: logit difference “g” − “t”" in out
    assert "head 2" in out
    code, _, err = qkv(*command, "--patch-sweep", "residual", "-o", tmp_path / "sweep.png")
    assert (code, err) == (0, f"wrote {tmp_path / 'sweep.png'}\n")
    assert (tmp_path / "sweep.png").stat().st_size > 1000


def test_the_first_difference_is_the_same_on_the_command_line_and_in_python(
    qkv: Callable, folder: Path
) -> None:
    """Also where the command shows another layer than the one that is edited."""
    model = package.load(folder / "decoder")
    edit = AblateHead("decoder", 1, 2)
    before = model.trace(CORRUPTED)
    first = compare_traces(before, model.trace(CORRUPTED, edits=[edit])).first
    assert first == "decoder.1.attention.mixed"
    assert model.what_if(CORRUPTED, [edit]).first == first
    command = ["explain", CORRUPTED, "--model", folder / "decoder", "--json"]
    for layer in ("0", "1"):
        code, out, _ = qkv(*command, "--head-off", "1.2", "--layer", layer)
        assert code == 0
        assert json.loads(out)["changed"]["first"] == first


def test_the_command_patches_ablates_and_steers(
    qkv: Callable, folder: Path, tmp_path: Path
) -> None:
    model = package.load(folder / "decoder")
    np.save(tmp_path / "v.npy", np.ones(12, np.float32))
    command = ["explain", CORRUPTED, "--model", folder / "decoder", "--json"]
    options = ["--patch", "decoder.0@4-6,-1", "--patch-from", CLEAN]
    options += ["--ablate", "decoder.1.attention.output@2=mean", "--ablate", "embedding@0"]
    options += ["--steer", f"decoder.1=2.5*{tmp_path / 'v.npy'}"]
    code, out, err = qkv(*command, *options)
    assert (code, err) == (0, "")
    changed = json.loads(out)["changed"]
    assert changed["edits"] == [
        f"decoder.0, positions 4, 5, 6, -1 from “{CLEAN}”",
        "decoder.1.attention.output, position 2 = mean",
        "embedding, position 0 = 0",
        "decoder.1 + 2.5 × vector",
    ]
    assert changed["first"] == "embedding"
    # Everything from the clean text: the answers of the corrupted one become the clean ones.
    code, out, _ = qkv(*command, "--patch", "decoder.1", "--patch-from", CLEAN)
    answers = json.loads(out)["changed"]["answers"]
    probs = model.trace(CLEAN)["probabilities"][0, -1]
    names = [model.tokenizer.token(id) for id in range(TOKENIZER.vocab_size)]
    for answer in answers:
        assert answer["after"] == pytest.approx(float(probs[names.index(answer["name"])]), abs=1e-6)


def test_a_translator_is_patched_at_its_source(qkv: Callable, folder: Path) -> None:
    command = ["explain", CORRUPTED, "--model", folder / "translator", "--target", "a", "--json"]
    code, out, _ = qkv(*command, "--patch", "encoder.1@4", "--patch-from", CLEAN)
    assert code == 0
    assert json.loads(out)["changed"]["first"] == "encoder.1.feed_forward_join"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--head-off", "9.9"], "--head-off 9.9 does not exist; the decoder has layers 0 to 1 and"),
        (["--head-off", "0.3"], "heads 0 to 2"),
        (["--patch", "decoder.0"], "add --patch-from TEXT"),
        (["--patch-from", CLEAN], "add --patch NAME"),
        (["--patch-sweep", "residual"], "add --patch-from TEXT"),
        (["--ablate", "decoder.0@x"], "positions are written as"),
        (["--ablate", "decoder.0@5-2"], "empty span"),
        (["--ablate", "decoder.0=men"], "=zero or =mean"),
        (["--ablate", "decoder.7"], "unknown value"),
        (["--ablate", "decoder.0@99"], "position 99 does not exist"),
        (["--steer", "decoder.0"], "NAME=FILE"),
        (["--steer", "decoder.0=nowhere.npy"], "cannot read nowhere.npy"),
        (["--steer", "decoder.0=x*nowhere.npy"], "is not a number"),
        (["--patch-sweep", "residual", "--patch-from", CLEAN, "-o", "s.html"], "draws a picture"),
        (["--patch-sweep", "no", "--patch-from", CLEAN], "unknown part"),
        (["--patch-sweep", "heads", "--patch-from", CLEAN, "--replace", "1=a"], "its own edits"),
        (["--why", "--ablate", "decoder.0"], "leave --ablate out"),
        (["--token", "a"], "is for --why"),
    ],
)
def test_what_is_asked_wrongly_is_explained_in_one_line(
    qkv: Callable, folder: Path, options: list[str], message: str
) -> None:
    code, out, err = qkv("explain", CORRUPTED, "--model", folder / "decoder", *options)
    assert (code, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1
