"""`qkv embed` as a person runs it: lines, JSON, files, and what is said of odd texts and models."""

import io
import json
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tests.kernels.native import needs_int8

from qkv.bundle import Bundle
from qkv.cli.progress import TextProgress, count_lines
from qkv.engine.engine import Engine
from qkv.model import (
    Embedding,
    EncoderOnly,
    MaskedToken,
    MultiHead,
    ReLU,
    Rope,
    Stack,
    TextVector,
    build,
    preset,
)
from qkv.text import Tokenizer

Qkv = Callable[..., tuple[int, str, str]]
TOKENIZER = Tokenizer.train("bytes", ["a"], 300)
TEXTS = ["a dog runs", "", "ein Hund läuft", "tab\tand \u2028 line", "🐕‍🦺 שלום", "\x1b[31mred\x07"]
LONG = "many more letters than thirty-one, which is too long"


def bundle(path: Path, output: object) -> Path:
    stack = Stack(
        layers=1,
        width=12,
        attention=MultiHead(heads=3),
        feed_forward=ReLU(width=17),
        position=Rope(),
    )
    table = Embedding(vocabulary=TOKENIZER.vocab_size)
    config = EncoderOnly(length=31, embedding=table, encoder=stack, output=output)
    Bundle(build(config), TOKENIZER).save(path)
    return path


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return bundle(tmp_path_factory.mktemp("models") / "vectors", TextVector())


def expected_vectors(model: Path, texts: list[str], **options: object) -> np.ndarray:
    return Engine.load(model).embed(texts, **options)


def test_people_see_the_first_numbers_the_size_and_the_text(qkv: Qkv, model: Path) -> None:
    code, out, err = qkv("embed", model, *TEXTS)
    assert (code, err) == (0, "")
    lines = out.split("\n")[:-1]
    assert len(lines) == len(TEXTS)
    numbers = expected_vectors(model, TEXTS)
    for line, text, row in zip(lines, TEXTS, numbers, strict=True):
        numbers_text = " ".join(f"{number:+.4f}" for number in row[:4])
        assert line.startswith(f"{numbers_text} … (12)  ")
        assert len(line) < 120, text
        assert line.isprintable()
    assert lines[1].endswith("''")
    assert lines[5].endswith(r"\x1b[31mred\x07")


def test_json_gives_the_text_and_the_numbers_to_the_last_bit(qkv: Qkv, model: Path) -> None:
    code, out, err = qkv("embed", model, "--json", *TEXTS)
    assert (code, err) == (0, "")
    rows = [json.loads(line) for line in out.split("\n")[:-1]]
    assert [row["text"] for row in rows] == TEXTS
    assert all(row.keys() == {"text", "vector"} for row in rows)
    vectors = np.array([row["vector"] for row in rows], dtype=np.float32)
    assert np.array_equal(vectors, expected_vectors(model, TEXTS))


def test_a_file_and_standard_input_give_the_same_as_arguments(
    qkv: Qkv, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = "".join(f"{text}\n" for text in TEXTS).encode()
    (tmp_path / "texts.txt").write_bytes(content)
    _, expected, _ = qkv("embed", model, "--json", *TEXTS)
    assert qkv("embed", model, "--json", "--file", tmp_path / "texts.txt") == (0, expected, "")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))
    assert qkv("embed", model, "--json") == (0, expected, "")


