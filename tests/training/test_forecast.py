"""What `qkv plan` prints about a run: one number for tokens per parameter, and its advice."""

from pathlib import Path

import pytest
from tests.training.tiny_runs import CPU, args_for, data_for, sentences, written

from qkv.cli.train import _print_forecast
from qkv.training import forecast, prepare


def test_the_advice_repeats_the_number_of_tokens_per_parameter(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    prepared = prepare(args_for("classify", data_for("classify", tmp_path)))
    result = forecast(prepared, CPU, seconds=0.01)
    tokens = int(prepared.data_module.lengths.sum())
    ratio = tokens / prepared.recipe.model.parameters()
    assert result.data_tokens_per_parameter == ratio
    assert f"with {ratio:.2g} tokens of data per parameter" in result.advice[0]
    _print_forecast(result)
    printed = capsys.readouterr().out
    assert f"tokens per parameter  {ratio:.2g}, in the data\n" in printed
    assert "parameters for each token" not in printed


def test_without_a_problem_the_advice_is_none(tmp_path: Path) -> None:
    book = written(tmp_path / "book.txt", " ".join(sentences(1500)))
    prepared = prepare(args_for("language", book, 400))
    assert forecast(prepared, CPU, seconds=0.01).advice == ("none: these settings suit the data",)
