"""Runs and recipes that version 0.1 wrote: they are read, and resumed to the same weights."""

import json
import re
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from tests.training.tiny_runs import CPU, args_for, data_for, fingerprint, start

from qkv.bundle.manifest import BEST, publish
from qkv.training.launch import reopen
from qkv.training.recipe import read_recipe
from qkv.training.run import Run
from qkv.training.run_directory import CHECKPOINTS, METRICS, RECIPE, read_summary

RECIPE_OF_0_1 = """
steps = 50
batch = 2326
accumulate = 2
clip = 0.5
average = 0.996
patience = 0
recompute = true
compile = false
seed = 3
evaluate_every = 5

[data]
files = ["pairs.csv"]
validation = []
held_out = 0.2
both_ways = true
sha256 = "2ac8"

[tokens]
kind = "bpe"
ceiling = 400
noise = 0.1

[task]
kind = "translate"
smoothing = 0.1
agreement = 1.5

[model]
kind = "encoder_decoder"
length = 256
embedding = { vocabulary = 400, scaled = true, types = 0 }

[model.encoder]
layers = 2
width = 64
attention = { kind = "multi_head", heads = 2 }
feed_forward = { kind = "relu2", width = 256 }
position = { kind = "rotary", base = 10000.0, share = 1.0, stretch = { kind = "none" } }
residual = { kind = "pre_norm", bare_first = false }

[model.decoder]
layers = 2
width = 64
attention = { kind = "multi_head", heads = 2 }
feed_forward = { kind = "relu2", width = 256 }
position = { kind = "rotary", base = 10000.0 }

[optimiser]
kind = "muon"
matrix_rate = 0.03
momentum = 0.95
matrix_decay = 0.2
rate = 0.004
decay = 0.05

[schedule]
kind = "inverse_root"
warmup = 7
"""

# What version 0.1 called the keys of this version's files.
OLD_KEYS = {
    "ema": "average",
    "grad_clip": "clip",
    "optimizer": "optimiser",
    "activation_checkpointing": "recompute",
    "validation_fraction": "held_out",
    "bidirectional": "both_ways",
    "weight_decay": "decay",
    "matrix_weight_decay": "matrix_decay",
    "matrix_lr": "matrix_rate",
    "lr": "rate",
    "label_smoothing": "smoothing",
    "vocab_size": "ceiling",
    "bpe_dropout": "noise",
}


def test_a_recipe_with_the_old_names_is_read() -> None:
    recipe = read_recipe(RECIPE_OF_0_1)
    assert (recipe.grad_clip, recipe.ema, recipe.activation_checkpointing) == (0.5, 0.996, True)
    assert recipe.data.validation_fraction == 0.2
    assert recipe.data.bidirectional
    assert recipe.tokens is not None
    assert (recipe.tokens.vocab_size, recipe.tokens.bpe_dropout) == (400, 0.1)
    assert recipe.task.model_dump() == {
        "kind": "translate",
        "label_smoothing": 0.1,
        "r_drop": 1.5,
    }
    optimizer = recipe.optimizer.model_dump()
    assert (optimizer["matrix_lr"], optimizer["lr"]) == (0.03, 0.004)
    assert (optimizer["matrix_weight_decay"], optimizer["weight_decay"]) == (0.2, 0.05)
    assert recipe.schedule.kind == "inverse_sqrt"
    assert read_recipe(recipe.toml()) == recipe


