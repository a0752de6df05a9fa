"""Weights trained by others give the ids, text, logits and attention that stand beside them.

Logits and attention there come from a run in float64. Ours differ by 1.5e-5 and 2.7e-6 at most.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from qkv.attention import AttentionSteps
from qkv.checkpoints import Checkpoint, read_checkpoint
from qkv.model import Decoder

STORIES = {"stories260K": 200, "stories15M": 60}  # and how many ids are known of each
EVERY = pytest.mark.parametrize("name", STORIES)


@pytest.fixture(scope="module")
def models(shared: Path) -> Path:
    directory = shared / "models"
    if not all((directory / name).is_dir() for name in STORIES):
        pytest.skip("needs the stories models in the shared folder beside the project")
    return directory


@pytest.fixture(scope="module")
def small(models: Path) -> Checkpoint:
    return read_checkpoint(models / "stories260K")


def expected(models: Path, name: str) -> dict[str, Any]:
    output: dict[str, Any] = json.loads((models / name / f"{name}_greedy.json").read_text())
    return output


@torch.no_grad()
def greedy(model: Decoder, start: int, count: int) -> list[int]:
    cache, ids = model.empty_cache(1, count), [start]
    for _ in range(count):
        ids.append(int(model(torch.tensor([ids[-1:]]), cache=cache)[0, -1].argmax()))
    return ids[1:]


@EVERY
def test_a_story_is_told_token_by_token_as_published(name: str, models: Path) -> None:
    checkpoint = read_checkpoint(models / name)
    expected_output = expected(models, name)
    assert isinstance(checkpoint.model, Decoder)
    ids = greedy(checkpoint.model, expected_output["start_token"], STORIES[name])
    assert ids == expected_output["greedy_tokens"]
    assert checkpoint.tokenizer is not None
    plain = expected_output["text"].removeprefix(
        " "
    )  # the space that every text of this tokenizer begins with
    assert checkpoint.tokenizer.decode(ids) == plain


@torch.no_grad()
def test_logits_and_the_attention_of_every_layer_and_head_are_as_published(
    small: Checkpoint, models: Path
) -> None:
    with np.load(models / "stories260K" / "stories260K_logits_attn.npz") as saved:
        ids, logits, attention = (torch.from_numpy(saved[n]) for n in ("tokens", "logits", "attn"))
    weights: list[Tensor] = []

    def record(module: object, args: object, steps: AttentionSteps) -> None:
        weights.append(steps.weights[0])

    hooks = [
        small.model.get_submodule(f"decoder.{i}.attention.core.hook_point").register_forward_hook(
            record
        )
        for i in range(len(attention))
    ]
    watched = small.model(ids[None])[0]
    for hook in hooks:
        hook.remove()
    torch.testing.assert_close(watched, logits, rtol=0, atol=1e-4)
    torch.testing.assert_close(torch.stack(weights), attention, rtol=0, atol=1e-5)
    torch.testing.assert_close(small.model(ids[None])[0], logits, rtol=0, atol=1e-4)


def test_the_card_says_what_became_of_every_tensor(small: Checkpoint) -> None:
    card = small.card
    assert (card.layout, card.architecture, card.tensors) == (
        "llama",
        "LlamaForCausalLM",
        {"as they are": 2 + 9 * 5},
    )
    assert (card.tied, card.ignored, card.not_carried) == ([], [], [])
