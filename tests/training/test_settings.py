"""Settings: written as a.b=c or in a file, laid over a recipe, and every mistake one clear line."""

from pathlib import Path

import pytest
from tests.training.tiny_runs import args_for, data_for

from qkv.errors import QkvError
from qkv.training.prepare import prepare
from qkv.training.recipe import (
    Recipe,
    check_names,
    make_recipe,
    overlay,
    read_recipe,
    read_settings,
    spread_to_stacks,
)


def test_values_are_read_as_in_toml_and_plain_text_needs_no_quotes() -> None:
    said = [
        "optimizer.lr=0.01",
        "optimizer.kind=adamw",
        "steps=7",
        "compile=true",
        'data.text="a=b"',
        "data.files=['x.txt', 'y.txt']",
        "model.decoder.width = 32",
    ]
    assert read_settings(said) == {
        "optimizer": {"lr": 0.01, "kind": "adamw"},
        "steps": 7,
        "compile": True,
        "data": {"text": "a=b", "files": ["x.txt", "y.txt"]},
        "model": {"decoder": {"width": 32}},
    }


def test_the_last_of_two_is_meant() -> None:
    assert read_settings(["steps=7", "steps=8"]) == {"steps": 8}


@pytest.mark.parametrize("said", ["steps", "=7", "", "optimizer.lr"])
def test_what_sets_nothing_is_refused(said: str) -> None:
    with pytest.raises(QkvError, match="sets nothing; write it as in"):
        read_settings([said])


@pytest.mark.parametrize("said", [["optimizer=adamw", "optimizer.lr=1"], ["steps=5", "steps.x=1"]])
def test_a_value_and_a_group_of_the_same_name_are_refused(said: list[str]) -> None:
    with pytest.raises(QkvError, match=said[1].partition("=")[0]):
        read_settings(said)


def test_what_is_laid_over_takes_its_place_and_the_rest_stays() -> None:
    base = {"steps": 5, "optimizer": {"kind": "muon", "lr": 1.0, "weight_decay": 2.0}}
    over = overlay(base, {"optimizer": {"lr": 3.0}, "seed": 4})
    assert over == {
        "steps": 5,
        "optimizer": {"kind": "muon", "lr": 3.0, "weight_decay": 2.0},
        "seed": 4,
    }
    assert base["optimizer"] == {"kind": "muon", "lr": 1.0, "weight_decay": 2.0}


def test_another_kind_replaces_the_old_one_whole() -> None:
    base = {"optimizer": {"kind": "muon", "matrix_lr": 1.0}}
    assert overlay(base, {"optimizer": {"kind": "adamw"}}) == {"optimizer": {"kind": "adamw"}}
    same = overlay(base, {"optimizer": {"kind": "muon", "lr": 2.0}})
    assert same == {"optimizer": {"kind": "muon", "matrix_lr": 1.0, "lr": 2.0}}


def test_a_group_is_not_replaced_by_a_single_value() -> None:
    with pytest.raises(QkvError, match="optimizer"):
        overlay({"optimizer": {"kind": "muon"}}, {"optimizer": "adamw"})


def test_what_is_said_of_the_model_is_said_of_every_stack() -> None:
    both = {"kind": "encoder_decoder", "encoder": {}, "decoder": {}, "length": 5}
    said = {"width": 32, "length": 7, "decoder": {"layers": 3}}
    assert spread_to_stacks(both, said) == {
        "encoder": {"width": 32},
        "decoder": {"width": 32, "layers": 3},
        "length": 7,
    }
    assert spread_to_stacks({"encoder": {}}, {"width": 32}) == {"encoder": {"width": 32}}


def test_what_is_said_last_of_a_stack_counts() -> None:
    both, all_of_it, one = {"encoder": {}, "decoder": {}}, {"width": 32}, {"decoder": {"width": 16}}
    found = spread_to_stacks(both, {**all_of_it, **one})
    assert found == {"encoder": {"width": 32}, "decoder": {"width": 16}}
    found = spread_to_stacks(both, {**one, **all_of_it})
    assert found == {"encoder": {"width": 32}, "decoder": {"width": 32}}


def test_one_setting_of_a_part_leaves_the_others_of_that_part() -> None:
    said = {
        "encoder": {"attention": {"kind": "multi_head", "bias": True}},
        "attention": {"heads": 3},
    }
    found = spread_to_stacks({"encoder": {}}, said)
    assert found == {"encoder": {"attention": {"kind": "multi_head", "bias": True, "heads": 3}}}


