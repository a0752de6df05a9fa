"""Loading needs little more memory than the model: nothing is held twice."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from tests.checkpoints.peers import Peer, quietly, transformers

LOAD = Path(__file__).parent / "load_one.py"
WIDE = {"n_embd": 768, "n_layer": 4, "n_head": 12, "vocab_size": 5003, "n_positions": 64}
DEEP = {
    "hidden_size": 768,
    "intermediate_size": 2048,
    "num_hidden_layers": 4,
    "num_attention_heads": 12,
    "vocab_size": 5003,
    "tie_word_embeddings": True,
}
CASES = {
    "as it is": (Peer("LlamaForCausalLM", "LlamaConfig", DEEP), torch.float32),
    "transposed and taken apart": (Peer("GPT2LMHeadModel", "GPT2Config", WIDE), torch.float32),
    "from half precision": (Peer("LlamaForCausalLM", "LlamaConfig", DEEP), torch.bfloat16),
}


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("name", CASES)
def test_loading_peaks_at_little_more_than_the_model(name: str, tmp_path: Path) -> None:
    peer, dtype = CASES[name]
    with quietly():
        config = getattr(transformers, peer.config)(**peer.fields)
        model = getattr(transformers, peer.model)(config).to(dtype=dtype)
        model.save_pretrained(tmp_path)
    process = subprocess.run(
        [sys.executable, str(LOAD), str(tmp_path)], check=True, capture_output=True, text=True
    )
    peak, size, _ = map(float, process.stdout.split())
    assert size > 100e6
    assert peak < 1.2 * size
