"""A published model that sorts: its weights in ours give its published intermediates, and sort.

minGPT's gpt-nano, trained to sort six digits from 0 to 2. It was published with every tensor of
one forward pass over three texts; those of the first layer carry no layer number.
"""

import base64
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from qkv.attention import AttentionSteps, join_heads
from qkv.model import (
    GELU,
    DecoderOnly,
    Embedding,
    LayerNorm,
    Learned,
    MultiHead,
    NextToken,
    PreNorm,
    Stack,
    skeleton,
)

LAYERS, HEADS, D, V, DIGITS = 3, 3, 48, 3, 6
LENGTH = 2 * DIGITS - 1
TOLERANCE = 2e-6


def nano(tanh: bool = True) -> DecoderOnly:
    return DecoderOnly(
        length=LENGTH,
        embedding=Embedding(vocabulary=V),
        decoder=Stack(
            layers=LAYERS,
            width=D,
            attention=MultiHead(heads=HEADS),
            feed_forward=GELU(width=4 * D, tanh=tanh),
            position=Learned(),
            norm=LayerNorm(eps=1e-5),
            norm_placement=PreNorm(),
        ),
        output=NextToken(tied=False),
    )


def tensors_in(path: Path) -> dict[str, Tensor]:
    """Every tensor of the file by its published name."""
    entries = {k: v for k, v in json.loads(path.read_text()).items() if k != "config"}
    assert all(entry["dtype"] == "torch.float32" for entry in entries.values())
    return {
        name: torch.from_numpy(
            np.frombuffer(base64.b64decode(entry["data"]), dtype="<f4")
            .reshape(entry["shape"])
            .copy()
        )
        for name, entry in entries.items()
    }


def by_our_names(theirs: dict[str, Tensor]) -> dict[str, Tensor]:
    ours = {
        "embedding.weight": theirs["transformer.wte.weight"],
        "decoder.position.weight": theirs["transformer.wpe.weight"],
        "decoder.norm_out.weight": theirs["transformer.ln_f.weight"],
        "decoder.norm_out.bias": theirs["transformer.ln_f.bias"],
        "output.weight": theirs["lm_head.weight"],
    }
    modules = {
        "ln_1": "attention_in",
        "attn.c_proj": "attention.output",
        "ln_2": "feed_forward_in",
        "mlp.c_fc": "feed_forward.up",
        "mlp.c_proj": "feed_forward.down",
    }
    for layer in range(LAYERS):
        there, here = f"transformer.h.{layer}", f"decoder.{layer}"
        for kind in ("weight", "bias"):
            for their_name, our_name in modules.items():
                ours[f"{here}.{our_name}.{kind}"] = theirs[f"{there}.{their_name}.{kind}"]
            thirds = theirs[f"{there}.attn.c_attn.{kind}"].chunk(3)
            for name, third in zip(("query", "key", "value"), thirds, strict=True):
                ours[f"{here}.attention.{name}.{kind}"] = third
    return ours


def load(folder: Path, config: DecoderOnly) -> nn.Module:
    model = skeleton(config)
    weights = by_our_names(tensors_in(folder / "gpt-nano-sort-model.json"))
    model.load_state_dict(weights, assign=True)
    return model.eval().requires_grad_(False)


@pytest.fixture(scope="module")
def folder(shared: Path) -> Path:
    return shared / "models" / "gpt-nano-sort"


@pytest.fixture(scope="module")
def model(folder: Path) -> nn.Module:
    return load(folder, nano())


@pytest.fixture(scope="module")
def published(folder: Path) -> dict[str, Tensor]:
    return tensors_in(folder / "gpt-nano-sort-t0-partials.json")


