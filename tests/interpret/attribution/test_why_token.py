"""Why a token: probabilities, the lens and the contrast are those of the model itself."""

import json
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.model.odd_models import DECODERS

from qkv.attention import Mask
from qkv.bundle import Bundle
from qkv.errors import DataError, UsageError
from qkv.interpret.attribution import TokenAttribution, why_token
from qkv.interpret.attribution.attribution_text import attribution_lines
from qkv.interpret.attribution.readouts import layer_states, resolve_token
from qkv.model import Decoder, NextToken, build
from qkv.text import Tokenizer

SMALL = Tokenizer.train("characters", ["abcdefg ,"], 41)
WRITERS = [name for name, config in DECODERS.items() if isinstance(config.output, NextToken)]
STORY = (
    "Once upon a time, there was a little girl named Lily. One day, Tom went to the park. Lily was "
    "sad because"
)


def odd(name: str) -> Decoder:
    model = build(DECODERS[name], seed=4)
    assert isinstance(model, Decoder)
    with torch.no_grad():
        model.embedding.weight.mul_(9)
    return model.eval()


@torch.no_grad()
def scores(model: Decoder, ids: list[int], tokenizer: Tokenizer = SMALL) -> torch.Tensor:
    """The model's own scores of what follows each token, (T, V)."""
    return model(torch.tensor([ids]))[0, :, : tokenizer.vocab_size].double()


@pytest.fixture(scope="module")
def stories(shared: Path) -> Bundle:
    return Bundle.load(shared / "models" / "stories260K")


@pytest.fixture(scope="module")
def story(stories: Bundle) -> TokenAttribution:
    assert isinstance(stories.model, Decoder)
    assert stories.tokenizer is not None
    return why_token(stories.model, stories.tokenizer, STORY, " she", " he")


@pytest.mark.parametrize("name", WRITERS)
def test_after_the_last_layer_the_lens_sees_the_models_own_answer(name: str) -> None:
    model = odd(name)
    ids = SMALL.encode("abc de, fg a")
    attribution = why_token(model, SMALL, "abc de, fg a", draws=2)
    own = scores(model, ids)[-1].softmax(dim=-1)
    last = attribution.layers[-1]
    assert len(attribution.layers) == model.config.decoder.layers + 1
    assert [seen.layer for seen in attribution.layers] == list(range(len(attribution.layers)))
    assert last.best_id == attribution.token.id == int(own.argmax())
    assert (last.best, last.rank) == (attribution.token.token, 1)
    assert last.probability == pytest.approx(float(own.max()), rel=1e-5)
    with torch.inference_mode():
        states = layer_states(model, ids)
        final = model.states(torch.tensor([ids]))
        assert torch.equal(model.decoder.norm_out(states[-1]), final)
    assert not any(part._forward_hooks or part._forward_pre_hooks for part in model.modules())
    json.dumps(attribution.json(), allow_nan=False)


@pytest.mark.parametrize("name", WRITERS)
def test_of_every_token_given_the_probability_is_the_models_own(name: str) -> None:
    model, ids = odd(name), SMALL.encode("gab de")
    attribution = why_token(model, SMALL, "gab de", draws=2, top=3)
    own = scores(model, ids).softmax(dim=-1)
    assert attribution.prompt_tokens[0].probability is None
    for at, token in enumerate(attribution.prompt_tokens[1:], 1):
        assert token.probability == pytest.approx(float(own[at - 1, ids[at]]), rel=1e-4)
        assert token.surprisal == pytest.approx(-float(own[at - 1, ids[at]].log2()), abs=1e-3)
        assert token.rank == 1 + int((own[at - 1] > own[at - 1, ids[at]]).sum())
        assert [one.id for one in token.alternatives] == own[at - 1].topk(3).indices.tolist()
    assert [one.id for one in attribution.next_tokens] == own[-1].topk(3).indices.tolist()


@pytest.mark.parametrize("name", WRITERS)
def test_occlusion_is_the_difference_the_model_gives_without_the_word(name: str) -> None:
    model = odd(name)
    attribution = why_token(model, SMALL, "abc de fg", "a", "b", draws=2)
    a, b = SMALL.encode("ab")

    def difference(text: str) -> float:
        row = scores(model, SMALL.encode(text))[-1]
        return float(row[a] - row[b])

    assert attribution.difference == pytest.approx(difference("abc de fg"), abs=1e-5)
    left = {"abc": " de fg", "de": "abc fg", "fg": "abc de"}  # a space goes with the word after it
    for word in attribution.words:
        expected = difference("abc de fg") - difference(left[word.word.text])
        assert word.occlusion == pytest.approx(expected, abs=1e-5)


