"""Vectors from bare texts: as good as the teacher, measured without labels, resumed exactly."""

import random
from dataclasses import replace
from pathlib import Path

import pytest
from tests.training.tiny_runs import (
    CPU,
    args_for,
    fingerprint,
    sentences,
    start,
    trained,
    whole,
    written,
)

from qkv.bundle import Bundle
from qkv.errors import DataError, UsageError
from qkv.metrics import LatentSemanticAnalysis, score_clusters
from qkv.text import Tokenizer
from qkv.training.prepare import TrainArgs, prepare, prepare_again
from qkv.training.recipe import read_recipe
from qkv.training.run import RECIPE, Run
from qkv.training.tasks import find_task
from qkv.training.tasks.embed_data import embed_texts
from qkv.training.tasks.encoded_texts import encode_texts

TOPICS = 5
LETTERS = "bdfgklmnprstvz"
COMMON = ("about", "again", "every", "often", "some", "with")


def topical_texts(count: int, seed: int = 0) -> tuple[list[str], list[str]]:
    """Made-up words, each of one topic, among common ones; and the topic of each text."""
    draws = random.Random(seed)
    spelling = random.Random(1)
    words = [
        ["".join(spelling.choices(LETTERS, k=3)) + "aeiou"[topic] for _ in range(12)]
        for topic in range(TOPICS)
    ]
    texts, topics = [], []
    for _ in range(count):
        topic = draws.randrange(TOPICS)
        text = draws.sample(words[topic], 3) + draws.sample(COMMON, 3)
        draws.shuffle(text)
        texts.append(" ".join(text))
        topics.append(f"{topic}")
    return texts, topics


def text_args(folder: Path, steps: int, **settings: object) -> TrainArgs:
    folder.mkdir(parents=True, exist_ok=True)
    texts, _ = topical_texts(300)
    args = args_for("embed", written(folder / "t.txt", "\n".join(texts)), steps, settings=settings)
    return replace(args, batch=600)


def test_from_bare_texts_the_topics_are_as_clear_as_by_lsa(tmp_path: Path) -> None:
    model = {"width": 32, "layers": 1, "dropout": 0.1}
    args = text_args(tmp_path, 60, model=model, evaluate_every=60)
    bundle = Bundle.load(trained(tmp_path / "run", args))
    texts, topics = topical_texts(200, seed=1)
    encoded = encode_texts(texts, bundle.tokenizer, 16)  # type: ignore[arg-type]
    ours = score_clusters(embed_texts(bundle.model, encoded), topics, seed=0)  # type: ignore[arg-type]
    lsa = LatentSemanticAnalysis(topical_texts(300)[0], 32)
    baseline = score_clusters(lsa(texts), topics, seed=0)
    assert ours.v_measure > 0.9
    assert ours.v_measure > baseline.v_measure - 0.05


@pytest.mark.parametrize("stop", [3, 5])
def test_a_run_on_bare_texts_is_resumed_bit_for_bit(tmp_path: Path, stop: int) -> None:
    settings = {"ema": 0.9, "accumulate": 2, "evaluate_every": 4}
    expected = fingerprint(whole(tmp_path / "whole", text_args(tmp_path, 7, **settings)))
    first = start(tmp_path / "run", text_args(tmp_path, 7, **settings))
    for _ in first.events():
        if first.progress.step == stop:
            first.save()
            break
    recipe = read_recipe((tmp_path / "run" / RECIPE).read_text("utf-8"))
    tokenizer = Tokenizer.load(tmp_path / "run" / "tokenizer.json")
    again = Run(prepare_again(recipe, tokenizer), tmp_path / "run", CPU)
    again.resume(print)
    for _ in again.events():
        pass
    assert fingerprint(again) == expected


def test_a_recipe_written_before_there_was_a_teacher_has_none(tmp_path: Path) -> None:
    recipe = prepare(text_args(tmp_path, 3)).recipe
    assert recipe.task.teacher == "lsa"  # type: ignore[union-attr]
    lines = recipe.toml().split("\n")
    new = ("teacher", "token_dropout")
    old = read_recipe("\n".join(line for line in lines if not line.startswith(new)))
    assert old.task.teacher == "none"  # type: ignore[union-attr]
    assert old.task.token_dropout == 0  # type: ignore[union-attr]
    assert prepare_again(
        old, prepare(text_args(tmp_path, 3)).tokenizer
    ).data_module.metric.name == ("loss")


def test_a_pretrained_model_needs_no_teacher(tmp_path: Path) -> None:
    origin = trained(tmp_path / "origin", text_args(tmp_path, 2))
    args = replace(text_args(tmp_path, 3), from_=origin, size=None, vocab_size=None)
    recipe = prepare(replace(args, settings={})).recipe
    assert recipe.task.teacher == "none"  # type: ignore[union-attr]


def test_texts_alone_are_measured_next_to_lsa_of_other_texts(tmp_path: Path) -> None:
    """Texts without any topic: LSA of the very same texts would find their halves."""
    bundle = Bundle.load(trained(tmp_path / "run", text_args(tmp_path, 2)))
    draws = random.Random(3)
    words = ["".join(draws.choices(LETTERS, k=4)) for _ in range(150)]
    lines = [" ".join(draws.sample(words, 6)) for _ in range(120)]
    data = written(tmp_path / "random.txt", "\n".join(lines))
    result = find_task("embed").evaluate(bundle, data, None)
    assert result.examples == 120
    assert result.baseline["halves"] < 0.65
    few = written(tmp_path / "few.txt", "\n".join(lines[:7]))
    with pytest.raises(DataError, match="7 different texts are too few"):
        find_task("embed").evaluate(bundle, few, None)


def test_texts_too_short_for_halves_are_measured_by_their_neighbours(tmp_path: Path) -> None:
    lines = [" ".join(text.split()[:3]) for text in topical_texts(120)[0]]
    data = written(tmp_path / "t.txt", "\n".join(lines))
    module = prepare(args_for("embed", data, 3)).data_module
    assert module.metric.name == "lsa_neighbours"


def test_texts_without_a_word_for_the_teacher_are_refused_in_one_sentence(tmp_path: Path) -> None:
    data = written(tmp_path / "t.txt", "\n".join(["the", "and", "it is", "of them"] * 9))
    with pytest.raises(DataError, match="no words but stop words"):
        prepare(args_for("embed", data, 3))
    settings = {"task": {"teacher": "none"}}
    assert prepare(args_for("embed", data, 3, settings=settings)).data_module.metric.name == "loss"


def test_labelled_texts_and_pairs_have_no_teacher(tmp_path: Path) -> None:
    rows = [f"{text},{text[::-1]}" for text in sentences(30)]
    data = written(tmp_path / "p.csv", "\n".join(rows), source="1", target="2")
    assert prepare(args_for("embed", data)).recipe.task.teacher == "none"  # type: ignore[union-attr]
    with pytest.raises(UsageError, match="is for texts alone, but these have pairs"):
        prepare(args_for("embed", data, settings={"task": {"teacher": "lsa"}}))
