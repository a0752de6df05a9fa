"""Public encoder–decoders give the peer's logits: padded, and step by step with a cache."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from tests.checkpoints import cases_bart, cases_marian, cases_pegasus, cases_t5, cases_t5gemma
from tests.checkpoints.peers import Peer, attention_mask, load, quietly, texts, transformers

from qkv.checkpoints import read_checkpoint
from qkv.checkpoints.save import choose_format, write_checkpoint
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

CASES: dict[str, Peer] = {
    **cases_t5.CASES,
    **cases_t5gemma.CASES,
    **cases_bart.CASES,
    **cases_marian.CASES,
    **cases_pegasus.CASES,
}
SOURCES, TARGETS = [19, 7, 1, 12], [5, 1, 17, 11]
EVERY = pytest.mark.parametrize("name", CASES)
CLOSE = {"rtol": 1e-4, "atol": 1e-4}


def read(directory: Path) -> Translator:
    model = read_checkpoint(directory).model
    assert isinstance(model, Translator)
    return model


def target_vocabulary(peer: Peer) -> int:
    size = peer.fields.get("decoder_vocab_size", peer.fields["vocab_size"])
    assert isinstance(size, int)
    return size


@torch.no_grad()
def assert_equal(model: Translator, other: Any, peer: Peer) -> None:
    source, source_lengths = texts(peer.fields["vocab_size"], SOURCES)
    target, target_lengths = texts(target_vocabulary(peer), TARGETS, seed=2)
    theirs = other(
        input_ids=source,
        attention_mask=attention_mask(source_lengths),
        decoder_input_ids=target,
        decoder_attention_mask=attention_mask(target_lengths),
    ).logits
    real = attention_mask(target_lengths).bool()
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
    target, _ = texts(target_vocabulary(peer), [15, 15], seed=2)
    memory = model.encode(source, lengths)
    cache = model.empty_cache(2, 15)
    encoder_outputs = other.get_encoder()(input_ids=source, attention_mask=attention_mask(lengths))
    real = attention_mask(lengths).bool()
    torch.testing.assert_close(memory[real], encoder_outputs.last_hidden_state[real], **CLOSE)
    past = None
    for start, stop in ((0, 6), (6, 7), (7, 8), (8, 12), (12, 15)):
        step = target[:, start:stop]
        theirs = other(
            encoder_outputs=encoder_outputs,
            attention_mask=attention_mask(lengths),
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
    checkpoint = read_checkpoint(tmp_path / "theirs")
    assert isinstance(checkpoint.model, Translator)
    (tmp_path / "ours").mkdir()
    write_checkpoint(checkpoint.model, None, tmp_path / "ours", checkpoint.card.layout)
    config = json.loads((tmp_path / "ours" / "config.json").read_text())
    assert_equal(checkpoint.model, load(config["architectures"][0], tmp_path / "ours"), peer)
    twice = read(tmp_path / "ours")
    assert twice.config == checkpoint.model.config
    for key, tensor in checkpoint.model.state_dict().items():
        assert torch.equal(twice.state_dict()[key], tensor), key


def change(directory: Path, **fields: object) -> None:
    """Change fields of config.json; those that are None are removed."""
    config = json.loads((directory / "config.json").read_text()) | fields
    config = {name: value for name, value in config.items() if value is not None}
    (directory / "config.json").write_text(json.dumps(config))


def add(directory: Path, **tensors: torch.Tensor) -> None:
    """Add tensors to the file; __ in a name stands for a dot."""
    file = directory / "model.safetensors"
    weights = {name: t.clone() for name, t in load_file(file).items()}
    for name, tensor in tensors.items():
        weights[name.replace("__", ".")] = tensor.clone()
    save_file(weights, file, metadata={"format": "pt"})


def remove(directory: Path, *names: str) -> None:
    file = directory / "model.safetensors"
    weights = {name: t.clone() for name, t in load_file(file).items() if name not in names}
    save_file(weights, file, metadata={"format": "pt"})


def test_an_untied_head_means_unscaled_logits_where_no_field_says_so(tmp_path: Path) -> None:
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
    add(tmp_path, lm_head__weight=other.shared.weight.detach().clone())
    model = read(tmp_path)
    assert model.config.output == NextToken(tied=False, multiplier=30**-0.5)
    assert_equal(model, other, peer)


@pytest.mark.parametrize("stored", ["encoder.embed_tokens.weight", "lm_head.weight"])
def test_a_table_is_found_under_any_of_its_names(stored: str, tmp_path: Path) -> None:
    peer = CASES["t5"]
    other = peer.save(tmp_path)
    add(tmp_path, **{stored.replace(".", "__"): other.shared.weight.detach().clone()})
    remove(tmp_path, "shared.weight")
    model = read(tmp_path)
    assert model.config.output == NextToken(tied=True, multiplier=30**-0.5)
    assert_equal(model, other, peer)


@pytest.mark.parametrize("name", ["t5", "bart"])
def test_a_second_table_that_differs_is_refused(name: str, tmp_path: Path) -> None:
    """The peer would read the source with it, which a tied config does not say."""
    CASES[name].save(tmp_path)
    prefix = "" if name == "t5" else "model__"
    add(tmp_path, **{f"{prefix}encoder__embed_tokens__weight": torch.ones(97, 30)})
    with pytest.raises(BundleError, match=r"encoder\.embed_tokens\.weight, which .* differ"):
        read_checkpoint(tmp_path)


@pytest.mark.parametrize("name", ["t5 1.1", "mt5", "bart, nothing tied"])
def test_a_head_that_is_missing_is_not_made_up(name: str, tmp_path: Path) -> None:
    CASES[name].save(tmp_path)
    change(tmp_path, tie_word_embeddings=False)
    remove(tmp_path, "lm_head.weight")
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
    full = peer.make()
    alone = full if body == "T5Model" else full.model
    with quietly():
        inner = getattr(transformers, body)(full.config)
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
def test_the_position_embeddings_of_marian_are_our_sinusoids(tmp_path: Path) -> None:
    other = CASES["marian"].save(tmp_path)
    table = other.model.encoder.embed_positions.weight.detach().clone()
    add(
        tmp_path,
        model__encoder__embed_positions__weight=table,
        model__decoder__embed_positions__weight=table,
    )
    checkpoint = read_checkpoint(tmp_path)
    assert isinstance(checkpoint.model, Translator)
    zeros = torch.zeros(1, *table.shape)
    for stack in (checkpoint.model.encoder, checkpoint.model.decoder):
        sinusoids = stack.position.embed(zeros, torch.arange(len(table)))[0]
        torch.testing.assert_close(sinusoids, table, rtol=0, atol=1e-5)
    assert checkpoint.card.ignored == [
        "model.decoder.embed_positions.weight",
        "model.encoder.embed_positions.weight",
    ]


def test_obsolete_tensors_are_listed_and_unknown_ones_are_errors(tmp_path: Path) -> None:
    CASES["bart"].save(tmp_path)
    add(tmp_path, model__encoder__version=torch.tensor([3.0]))
    assert read_checkpoint(tmp_path).card.ignored == ["model.encoder.version"]
    add(tmp_path, model__encoder__layer_norm__weight=torch.ones(30))
    with pytest.raises(
        BundleError, match=r"model\.encoder\.layer_norm\.weight, which is not part of"
    ):
        read_checkpoint(tmp_path)


@pytest.mark.parametrize(
    ("name", "fields", "message"),
    [
        ("t5", {"architectures": ["T5EncoderModel"]}, "T5EncoderModel is not supported"),
        ("t5", {"is_encoder_decoder": False}, "is_encoder_decoder is False"),
        ("t5", {"dense_act_fn": "gelu_10"}, 'unknown dense_act_fn "gelu_10"'),
        (
            "t5",
            {"feed_forward_proj": "gated-tanh", "is_gated_act": None, "dense_act_fn": None},
            'unknown dense_act_fn "tanh"',
        ),
        ("t5", {"relative_attention_max_distance": 2}, "max_distance=2 must be more than 2"),
        (
            "bart",
            {"architectures": ["BartForSequenceClassification"]},
            "Classification is not supported",
        ),
        ("bart", {"normalize_before": True}, "normalize_before is True, which bart models do not"),
        ("mbart", {"add_final_layer_norm": False}, "add_final_layer_norm is False, which mbart"),
        ("marian", {"normalize_embedding": True}, "normalize_embedding is True, which marian"),
        ("marian", {"decoder_vocab_size": 61}, "decoder_vocab_size is 61, which must be vocab"),
    ],
)
def test_what_is_not_supported_is_named(
    name: str, fields: dict[str, object], message: str, tmp_path: Path
) -> None:
    CASES[name].save(tmp_path)
    change(tmp_path, **fields)
    with pytest.raises(ConfigError, match=message):
        read_checkpoint(tmp_path)


def test_what_only_training_uses_is_noted(tmp_path: Path) -> None:
    CASES["bart"].save(tmp_path)
    change(tmp_path, attention_dropout=0.25, decoder_layerdrop=0.5)
    assert read_checkpoint(tmp_path).card.not_carried == [
        "dropout of attention weights (0.25), only used in training",
        "LayerDrop in the decoder (0.5), only used in training",
    ]


def test_a_translator_that_no_format_can_represent_is_an_error() -> None:
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
    with pytest.raises(ConfigError, match="this model; nearest is pegasus, where"):
        choose_format(config)
