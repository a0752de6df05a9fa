"""Bundles, runs and tokenizers that qkv 0.1 wrote: they load, answer and resume as before."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import qkv
from qkv.legacy import upgrade
from qkv.text import Tokenizer

OLD = Path(__file__).parent / "written_by_0_1"
EXPECTED = json.loads((OLD / "expected.json").read_text("utf-8"))

Program = Callable[..., tuple[int, str, str]]


def test_a_bundle_of_0_1_gives_the_same_logits_and_text() -> None:
    model = qkv.load(OLD / "finished")
    with torch.no_grad():
        logits = model.model(torch.tensor([EXPECTED["prompt_ids"]]))[0, -1]
    torch.testing.assert_close(logits, torch.tensor(EXPECTED["last_logits"]), atol=1e-6, rtol=0.0)
    tokens = model.generate("A query", temperature=0.0, max_tokens=9)
    assert "".join(token.text for token in tokens) == EXPECTED["greedy"]


def test_a_run_of_0_1_is_resumed_to_the_weights_of_an_uninterrupted_one(
    qkv: Program, tmp_path: Path
) -> None:
    """The bits of another CPU differ, so the whole run is repeated here from its recipe."""
    shutil.copyfile(OLD / "poem.txt", tmp_path / "poem.txt")
    for name in ("unfinished", "repeated"):
        shutil.copytree(OLD / "unfinished", tmp_path / name)
        recipe = tmp_path / name / "recipe.toml"
        text = recipe.read_text("utf-8").replace("/data/poem.txt", str(tmp_path / "poem.txt"))
        recipe.write_text(text, encoding="utf-8")
    shutil.rmtree(tmp_path / "repeated" / "checkpoints")
    for name in ("unfinished", "repeated"):
        code, _, errors = qkv("train", "language", "-o", tmp_path / name, "--resume")
        assert code == 0, errors
    weights = [
        (tmp_path / name / "model.safetensors").read_bytes() for name in ("unfinished", "repeated")
    ]
    assert weights[0] == weights[1]
    old = qkv_weights(OLD / "finished")
    new = qkv_weights(tmp_path / "unfinished")
    assert old.keys() == new.keys()
    for tensor_name, tensor in old.items():
        torch.testing.assert_close(new[tensor_name], tensor, atol=1e-4, rtol=0.0)


def test_metrics_of_0_1_and_of_now_stand_in_one_file(qkv: Program, tmp_path: Path) -> None:
    """What 0.1 measured before the stop is kept, under today's keys."""
    shutil.copyfile(OLD / "poem.txt", tmp_path / "poem.txt")
    run = tmp_path / "run"
    shutil.copytree(OLD / "unfinished", run)
    recipe = run / "recipe.toml"
    text = recipe.read_text("utf-8").replace("/data/poem.txt", str(tmp_path / "poem.txt"))
    recipe.write_text(text, encoding="utf-8")
    code, _, errors = qkv("train", "language", "-o", run, "--resume")
    assert code == 0, errors
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text("utf-8").splitlines()]
    assert [line["step"] for line in lines if "loss" in line] == list(range(1, 13))
    assert all("held_out" not in line and "rate" not in line for line in lines)


def test_the_marks_of_0_1_are_special_tokens(tmp_path: Path) -> None:
    shutil.copytree(OLD / "tokenizer", tmp_path / "tokenizer")
    tokenizer = Tokenizer.load(tmp_path / "tokenizer" / "tokenizer.json")
    tokens = tokenizer.special_tokens
    assert (tokens.pad, tokens.bos, tokens.eos, tokens.mask) == ("<pad>", None, "<end>", "<mask>")
    assert (tokens.forced_bos, tokens.extra_eos) == ("a", ("b",))
    assert tokens.omit_source_eos
    tokenizer.save(tmp_path / "again.json")
    assert (tmp_path / "special_tokens.json").exists()
    assert not (tmp_path / "marks.json").exists()


RENAMED = {"share": 0.5, "adjacent": True, "stretch": {"kind": "linear", "factor": 2.0}}


def stack_config(position: dict[str, object]) -> dict[str, object]:
    return {"kind": "decoder_only", "decoder": {"distinct": 2, "position": position}}


def test_old_keys_are_renamed_in_kinds_of_0_1() -> None:
    expected = {
        "kind": "rope",
        "fraction": 0.5,
        "interleaved": True,
        "scaling": {"kind": "linear", "factor": 2.0},
    }
    upgraded = upgrade("config.json", stack_config({"kind": "rotary", **RENAMED}))
    assert upgraded["decoder"] == {"unique_layers": 2, "position": expected}
    assert upgrade("config.json", upgraded) == upgraded


def test_a_part_from_outside_keeps_fields_that_are_called_like_old_keys() -> None:
    position = {"kind": "spiral", **RENAMED, "distinct": 3, "norm": {"around_one": True}}
    upgraded = upgrade("config.json", stack_config(position))
    assert upgraded["decoder"] == {"unique_layers": 2, "position": position}
    recipe = {"model": stack_config(position), "task": {"kind": "reverse", "hidden": 0.1}}
    assert upgrade("recipe.toml", recipe) == {"model": upgraded, "task": recipe["task"]}


def test_settings_without_a_kind_are_renamed() -> None:
    settings = {"model": {"distinct": 2, "position": {"share": 0.5}}, "optimiser": {"rate": 0.1}}
    assert upgrade("recipe.toml", settings) == {
        "model": {"unique_layers": 2, "position": {"fraction": 0.5}},
        "optimizer": {"lr": 0.1},
    }


def test_metrics_of_a_task_keep_their_names() -> None:
    line = {"step": 1, "rate": 0.5, "held_out": {"rate": 2.0, "gradient": 3.0}}
    expected = {"step": 1, "lr_scale": 0.5, "validation": {"rate": 2.0, "gradient": 3.0}}
    assert upgrade("metrics.jsonl", line) == expected


def qkv_weights(directory: Path) -> dict[str, torch.Tensor]:
    return dict(qkv.load(directory).model.state_dict())


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)