@pytest.mark.parametrize(
    ("kind", "old", "new"),
    [
        (
            "masked",
            {"hidden": 0.3, "covered": 0.7, "changed": 0.2},
            {"mask_prob": 0.3, "mask_replace_prob": 0.7, "random_replace_prob": 0.2},
        ),
        (
            "classify",
            {"blanked": 0.1, "counted": 0.5, "spliced": 2.0},
            {"word_dropout": 0.1, "distillation_weight": 0.5, "cutmix": 2.0},
        ),
        ("embed", {"learns_from": "pairs"}, {"supervision": "pairs"}),
    ],
)
def test_the_old_names_of_every_task_are_read(
    kind: str, old: dict[str, object], new: dict[str, object]
) -> None:
    fields = "\n".join(f"{name} = {json.dumps(value)}" for name, value in old.items())
    task = f'[task]\nkind = "{kind}"\n{fields}\n'
    recipe = read_recipe(re.sub(r"\[task\].*?(?=\n\[model\])", task, RECIPE_OF_0_1, flags=re.S))
    assert recipe.task.model_dump() | new == recipe.task.model_dump()


def rewrite_checkpoint(checkpoint: Path) -> None:
    groups = {"optimizer": "optimiser", "ema": "average", "rng": "random", "model": "model"}
    tensors = {}
    for name, tensor in load_file(checkpoint / "state.safetensors").items():
        group, _, rest = name.partition(".")
        tensors[f"{groups[group]}.{rest}"] = tensor
    progress = json.loads((checkpoint / "progress.json").read_text("utf-8"))
    progress["done"] = progress.pop("step")
    progress["evaluated"] = progress.pop("last_evaluation")

    def write(staging: Path) -> None:
        save_file(tensors, staging / "state.safetensors")
        (staging / "progress.json").write_text(json.dumps(progress), encoding="utf-8")

    shutil.rmtree(checkpoint)
    publish(checkpoint, write)


def as_0_1_wrote_it(run: Run) -> None:
    """Renames every key of the run's files to what version 0.1 called it."""
    recipe = run.directory / RECIPE
    text = recipe.read_text("utf-8")
    for new, old in OLD_KEYS.items():
        text = re.sub(rf"^(\[?){new}\b", rf"\g<1>{old}", text, flags=re.M)
    recipe.write_text(text, encoding="utf-8")
    for checkpoint in [*(run.directory / CHECKPOINTS).glob("step-*")]:
        rewrite_checkpoint(checkpoint)
    shutil.rmtree(run.directory / BEST)  # it had none
    lines = []
    for line in (run.directory / METRICS).read_text("utf-8").splitlines():
        fields = json.loads(line)
        for new, old in (("grad_norm", "gradient"), ("lr_scale", "rate"), ("finite", "taken")):
            if new in fields:
                fields[old] = fields.pop(new)
        if "validation" in fields:
            fields["held_out"] = fields.pop("validation")
        lines.append(json.dumps(fields) + "\n")
    (run.directory / METRICS).write_text("".join(lines), encoding="utf-8")


@pytest.mark.parametrize("job", ["language", "translate"])
def test_a_run_with_the_old_names_is_resumed_to_the_same_weights(job: str, tmp_path: Path) -> None:
    settings = {"ema": 0.9, "evaluate_every": 3}
    args = args_for(job, data_for(job, tmp_path / "data"), 6, settings=settings)
    whole = start(tmp_path / "whole", args)
    whole.finish()
    old = start(tmp_path / "old", args)
    for event in old.events():
        if event.number == 4:
            break
    old.save()
    as_0_1_wrote_it(old)
    torch.rand(5)
    resumed = reopen(old.directory, CPU)
    resumed.resume(print)
    assert resumed.progress.step == 4
    resumed.finish()
    assert fingerprint(resumed) == fingerprint(whole)
    lines = [json.loads(line) for line in (old.directory / METRICS).read_text().splitlines()]
    assert all("held_out" not in line and "gradient" not in line for line in lines)
    assert read_summary(old.directory / METRICS)["steps"] == 6


def test_the_summary_of_an_old_run_is_read(tmp_path: Path) -> None:
    line = {"step": 5, "summary": {"steps": 5, "held_out": {"loss": 1.5}}}
    (tmp_path / METRICS).write_text(json.dumps(line) + "\n", encoding="utf-8")
    assert read_summary(tmp_path / METRICS) == {"steps": 5, "validation": {"loss": 1.5}}
