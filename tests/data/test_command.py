"""`qkv data`, as a person calls it."""

from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from qkv.cli.data import data
from qkv.errors import DataError, UsageError

app = typer.Typer(rich_markup_mode=None)
app.command()(data)


def call(*arguments: object) -> str:
    """Run the command; its messages, or the error a person would be told."""
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    if result.exception is not None:
        raise result.exception
    assert result.stdout == ""
    return result.stderr


def test_a_corpus_is_written_and_the_message_leaves_standard_output_clean(tmp_path: Path) -> None:
    path = tmp_path / "reviews.tsv"
    assert call("classify", "-o", path) == f"wrote 8,000 examples of classify to {path} (0.5 MB)\n"
    lines = path.read_text(encoding="utf-8").split("\n")
    assert lines[0] == "text\tlabel"
    assert len(lines) == 8_002


def test_a_file_that_exists_is_only_replaced_by_force(tmp_path: Path) -> None:
    path = tmp_path / "dates.csv"
    path.write_text("mine")
    with pytest.raises(UsageError, match="exists; pass --force to overwrite it"):
        call("translate", "-o", path)
    assert path.read_text() == "mine"
    call("translate", "-o", path, "--force")
    assert path.read_text(encoding="utf-8").startswith("source,target\n")


def test_a_wrong_name_or_ending_is_said_before_any_work(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="unknown corpus"):
        call("nothing", "-o", tmp_path / "a.tsv")
    with pytest.raises(DataError, match="the name must end in"):
        call("classify", "-o", tmp_path / "a.xls")


def test_the_help_shows_examples_and_says_what_is_synthetic() -> None:
    said = CliRunner().invoke(app, ["--help"]).stdout
    assert "qkv data classify -o reviews.tsv" in said
    assert said.count("synthetic") == 2
