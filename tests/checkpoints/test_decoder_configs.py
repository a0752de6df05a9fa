"""Decoder configs: in old spellings, as transformers writes them now, and unsupported ones."""

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

from qkv.checkpoints import find_format, read_checkpoint
from qkv.checkpoints.config_reader import ConfigReader
from qkv.checkpoints.load import read_model_config
from qkv.checkpoints.save import choose_format
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


def decoder_config(fields: dict[str, Any]) -> DecoderOnly:
    config = read_model_config(find_format(fields, "config.json"), ConfigReader(fields), ())
    assert isinstance(config, DecoderOnly)
    return config


@pytest.mark.parametrize("name", OLD)
def test_an_old_config_means_what_the_peer_makes_of_it(name: str) -> None:
    fields, kind, parameters = OLD[name]
    with quietly():
        now = getattr(transformers, kind).from_dict(fields).to_dict()
    assert "rope_theta" not in now  # the peer writes it another way now
    config = decoder_config(fields)
    assert config == decoder_config(now)
    assert config.parameters() == parameters


@pytest.mark.parametrize("name", OLD)
def test_a_public_config_survives_a_round_trip(name: str) -> None:
    config = decoder_config(OLD[name][0])
    expected = find_format(OLD[name][0], "config.json")
    fmt, rewrite = choose_format(config, expected.model_types[0])
    assert fmt is expected
    assert rewrite.config == config
    assert config == decoder_config(fmt.hf_config(config))


def test_old_spellings_of_positions_and_windows_are_read() -> None:
    llama, pythia, gemma3 = (OLD[n][0] for n in ("Llama 3.2 1B", "Pythia 70M", "Gemma 3 1B"))
    assert decoder_config(llama).decoder.position == Rope(
        base=500_000.0,
        scaling=Llama3Scaling(
            factor=32.0, low_freq_factor=1.0, high_freq_factor=4.0, trained_length=8192
        ),
    )
    assert decoder_config(pythia).decoder.position == Rope(fraction=0.25)
    local = decoder_config(gemma3).decoder.local
    assert local == LocalAttention(
        before=511, layers=tuple(i for i in range(26) if i % 6 != 5), position=Rope()
    )
    scaled = decoder_config(OLD["a stretched Gemma 3 1B"][0]).decoder
    assert scaled.position == Rope(base=1e6, scaling=LinearScaling(factor=8.0))
    assert scaled.local == local
    yarn = decoder_config(
        QWEN_25 | {"rope_scaling": {"type": "yarn", "factor": 4.0}}
    ).decoder.position
    assert yarn == Rope(base=1e6, scaling=YarnScaling(factor=4.0, trained_length=32768))


def test_an_absent_field_has_the_default_of_the_peer() -> None:
    assert decoder_config(_without(MISTRAL, "sliding_window")).decoder.local == LocalAttention(
        before=4095
    )
    assert decoder_config(MISTRAL | {"sliding_window": None}).decoder.local is None
    assert decoder_config(_without(QWEN_25, "use_sliding_window")).decoder.local is None
    assert decoder_config(_without(PYTHIA, "rotary_pct")).decoder.position == Rope(fraction=0.25)
    without_caps = decoder_config(
        _without(GEMMA_2, "attn_logit_softcapping", "final_logit_softcapping")
    )
    assert without_caps == decoder_config(GEMMA_2)
    assert decoder_config(GEMMA_2 | {"final_logit_softcapping": None}) != without_caps


def test_fields_that_a_model_type_does_not_have_are_ignored() -> None:
    assert decoder_config(LLAMA_32 | {"sliding_window": 512}) == decoder_config(LLAMA_32)
    assert decoder_config(MISTRAL | {"mlp_bias": True, "attention_bias": True}) == decoder_config(
        MISTRAL
    )


def test_gelu_in_the_config_of_gemma_1_is_its_tanh_approximation() -> None:
    wide = 16384
    assert decoder_config(GEMMA).decoder.feed_forward == GEGLU(width=wide, tanh=True)
    exact = {"intermediate_size": wide, "hidden_activation": "gelu"}
    assert decoder_config(GEMMA_2 | exact).decoder.feed_forward == GEGLU(width=wide, tanh=False)


