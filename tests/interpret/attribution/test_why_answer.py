"""Which words an answer comes from: the numbers are those of the model, one text at a time."""

import numpy as np
import pytest
import torch
from tests.engine.generate.test_chat_turns import PLAIN
from tests.engine.generate.tiny_writers import writer

from qkv.engine.generate import encode_prompt
from qkv.errors import DataError
from qkv.interpret.attribution import why_answer

PROMPT = "ab cd e:f gh"
ANSWER = PLAIN.encode("qrs tu")


@torch.no_grad()
def slow_log_probs(model, prompt: list[int]) -> list[float]:
    ids = [*prompt, *ANSWER]
    logs = model(torch.tensor([ids]))[0, :, : PLAIN.vocab_size].double().log_softmax(dim=-1)
    return [float(logs[len(prompt) + i - 1, id]) for i, id in enumerate(ANSWER)]


@pytest.mark.parametrize("kind", ["rotary", "learned", "buckets"])
def test_each_drop_is_the_answer_scored_again_without_the_word(kind: str) -> None:
    model = writer(kind, seed=2)
    ids = encode_prompt(PLAIN, PROMPT)
    attribution = why_answer(model, PLAIN, ids, [*ANSWER, PLAIN.eos_id])
    full = np.array(slow_log_probs(model, ids))
    assert attribution.answer == PLAIN.decode(ANSWER)
    for index, word in enumerate(attribution.words):
        rest = [id for at, id in enumerate(ids) if at not in word.positions]
        drops = full - np.array(slow_log_probs(model, rest))
        assert attribution.effects[index] == pytest.approx(drops.sum(), abs=1e-4)
        for answer_word in attribution.answer_words:
            expected = drops[list(answer_word.word.positions)].sum()
            assert answer_word.drops[index] == pytest.approx(expected, abs=1e-4)
    for answer_word in attribution.answer_words:
        expected = full[list(answer_word.word.positions)].sum()
        assert answer_word.log_probability == pytest.approx(expected, abs=1e-4)
        order = [answer_word.drops[index] for index in answer_word.depends_on]
        assert order == sorted(order, reverse=True)
        assert all(drop > 0 for drop in order)
    assert attribution.faithfulness is not None


def test_special_tokens_of_a_template_are_no_words_and_stay() -> None:
    ids = [PLAIN.eos_id, *PLAIN.encode("ab"), PLAIN.eos_id, *PLAIN.encode("cd")]
    attribution = why_answer(writer(seed=2), PLAIN, ids, ANSWER)
    assert [word.text for word in attribution.words] == ["ab", "cd"]
    assert [word.positions for word in attribution.words] == [(1, 2), (4, 5)]


def test_an_answer_without_words_has_no_reasons() -> None:
    with pytest.raises(DataError, match="the answer has no words"):
        why_answer(writer(), PLAIN, PLAIN.encode("ab"), [PLAIN.eos_id])
