"""Help that shows how: every command has examples, and every example can be understood."""

import re
import shlex

import pytest
import typer.main

from qkv.cli.app import app
from qkv.cli.doctor import doctor
from qkv.training.tasks import Task

ALONE = typer.Typer()
ALONE.command()(doctor)
COMMANDS = {**typer.main.get_command(app).commands, "doctor": typer.main.get_command(ALONE)}  # type: ignore[attr-defined]


def examples(name: str) -> list[str]:
    page = COMMANDS[name].help or ""
    _, _, section = page.partition("Examples:\n")
    lines = [line.strip() for line in section.split("\n")]
    return [line[line.index("qkv ") :] for line in lines if "qkv " in line]


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_shows_examples(name: str) -> None:
    assert examples(name)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_example_can_be_understood(name: str) -> None:
    for line in examples(name):
        plain = re.sub(r"\s[<>]\s*\S+", "", line)  # what the shell takes for itself
        program, command, *arguments = shlex.split(plain)
        assert (program, command) == ("qkv", name)
        with COMMANDS[name].make_context(name, arguments):
            pass


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_is_explained(name: str) -> None:
    for param in COMMANDS[name].params:
        assert getattr(param, "help", None) or "--help" in param.opts, param.name


def test_what_a_report_says_to_do_next_can_be_understood() -> None:
    for task in Task.variants().values():
        assert task.next_steps
        for line in (*task.next_steps, *task.usage):
            _, command, *arguments = shlex.split(line.format("'runs/my model'"))
            with COMMANDS[command].make_context(command, arguments) as context:
                assert "runs/my model" in map(str, context.params.values()), line
