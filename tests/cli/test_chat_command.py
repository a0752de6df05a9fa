"""`qkv chat` as a person uses it: messages and commands on standard input or in a terminal."""

import io
import json
import os
import select
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.engine.generate.test_chat_turns import PLAIN, TALKER
from tests.engine.generate.tiny_writers import writer

import qkv as package
from qkv.bundle import Bundle

GREEDY = ("--temperature", "0", "--max-tokens", "6")


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("talkers")
    for name, tokenizer in (("talker", TALKER), ("plain", PLAIN)):
        Bundle(writer("llama", seed=2), tokenizer).save(folder / name)
    return folder


@pytest.fixture
def talk(qkv: Callable, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """The chat with these lines on standard input."""

    def run(model: Path, *lines: str, options: tuple[str, ...] = GREEDY) -> tuple[int, str, str]:
        data = "".join(f"{line}\n" for line in lines).encode()
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data), "utf-8"))
        result: tuple[int, str, str] = qkv("chat", model, *options)
        return result

    return run


def test_each_line_is_answered_with_what_came_before(talk: Callable, models: Path) -> None:
    code, out, err = talk(models / "talker", "abc", "", "d")
    chat = package.load(models / "talker").chat(temperature=0.0, max_tokens=6)
    expected = ["".join(t.text for t in chat.ask(message)) for message in ("abc", "d")]
    assert code == 0
    assert out.splitlines() == expected  # an empty line asks nothing
    assert "chat template" not in err


def test_a_model_without_a_template_says_once_that_it_continues(
    talk: Callable, models: Path
) -> None:
    code, out, err = talk(models / "plain", "abc", "", options=("--temperature", "0"))
    assert code == 0
    assert err.count("it continues the text") == 1
    assert len(out.splitlines()) == 2


def test_the_commands_do_what_they_say(talk: Callable, models: Path, tmp_path: Path) -> None:
    saved = tmp_path / "chat.json"
    text = tmp_path / "chat.txt"
    lines = ["/system be", "abc", "d", "/undo", f"/save {saved}", f"/save {text}", "/help", "/quit"]
    code, out, err = talk(models / "talker", *lines, "never read")
    assert code == 0
    answer, undone = out.splitlines()
    messages = json.loads(saved.read_text("utf-8"))
    assert messages == [
        {"role": "system", "content": "be"},
        {"role": "user", "content": "abc"},
        {"role": "assistant", "content": answer},
    ]
    assert text.read_text("utf-8") == f"system: be\n\nuser: abc\n\nassistant: {answer}\n"
    assert "system: be" in err
    assert "undone: d" in err
    assert "/why" in err
    code, out, _ = talk(models / "talker", "abc", "/reset", "abc")
    first, second = out.splitlines()
    assert first == second
    assert undone


def test_the_system_prompt_is_an_option_too(talk: Callable, models: Path) -> None:
    option = talk(models / "talker", "abc", options=(*GREEDY, "--system", "be"))
    command = talk(models / "talker", "/system be", "abc")
    assert option[1] == command[1]
    assert option[1] != talk(models / "talker", "abc")[1]


def test_why_names_the_words_each_word_of_the_answer_depends_on(
    talk: Callable, models: Path
) -> None:
    code, out, err = talk(models / "plain", "abc def", "/why")
    assert code == 0
    assert "less without" in out
    assert "trust it: deleting" in out.replace("\n", " ")
    assert "there is no answer to explain yet" in talk(models / "plain", "/why")[2]
    assert "qkv:" not in err


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("/whi", 'did you mean "/why"'),
        ("/undo", "there is nothing to undo"),
        ("/save", "name a file"),
        ("/save nowhere/chat.json", "nowhere"),
        ("a" * 70, "the message has 75 tokens, but the model reads at most 61"),
    ],
)
def test_a_mistake_ends_the_turn_and_not_the_conversation(
    talk: Callable, models: Path, line: str, message: str
) -> None:
    code, out, err = talk(models / "talker", line, "abc")
    assert code == 0
    assert len(out.splitlines()) == 1
    (error,) = [each for each in err.splitlines() if each.startswith("qkv: ")]
    assert message in error


def test_a_message_may_begin_with_a_slash(talk: Callable, models: Path) -> None:
    assert len(talk(models / "talker", "//a")[1].splitlines()) == 1


def test_what_no_longer_fits_is_dropped_with_a_message(talk: Callable, models: Path) -> None:
    code, out, err = talk(models / "talker", *["abcdefghij"] * 5)
    assert code == 0
    assert len(out.splitlines()) == 5
    assert "exceeds the model's context; its oldest turn was dropped" in err


def test_control_c_stops_the_answer_and_not_the_program(
    talk: Callable, models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Interrupted(io.StringIO):
        """A terminal at which Ctrl-C is pressed after the third token."""

        writes = 0

        def write(self, text: str) -> int:
            count = super().write(text)
            self.writes += 1
            if self.writes == 3:
                raise KeyboardInterrupt
            return count

    whole = talk(models / "talker", "abc")[1].rstrip("\n")
    screen = Interrupted()
    monkeypatch.setattr(sys, "stdout", screen)
    code, _, err = talk(models / "talker", "abc", "d", "/undo", "/undo")
    assert code == 0
    assert "stopped" in err
    assert err.count("undone") == 2  # what was written before Ctrl-C is a turn
    first, second = screen.getvalue().splitlines()
    assert first == whole[:3]
    assert second


def test_other_models_are_refused(qkv: Callable, tmp_path: Path) -> None:
    config = package.preset("classify-tiny")
    package.build(config, PLAIN).bundle.save(tmp_path / "judge")
    code, _, err = qkv("chat", tmp_path / "judge")
    assert code == 2
    assert "is a classifier; use qkv classify" in err


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="needs a pseudo-terminal")
def test_a_terminal_shows_a_prompt_and_control_d_leaves(models: Path) -> None:
    import pty

    parent, child = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "qkv", "chat", str(models / "talker"), *GREEDY],
        stdin=child, stdout=child, stderr=child, start_new_session=True,
    )  # fmt: skip
    os.close(child)

    def read_until(text: str) -> str:
        seen = ""
        while text not in seen:
            ready, _, _ = select.select([parent], [], [], 120)
            assert ready, seen
            seen += os.read(parent, 1024).decode()
        return seen

    assert "/help lists the commands" in read_until("> ")
    os.write(parent, b"abc\n")
    read_until("> ")
    os.write(parent, b"\x04")
    assert process.wait(timeout=60) == 0
    os.close(parent)
