"""`qkv check` as a person runs it: lines, JSON, exit codes, and what cannot be checked."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from tests.checks.sound_models import READER, engine, sound
from tests.kernels.native import needs_int8

from qkv.bundle import Bundle
from qkv.checks import CHECKS, check
from qkv.checks.batch_checks import BATCH
from qkv.checks.model_under_test import MAX_TEXTS, ModelUnderTest
from qkv.checks.optimized import INT8
from qkv.cli.check import quick_check
from qkv.engine.engine import Engine
from qkv.engine.optimized import int8_supported
from qkv.errors import UsageError
from qkv.model import Layers

Qkv = Callable[..., tuple[int, str, str]]
NO_INT8 = not int8_supported()  # the check of it does not apply


@pytest.fixture(scope="module")
def writer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("models") / "gpt"
    Bundle(sound("gpt"), READER).save(path)
    return path


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Positions are off by one in every cache."""
    plain = Layers._positions

    def late(
        self: Layers, x: torch.Tensor, explicit: torch.Tensor | None, start: int
    ) -> torch.Tensor:
        positions = plain(self, x, explicit, start)
        return positions + 1 if start and explicit is None else positions

    monkeypatch.setattr(Layers, "_positions", late)


def test_a_sound_model_has_a_line_for_each_check_and_exit_code_0(qkv: Qkv, writer: Path) -> None:
    code, out, err = qkv("check", writer, "--quick")
    assert code == 0
    lines = out.split("\n")
    heads = [line for line in lines if line[:1] in "✓✗–" and line]
    assert [line[2:37].rstrip() for line in heads] == [each.name for each in CHECKS]
    assert all(len(line) <= 80 for line in lines)
    assert lines[-2] == f"all {13 - NO_INT8} checks that apply hold"
    assert "read 3 texts" in err


def test_an_encoder_says_what_does_not_apply_and_why(qkv: Qkv, tmp_path: Path) -> None:
    Bundle(sound("vectors")).save(tmp_path / "vectors")
    code, out, _ = qkv("check", tmp_path / "vectors", "--quick")
    assert code == 0
    assert "– no future leak                       does not apply\n    every position" in out
    assert "– tokenizer round trip                 does not apply\n    the model has no" in out


@pytest.mark.usefixtures("broken")
def test_a_broken_model_shows_the_first_violation_with_its_place_and_exits_1(
    qkv: Qkv, writer: Path
) -> None:
    code, out, _ = qkv("check", writer, "--quick")
    assert code == 1
    assert "✗ cached = uncached" in out
    assert out.endswith(
        "cached = uncached failed: a text has another output with a KV cache than without\n"
        "one\n"
        "first at: decoder.position, text 1 token by token, position 1\n"
    )


def test_the_guide_lists_every_check_with_what_it_proves_and_allows() -> None:
    guide = (Path(__file__).parents[2] / "docs" / "guide" / "check.md").read_text("utf-8")
    for each in CHECKS:
        assert f"| {each.name} | {each.invariant} | {each.tolerance:g} |" in guide


def test_json_has_the_fields_of_the_design(qkv: Qkv, writer: Path) -> None:
    code, out, _ = qkv("check", writer, "--quick", "--json")
    (line,) = out.splitlines()
    report = json.loads(line)
    assert code == 0
    assert report["ok"] is True
    for result, each in zip(report["checks"], CHECKS, strict=True):
        assert result["name"] == each.name
        assert result["ok"] is True
        if NO_INT8 and each is INT8:
            assert result["worst"] is None
        else:
            assert 0 <= result["worst"] <= result["tolerance"]


@pytest.mark.usefixtures("broken")
def test_json_names_the_place_too(qkv: Qkv, writer: Path) -> None:
    code, out, _ = qkv("check", writer, "--quick", "--json")
    red = [result for result in json.loads(out)["checks"] if not result["ok"]]
    assert code == 1
    assert red[0]["name"] == "cached = uncached"
    assert red[0]["place"].startswith("decoder.position")


def test_texts_of_one_s_own_are_tried(qkv: Qkv, writer: Path, tmp_path: Path) -> None:
    file = tmp_path / "texts.txt"
    file.write_text("\n".join(f"text {i} " + "x" * i for i in range(MAX_TEXTS + 5)) + "\n", "utf-8")
    code, _, err = qkv("check", writer, "--quick", "--file", file)
    assert code == 0
    assert "read 3 texts" in err
    assert f"only the first {MAX_TEXTS} of {MAX_TEXTS + 5} texts" in err


def test_many_texts_are_not_too_many_for_a_batch() -> None:
    texts = [f"{i} and so on and on, as long as it will be read" for i in range(MAX_TEXTS)]
    report = check(engine(sound("gpt")), texts, checks=[BATCH])
    assert report.ok, report.first_failure
    assert report.remarks == ("read 32 texts, the first 38 tokens at most of each",)


def test_what_is_no_model_and_what_is_no_text_are_bad_input(
    qkv: Qkv, writer: Path, tmp_path: Path
) -> None:
    empty = tmp_path / "empty.txt"
    empty.write_text("\n\n", "utf-8")
    for arguments in (
        (tmp_path,),
        (writer, "--file", empty),
        (writer, "--file", tmp_path / "none"),
    ):
        code, out, err = qkv("check", *arguments)
        assert (code, out) == (2, "")
        assert err.startswith("qkv: ")
        assert err.count("\n") == 1


def test_texts_for_a_model_without_a_tokenizer_are_refused() -> None:
    with pytest.raises(UsageError, match="no tokenizer"):
        check(sound("gpt"), ["a text"])


@needs_int8
def test_a_model_in_8_bits_is_refused() -> None:
    with pytest.raises(UsageError, match="check it in float32"):
        check(Engine(Bundle(sound("gpt"), READER), int8=True))


def test_at_the_end_of_another_command_it_is_one_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert quick_check(engine(sound("labels")))
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == f"checked: all {11 - NO_INT8} checks that apply hold\n"


@pytest.mark.usefixtures("broken")
def test_at_the_end_of_another_command_a_violation_is_a_warning(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert not quick_check(engine(sound("gpt")))
    warning = capsys.readouterr().err
    assert warning.startswith("warning: cached = uncached fails, first at decoder.position")
    assert warning.count("\n") == 1


def test_of_a_large_model_the_quick_form_makes_no_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("qkv.checks.model_under_test.LARGE_MODEL_PARAMETERS", 1000)
    report = check(engine(sound("gpt")), quick=True)
    left_out = {result.name for result in report.checks if not result.applies}
    assert report.ok
    assert left_out == {
        "gradient accumulation = big batch",
        "saved = loaded",
        "every parameter receives a gradient",
        "twin = model",
        "int8 close to fp32",
    }
    subject = ModelUnderTest.of(engine(sound("gpt")))
    assert subject.too_large_reason == ""
    assert subject.optimized is not None
