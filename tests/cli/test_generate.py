"""`qkv generate` as a person runs it."""

import io
import json
import sys
from pathlib import Path
from typing import ClassVar

import pytest
import torch
from tests.kernels.native import needs_compiler

from qkv.bundle import Bundle
from qkv.kernels import inference_kernels
from qkv.model import (
    Decoder,
    DecoderOnly,
    Embedding,
    MultiHead,
    NextToken,
    ReLU,
    Rope,
    Stack,
    build,
    preset,
)
from qkv.text import Tokenizer

LETTERS = "abcdefghijklmnopqrstuvwx"


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two models with the same 29 tokens: `large`, and `small`, which is no copy of it."""
    folder = tmp_path_factory.mktemp("writers")
    tokenizer = Tokenizer.train("characters", [LETTERS], 29)
    for seed, name in enumerate(("large", "small")):
        stack = Stack(
            layers=2 - seed, width=12, attention=MultiHead(heads=3),
            feed_forward=ReLU(width=17), position=Rope(),
        )  # fmt: skip
        table, output = Embedding(vocabulary=29, scaled=True), NextToken(tied=False, bias=True)
        config = DecoderOnly(length=61, embedding=table, decoder=stack, output=output)
        model = build(config, seed)
        assert isinstance(model, Decoder)
        with torch.no_grad():
            model.output.weight.mul_(30.0)
            model.output.bias[:] = 0.0
            model.output.bias[:5] = -99.0  # no marks: every answer has its full length
        Bundle(model.eval(), tokenizer).save(folder / name)
    return folder


def test_the_text_and_nothing_else_is_on_standard_output(qkv, models: Path) -> None:
    code, out, err = qkv("generate", models / "large", "cab", "--seed", 5, "--max-tokens", 9)
    assert (code, err) == (0, "")
    assert len(out) == 10
    assert set(out[:-1]) <= set(LETTERS)
    assert qkv("generate", models / "large", "cab", "--seed", 5, "--max-tokens", 9)[1] == out


def test_the_text_appears_as_it_is_written(
    qkv, models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class RecordingStdout(io.StringIO):
        flushes: ClassVar[list[str]] = []

        def flush(self) -> None:
            self.flushes.append(self.getvalue())

    monkeypatch.setattr(sys, "stdout", RecordingStdout())
    qkv("generate", models / "large", "cab", "--seed", 5, "--max-tokens", 9)
    assert [len(text) for text in RecordingStdout.flushes[:9]] == list(range(1, 10))


def test_a_random_seed_is_told_and_gives_the_text_again(qkv, models: Path) -> None:
    _, out, err = qkv("generate", models / "large", "cab", "--max-tokens", 30)
    assert err.startswith("seed ")
    seed = int(err.split()[1])
    again = qkv("generate", models / "large", "cab", "--max-tokens", 30, "--seed", seed)
    assert again == (0, out, "")
    assert qkv("generate", models / "large", "cab", "--temperature", 0)[2] == ""


@pytest.mark.slow
@needs_compiler
def test_compiled_loops_write_the_same(qkv, models: Path) -> None:
    arguments = ("generate", models / "large", "abc", "--seed", "3", "--max-tokens", "6")
    assert qkv(*arguments, "--compile") == qkv(*arguments)


def test_without_a_compiler_it_says_so_before_anything_is_read(
    qkv, models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    monkeypatch.setenv("QKV_CACHE", str(models / "empty"))
    inference_kernels.cache_clear()
    code, out, err = qkv("generate", models / "not there", "abc", "--compile")
    assert (code, out) == (2, "")
    assert "needs a C++ compiler" in err
    assert err.count("\n") == 1


def test_json_has_the_agreed_fields(qkv, models: Path) -> None:
    _, out, _ = qkv("generate", models / "large", "cab", "--json", "--seed", 1, "--max-tokens", 7)
    result = json.loads(out)
    assert list(result) == ["text", "tokens", "logprobs", "stop_reason"]
    assert len(result["tokens"]) == len(result["logprobs"]) == len(result["text"]) == 7
    assert max(result["logprobs"]) <= 0
    assert result["stop_reason"] == "length"


def test_lines_of_a_file_are_answered_in_their_order(qkv, models: Path, tmp_path: Path) -> None:
    lines = ["abc", "x", LETTERS, "", "bcd"]
    (tmp_path / "prompts.txt").write_text("\n".join(lines) + "\n", "utf-8")
    arguments = ("generate", models / "large", "--seed", 3, "--max-tokens", 6)
    code, out, err = qkv(*arguments, "--file", tmp_path / "prompts.txt", "--json")
    assert (code, err) == (0, "")
    result = [json.loads(line) for line in out.splitlines()]
    assert [answer["prompt"] for answer in result] == lines
    for answer in result:
        alone = json.loads(qkv(*arguments, answer["prompt"], "--json")[1])
        assert alone["text"] == answer["text"]
        assert alone["logprobs"] == pytest.approx(answer["logprobs"], abs=1e-4)
    people = qkv(*arguments, "abc", "x")[1]
    assert people == f"{result[0]['text']}\n\n{result[1]['text']}\n"


def test_prompts_come_from_standard_input(
    qkv, models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = ("generate", models / "large", "--temperature", 0, "--max-tokens", 5)
    expected = qkv(*arguments, "abc")[1]
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"abc\n")))
    assert qkv(*arguments) == (0, expected, "")


def test_one_bad_line_is_told_and_the_others_are_answered(
    qkv, models: Path, tmp_path: Path
) -> None:
    (tmp_path / "prompts.txt").write_text(f"abc\n{LETTERS * 3}\nbcd\n", "utf-8")
    arguments = ("generate", models / "large", "--temperature", 0, "--max-tokens", 4)
    code, out, err = qkv(*arguments, "--file", tmp_path / "prompts.txt", "--json")
    assert code == 2
    assert err == (
        "qkv: prompt 2: prompt has 72 tokens but the model reads at most 61; "
        "shorten it or pass --truncate left\n"
    )
    result = [json.loads(line) for line in out.splitlines()]
    assert [list(answer)[1] for answer in result] == ["text", "error", "text"]
    truncated = qkv(*arguments, "--file", tmp_path / "prompts.txt", "--truncate", "left", "--json")
    assert (truncated[0], len(truncated[1].splitlines())) == (0, 3)


def test_several_answers_differ_and_come_again(qkv, models: Path) -> None:
    arguments = ("generate", models / "large", "abc", "--n", 3, "--seed", 2, "--temperature", 2,
             "--max-tokens", 20)  # fmt: skip
    code, out, _ = qkv(*arguments)
    answers = out.rstrip("\n").split("\n\n")
    assert code == 0
    assert len(set(answers)) == 3
    assert qkv(*arguments)[1] == out
    first = qkv("generate", models / "large", "abc", *arguments[5:])[1]
    assert first.rstrip("\n") == answers[0]


def test_text_ends_before_a_stop_text(qkv, models: Path) -> None:
    arguments = ("generate", models / "large", "abc", "--temperature", 0, "--max-tokens", 30)
    full_text = qkv(*arguments)[1].rstrip("\n")
    stop = full_text[11:13]
    _, out, _ = qkv(*arguments, "--stop", "zzz", "--stop", stop, "--json")
    result = json.loads(out)
    assert result["stop_reason"] == "stop"
    assert result["text"] == full_text[: full_text.index(stop)]


def test_log_probabilities_are_shown_token_by_token(qkv, models: Path) -> None:
    arguments = ("generate", models / "large", "abc", "--temperature", 0, "--max-tokens", 6)
    rows = [line.split() for line in qkv(*arguments, "--logprobs")[1].splitlines()]
    result = json.loads(qkv(*arguments, "--json")[1])
    assert "".join(row[1] for row in rows) == result["text"]
    assert [float(row[0]) for row in rows] == pytest.approx(result["logprobs"], abs=1e-4)


@pytest.mark.parametrize("draft", ["ngram", "small", "large"])
def test_a_draft_changes_no_text_and_its_guesses_are_counted(qkv, models: Path, draft: str) -> None:
    arguments = ("generate", models / "large", "abcabc", "--temperature", 0, "--max-tokens", 40)
    name = draft if draft == "ngram" else models / draft
    code, out, err = qkv(*arguments, "--draft", name)
    assert (code, out) == (0, qkv(*arguments)[1])
    assert err.startswith("draft: ")
    if draft == "large":
        assert err.endswith("100%\n")


def test_a_story_from_published_weights(qkv, shared: Path) -> None:
    story = shared / "models" / "stories260K"
    expected = json.loads((story / "stories260K_greedy.json").read_text("utf-8"))
    code, out, _ = qkv("generate", story, "", "--temperature", 0, "--max-tokens", 200)
    assert code == 0
    assert out == expected["text"].removeprefix(" ") + "\n"


MISTAKES = {
    ("cab", "--temperature", "-1"): "--temperature -1 must be 0 (greedy) or above",
    ("cab", "--top-k", "0"): "--top-k 0 must be an integer of 1 or more",
    ("cab", "--top-p", "1.5"): "--top-p 1.5 must be above 0 and at most 1",
    ("cab", "--min-p", "2"): "--min-p 2 must be between 0 and 1",
    ("cab", "--repetition-penalty", "0"): "--repetition-penalty 0 must be above 0",
    ("cab", "--stop", ""): "a stop string is empty",
    ("cab", "--truncate", "right"): 'only "left" is known',
    ("cab", "--system", "Be kind."): "--system is the system prompt of a chat; add --chat",
    ("cab", "--chat"): "has no chat template",
    ("cab", "--max-tokens", "0"): "--max-tokens",
    ("c" * 99, "--n", "3"): "prompt has 99 tokens but the model reads at most 61",
    ("cab", "--max-tokens", "99"): "--max-tokens 99, but the model reads at most 61",
    ("c" * 1_000_000,): "1000000 tokens but the model reads at most 61",
    ("c\udcff",): "half a character",
    ("cab", "--draft", "nowhere"): "nowhere",
}


@pytest.mark.parametrize("arguments", MISTAKES, ids=lambda arguments: " ".join(arguments)[:30])
def test_a_mistake_is_one_line(qkv, models: Path, arguments: tuple[str, ...]) -> None:
    code, out, err = qkv("generate", models / "large", *arguments)
    assert (code, out) == (2, "")
    assert err.startswith("qkv: ")
    assert err.count("\n") == 1
    assert MISTAKES[arguments] in err


def test_a_draft_with_other_tokens_is_refused(qkv, models: Path, tmp_path: Path) -> None:
    other = Bundle.load(models / "small")
    Bundle(other.model, Tokenizer.train("characters", [LETTERS.upper()], 29)).save(tmp_path / "b")
    code, _, err = qkv("generate", models / "large", "cab", "--seed", 1, "--draft", tmp_path / "b")
    assert code == 2
    assert "a draft must share its tokenizer" in err


def test_a_model_that_does_not_write_is_refused(qkv, tmp_path: Path) -> None:
    config = preset("embed-tiny")
    table = config.embedding.model_copy(update={"vocabulary": 29})
    model = build(config.model_copy(update={"embedding": table}), 0).eval()
    Bundle(model, Tokenizer.train("characters", [LETTERS], 29)).save(tmp_path / "vectors")
    code, _, err = qkv("generate", tmp_path / "vectors", "cab", "--seed", 1)
    assert code == 2
    assert "is an encoder that embeds text; use qkv embed" in err


def test_echo_prints_the_prompt_before_the_completion(qkv, models: Path) -> None:
    arguments = ("generate", models / "large", "cab", "--temperature", 0, "--max-tokens", 6)
    text = qkv(*arguments)[1]
    assert qkv(*arguments, "--echo") == (0, f"cab{text}", "")
    result = json.loads(qkv(*arguments, "--echo", "--json")[1])
    assert list(result) == ["prompt", "text", "tokens", "logprobs", "stop_reason"]
    assert result["prompt"] == "cab"
    both = qkv("generate", models / "large", "cab", "abc", *arguments[3:], "--echo")[1]
    assert both.startswith(f"cab{text}\nabc")


def test_echo_puts_back_the_space_that_sentencepiece_drops(qkv, shared: Path) -> None:
    model = shared / "models" / "stories260K"
    arguments = ("generate", model, "Once upon", "--temperature", 0, "--max-tokens", 4, "--echo")
    assert qkv(*arguments)[1].startswith("Once upon a time")
