"""The public transliterator as a bundle, asked as a person asks it."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.engine.translate.letter_models import Arabic, arabic

from qkv.bundle import Bundle

Program = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def public(shared: Path) -> Arabic:
    return arabic(shared)


@pytest.fixture(scope="module")
def bundle(public: Arabic, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("models") / "arabic"
    Bundle(public.model, public.tokenizer).save(path)
    return path


def lines(out: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in out.split("\n")[:-1]]


def test_greedy_it_writes_the_published_letters(qkv: Program, public: Arabic, bundle: Path) -> None:
    code, out, _ = qkv(
        "translate", bundle, *public.sources, "--beams", 1, "--length-penalty", 0, "--json"
    )
    results, expected = lines(out), public.expected
    assert code == 0
    assert [f["text"] for f in results] == [case["greedy"].replace(" ", "") for case in expected]
    scores = [case["greedy_logprob_sum"] for case in expected]
    assert [f["score"] for f in results] == pytest.approx(scores, abs=1e-3)


def test_with_four_beams_it_finds_the_published_four(
    qkv: Program, public: Arabic, bundle: Path
) -> None:
    code, out, _ = qkv(
        "translate", bundle, *public.sources, "--beams", 4, "--best", 4, "--alignment", "--json"
    )
    assert code == 0
    for results, case in zip(lines(out), public.expected, strict=True):
        hypotheses = results["alternatives"]
        assert isinstance(hypotheses, list)
        assert [hypothesis["text"] for hypothesis in hypotheses] == [
            text.replace(" ", "") for text in case["beam4"]
        ]
        assert [hypothesis["score"] for hypothesis in hypotheses] == pytest.approx(
            case["beam4_scores"], abs=1e-3
        )
        assert results["alignment"]


@pytest.mark.slow
def test_its_card_and_its_proofs(qkv: Program, bundle: Path) -> None:
    assert qkv("inspect", bundle)[0] == 0
    code, out, _ = qkv("check", bundle, "--json")
    assert (code, json.loads(out)["ok"]) == (0, True)