@settings(max_examples=15, deadline=None)
@given(st.sampled_from(WRITERS), st.permutations(list("abcd")))
def test_contrasts_add_up_as_differences_do(name: str, letters: list[str]) -> None:
    """a over b and b over c make a over c; and b over a is a over b turned round."""
    model, (a, b, c, _) = odd(name), letters

    def parts(token: str, against: str) -> list[float]:
        attribution = why_token(model, SMALL, "abc de, fg", token, against, draws=1)
        return [word.gradient for word in (*attribution.words, *attribution.special_tokens)]

    ab, bc, ac, ba = parts(a, b), parts(b, c), parts(a, c), parts(b, a)
    assert ab == pytest.approx([-part for part in ba], abs=1e-6)
    assert [x + y for x, y in zip(ab, bc, strict=True)] == pytest.approx(ac, rel=1e-3, abs=1e-5)


def test_slopes_are_those_a_small_step_finds() -> None:
    model = odd("llama").double()
    attribution = why_token(model, SMALL, "abc de, fg", "a", "b", draws=1)
    ids, (a, b) = SMALL.encode("abc de, fg"), SMALL.encode("ab")
    x = model.embedding(torch.tensor([ids])).detach()
    word = attribution.words[1]

    def difference(factor: float) -> float:
        moved = x.clone()
        moved[0, list(word.word.positions)] *= factor
        with torch.no_grad():
            states = model.decoder(moved, Mask.causal())[:, -1:]
            row = model.output(states, torch.empty(0), model.embedding.weight)[0, 0]
        return float(row[a] - row[b])

    slope = (difference(1 + 1e-4) - difference(1 - 1e-4)) / 2e-4
    assert word.gradient == pytest.approx(slope, rel=1e-3, abs=1e-4)


def test_on_real_stories_the_name_decides_between_she_and_he(story: TokenAttribution) -> None:
    assert (story.token.token, story.against.token) == (" she", " he")
    strongest = max(story.words, key=lambda word: word.occlusion or 0.0)
    assert strongest.word.text == "Lily"
    assert story.difference > 1
    assert [mark.word.text for mark in story.special_tokens] == ["<s>"]
    assert story.special_tokens[0].occlusion is None
    test = story.faithfulness["occlusion"]
    assert test.quantity == "the log-odds of “ she” against “ he”"
    assert test.full == pytest.approx(story.difference, abs=1e-3)
    assert test.trust.better is True
    assert {len(token.alternatives) for token in story.prompt_tokens[1:]} == {5}


def test_a_story_is_shown_on_lines_that_fit(story: TokenAttribution) -> None:
    lines = attribution_lines(story, width=80, top=5)
    assert max(map(len, lines)) <= 80
    page = " ".join("\n".join(lines).split())
    for part in ("rather than “ he”", "nothing stands before it", "layer 4", "and 21 other words"):
        assert part in page


def test_the_likeliest_token_is_explained_against_the_next(stories: Bundle) -> None:
    assert isinstance(stories.model, Decoder)
    assert stories.tokenizer is not None
    attribution = why_token(stories.model, stories.tokenizer, "Once upon a time", draws=2)
    best, second = attribution.next_tokens[:2]
    assert (attribution.token.id, attribution.against.id) == (best.id, second.id)
    empty = why_token(stories.model, stories.tokenizer, "", draws=2)
    assert (empty.words, empty.faithfulness) == ((), {})
    assert attribution_lines(empty)


def test_a_token_is_named_by_number_as_shown_or_as_text() -> None:
    t = Tokenizer.train("bpe", ["the dog and the dog ran"], 300)
    dog = resolve_token(t, " dog")
    assert t.token(dog) == " dog"
    assert resolve_token(t, dog) == dog
    with pytest.raises(UsageError, match="is 2 tokens"):
        resolve_token(t, "the dog")
    with pytest.raises(UsageError, match=f"token {t.vocab_size} does not exist"):
        resolve_token(t, t.vocab_size)
    with pytest.raises(UsageError, match="empty"):
        resolve_token(t, "")


def test_what_cannot_be_asked_is_refused() -> None:
    model = odd("gpt")
    with pytest.raises(UsageError, match="both “a”"):
        why_token(model, SMALL, "abc", "a", "a")
    with pytest.raises(DataError, match="the prompt has 24 tokens but the model reads at most 23"):
        why_token(model, SMALL, "a" * 24)
    with pytest.raises(UsageError, match="output is a classify"):
        why_token(odd("classifier"), SMALL, "abc")
    with pytest.raises(UsageError, match="top=0"):
        why_token(model, SMALL, "abc", top=0)