@needs_int8
def test_in_8_bits_vectors_are_nearly_the_same_and_not_mixed_with_others(
    qkv: Qkv, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("qkv.engine.embed.embedder.BATCH_TEXTS", 2)
    assert qkv("embed", model, *TEXTS, "--int8", "-o", tmp_path / "a.npy")[0] == 0
    cosines = (np.load(tmp_path / "a.npy") * expected_vectors(model, TEXTS)).sum(axis=1)
    assert cosines[[0, 2, 3, 4, 5]].min() > 0.99
    qkv("embed", model, "one", "two", LONG, "-o", tmp_path / "b.npy")
    code, _, err = qkv(
        "embed", model, "one", "two", LONG, "--int8", "-o", tmp_path / "b.npy", "--resume"
    )
    assert code == 2
    assert "begun with int8 False, not True" in err


@pytest.mark.parametrize("raw", [False, True])
def test_a_file_of_vectors(qkv: Qkv, model: Path, tmp_path: Path, raw: bool) -> None:
    option = ["--raw"] if raw else []
    code, out, err = qkv("embed", model, *TEXTS, "-o", tmp_path / "a.npy", *option)
    assert (code, out) == (0, "")
    assert err == f"wrote 6 vectors of 12 numbers to {tmp_path / 'a.npy'}\n"
    assert np.array_equal(np.load(tmp_path / "a.npy"), expected_vectors(model, TEXTS, raw=raw))


def test_interrupted_it_says_how_to_go_on_and_goes_on(
    qkv: Qkv, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("qkv.engine.embed.embedder.BATCH_TEXTS", 2)
    path, texts = tmp_path / "a.npy", tmp_path / "texts.txt"
    texts.write_text("one\ntwo\nthree\nfour\n" + LONG + "\n")
    code, out, err = qkv("embed", model, "--file", texts, "-o", path)
    assert (code, out) == (2, "")
    saved, error = err.split("\n")[:-1]
    assert saved == f"{path}: 4 rows are saved; continue with --resume"
    assert error.startswith("qkv: text 5 has 52 tokens but the model reads at most 31;")
    assert not path.exists()
    resumed = qkv("embed", model, "--file", texts, "-o", path, "--resume", "--long", "truncate")
    assert resumed[0] == 0
    assert resumed[2].split("\n")[0] == ("note: 1 of 5 texts exceed the model's context; truncated")
    assert np.load(path).shape == (5, 12)
    assert [p.name for p in tmp_path.glob("a.npy*")] == ["a.npy"]


def test_another_model_does_not_go_on_with_it(
    qkv: Qkv, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("qkv.engine.embed.embedder.BATCH_TEXTS", 2)
    other = bundle(tmp_path / "other", TextVector(normalize=False))
    qkv("embed", model, "one", "two", LONG, "-o", tmp_path / "a.npy")
    code, _, err = qkv("embed", other, "one", "two", LONG, "-o", tmp_path / "a.npy", "--resume")
    assert code == 2
    assert "a.npy was begun with model " in err
    assert err.count("\n") == 1


@pytest.mark.parametrize("mode", ["truncate", "average"])
def test_long_texts_are_always_told_of(qkv: Qkv, model: Path, mode: str) -> None:
    code, out, err = qkv("embed", model, "short", LONG, "--long", mode)
    assert code == 0
    assert out.count("\n") == 2
    assert err.startswith("note: 1 of 2 texts exceed the model's context; ")
    assert err.count("\n") == 1


def test_a_million_letters_are_one_line_or_one_error(qkv: Qkv, model: Path, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a" * 1_000_000)
    code, out, err = qkv("embed", model, "--file", tmp_path / "a.txt")
    assert (code, out) == (2, "")
    assert err.startswith("qkv: text 1 has 1,000,000 tokens but the model reads at most 31;")
    code, out, _ = qkv("embed", model, "--file", tmp_path / "a.txt", "--long", "truncate")
    assert code == 0
    assert len(out) < 150


MISTAKES = {
    ("a", "--long", "truncat"): 'did you mean "truncate"?',
    ("a", "--resume"): "--resume and --force are for a file; name it with -o",
    ("a", "--force"): "--resume and --force are for a file; name it with -o",
    ("a", "-o", "a.npy", "--json"): "-o and --json exclude each other",
    ("a", "-o", "a.txt"): "a.txt must end in .npy, .parquet, .csv, .tsv, .tab, .jsonl or .xlsx",
    ("a", "-o", "a.csv", "--resume"): "a.csv cannot be resumed; only .npy and .parquet can",
    ("a", "-o", "nowhere/a.npy"): "there is no folder nowhere",
    ("a", "-o", "a.npy", "--resume", "--force"): "--resume and --force exclude each other",
    ("a", "--file", "b.txt"): "texts as arguments and --file exclude each other",
    ("--file", "nowhere.txt"): "there is no file nowhere.txt",
    ("a", "--batch-tokens", "0"): "--batch-tokens",
    ("a\udcff",): "text 1: text holds half a character (U+DCFF) at position 1",
}


@pytest.mark.parametrize("arguments", MISTAKES, ids=" ".join)
def test_a_mistake_is_one_line(
    qkv: Qkv, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, err = qkv("embed", model, *arguments)
    assert (code, out) == (2, "")
    assert MISTAKES[arguments] in err
    assert err.startswith("qkv: ")
    assert err.count("\n") == 1


@pytest.mark.parametrize("content", [b"ok\nbad \xff\n", b"\xff\xfeo\0"])
def test_a_file_that_is_not_utf_8_is_one_line(
    qkv: Qkv, model: Path, tmp_path: Path, content: bytes
) -> None:
    (tmp_path / "a.txt").write_bytes(content)
    code, _, err = qkv("embed", model, "--file", tmp_path / "a.txt")
    assert code == 2
    assert "UTF-" in err
    assert err.count("\n") == 1


def test_a_model_of_another_family_is_told_for_what_it_is(qkv: Qkv, tmp_path: Path) -> None:
    config = preset("language-tiny")
    table = config.embedding.model_copy(update={"vocabulary": TOKENIZER.vocab_size})
    writer = build(config.model_copy(update={"embedding": table}))
    Bundle(writer, TOKENIZER).save(tmp_path / "writer")
    code, out, err = qkv("embed", tmp_path / "writer", "a")
    assert (code, out) == (2, "")
    assert err == (
        "qkv: this model is a decoder, which generates text, so it has no vector for a text; "
        "use qkv generate\n"
    )


def test_vectors_that_were_not_learnt_for_are_told_of(qkv: Qkv, tmp_path: Path) -> None:
    code, out, err = qkv("embed", bundle(tmp_path / "masked", MaskedToken()), "a")
    assert code == 0
    assert out.count("\n") == 1
    assert err.startswith("note: this is a masked-language-model encoder;")


def test_the_pace_is_told_on_plain_lines_only_now_and_then(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = iter([100.0, 101.0, 112.0, 113.0, 124.0])
    monkeypatch.setattr("qkv.cli.progress.time.perf_counter", lambda: next(clock))
    progress = TextProgress(5000)
    for done in (1000, 1100, 2200, 2300, 3400):  # 1,000 were done before
        progress(done)
    progress.end()
    assert capsys.readouterr().err == (
        "2,200 of 5,000 texts  100 texts/s\n3,400 of 5,000 texts  100 texts/s\n"
    )


@pytest.mark.parametrize(
    ("content", "lines"), [(b"", 0), (b"a", 1), (b"a\n", 1), (b"a\n\nb", 3), (b"a\n\n", 2)]
)
def test_the_lines_of_a_file_are_known_before(tmp_path: Path, content: bytes, lines: int) -> None:
    (tmp_path / "a.txt").write_bytes(content)
    assert count_lines(tmp_path / "a.txt") == lines
    assert count_lines(tmp_path) is None
