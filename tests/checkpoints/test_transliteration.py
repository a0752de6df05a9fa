"""A real model of another program's: Arabic letters to Latin ones, by a table of names alone.

There is no config to read, so this one is written by hand; that it is right is shown by the
expected numbers, which tell all of it but the norm's eps (1e-5 and 1e-6 fit alike). What they call
`greedy_avg_attention` is no mean: it is the first head of the last layer.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from qkv.attention import AttentionSteps
from qkv.checkpoints.tensor_names import SplitRows, TensorMap, resolve
from qkv.engine.beam.search import beam_search
from qkv.model import (
    Embedding,
    EncoderDecoder,
    MultiHead,
    NextToken,
    PreNorm,
    ReLU,
    Sinusoidal,
    Stack,
    Translator,
)

STACK = Stack(
    layers=6,
    width=32,
    attention=MultiHead(heads=8),
    feed_forward=ReLU(width=128),
    position=Sinusoidal(interleaved=False, endpoint=True, offset=1),
    norm_placement=PreNorm(),
)
CONFIG = EncoderDecoder(
    length=64,
    embedding=Embedding(vocabulary=43, scaled=True),  # the symbols of the file, and an unknown one
    source=Embedding(vocabulary=51, scaled=True),
    encoder=STACK,
    decoder=STACK,
    output=NextToken(tied=False, bias=True),
)


def side(name: str) -> TensorMap:
    """The rows of the encoder or the decoder."""
    ours = f"{name}.{{i}}"
    theirs = f"{name}.layer_{{i}}"
    self_attention = f"{theirs}.self_attention"
    cross = f"{theirs}.attention"
    feed_forward = f"{theirs}.ffn"
    return {
        tuple(f"{ours}.attention.{part}" for part in ("query", "key", "value")): SplitRows(
            f"{self_attention}.linear_0"
        ),
        f"{ours}.attention.output": f"{self_attention}.linear_1",
        f"{ours}.cross.query": f"{cross}.linear_0",
        (f"{ours}.cross.key", f"{ours}.cross.value"): SplitRows(f"{cross}.linear_1"),
        f"{ours}.cross.output": f"{cross}.linear_2",
        f"{ours}.feed_forward.up": f"{feed_forward}.linear_0",
        f"{ours}.feed_forward.down": f"{feed_forward}.linear_1",
        **norm(f"{ours}.attention_in", self_attention),
        **norm(f"{ours}.cross_in", cross),
        **norm(f"{ours}.feed_forward_in", feed_forward),
        **norm(f"{name}.norm_out", name),
    }


def norm(ours: str, theirs: str) -> TensorMap:
    module = f"{theirs}.layer_norm"
    return {f"{ours}.weight": f"{module}.gamma", f"{ours}.bias": f"{module}.beta"}


TENSOR_MAP: TensorMap = {
    "source.weight": "encoder.embeddings.weight",
    "embedding.weight": "decoder.embeddings.weight",
    "output": "decoder.projection",
    **side("encoder"),
    **side("decoder"),
}


@dataclass(frozen=True)
class Transliterator:
    model: Translator
    source: list[str]  # symbols by their number
    target: list[str]
    expected: list[dict[str, Any]]

    def sources(self) -> list[list[int]]:
        return [[self.source.index(c) for c in case["src"].split()] for case in self.expected]

    def text(self, ids: tuple[int, ...]) -> str:
        return " ".join(self.target[i] for i in ids)

    @property
    def special_ids(self) -> dict[str, int]:
        return {"bos": self.target.index("<s>"), "eos": self.target.index("</s>")}


@pytest.fixture(scope="module")
def arabic(shared: Path) -> Transliterator:
    directory = shared / "models" / "aren-transliteration"
    with np.load(directory / "aren_v2.npz") as file:
        theirs = {n.replace("/", "."): torch.from_numpy(file[n]) for n in file.files}
    symbols = [
        (directory / "ctranslate2" / f"{name}_vocabulary.txt").read_text("utf-8").split("\n")[:-1]
        for name in ("source", "target")
    ]
    expected = json.loads((directory / "expected.json").read_text("utf-8"))
    return Transliterator(load_translator(theirs), *symbols, expected)


def load_translator(theirs: dict[str, Tensor]) -> Translator:
    """The model with its weights; every tensor must be used."""
    model = CONFIG.build()
    ours = model.state_dict()
    conversions = resolve(TENSOR_MAP, ours)
    assert {conversion.public for conversion in conversions} == theirs.keys()
    sizes = {name: tensor.shape for name, tensor in ours.items()}
    state_dict: dict[str, Tensor] = {}
    for conversion in conversions:
        state_dict |= conversion.to_params(theirs[conversion.public], sizes)
    model.load_state_dict(state_dict, strict=True)
    return model.eval()


def test_greedy_search_writes_the_expected_letters(arabic: Transliterator) -> None:
    results = beam_search(arabic.model, arabic.sources(), **arabic.special_ids)
    for (best,), case in zip(results, arabic.expected, strict=True):
        assert arabic.text(best.ids) == case["greedy"]
        assert best.score == pytest.approx(case["greedy_logprob_sum"], abs=1e-3)


def test_four_beams_find_the_expected_four_with_their_mean_scores(arabic: Transliterator) -> None:
    """Scores there are Σ log p ÷ tokens, the end counted, as ours with a length penalty of 1."""
    results = beam_search(
        arabic.model, arabic.sources(), **arabic.special_ids, beams=4, best=4, length_penalty=1.0
    )
    for four, case in zip(results, arabic.expected, strict=True):
        assert [arabic.text(hypothesis.ids) for hypothesis in four] == case["beam4"]
        ranks = [hypothesis.rank for hypothesis in four]
        assert ranks == pytest.approx(case["beam4_scores"], abs=1e-3)


@pytest.fixture
def last_cross(arabic: Transliterator) -> Iterator[list[Tensor]]:
    """The weights of the last layer's cross attention, one entry a call."""
    weights: list[Tensor] = []

    def record(module: object, args: object, steps: AttentionSteps) -> None:
        weights.append(steps.weights)

    last = arabic.model.get_submodule(f"decoder.{STACK.layers - 1}.cross.core.hook_point")
    hook = last.register_forward_hook(record)
    yield weights
    hook.remove()


def test_each_letter_reads_the_source_as_expected(
    arabic: Transliterator, last_cross: list[Tensor]
) -> None:
    for source, case in zip(arabic.sources(), arabic.expected, strict=True):
        last_cross.clear()
        beam_search(arabic.model, [source], **arabic.special_ids)
        weights = torch.cat([step[0, 0] for step in last_cross])[:-1]  # not what chose the end
        expected = torch.tensor(case["greedy_avg_attention"])
        torch.testing.assert_close(weights, expected, rtol=0, atol=1e-3)
