"""From a args to a whole run: budgets become steps, and a recipe repeats its run bit for bit."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.training.tiny_runs import (
    JOBS,
    args_for,
    data_for,
    fingerprint,
    labelled,
    trained,
    whole,
    written,
)

from qkv.checkpoints.save import choose_format
from qkv.errors import QkvError
from qkv.model import preset
from qkv.training.prepare import TrainArgs, prepare
from qkv.training.recipe import evaluation_interval, read_settings, read_toml
from qkv.training.run_directory import METRICS, RECIPE, append_metrics
from qkv.training.tasks.task import DataModule
from qkv.training.tasks.text_stream import Corpus, TokenStreams


def repeated(place: Path, **said: object) -> TrainArgs:
    """Nothing but that recipe, as `--config recipe.toml` says it."""
    settings = read_toml((place / RECIPE).read_text("utf-8"))
    return TrainArgs(settings["task"]["kind"], settings={**settings, **said})


@pytest.mark.parametrize("job", JOBS)
def test_the_recipe_of_a_run_repeats_it_bit_for_bit(job: str, tmp_path: Path) -> None:
    settings = {"ema": 0.9, "accumulate": 2, "task": {}}
    data = data_for(job, tmp_path)
    first = whole(tmp_path / "first", args_for(job, data, settings=settings))
    second = whole(tmp_path / "second", repeated(tmp_path / "first"))
    assert second.recipe == first.recipe
    assert fingerprint(second) == fingerprint(first)


def test_the_recipe_of_a_model_that_is_not_ours_repeats_it_too(tmp_path: Path) -> None:
    """What such a model does not have, our own would have by default."""
    small = {"width": 24, "layers": 1, "feed_forward": {"width": 40}}
    args = args_for("language", data_for("language", tmp_path), 2, settings={"model": small})
    first = prepare(replace(args, preset="gpt2"))
    (tmp_path / RECIPE).write_text(first.recipe.toml(), encoding="utf-8")
    assert prepare(repeated(tmp_path)).recipe == first.recipe


def test_the_recipe_of_a_run_that_went_on_from_another_repeats_it(tmp_path: Path) -> None:
    data = data_for("classify", tmp_path)
    origin = trained(tmp_path / "origin", args_for("classify", data, 2))
    args = args_for("classify", data, 3, vocab_size=None, from_=origin, freeze=True)
    first = whole(tmp_path / "first", args)
    second = whole(tmp_path / "second", repeated(tmp_path / "first"))
    assert second.recipe == first.recipe
    assert fingerprint(second) == fingerprint(first)


def test_one_thing_of_a_recipe_can_be_changed(tmp_path: Path) -> None:
    args = args_for("language", data_for("language", tmp_path))
    first = prepare(args).recipe
    (tmp_path / RECIPE).write_text(first.toml(), encoding="utf-8")
    second = prepare(repeated(tmp_path, steps=7)).recipe
    assert second == first.model_copy(update={"steps": 7})


@pytest.mark.parametrize("job", JOBS)
def test_a_recipe_is_repeated_with_another_seed(job: str, tmp_path: Path) -> None:
    """Other examples are held out then; the data is what it was."""
    first = prepare(args_for(job, data_for(job, tmp_path))).recipe
    (tmp_path / RECIPE).write_text(first.toml(), encoding="utf-8")
    second = prepare(repeated(tmp_path, seed=6)).recipe
    assert second.model_copy(update={"seed": 5}) == first


@pytest.mark.parametrize("job", JOBS)
def test_a_recipe_whose_data_has_changed_is_refused(job: str, tmp_path: Path) -> None:
    first = prepare(args_for(job, data_for(job, tmp_path / "data"))).recipe
    (tmp_path / RECIPE).write_text(first.toml(), encoding="utf-8")
    (path,) = (tmp_path / "data").iterdir()
    path.write_text(path.read_text().replace("cat", "cow", 1))
    with pytest.raises(QkvError, match="the data is not what the recipe was made for"):
        prepare(repeated(tmp_path))


@pytest.mark.parametrize("job", JOBS)
@pytest.mark.parametrize("share", [0.1, 0.4])
def test_another_share_held_out_is_another_run_though_the_cache_is_the_same(
    job: str, share: float, tmp_path: Path
) -> None:
    """Bytes are the same tokens whatever they are learnt from."""
    data = data_for(job, tmp_path).model_copy(update={"validation_fraction": share})
    data_module = prepare(args_for(job, data, tokenizer="bytes", context_length=90)).data_module
    facts = dict(data_module.facts)
    if job in ("language", "masked"):
        held_out, training = (
            int(facts[f"{part} tokens"].replace(",", "")) for part in ("validation", "training")
        )
        assert held_out / (held_out + training) == pytest.approx(share, abs=0.05)
    else:
        assert int(facts["validation examples"]) == pytest.approx(47 * share, abs=1)
        in_epoch = sum(len(batch) for batch in data_module.batch_indices(0))
        assert in_epoch == int(facts["training examples"]) == 47 - int(facts["validation examples"])


@pytest.mark.parametrize("job", JOBS)
@pytest.mark.parametrize("epochs", [0.5, 1.0, 3.0])
def test_epochs_become_steps(job: str, epochs: float, tmp_path: Path) -> None:
    prepared = prepare(args_for(job, data_for(job, tmp_path), None, epochs=epochs))
    steps = round(epochs * len(prepared.data_module.batch_indices(0)))
    assert prepared.recipe.steps == steps
    assert prepared.recipe.evaluate_every == evaluation_interval(steps)


@pytest.mark.parametrize("job", JOBS)
def test_in_one_epoch_every_example_is_read_once(job: str, tmp_path: Path) -> None:
    """Of running text, what does not fill a batch of windows is left out until the next epoch."""
    data_module = prepare(args_for(job, data_for(job, tmp_path))).data_module
    read = [
        int(number)
        for batch in data_module.batch_indices(0)
        for number in batch.reshape(len(batch), -1)[:, 0]
    ]
    assert len(set(read)) == len(read)
    if job not in ("language", "masked"):
        assert sorted(read) == list(range(int(dict(data_module.facts)["training examples"])))


@pytest.mark.parametrize("job", JOBS)
def test_a_budget_of_tokens_is_about_what_is_read(job: str, tmp_path: Path) -> None:
    data, to_the_end = data_for(job, tmp_path), {"patience": 0}
    run = whole(tmp_path / "run", args_for(job, data, None, tokens=1500, settings=to_the_end))
    assert run.progress.tokens == pytest.approx(1500, rel=0.25)


def test_steps_are_ten_evaluations_apart() -> None:
    assert [evaluation_interval(steps) for steps in (1, 9, 10, 19, 1000)] == [1, 1, 1, 1, 100]


def test_batches_of_windows_are_whole_unless_there_is_only_one(tmp_path: Path) -> None:
    data = data_for("language", tmp_path)
    prepared = prepare(args_for("language", data, batch=16 * 7))
    order = prepared.data_module.batch_indices(0)
    assert {len(batch) for batch in order} == {7}
    few = TokenStreams(Corpus(data, 5), prepared.tokenizer, prepared.recipe.model_copy(
        update={"batch": 16 * 10_000}
    ))  # fmt: skip
    assert len(few.batch_indices(0)) == 1
    assert len(few.batch_indices(0)[0]) == (len(few.train.ids) - 1) // 16


def test_what_is_not_said_is_the_jobs_own_choice(tmp_path: Path) -> None:
    recipe = prepare(TrainArgs("translate", data_for("translate", tmp_path), size="tiny")).recipe
    assert recipe.ema == 0.996
    assert recipe.batch == 128  # few pairs, small steps
    assert recipe.optimizer.kind == "muon"
    config = preset("translate-tiny")
    assert recipe.model.length == config.length
    assert recipe.model.embedding.vocabulary <= config.embedding.vocabulary


def test_a_model_of_letters_sees_few_of_them_unless_it_is_told(tmp_path: Path) -> None:
    data = data_for("language", tmp_path)
    for context, length in ((None, 128), (37, 37)):
        args = TrainArgs(
            "language", data, size="tiny", tokenizer="characters", context_length=context
        )
        assert prepare(args).recipe.model.length == length


@pytest.mark.parametrize(
    ("changes", "answer"),
    [
        ({"size": "smal"}, 'unknown size "smal"; did you mean "small"?'),
        ({"preset": "gpt3"}, 'unknown preset "gpt3"; did you mean "gpt2"?'),
        ({"preset": "classify-tiny"}, "language needs a decoder"),
        ({"tokenizer": "bpee"}, 'unknown tokenizer "bpee"; did you mean "bpe"?'),
        ({"optimizer": "sgd"}, 'unknown optimizer "sgd"'),
        ({"freeze": True}, "freeze=True is for classify, not for language"),
        ({"job": "langauge"}, 'unknown job "langauge"; did you mean "language"?'),
        ({"vocab_size": 7}, "vocab_size=7 is too small"),
        ({"context_length": 10_000}, "one window needs 10001"),
    ],
)
def test_a_wish_that_cannot_be_is_one_clear_line(
    changes: dict[str, object], answer: str, tmp_path: Path
) -> None:
    args = replace(args_for("language", data_for("language", tmp_path)), **changes)
    with pytest.raises(QkvError) as caught:
        prepare(args)
    assert answer in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("job", "preset_name", "answer"),
    [
        ("classify", "gpt2", "classify needs an encoder"),
        ("masked", "t5-small", "masked needs an encoder"),
        ("embed", "language-tiny", "embed needs an encoder"),
        ("translate", "bert-base", "translate needs an encoder–decoder"),
    ],
)
def test_a_model_of_another_family_is_refused(
    job: str, preset_name: str, answer: str, tmp_path: Path
) -> None:
    with pytest.raises(QkvError, match=answer):
        prepare(replace(args_for(job, data_for(job, tmp_path)), preset=preset_name))


def test_balance_makes_rare_labels_count_for_more(tmp_path: Path) -> None:
    """Nine texts of a and three of b: 1/√9 and 1/√3, so that a text counts 1 on average."""
    data = written(tmp_path / "texts.csv", labelled(12, "aaab"))
    held_out = written(tmp_path / "more.csv", labelled(4, "ab", seed=1)).files
    data = data.model_copy(update={"validation": held_out})

    def weights(balance: float) -> list[float]:
        settings = {"task": {"balance": balance}}
        return prepare(args_for("classify", data, settings=settings)).data_module.weights.tolist()  # type: ignore[attr-defined]

    root = 3**0.5
    assert weights(0.0) == pytest.approx([1.0, 1.0])
    assert weights(1.0) == pytest.approx([12 / 2 / 9, 12 / 2 / 3])
    assert weights(0.5) == pytest.approx([12 / (3 + root) / 3, 12 / (3 + root) / root])


def test_blanked_texts_are_hidden_in_part_and_drawn_from_the_step(tmp_path: Path) -> None:
    settings = {"task": {"word_dropout": 0.5}}
    prepared = prepare(args_for("classify", data_for("classify", tmp_path), settings=settings))
    numbers = prepared.data_module.batch_indices(0)[0]
    one, same, other = (
        prepared.data_module.batch(numbers, np.random.default_rng(seed)).texts.ids  # type: ignore[attr-defined]
        for seed in (0, 0, 1)
    )
    assert torch.equal(one, same)
    assert not torch.equal(one, other)
    assert 0.2 < float((one == prepared.tokenizer.mask_id).float().mean()) < 0.8


@pytest.mark.parametrize("kind", ["bpe", "wordpiece"])
@pytest.mark.parametrize("job", ["classify", "translate"])
def test_with_noise_an_epoch_has_tokens_and_batches_of_its_own(
    job: str, kind: str, tmp_path: Path
) -> None:
    """Two lessons are asked for the epochs in another order; what they say is the same."""
    noisy, data = {"tokens": {"bpe_dropout": 0.5}}, data_for(job, tmp_path)
    args = args_for(job, data, tokenizer=kind, vocab_size=320, settings=noisy)
    one, other, plain = (prepare(w).data_module for w in (args, args, replace(args, settings={})))
    ways = [_texts(one, epoch) for epoch in (0, 1)]
    assert ways[0] != ways[1]
    assert [_texts(other, epoch) for epoch in (1, 0)] == ways[::-1]
    assert ways[0].keys() == ways[1].keys() == _texts(plain, 0).keys()
    assert _texts(plain, 0) == _texts(plain, 1) != ways[0]
    told, before = dict(one.facts), dict(plain.facts)  # what the first epoch reads is counted
    assert told["training examples"] == before["training examples"]
    assert int(told["steps per epoch"]) == len(one.batch_indices(0))
    assert int(told["tokens per epoch"]) > int(before["tokens per epoch"])


def _texts(data_module: DataModule, epoch: int) -> dict[int, tuple[tuple[int, ...], ...]]:
    """Every training example of that epoch, on all its sides, without the padding."""
    found = {}
    for numbers in data_module.batch_indices(epoch):
        batch: Any = data_module.batch(numbers, np.random.default_rng(0), epoch)
        sides = [batch.texts] if hasattr(batch, "texts") else [batch.source, batch.decoder_input]
        rows = [[tuple(filter(None, row)) for row in side.ids.tolist()] for side in sides]  # 0: pad
        found |= dict(zip(numbers.tolist(), zip(*rows, strict=True), strict=True))
    return found


@pytest.mark.parametrize(
    ("job", "changes", "answer"),
    [
        ("language", {}, "tokens.bpe_dropout is for classify and translate, not for language"),
        ("masked", {}, "tokens.bpe_dropout is for classify and translate, not for masked"),
        ("embed", {}, "tokens.bpe_dropout is for classify and translate, not for embed"),
        ("translate", {"tokenizer": "unigram"}, "not for unigram; leave it out"),
        ("classify", {"tokenizer": "characters"}, "not for characters; leave it out"),
        (
            "classify",
            {"settings": {"tokens": {"bpe_dropout": 1.0}}},
            "bpe_dropout=1.0: Input should be less",
        ),
        (
            "classify",
            {"settings": {"tokens": {"bpe_dropout": -0.1}}},
            "bpe_dropout=-0.1: Input should be",
        ),
        ("classify", {"settings": {"tokens": {"bpe_dropout": "some"}}}, "bpe_dropout='some'"),
    ],
)
def test_noise_where_there_can_be_none_is_one_clear_line(
    job: str, changes: dict[str, object], answer: str, tmp_path: Path
) -> None:
    args = args_for(job, data_for(job, tmp_path), settings={"tokens": {"bpe_dropout": 0.1}})
    with pytest.raises(QkvError) as caught:
        prepare(replace(args, **changes))
    assert answer in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_model_that_goes_on_learning_can_have_noise_unless_it_is_frozen(tmp_path: Path) -> None:
    data, noisy = data_for("classify", tmp_path), {"tokens": {"bpe_dropout": 0.3}}
    origin = trained(tmp_path / "origin", args_for("classify", data, 2))
    args = args_for("classify", data, 3, vocab_size=None, from_=origin, settings=noisy)
    first = whole(tmp_path / "first", args)
    second = whole(tmp_path / "second", repeated(tmp_path / "first"))
    assert second.recipe == first.recipe
    assert first.recipe.bpe_dropout == 0.3
    assert fingerprint(second) == fingerprint(first)
    with pytest.raises(QkvError, match=r"tokens\.bpe_dropout is not for freeze=True"):
        prepare(replace(args, freeze=True))
    with pytest.raises(QkvError, match="the tokenizer is that of the bundle"):
        prepare(replace(args, settings={"tokens": {"bpe_dropout": 0.3, "kind": "bpe"}}))


def test_labels_have_the_order_of_numbers_and_then_of_words(tmp_path: Path) -> None:
    names = ["10", "9", "nan", "inf", "b", "Infinity", "-1", "a"]
    rows = [f"text number {i} {j},{name}" for i in range(3) for j, name in enumerate(names)]
    data = written(tmp_path / "texts.csv", "\n".join(["text,label", *rows, ""]))
    model = prepare(args_for("classify", data)).recipe.model
    assert model.output.labels == ("-1", "9", "10", "Infinity", "a", "b", "inf", "nan")  # type: ignore[union-attr]


def test_every_label_is_held_out_in_proportion_and_none_is_lost(tmp_path: Path) -> None:
    from qkv.data import read_labelled
    from qkv.training.tasks.classify import split_by_label

    data = written(tmp_path / "texts.csv", labelled(60, "aaab") + "one of a kind,c\n")
    examples = read_labelled([Path(data.files[0])])
    train, held_out = split_by_label(examples, 0, 0.2)
    assert sorted(map(repr, train + held_out)) == sorted(map(repr, examples))
    count = [sum(e.label == label for e in held_out) for label in "abc"]
    assert count == [9, 3, 0]
    assert split_by_label(examples, 0, 0.2) == (train, held_out)
    assert split_by_label(examples, 1, 0.2) != (train, held_out)


def test_the_metrics_of_a_run_are_steps_evaluations_and_a_summary(tmp_path: Path) -> None:
    run = whole(tmp_path / "run", args_for("language", data_for("language", tmp_path), 20))
    run.finish()
    lines = [json.loads(line) for line in (tmp_path / "run" / METRICS).read_text().splitlines()]
    assert [line["step"] for line in lines if "loss" in line] == list(range(1, 21))
    looks = [line for line in lines if "validation" in line]
    assert [line["step"] for line in looks] == list(range(2, 21, 2))
    assert all({"validation", "best", "tokens_seen"} <= line.keys() for line in looks)
    assert "summary" in lines[-1]
    assert sum("summary" in line for line in lines) == 1


def test_few_examples_get_small_steps_and_enough_of_them(tmp_path: Path) -> None:
    recipe = prepare(TrainArgs("classify", data_for("classify", tmp_path), size="tiny")).recipe
    assert recipe.batch == 128
    assert recipe.steps == 200


@pytest.mark.parametrize("option", ["size", "preset"])
def test_a_size_beside_a_whole_model_is_refused(option: str, tmp_path: Path) -> None:
    data = data_for("classify", tmp_path)
    place = trained(tmp_path / "run", args_for("classify", data, 2))
    asked = {option: "tiny" if option == "size" else "classify-tiny"}
    with pytest.raises(QkvError, match=f"that of the bundle; leave {option}={asked[option]!r} out"):
        prepare(replace(TrainArgs("classify", data, from_=place), **asked))
    with pytest.raises(QkvError, match=f"a complete model; leave {option}={asked[option]!r} out"):
        prepare(replace(repeated(place), **asked))


def test_what_is_not_finite_is_written_as_text_so_that_the_metrics_stay_json(
    tmp_path: Path,
) -> None:
    run = whole(tmp_path / "run", args_for("language", data_for("language", tmp_path), 2))
    line = {"step": 2, "loss": float("nan"), "validation": {"loss": float("inf")}}
    append_metrics(run.directory, line)
    text = (tmp_path / "run" / METRICS).read_text().split("\n")[-2]

    def refuse(word: str) -> None:
        raise AssertionError(word)

    fields = json.loads(text, parse_constant=refuse)
    assert fields == {"step": 2, "loss": "nan", "validation": {"loss": "inf"}}


@pytest.mark.parametrize(
    ("job", "preset_name", "settings", "sizes", "model_type"),
    [
        ("language", "llama-15m", ["model.width=96"], (96, 6, 256), "llama"),
        ("language", "llama-15m", ["model.stack.width=100"], (100, 5, 267), "llama"),
        ("language", "gpt2", ["model.width=48"], (48, 12, 192), "gpt2"),
        ("translate", "t5-small", ["model.width=64"], (64, 8, 256), "t5"),
        ("classify", "classify-tiny", ["model.width=96", "model.norm.eps=1"], (96, 2, 384), None),
        ("translate", "translate-tiny", ["model.width=96"], (96, 2, 384), "t5gemma"),
    ],
)
def test_sizes_follow_the_width_so_that_a_public_form_stays_one(
    job: str,
    preset_name: str,
    settings: list[str],
    sizes: tuple[int, int, int],
    model_type: str | None,
    tmp_path: Path,
) -> None:
    args = TrainArgs(
        job,
        data_for(job, tmp_path),
        preset=preset_name,
        context_length=32,
        settings=read_settings(settings),
    )
    model = prepare(args).recipe.model
    stack = getattr(model, "decoder", None) or model.encoder
    assert (stack.width, stack.attention.heads, stack.feed_forward.width) == sizes
    fmt, rewrite = choose_format(model)
    assert fmt.hf_config(rewrite.config)["model_type"] == (model_type or "modernbert")


def test_a_size_that_is_named_does_not_follow(tmp_path: Path) -> None:
    settings = read_settings(["model.width=96", "model.feed_forward.width=40"])
    args = TrainArgs("language", data_for("language", tmp_path), size="tiny", settings=settings)
    assert prepare(args).recipe.model.decoder.feed_forward.width == 40
    settings = read_settings(["model.width=96", "model.attention.heads=5"])
    args = TrainArgs("language", data_for("language", tmp_path), size="tiny", settings=settings)
    with pytest.raises(QkvError, match="heads=5 must divide width=96; nearest widths: 95, 100"):
        prepare(args)