@pytest.mark.parametrize(
    ("job", "stacks"),
    [
        ("language", ("decoder",)),
        ("masked", ("encoder",)),
        ("classify", ("encoder",)),
        ("translate", ("encoder", "decoder")),
        ("embed", ("encoder",)),
    ],
)
def test_the_width_of_a_model_is_that_of_its_stacks(
    job: str, stacks: tuple[str, ...], tmp_path: Path
) -> None:
    said = read_settings(["model.width=24", "model.layers=3", "model.attention.heads=3"])
    recipe = prepare(args_for(job, data_for(job, tmp_path), settings=said)).recipe
    for name in stacks:
        stack = getattr(recipe.model, name)
        assert (stack.width, stack.layers, stack.attention.heads) == (24, 3, 3)


@pytest.mark.parametrize(
    ("said", "answer"),
    [
        ("stepz=5", 'unknown setting "stepz"; did you mean "steps"?'),
        ("optimizer.l=5", 'did you mean "lr"?'),
        ("optimizer.kind=sgd", 'unknown kind "sgd"'),
        ("optimizer=adamw", "optimizer"),
        ("schedule.kind=cosin", 'did you mean "cosine"?'),
        ("model.widht=32", "widht"),
        ("model.width=wide", "width"),
        ("model.width=15", "width=15"),
        ("model=3", "model"),
        ("model.embedding=3", "embedding"),
        ("task.kind=classify", "the settings are for classify, but the job is language"),
        ("task=3", "task"),
        ("task.smothing=0.1", "smothing"),
        ("tokens=3", "tokens"),
        ("tokens.knid=bpe", "knid"),
        ("tokens.kind=bpee", 'did you mean "bpe"?'),
        ("tokens.vocab_size=few", "vocab_size"),
        ("data=3", "data"),
        ("data.txet=body", 'did you mean "text"?'),
        ("data.validation_fraction=2", "validation_fraction"),
        ("from_=somewhere", "from_"),
        ("steps=many", "steps"),
        ("steps=0", "steps"),
        ("steps.x=1", "steps"),
        ("batch=-1", "batch"),
        ("ema=1.0", "ema"),
        ("seed=-1", "seed"),
        ("seed=[1]", "seed"),
        ("patience=half", "patience"),
        ("evaluate_every=0", "evaluate_every"),
    ],
)
def test_a_setting_that_cannot_be_is_one_clear_line(said: str, answer: str, tmp_path: Path) -> None:
    data, settings = data_for("language", tmp_path), read_settings([said])
    args = args_for("language", data, None, vocab_size=None, settings=settings)
    with pytest.raises(QkvError) as caught:
        prepare(args)
    says = str(caught.value)
    assert answer in says
    assert "\n" not in says
    assert len(says) < 400


def test_a_misspelt_section_is_said_before_any_work_is_done() -> None:
    with pytest.raises(QkvError, match='unknown setting "optimzer"; did you mean "optimizer"'):
        check_names({"optimzer": {}})


def test_a_recipe_is_read_back_as_it_was(tmp_path: Path) -> None:
    recipe = prepare(args_for("classify", data_for("classify", tmp_path))).recipe
    assert read_recipe(recipe.toml()) == recipe


@pytest.mark.parametrize(
    ("text", "answer"),
    [("steps = ", "not valid TOML"), ("steps = 5", "Recipe"), ("nonsense = 5", "nonsense")],
)
def test_a_recipe_that_is_none_is_one_clear_line(text: str, answer: str) -> None:
    with pytest.raises(QkvError, match=answer) as caught:
        read_recipe(text)
    assert "\n" not in str(caught.value)


def test_every_part_of_a_recipe_can_be_set(tmp_path: Path) -> None:
    data = data_for("language", tmp_path)
    said = [
        "grad_clip=0.5",
        "accumulate=3",
        "ema=0.5",
        "patience=2",
        "activation_checkpointing=true",
        "seed=3",
    ]
    said += ["schedule.kind=cosine", "schedule.floor=0.2", "task.label_smoothing=0.1", "batch=48"]
    said += [
        "evaluate_every=5",
        "steps=11",
        "data.validation_fraction=0.2",
        "tokens.kind=characters",
    ]
    args = args_for("language", data, None, vocab_size=None, settings=read_settings(said))
    recipe = prepare(args).recipe
    assert isinstance(recipe, Recipe)
    assert make_recipe(recipe.model_dump()) == recipe
    got = recipe.model_dump()
    assert got["schedule"]["floor"] == 0.2
    assert got["tokens"]["kind"] == "characters"
    for name, value in read_settings(said).items():
        if not isinstance(value, dict):
            assert got[name] == value


@pytest.mark.parametrize("budget", [{"epochs": 3.0}, {"tokens": 5000}])
def test_what_is_set_is_not_overruled_by_a_budget(budget: dict[str, float], tmp_path: Path) -> None:
    args = args_for(
        "language", data_for("language", tmp_path), None, settings={"evaluate_every": 2}, **budget
    )
    assert prepare(args).recipe.evaluate_every == 2