UNSUPPORTED: dict[str, tuple[dict[str, Any], str]] = {
    "scores by layer": (GPT2 | {"scale_attn_by_inverse_layer_idx": True}, "each layer's scores"),
    "cross attention": (
        GPT2 | {"add_cross_attention": True},
        "needs an encoder and is not supported",
    ),
    "two heads": (
        GPT2 | {"architectures": ["GPT2DoubleHeadsModel"]},
        "HeadsModel is not supported",
    ),
    "labels": (
        PYTHIA | {"architectures": ["GPTNeoXForSequenceClassification"]},
        "is not supported",
    ),
    "a rotary fraction above 1": (PYTHIA | {"rotary_pct": 1.5}, "fraction"),
    "bidirectional attention": (
        GEMMA_3 | {"use_bidirectional_attention": True},
        "attend to later ones",
    ),
    "a cap on attention scores": (
        GEMMA_3 | {"attn_logit_softcapping": 50.0},
        "gemma3_text does not have",
    ),
    "partial rotary": (GEMMA | {"partial_rotary_factor": 0.5}, "rotate whole heads"),
    "partial rotary in Llama": (LLAMA_32 | {"partial_rotary_factor": 0.5}, "rotate whole heads"),
    "no window": (GEMMA_2 | {"sliding_window": None}, "sliding_window is missing"),
    "too few types": (GEMMA_3 | {"layer_types": ["full_attention"]}, "for each layer"),
    "strange types": (GEMMA_2 | {"layer_types": [["a"]] * 26}, "for each layer"),
    "a negative cap": (GEMMA_2 | {"final_logit_softcapping": -1.0}, "a number above 0"),
    "dynamic scaling": (
        LLAMA_32 | {"rope_scaling": {"type": "dynamic", "factor": 2.0}},
        "'dynamic' is not supported",
    ),
    "an unknown activation": (GPT2 | {"activation_function": "gelu_10"}, "gelu_10"),
}


@pytest.mark.parametrize("name", UNSUPPORTED)
def test_what_is_not_supported_is_named(name: str) -> None:
    fields, message = UNSUPPORTED[name]
    with pytest.raises(ConfigError, match=message):
        decoder_config(fields)


@pytest.mark.parametrize("kind", ["smollm3", "gemma3", "gpt_neo"])
def test_an_unknown_model_type_is_an_error(kind: str) -> None:
    with pytest.raises(BundleError, match=kind):
        find_format({"model_type": kind}, "config.json")


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("Llama 3.2 1B", {"position": Rope(fraction=0.5)}, "no public format can represent"),
        ("Llama 3.2 1B", {"local": LocalAttention(before=4, after=1)}, "local.after is 0, not 1"),
        ("Mistral 7B", {"local": LocalAttention(before=4, layers=(0, 2))}, "local.layers is None"),
        (
            "Gemma 2B",
            {"local": LocalAttention(before=4)},
            "nearest is gemma, where decoder.local is",
        ),
    ],
)
def test_a_model_that_no_format_can_represent_is_an_error(
    name: str, changes: dict[str, Any], message: str
) -> None:
    config = decoder_config(OLD[name][0])
    odd = config.model_copy(update={"decoder": config.decoder.model_copy(update=changes)})
    with pytest.raises(ConfigError, match=message):
        choose_format(odd)


# Files as other programs leave them: an old config beside the weights, other names for tensors.


def assert_same_logits(directory: Path, other: Any, peer: Peer) -> None:
    ids, _ = texts(peer.fields["vocab_size"], [13, 13])
    with torch.no_grad():
        ours, theirs = read_checkpoint(directory).model(ids), other(input_ids=ids).logits
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)


def rename(directory: Path, names: dict[str, str]) -> None:
    file = directory / "model.safetensors"
    tensors = load_file(file)
    save_file({names.get(k, k): v for k, v in tensors.items()}, file, metadata={"format": "pt"})


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
def test_masks_and_frequencies_in_old_files_are_ignored(
    peer: Peer, mask: str, tmp_path: Path
) -> None:
    other = peer.save(tmp_path)
    file = tmp_path / "model.safetensors"
    save_file(load_file(file) | {mask: torch.ones(3, 3)}, file, metadata={"format": "pt"})
    assert_same_logits(tmp_path, other, peer)
    assert read_checkpoint(tmp_path).card.ignored == [mask]


def test_an_unexpected_tensor_is_an_error(tmp_path: Path) -> None:
    cases_gpt2.CASES["gpt2"].save(tmp_path)
    file, name = tmp_path / "model.safetensors", "transformer.h.0.attn.q_norm.weight"
    save_file(load_file(file) | {name: torch.ones(8)}, file, metadata={"format": "pt"})
    with pytest.raises(QkvError, match="is not part of this gpt2 model"):
        read_checkpoint(tmp_path)


def _without(fields: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if name not in names}
