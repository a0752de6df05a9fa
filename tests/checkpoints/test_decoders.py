"""Public decoders give the peer's logits: padded, and step by step with a cache."""

from pathlib import Path
from typing import Any

import pytest
import torch
from tests.checkpoints import cases_gemma, cases_gpt2, cases_gpt_neox, cases_llama
from tests.checkpoints.peers import Peer, attention_mask, load, texts

from qkv.checkpoints import read_checkpoint
from qkv.checkpoints.save import write_checkpoint
from qkv.model import Decoder

CASES: dict[str, Peer] = {
    **cases_llama.CASES,
    **cases_gpt2.CASES,
    **cases_gpt_neox.CASES,
    **cases_gemma.CASES,
}
LENGTHS = [19, 7, 1, 12]
EVERY = pytest.mark.parametrize("name", CASES)


@torch.no_grad()
def assert_equal(model: Decoder, other: Any, peer: Peer) -> None:
    ids, lengths = texts(peer.fields["vocab_size"], LENGTHS)
    theirs = other(input_ids=ids, attention_mask=attention_mask(lengths)).logits
    real = attention_mask(lengths).bool()
    torch.testing.assert_close(model(ids, lengths)[real], theirs[real], rtol=1e-4, atol=1e-4)


@EVERY
def test_a_decoder_gives_the_logits_of_the_peer(name: str, tmp_path: Path) -> None:
    other = CASES[name].save(tmp_path)
    assert_equal(read_checkpoint(tmp_path).model, other, CASES[name])


@EVERY
@torch.no_grad()
def test_step_by_step_with_a_cache_it_gives_the_peers_own_steps(name: str, tmp_path: Path) -> None:
    peer = CASES[name]
    other = peer.save(tmp_path)
    model = read_checkpoint(tmp_path).model
    assert isinstance(model, Decoder)
    ids, _ = texts(peer.fields["vocab_size"], [15, 15])
    cache, past = model.empty_cache(2, 15), None
    for start, stop in ((0, 6), (6, 7), (7, 8), (8, 12), (12, 15)):
        step = ids[:, start:stop]
        theirs = other(input_ids=step, past_key_values=past, use_cache=True)
        past = theirs.past_key_values
        ours = model(step, cache=cache)
        torch.testing.assert_close(ours, theirs.logits, rtol=1e-4, atol=1e-4)


@pytest.mark.slow
@EVERY
def test_the_peer_reads_a_decoder_we_wrote(name: str, tmp_path: Path) -> None:
    peer = CASES[name]
    peer.save(tmp_path / "theirs")
    checkpoint = read_checkpoint(tmp_path / "theirs")
    (tmp_path / "ours").mkdir()
    write_checkpoint(checkpoint.model, None, tmp_path / "ours", checkpoint.card.layout)
    assert_equal(checkpoint.model, load(peer.model, tmp_path / "ours"), peer)
    twice = read_checkpoint(tmp_path / "ours").model
    assert twice.config == checkpoint.model.config
    for key, tensor in checkpoint.model.state_dict().items():
        assert torch.equal(twice.state_dict()[key], tensor), key
