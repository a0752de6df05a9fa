"""Public encoders give what the peer gives, with padding; and the peer reads what we write."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from tests.checkpoints import (
    cases_albert,
    cases_bert,
    cases_distilbert,
    cases_modernbert,
    cases_roberta,
)
from tests.checkpoints.peers import Peer, attention_mask, load, texts

from qkv.checkpoints import read_checkpoint
from qkv.checkpoints.save import write_checkpoint
from qkv.errors import BundleError, ConfigError
from qkv.model import Classify, Encoder, MaskedToken, TextVector

CASES: dict[str, Peer] = {
    **cases_bert.CASES,
    **cases_roberta.CASES,
    **cases_distilbert.CASES,
    **cases_albert.CASES,
    **cases_modernbert.CASES,
}
LENGTHS = [17, 5, 1, 11]
BODIES = ("bert", "roberta", "distilbert", "albert", "modernbert")
EXTRA = ("encoder.extra.weight", "pooler.extra.weight", "classifier.extra.weight")


def types_for(peer: Peer, ids: torch.Tensor) -> torch.Tensor | None:
    """Token types, for formats with more than one."""
    kinds = peer.fields.get("type_vocab_size", 0)
    return None if kinds < 2 else torch.arange(ids.numel()).view_as(ids) % kinds


@torch.no_grad()
def peer_outputs(model: Any, peer: Peer, ids: torch.Tensor, lengths: torch.Tensor) -> Any:
    kinds = types_for(peer, ids)
    token_types = {} if kinds is None else {"token_type_ids": kinds}
    return model(
        input_ids=ids,
        attention_mask=attention_mask(lengths),
        output_hidden_states=True,
        **token_types,
    )


def assert_equal_where_real(
    ours: torch.Tensor, theirs: torch.Tensor, lengths: torch.Tensor
) -> None:
    real = attention_mask(lengths).bool()
    torch.testing.assert_close(ours[real], theirs[real], rtol=1e-4, atol=1e-4)


@torch.no_grad()
def assert_equal(model: Encoder, other: Any, peer: Peer) -> None:
    ids, lengths = texts(peer.fields["vocab_size"], LENGTHS)
    theirs, kinds = peer_outputs(other, peer, ids, lengths), types_for(peer, ids)
    states = model.encode(ids, lengths, kinds)
    last = theirs.last_hidden_state if "last_hidden_state" in theirs else theirs.hidden_states[-1]
    assert_equal_where_real(states, last, lengths)
    answer, output = model(ids, lengths, kinds), model.config.output
    if isinstance(output, MaskedToken):
        logits = theirs.logits if "logits" in theirs else theirs.prediction_logits
        assert_equal_where_real(answer, logits, lengths)
    elif isinstance(output, Classify):
        torch.testing.assert_close(answer, theirs.logits, rtol=1e-4, atol=1e-4)
    elif isinstance(output, TextVector) and output.dense:
        torch.testing.assert_close(answer, theirs.pooler_output, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", CASES)
def test_an_encoder_gives_the_states_and_answers_of_the_peer(name: str, tmp_path: Path) -> None:
    peer = CASES[name]
    other = peer.save(tmp_path)
    checkpoint = read_checkpoint(tmp_path)
    assert_equal(checkpoint.model, other, peer)
    assert sum(checkpoint.card.tensors.values()) > 3 * checkpoint.model.config.encoder.blocks


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_the_peer_reads_an_encoder_we_wrote(name: str, tmp_path: Path) -> None:
    peer = CASES[name]
    pooler = hasattr(peer.make(), "pooler")
    peer.save(tmp_path / "theirs")
    checkpoint = read_checkpoint(tmp_path / "theirs", pooler=pooler)
    (tmp_path / "ours").mkdir()
    write_checkpoint(checkpoint.model, None, tmp_path / "ours", checkpoint.card.layout)
    model = peer.model.replace("ForPreTraining", "ForMaskedLM")
    again = load(model, tmp_path / "ours")
    assert_equal(checkpoint.model, again, peer)
    twice = read_checkpoint(tmp_path / "ours", pooler=pooler)
    assert twice.model.config == checkpoint.model.config
    for key, tensor in checkpoint.model.state_dict().items():
        assert torch.equal(twice.model.state_dict()[key], tensor), key


def rewrite(directory: Path, **fields: object) -> None:
    """Change fields of config.json; None is written as null, and ... removes a field."""
    config = json.loads((directory / "config.json").read_text()) | fields
    config = {name: value for name, value in config.items() if value is not ...}
    (directory / "config.json").write_text(json.dumps(config))


@pytest.mark.parametrize("head", ["masked", "labels"])
@pytest.mark.parametrize("name", BODIES)
def test_a_body_is_read_from_a_file_that_also_has_a_head(
    name: str, head: str, tmp_path: Path
) -> None:
    peer = CASES[f"{name}, {head}"]
    other = peer.save(tmp_path)
    rewrite(tmp_path, architectures=[re.sub("For.*", "Model", peer.model)])
    checkpoint = read_checkpoint(tmp_path)
    assert_equal(checkpoint.model, other, peer)
    assert isinstance(checkpoint.model.config.output, TextVector)
    assert checkpoint.card.ignored


@pytest.mark.parametrize(
    ("name", "extra"),
    [("bert", EXTRA[0]), *((name, extra) for name in BODIES[1:] for extra in EXTRA)],
)
def test_an_unexpected_tensor_is_an_error(name: str, extra: str, tmp_path: Path) -> None:
    CASES[name].save(tmp_path)
    file = tmp_path / "model.safetensors"
    save_file(load_file(file) | {extra: torch.ones(3)}, file, metadata={"format": "pt"})
    with pytest.raises(BundleError, match=re.escape(extra)):
        read_checkpoint(tmp_path)


@pytest.mark.parametrize("name", ["distilbert", "modernbert"])
def test_a_pooler_is_an_error_in_a_format_without_one(name: str, tmp_path: Path) -> None:
    CASES[name].save(tmp_path)
    with pytest.raises(BundleError, match="has no pooler"):
        read_checkpoint(tmp_path, pooler=True)


@pytest.mark.parametrize(
    ("name", "fields", "message"),
    [
        ("albert", {"inner_group_num": 2}, "inner_group_num is 2"),
        ("albert", {"num_hidden_groups": 3}, "unique_layers=3 must divide layers=4"),
        ("roberta", {"max_position_embeddings": 2}, "max_position_embeddings is 2"),
        ("roberta", {"pad_token_id": -1}, "pad_token_id is -1"),
        ("roberta", {"is_decoder": True}, "is_decoder is True"),
        ("modernbert", {"hidden_activation": "sigmoid"}, "hidden_activation"),
        ("modernbert", {"layer_types": ["full_attention"]}, "layer_types"),
        ("modernbert", {"rope_parameters": {"rope_theta": 9.0}}, "one for sliding_attention"),
        ("modernbert", {"rope_parameters": ..., "local_rope_theta": None}, "local_rope_theta"),
        (
            "modernbert",
            {"rope_parameters": {"full_attention": {"partial_rotary_factor": 0.5}}},
            "rotate whole heads",
        ),
    ],
)
def test_what_is_not_supported_is_named(
    name: str, fields: dict[str, object], message: str, tmp_path: Path
) -> None:
    CASES[name].save(tmp_path)
    rewrite(tmp_path, **fields)
    with pytest.raises(ConfigError, match=message):
        read_checkpoint(tmp_path)


def test_old_spellings_of_positions_and_windows_mean_the_same(tmp_path: Path) -> None:
    peer = CASES["modernbert, one base"]
    peer.save(tmp_path)
    new = read_checkpoint(tmp_path).model.config
    old = {name: peer.fields[name] for name in ("global_rope_theta", "local_rope_theta")}
    rewrite(tmp_path, rope_parameters=..., layer_types=..., global_attn_every_n_layers=2, **old)
    assert read_checkpoint(tmp_path).model.config == new
    rewrite(tmp_path, local_rope_theta=11.0)
    local = read_checkpoint(tmp_path).model.config.encoder.local
    assert (local.layers, local.position.base) == ((1, 3), 11.0)


@pytest.mark.parametrize("name", BODIES)
def test_dropout_of_attention_is_noted_as_not_carried(name: str, tmp_path: Path) -> None:
    CASES[name].save(tmp_path)
    field = "attention_dropout" if name in ("distilbert", "modernbert") else None
    rewrite(tmp_path, **{field or "attention_probs_dropout_prob": 0.25})
    assert any("(0.25)" in note for note in read_checkpoint(tmp_path).card.not_carried)
