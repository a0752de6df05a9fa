"""Configs of decoders: as old programs wrote them, as the peer writes them now, and refused."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from tests.checkpoints import cases_gpt2, cases_gpt_neox, cases_llama
from tests.checkpoints.configs_decoders import (
    GEMMA,
    GEMMA_2,
    GEMMA_3,
    GPT2,
    LLAMA_32,
    MISTRAL,
    OLD,
    PYTHIA,
    QWEN_25,
)
from tests.checkpoints.peers import Peer, quietly, texts, transformers

from qkv.checkpoints import find_layout, read_checkpoint
from qkv.checkpoints import load as read
from qkv.checkpoints.format import Given
from qkv.checkpoints.save import layout_for
from qkv.errors import BundleError, ConfigError, QkvError
from qkv.model import (
    GEGLU,
    DecoderOnly,
    LinearScaling,
    Llama3Scaling,
    LocalAttention,
    Rope,
    YarnScaling,
)


def described(fields: dict[str, Any]) -> DecoderOnly:
    config = read.described(find_layout(fields, "config.json"), Given(fields), ())
    assert isinstance(config, DecoderOnly)
    return config


@pytest.mark.parametrize("name", OLD)
def test_an_old_config_means_what_the_peer_makes_of_it(name: str) -> None:
    fields, kind, parameters = OLD[name]
    with quietly():
        now = getattr(transformers, kind).from_dict(fields).to_dict()
    assert "rope_theta" not in now  # the peer writes it another way now
    config = described(fields)
    assert config == described(now)
    assert config.parameters() == parameters


@pytest.mark.parametrize("name", OLD)
def test_a_public_config_comes_back_from_the_one_we_write(name: str) -> None:
    config = described(OLD[name][0])
    known = find_layout(OLD[name][0], "config.json")
    layout = layout_for(config, known.kinds[0])
    assert layout is known
    assert config == described(layout.fields(config))


def test_old_configs_say_positions_and_windows_in_their_own_words() -> None:
    llama, pythia, gemma3 = (OLD[n][0] for n in ("Llama 3.2 1B", "Pythia 70M", "Gemma 3 1B"))
    assert described(llama).decoder.position == Rope(
        base=500_000.0,
        scaling=Llama3Scaling(
            factor=32.0, low_freq_factor=1.0, high_freq_factor=4.0, trained_length=8192
        ),
    )
    assert described(pythia).decoder.position == Rope(fraction=0.25)
    near = described(gemma3).decoder.local
    assert near == LocalAttention(
        before=511, layers=tuple(i for i in range(26) if i % 6 != 5), position=Rope()
    )
    stretched = described(OLD["a stretched Gemma 3 1B"][0]).decoder
    assert stretched.position == Rope(base=1e6, scaling=LinearScaling(factor=8.0))
    assert stretched.local == near
    yarn = described(QWEN_25 | {"rope_scaling": {"type": "yarn", "factor": 4.0}}).decoder.position
    assert yarn == Rope(base=1e6, scaling=YarnScaling(factor=4.0, trained_length=32768))


def test_an_absent_field_is_what_the_peer_takes_it_for() -> None:
    assert described(_without(MISTRAL, "sliding_window")).decoder.local == LocalAttention(
        before=4095
    )
    assert described(MISTRAL | {"sliding_window": None}).decoder.local is None
    assert described(_without(QWEN_25, "use_sliding_window")).decoder.local is None
    assert described(_without(PYTHIA, "rotary_pct")).decoder.position == Rope(fraction=0.25)
    bare = described(_without(GEMMA_2, "attn_logit_softcapping", "final_logit_softcapping"))
    assert bare == described(GEMMA_2)
    assert described(GEMMA_2 | {"final_logit_softcapping": None}) != bare


def test_what_a_kind_of_model_does_not_have_is_not_read_for_it() -> None:
    assert described(LLAMA_32 | {"sliding_window": 512}) == described(LLAMA_32)
    assert described(MISTRAL | {"mlp_bias": True, "attention_bias": True}) == described(MISTRAL)


def test_the_first_gemmas_say_gelu_and_mean_its_tanh() -> None:
    wide = 16384
    assert described(GEMMA).decoder.feed_forward == GEGLU(width=wide, tanh=True)
    exact = {"intermediate_size": wide, "hidden_activation": "gelu"}
    assert described(GEMMA_2 | exact).decoder.feed_forward == GEGLU(width=wide, tanh=False)


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "scores by layer": (GPT2 | {"scale_attn_by_inverse_layer_idx": True}, "each layer's scores"),
    "cross attention": (GPT2 | {"add_cross_attention": True}, "needs an encoder"),
    "two heads": (
        GPT2 | {"architectures": ["GPT2DoubleHeadsModel"]},
        "HeadsModel cannot be",
    ),
    "labels": (PYTHIA | {"architectures": ["GPTNeoXForSequenceClassification"]}, "cannot be"),
    "a larger share": (PYTHIA | {"rotary_pct": 1.5}, "fraction"),
    "both ways": (GEMMA_3 | {"use_bidirectional_attention": True}, "see what follows it"),
    "a cap of scores": (GEMMA_3 | {"attn_logit_softcapping": 50.0}, "gemma3_text does not have"),
    "a part turned": (GEMMA | {"partial_rotary_factor": 0.5}, "turn whole heads"),
    "a part turned again": (LLAMA_32 | {"partial_rotary_factor": 0.5}, "turn whole heads"),
    "no window": (GEMMA_2 | {"sliding_window": None}, "sliding_window is missing"),
    "too few types": (GEMMA_3 | {"layer_types": ["full_attention"]}, "for each layer"),
    "strange types": (GEMMA_2 | {"layer_types": [["a"]] * 26}, "for each layer"),
    "a negative cap": (GEMMA_2 | {"final_logit_softcapping": -1.0}, "a number above 0"),
    "a dynamic stretch": (
        LLAMA_32 | {"rope_scaling": {"type": "dynamic", "factor": 2.0}},
        "'dynamic' cannot be carried",
    ),
    "an unknown activation": (GPT2 | {"activation_function": "gelu_10"}, "gelu_10"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_carried_is_refused_by_name(name: str) -> None:
    fields, said = REFUSED[name]
    with pytest.raises(ConfigError, match=said):
        described(fields)


@pytest.mark.parametrize("kind", ["smollm3", "gemma3", "gpt_neo"])
def test_a_kind_that_is_not_known_is_refused(kind: str) -> None:
    with pytest.raises(BundleError, match=kind):
        find_layout({"model_type": kind}, "config.json")


@pytest.mark.parametrize(
    ("name", "changed", "said"),
    [
        ("Llama 3.2 1B", {"position": Rope(fraction=0.5)}, "no public layout can say"),
        ("Llama 3.2 1B", {"local": LocalAttention(before=4, after=1)}, "local.after is 0, not 1"),
        ("Mistral 7B", {"local": LocalAttention(before=4, layers=(0, 2))}, "local.layers is None"),
        (
            "Gemma 2B",
            {"local": LocalAttention(before=4)},
            "in gemma, the nearest, decoder.local is",
        ),
    ],
)
def test_a_model_that_no_layout_can_say_is_not_written(
    name: str, changed: dict[str, Any], said: str
) -> None:
    config = described(OLD[name][0])
    odd = config.model_copy(update={"decoder": config.decoder.model_copy(update=changed)})
    with pytest.raises(ConfigError, match=said):
        layout_for(odd)


# Files as other programs leave them: an old config beside the weights, other names for tensors.


def assert_same_logits(place: Path, other: Any, peer: Peer) -> None:
    ids, _ = texts(peer.fields["vocab_size"], [13, 13])
    with torch.no_grad():
        ours, theirs = read_checkpoint(place).model(ids), other(input_ids=ids).logits
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)


def rename(place: Path, names: dict[str, str]) -> None:
    file = place / "model.safetensors"
    kept = load_file(file)
    save_file({names.get(k, k): v for k, v in kept.items()}, file, metadata={"format": "pt"})


def test_weights_beside_an_old_config_without_a_class_are_read(tmp_path: Path) -> None:
    peer = cases_llama.CASES["llama, linear"]
    other = peer.save(tmp_path)
    old = {**peer.fields, "model_type": "llama", "torch_dtype": "float32", "rope_theta": 777.0}
    del old["rope_parameters"]
    old["rope_scaling"] = {"type": "linear", "factor": 3.0}
    (tmp_path / "config.json").write_text(json.dumps(old))
    assert_same_logits(tmp_path, other, peer)
    assert read_checkpoint(tmp_path).card.architecture == "not said"


def test_a_body_saved_alone_is_read_where_its_table_is_its_head(tmp_path: Path) -> None:
    peer = cases_gpt2.CASES["gpt2"]
    other = peer.make()
    with quietly():
        other.transformer.save_pretrained(tmp_path)
    assert "wte.weight" in load_file(tmp_path / "model.safetensors")
    assert_same_logits(tmp_path, other, peer)


@pytest.mark.parametrize("name", ["gpt-neox", "gpt-neox, tied"])
def test_the_head_is_found_under_both_of_its_names(name: str, tmp_path: Path) -> None:
    peer = cases_gpt_neox.CASES[name]
    other = peer.save(tmp_path)
    rename(tmp_path, {"embed_out.weight": "lm_head.weight"})
    assert_same_logits(tmp_path, other, peer)


def test_a_tied_head_may_stand_for_the_table(tmp_path: Path) -> None:
    peer = cases_gpt2.CASES["gpt2"]
    other = peer.save(tmp_path)
    rename(tmp_path, {"transformer.wte.weight": "lm_head.weight"})
    assert_same_logits(tmp_path, other, peer)


@pytest.mark.parametrize(
    ("peer", "mask"),
    [
        (cases_gpt2.CASES["gpt2"], "transformer.h.1.attn.bias"),
        (cases_gpt2.CASES["gpt2"], "transformer.h.0.attn.masked_bias"),
        (cases_gpt_neox.CASES["gpt-neox"], "gpt_neox.layers.2.attention.bias"),
        (cases_gpt_neox.CASES["gpt-neox"], "gpt_neox.layers.0.attention.masked_bias"),
        (cases_gpt_neox.CASES["gpt-neox"], "gpt_neox.layers.0.attention.rotary_emb.inv_freq"),
    ],
)
def test_masks_and_waves_in_old_files_are_passed_over(
    peer: Peer, mask: str, tmp_path: Path
) -> None:
    other = peer.save(tmp_path)
    file = tmp_path / "model.safetensors"
    save_file(load_file(file) | {mask: torch.ones(3, 3)}, file, metadata={"format": "pt"})
    assert_same_logits(tmp_path, other, peer)
    assert read_checkpoint(tmp_path).card.ignored == [mask]


def test_a_tensor_without_a_place_is_refused(tmp_path: Path) -> None:
    cases_gpt2.CASES["gpt2"].save(tmp_path)
    file, name = tmp_path / "model.safetensors", "transformer.h.0.attn.q_norm.weight"
    save_file(load_file(file) | {name: torch.ones(8)}, file, metadata={"format": "pt"})
    with pytest.raises(QkvError, match="no place"):
        read_checkpoint(tmp_path)


def _without(fields: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if name not in names}
