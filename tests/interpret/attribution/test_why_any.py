"""One question for all models: each is options what it answers with, and nothing else."""

import pytest
import torch
from tests.model.odd_models import ALL

from qkv.errors import UsageError
from qkv.interpret.attribution import (
    LabelAttribution,
    TokenAttribution,
    TranslationAttribution,
    VectorAttribution,
    why,
)
from qkv.interpret.attribution.attribution_text import attribution_lines
from qkv.model import Decoder, build
from qkv.text import Tokenizer

SMALL = Tokenizer.train("characters", ["abcdefg ,"], 19)
KINDS = {
    "encoder: classifier": (LabelAttribution, {"label": "mad"}),
    "encoder: mean vector": (VectorAttribution, {}),
    "decoder: llama": (TokenAttribution, {"token": "a", "against": "b"}),
    "translator: paper": (TranslationAttribution, {"target": "ab c"}),
}


def build_eval(name: str):  # type: ignore[no-untyped-def]
    model = build(ALL[name], seed=3).eval()
    with torch.no_grad():
        model.embedding.weight.mul_(5)
    return model


@pytest.mark.parametrize("name", KINDS)
def test_each_model_has_its_own_kind_of_reason(name: str) -> None:
    kind, options = KINDS[name]
    attribution = why(build_eval(name), SMALL, "abc de, f", **options)
    assert type(attribution) is kind
    lines = attribution_lines(attribution, width=72)
    assert any(line.startswith("trust ") for line in lines)
    assert any(line.startswith("note: ") for line in lines)
    assert why(build_eval(name), SMALL, "abc de, f", **options).json() == attribution.json()


@pytest.mark.parametrize("name", KINDS)
def test_what_does_not_suit_a_model_is_refused(name: str) -> None:
    _, suits = KINDS[name]
    for option in {"label", "token", "target"} - set(suits):
        with pytest.raises(UsageError, match=f"{option}='a' does not suit this model"):
            why(build_eval(name), SMALL, "abc", **{option: "a"})


@pytest.mark.parametrize("name", ALL)
def test_every_model_has_a_reason_or_says_why_not(name: str) -> None:
    model, options = build_eval(name), {"target": "ab c"} if name.startswith("translator") else {}
    if isinstance(model, Decoder) and model.config.output.kind != "next_token":
        with pytest.raises(UsageError, match="not the logits of the next token"):
            why(model, SMALL, "abc de, f")
    else:
        assert attribution_lines(why(model, SMALL, "abc de, f", **options))
