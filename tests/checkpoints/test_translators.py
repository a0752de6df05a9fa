"""Public encoder–decoders give the peer's logits: padded, and step by step with a cache."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from tests.checkpoints import cases_bart, cases_marian, cases_t5
from tests.checkpoints.peers import Peer, load, quietly, shown, texts, transformers

from qkv.checkpoints import read_checkpoint
from qkv.checkpoints.save import layout_for, write_checkpoint
from qkv.errors import BundleError, ConfigError
from qkv.model import (
    Embedding,
    EncoderDecoder,
    MultiHead,
    NextToken,
    ReLU,
    RMSNorm,
    Rope,
    Stack,
    Translator,
)

CASES: dict[str, Peer] = {**cases_t5.CASES, **cases_bart.CASES, **cases_marian.CASES}
SOURCES, TARGETS = [19, 7, 1, 12], [5, 1, 17, 11]
EVERY = pytest.mark.parametrize("name", CASES)
CLOSE = {"rtol": 1e-4, "atol": 1e-4}


def read(place: Path) -> Translator:
    model = read_checkpoint(place).model
    assert isinstance(model, Translator)
    return model


def written(peer: Peer) -> int:
    """How many tokens targets are made of."""
    size = peer.fields.get("decoder_vocab_size", peer.fields["vocab_size"])
    assert isinstance(size, int)
    return size


@torch.no_grad()
def assert_equal(model: Translator, other: Any, peer: Peer) -> None:
    source, source_lengths = texts(peer.fields["vocab_size"], SOURCES)
    target, target_lengths = texts(written(peer), TARGETS, seed=2)
    theirs = other(
        input_ids=source,
        attention_mask=shown(source_lengths),
        decoder_input_ids=target,
        decoder_attention_mask=shown(target_lengths),
    ).logits
    real = shown(target_lengths).bool()
    ours = model(source, target, source_lengths, target_lengths)
    torch.testing.assert_close(ours[real], theirs[real], **CLOSE)


@EVERY
def test_a_translator_gives_the_logits_of_the_peer(name: str, tmp_path: Path) -> None:
    other = CASES[name].save(tmp_path)
    assert_equal(read(tmp_path), other, CASES[name])


@EVERY
@torch.no_grad()
def test_step_by_step_with_a_cache_it_gives_the_peers_own_steps(name: str, tmp_path: Path) -> None:
    peer = CASES[name]
    other = peer.save(tmp_path)
    model = read(tmp_path)
    source, lengths = texts(peer.fields["vocab_size"], [9, 13])
    target, _ = texts(written(peer), [15, 15], seed=2)
    memory, cache = model.encode(source, lengths), model.empty_cache(2, 15)
    read_before = other.get_encoder()(input_ids=source, attention_mask=shown(lengths))
    real = shown(lengths).bool()
    torch.testing.assert_close(memory[real], read_before.last_hidden_state[real], **CLOSE)
    past = None
    for start, stop in ((0, 6), (6, 7), (7, 8), (8, 12), (12, 15)):
        step = target[:, start:stop]
        theirs = other(
            encoder_outputs=read_before,
            attention_mask=shown(lengths),
            decoder_input_ids=step,
            past_key_values=past,
            use_cache=True,
        )
        past = theirs.past_key_values
        ours = model.decode(step, memory, lengths, cache=cache)
        torch.testing.assert_close(ours, theirs.logits, **CLOSE)


@pytest.mark.slow
@EVERY
def test_the_peer_reads_a_translator_we_wrote(name: str, tmp_path: Path) -> None:
    peer = CASES[name]
    peer.save(tmp_path / "theirs")
    found = read_checkpoint(tmp_path / "theirs")
    assert isinstance(found.model, Translator)
    (tmp_path / "ours").mkdir()
    write_checkpoint(found.model, None, tmp_path / "ours", found.card.layout)
    said = json.loads((tmp_path / "ours" / "config.json").read_text())
    assert_equal(found.model, load(said["architectures"][0], tmp_path / "ours"), peer)
    twice = read(tmp_path / "ours")
    assert twice.config == found.model.config
    for key, tensor in found.model.state_dict().items():
        assert torch.equal(twice.state_dict()[key], tensor), key


def change(place: Path, **fields: object) -> None:
    """Write other fields into the config; those that are None are left out."""
    said = json.loads((place / "config.json").read_text()) | fields
    kept = {name: value for name, value in said.items() if value is not None}
    (place / "config.json").write_text(json.dumps(kept))


def put(place: Path, **tensors: torch.Tensor) -> None:
    file = place / "model.safetensors"
    kept = {name: t.clone() for name, t in load_file(file).items()}
    given = {name.replace("__", "."): t.clone() for name, t in tensors.items()}
    save_file(kept | given, file, metadata={"format": "pt"})


def take_out(place: Path, *names: str) -> None:
    file = place / "model.safetensors"
    kept = {name: t.clone() for name, t in load_file(file).items() if name not in names}
    save_file(kept, file, metadata={"format": "pt"})


def test_an_untied_head_says_that_scores_are_not_scaled_where_no_field_does(tmp_path: Path) -> None:
    """As configs of T5 1.1 were written before `scale_decoder_outputs`."""
    peer = CASES["t5 1.1"]
    other = peer.save(tmp_path)
    change(tmp_path, tie_word_embeddings=False, scale_decoder_outputs=None, dense_act_fn=None)
    model = read(tmp_path)
    assert model.config.output == NextToken(tied=False)
    assert_equal(model, other, peer)
    assert_equal(model, load(peer.model, tmp_path), peer)


def test_a_stored_head_that_equals_the_table_scores_like_it(tmp_path: Path) -> None:
    peer = CASES["t5"]
    other = peer.save(tmp_path)
    put(tmp_path, lm_head__weight=other.shared.weight.detach().clone())
    model = read(tmp_path)
    assert model.config.output == NextToken(tied=False, multiplier=30**-0.5)
    assert_equal(model, other, peer)


@pytest.mark.parametrize("stored", ["encoder.embed_tokens.weight", "lm_head.weight"])
def test_a_table_is_found_under_any_of_its_names(stored: str, tmp_path: Path) -> None:
    peer = CASES["t5"]
    other = peer.save(tmp_path)
    put(tmp_path, **{stored.replace(".", "__"): other.shared.weight.detach().clone()})
    take_out(tmp_path, "shared.weight")
    model = read(tmp_path)
    assert model.config.output == NextToken(tied=True, multiplier=30**-0.5)
    assert_equal(model, other, peer)


@pytest.mark.parametrize("name", ["t5", "bart"])
def test_a_second_table_that_differs_is_refused(name: str, tmp_path: Path) -> None:
    """The peer would read the source with it, which a tied config does not say."""
    CASES[name].save(tmp_path)
    prefix = "" if name == "t5" else "model__"
    put(tmp_path, **{f"{prefix}encoder__embed_tokens__weight": torch.ones(97, 30)})
    with pytest.raises(BundleError, match=r"encoder\.embed_tokens\.weight, which .* differ"):
        read_checkpoint(tmp_path)


@pytest.mark.parametrize("name", ["t5 1.1", "mt5", "bart, nothing tied"])
def test_a_head_that_is_missing_is_not_made_up(name: str, tmp_path: Path) -> None:
    CASES[name].save(tmp_path)
    change(tmp_path, tie_word_embeddings=False)
    take_out(tmp_path, "lm_head.weight")
    with pytest.raises(BundleError, match=r"lacks the tensor lm_head\.weight, needed for output"):
        read_checkpoint(tmp_path)


@pytest.mark.parametrize(
    ("body", "name"),
    [("T5Model", "t5"), ("BartModel", "bart"), ("MBartModel", "mbart"), ("MarianModel", "marian")],
)
def test_a_body_alone_scores_with_its_table_and_no_bias_as_the_peer_does(
    body: str, name: str, tmp_path: Path
) -> None:
    peer = CASES[name]
    whole = peer.make()
    alone = whole if body == "T5Model" else whole.model
    with quietly():
        inner = getattr(transformers, body)(whole.config)
        inner.load_state_dict({k: v for k, v in alone.state_dict().items() if "lm_head" not in k})
        inner.save_pretrained(tmp_path)
    model = read(tmp_path)
    assert model.config.output.tied
    assert not model.config.output.bias
    assert_equal(model, load(peer.model, tmp_path), peer)


def test_tables_told_apart_by_a_config_but_stored_once_are_one(tmp_path: Path) -> None:
    """As BART was written with `tie_word_embeddings` off before each side had its own table."""
    peer = CASES["bart, a head in the file"]
    other = peer.save(tmp_path)
    change(tmp_path, tie_word_embeddings=False)
    model = read(tmp_path)
    assert model.config.source is None
    assert_equal(model, other, peer)


@torch.no_grad()
def test_the_position_tables_of_marian_are_our_waves(tmp_path: Path) -> None:
    other = CASES["marian"].save(tmp_path)
    table = other.model.encoder.embed_positions.weight.detach().clone()
    put(
        tmp_path,
        model__encoder__embed_positions__weight=table,
        model__decoder__embed_positions__weight=table,
    )
    found = read_checkpoint(tmp_path)
    assert isinstance(found.model, Translator)
    nothing = torch.zeros(1, *table.shape)
    for stack in (found.model.encoder, found.model.decoder):
        waves = stack.position.embed(nothing, torch.arange(len(table)))[0]
        torch.testing.assert_close(waves, table, rtol=0, atol=1e-5)
    assert found.card.ignored == [
        "model.decoder.embed_positions.weight",
        "model.encoder.embed_positions.weight",
    ]


def test_leftovers_are_told_and_what_is_unknown_is_refused(tmp_path: Path) -> None:
    CASES["bart"].save(tmp_path)
    put(tmp_path, model__encoder__version=torch.tensor([3.0]))
    assert read_checkpoint(tmp_path).card.ignored == ["model.encoder.version"]
    put(tmp_path, model__encoder__layer_norm__weight=torch.ones(30))
    with pytest.raises(BundleError, match=r"model\.encoder\.layer_norm\.weight, for which this"):
        read_checkpoint(tmp_path)


@pytest.mark.parametrize(
    ("name", "fields", "said"),
    [
        ("t5", {"architectures": ["T5EncoderModel"]}, "T5EncoderModel cannot be carried"),
        ("t5", {"is_encoder_decoder": False}, "is_encoder_decoder is False"),
        ("t5", {"dense_act_fn": "gelu_10"}, 'unknown dense_act_fn "gelu_10"'),
        ("t5", {"feed_forward_proj": "gated-relu", "is_gated_act": None, "dense_act_fn": None},
         'unknown dense_act_fn "relu"'),
        ("t5", {"relative_attention_max_distance": 2}, "max_distance=2 must be more than 2"),
        ("bart", {"architectures": ["BartForSequenceClassification"]}, "Classification cannot"),
        ("bart", {"normalize_before": True}, "normalize_before is True, which bart models do not"),
        ("mbart", {"add_final_layer_norm": False}, "add_final_layer_norm is False, which mbart"),
        ("marian", {"normalize_embedding": True}, "normalize_embedding is True, which marian"),
        ("marian", {"decoder_vocab_size": 61}, "decoder_vocab_size is 61, which must be vocab"),
    ],
)  # fmt: skip
def test_what_cannot_be_carried_is_refused(
    name: str, fields: dict[str, object], said: str, tmp_path: Path
) -> None:
    CASES[name].save(tmp_path)
    change(tmp_path, **fields)
    with pytest.raises(ConfigError, match=said):
        read_checkpoint(tmp_path)


def test_what_only_training_uses_is_noted(tmp_path: Path) -> None:
    CASES["bart"].save(tmp_path)
    change(tmp_path, attention_dropout=0.25, decoder_layerdrop=0.5)
    assert read_checkpoint(tmp_path).card.not_carried == [
        "dropout of attention weights (0.25), which only training would use",
        "decoder layers left out (0.5), which only training would do",
    ]


def test_a_translator_that_no_layout_can_say_is_refused() -> None:
    stack = Stack(
        layers=2,
        width=30,
        attention=MultiHead(heads=5),
        feed_forward=ReLU(width=41),
        position=Rope(),
        norm=RMSNorm(),
    )
    config = EncoderDecoder(
        length=23, embedding=Embedding(vocabulary=97), encoder=stack, decoder=stack
    )
    with pytest.raises(ConfigError, match="this model; in bart, the nearest"):
        layout_for(config)