# Where each published tensor is in our tree: the module whose output it is.
MODULES = {
    "tok_emb": "embedding",
    "x": "decoder.dropout",
    "ln1": "decoder.0.attention_in",
    "q": "decoder.0.attention.query",
    "k": "decoder.0.attention.key",
    "v": "decoder.0.attention.value",
    "yProj": "decoder.0.attention.output",
    "attnResid": "decoder.0.attention_join",
    "ln2": "decoder.0.feed_forward_in",
    "fc": "decoder.0.feed_forward.up",
    "gelu": "decoder.0.feed_forward.activation",
    "mlp": "decoder.0.feed_forward",
    "mlpResid": "decoder.0.feed_forward_join",
    "block0": "decoder.0",
    "block1": "decoder.1",
    "block2": "decoder.2",
    "ln_f": "decoder.norm_out",
    "lm_head": "output",
}
STEPS = "decoder.0.attention.core.hook_point"


def forward(model: nn.Module, ids: Tensor) -> dict[str, Tensor | AttentionSteps]:
    """What comes out of each module above in one forward pass."""
    seen: dict[str, Tensor | AttentionSteps] = {}

    def keep(name: str) -> Callable[..., None]:
        return lambda module, args, output: seen.update({name: output})

    names = [*MODULES.values(), STEPS]
    hooks = [model.get_submodule(name).register_forward_hook(keep(name)) for name in names]
    model(ids)
    for hook in hooks:
        hook.remove()
    return seen


def our_partials(model: nn.Module, ids: Tensor) -> dict[str, Tensor]:
    """Every published tensor, computed by our model."""
    seen = forward(model, ids)
    steps = seen[STEPS]
    partials = {name: seen[module] for name, module in MODULES.items()}
    return partials | {
        "pos_emb": model.decoder.position.weight[None],
        "qkv": torch.cat([join_heads(partials[name]) for name in "qkv"], dim=-1),
        "att": steps.masked,
        "attSm": steps.weights,
        "y": join_heads(steps.output),
        "probs": partials["lm_head"].softmax(dim=-1),
    }


def test_every_published_intermediate_is_reproduced(model: nn.Module, published: dict[str, Tensor]):
    ours = our_partials(model, published["idx"].long())
    assert set(ours) == set(published) - {"idx"}
    assert len(ours) == 24
    for name, tensor in ours.items():
        torch.testing.assert_close(
            tensor,
            published[name],
            rtol=TOLERANCE,
            atol=TOLERANCE,
            msg=lambda said, name=name: f"{name}: {said}",
        )


def test_the_fused_kernel_gives_the_published_scores(
    model: nn.Module, published: dict[str, Tensor]
):
    scores = model(published["idx"].long())  # nothing is hooked: no T×T matrix is made
    torch.testing.assert_close(scores, published["lm_head"], rtol=TOLERANCE, atol=TOLERANCE)


def test_the_exact_gelu_does_not_reproduce_it(folder: Path, published: dict[str, Tensor]):
    exact = our_partials(load(folder, nano(tanh=False)), published["idx"].long())
    assert (exact["fc"] - published["fc"]).abs().max() < TOLERANCE
    assert (exact["gelu"] - published["gelu"]).abs().max() > 10 * TOLERANCE


def sort(model: nn.Module, digits: Tensor) -> Tensor:
    """The digits the model appends to each row, always the likeliest one."""
    text = digits
    for _ in range(DIGITS):
        likeliest = model(text)[:, -1].argmax(dim=-1, keepdim=True)
        text = torch.cat((text, likeliest), dim=1)
    return text[:, DIGITS:]


def test_it_sorts(model: nn.Module):
    digits = torch.randint(V, (200, DIGITS), generator=torch.Generator().manual_seed(13))
    assert torch.equal(sort(model, digits), digits.sort(dim=1).values)


def test_it_sorts_from_a_cache(model: nn.Module):
    digits = torch.randint(V, (200, DIGITS), generator=torch.Generator().manual_seed(17))
    cache = model.empty_cache(len(digits))
    newest, appended = digits, []
    for _ in range(DIGITS):
        newest = model(newest, cache=cache)[:, -1].argmax(dim=-1, keepdim=True)
        appended.append(newest)
    assert torch.equal(torch.cat(appended, dim=1), digits.sort(dim=1).values)
