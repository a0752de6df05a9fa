"""One answer token by token, many at once, and what a prompt becomes."""

import json
from functools import partial
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.engine.generate.tiny_writers import LENGTH, slow_greedy, writer
from tokenizers import Tokenizer as Backend
from tokenizers import decoders, models

from qkv.bundle import Bundle
from qkv.engine.generate import (
    GREEDY,
    Completion,
    CompletionStream,
    Sampling,
    encode_prompt,
    generate,
    generate_each,
    generate_many,
    make_request,
)
from qkv.errors import DataError, UsageError
from qkv.model import Decoder, DecoderOnly, Encoder, preset
from qkv.model import build as build_model
from qkv.text import Tokenizer
from qkv.text.special_tokens import SpecialTokens

LETTERS = "abcdefghijklmnopqrstuvwx"


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    """29 tokens: five marks and 24 letters."""
    return Tokenizer.train("characters", [LETTERS], 29)


@pytest.fixture(scope="module")
def model() -> Decoder:
    return writer()


@pytest.fixture(scope="module")
def stories(shared: Path) -> Bundle:
    return Bundle.load(shared / "models" / "stories260K")


def test_tokens_come_one_by_one_and_make_the_answer(model: Decoder, tokenizer: Tokenizer) -> None:
    answer = generate(model, tokenizer, "cab", max_tokens=17, sampling=GREEDY)
    assert isinstance(answer, CompletionStream)
    assert answer.stop_reason is None
    tokens = list(answer)
    ids = [token.id for token in tokens]
    expected = slow_greedy(model, tokenizer.encode("cab"), 17)
    end = expected.index(tokenizer.eos_id) + 1 if tokenizer.eos_id in expected else 17
    assert ids == answer.tokens == expected[:end]
    assert "".join(token.text for token in tokens) == answer.text == tokenizer.decode(ids)
    assert [token.logprob for token in tokens] == answer.logprobs
    assert answer.stop_reason == ("end" if end < 17 else "length")
    assert list(answer) == []


def test_the_log_probability_is_the_models_own_before_any_strategy(
    model: Decoder, tokenizer: Tokenizer
) -> None:
    sampling = Sampling.of(temperature=3.0, top_k=3, repetition_penalty=1.5)
    answer = generate(model, tokenizer, "cab", max_tokens=11, sampling=sampling, seed=4).finish()
    ids = [*tokenizer.encode("cab"), *answer.tokens]
    with torch.no_grad():
        logs = model(torch.tensor([ids]))[0].log_softmax(dim=-1)
    at = len(ids) - len(answer.tokens) - 1
    expected = [float(logs[at + i, id]) for i, id in enumerate(answer.tokens)]
    assert answer.logprobs == pytest.approx(expected, abs=1e-4)


def test_a_published_model_tells_the_published_story(stories: Bundle, shared: Path) -> None:
    told = json.loads((shared / "models/stories260K/stories260K_greedy.json").read_text("utf-8"))
    assert isinstance(stories.model, Decoder)
    assert stories.tokenizer is not None
    answer = generate(
        stories.model, stories.tokenizer, "", max_tokens=200, sampling=GREEDY
    ).finish()
    assert list(answer.tokens) == told["greedy_tokens"]
    assert answer.text == told["text"].removeprefix(" ")
    assert answer.stop_reason == "length"
    many = generate_many(
        stories.model, stories.tokenizer, ["", "Once upon", "Tim"], max_tokens=200, sampling=GREEDY
    )
    assert many[0].tokens == answer.tokens
    assert many[0].logprobs == pytest.approx(answer.logprobs, abs=1e-4)


def test_text_ends_before_a_stop_text_that_spans_tokens(stories: Bundle) -> None:
    assert isinstance(stories.model, Decoder)
    assert stories.tokenizer is not None
    given = (stories.model, stories.tokenizer, "Once upon a time")
    free = generate(*given, max_tokens=60, sampling=GREEDY).finish()
    for stop in ("named Lily", "loved to", ". S", free.text[25:31]):
        stopped = generate(*given, max_tokens=60, sampling=GREEDY, stop=["zzz", stop])
        pieces = [token.text for token in stopped]
        assert stopped.text == "".join(pieces) == free.text[: free.text.index(stop)]
        assert stopped.stop_reason == "stop"
        assert tuple(stopped.tokens) == free.tokens[: len(stopped.tokens)]
        (many,) = generate_many(
            stories.model, stories.tokenizer, ["Once upon a time"], max_tokens=60,
            sampling=GREEDY, stop=[stop],
        )  # fmt: skip
        assert (many.text, many.stop_reason) == (stopped.text, "stop")


@settings(max_examples=12, deadline=None)
@given(texts=st.lists(st.text(LETTERS, max_size=12), max_size=5), seed=st.integers(0, 50))
def test_many_answers_equal_single_ones_in_their_order(texts: list[str], seed: int) -> None:
    model, tokenizer = writer(seed=2), Tokenizer.train("characters", [LETTERS], 29)
    options = {"max_tokens": 9, "sampling": Sampling.of(1.5, top_p=0.9), "seed": seed}
    many = generate_many(model, tokenizer, texts, n=2, cache_tokens=60, **options)
    alone = [
        generate(model, tokenizer, text, sample_index=number, **options).finish()
        for text in texts
        for number in range(2)
    ]
    assert [(g.tokens, g.text, g.stop_reason) for g in many] == [
        (g.tokens, g.text, g.stop_reason) for g in alone
    ]


def test_one_bad_prompt_of_many_is_told_and_the_others_are_answered(
    model: Decoder, tokenizer: Tokenizer
) -> None:
    prompts = ["ab", "c" * 99, "d\ud800", "ef"]
    options = {"max_tokens": 5, "sampling": GREEDY}
    answered = sorted(generate_each(model, tokenizer, iter(prompts), **options))
    assert [type(a.error) for a in answered] == [type(None), UsageError, DataError, type(None)]
    for answer in (answered[0], answered[3]):
        assert isinstance(answer.completion, Completion)
        assert isinstance(answer.prompt, str)
        expected = generate(model, tokenizer, answer.prompt, **options).finish()
        assert answer.completion.tokens == expected.tokens
    with pytest.raises(UsageError, match="99 tokens but the model reads at most 61"):
        generate_many(model, tokenizer, prompts, **options)


def test_prompts_are_taken_only_as_they_are_needed(model: Decoder, tokenizer: Tokenizer) -> None:
    taken = 0

    def prompts():  # type: ignore[no-untyped-def]
        nonlocal taken
        for _ in range(10_000):
            taken += 1
            yield "abc"

    first = next(generate_each(model, tokenizer, prompts(), max_tokens=3, sampling=GREEDY))
    assert first.prompt_index == 0
    assert taken < 2000


def test_a_prompt_that_does_not_fit_is_an_error_or_is_cut_on_the_left(
    model: Decoder, tokenizer: Tokenizer
) -> None:
    ask = partial(make_request, model, tokenizer)
    long = LETTERS * 4
    with pytest.raises(UsageError) as told:
        ask(long)
    assert str(told.value) == (
        'prompt has 96 tokens but the model reads at most 61; shorten it or pass truncate="left"'
    )
    with pytest.raises(UsageError, match="24 tokens and max_tokens=50, but the model reads at mos"):
        ask(LETTERS, max_tokens=50)
    assert ask(LETTERS).max_tokens == 61 - 24
    cut = ask(long, max_tokens=20, truncate="left")
    assert cut.ids == tuple(tokenizer.encode(long)[-41:])
    assert cut.max_tokens == 20
    assert ask("abc", truncate="left").ids == tuple(tokenizer.encode("abc"))
    assert len(ask(long, truncate="left").ids) == 61 - 30
    with pytest.raises(UsageError, match="leaves no room for a prompt"):
        ask(long, max_tokens=61, truncate="left")
    with pytest.raises(UsageError, match='only "left" is known'):
        ask("abc", truncate="right")  # type: ignore[arg-type]


def test_a_model_writes_up_to_the_last_position_it_has(tokenizer: Tokenizer) -> None:
    model = writer("learned")
    answer = generate(model, tokenizer, LETTERS, sampling=GREEDY).finish()
    if answer.stop_reason == "length":
        assert answer.prompt_tokens + len(answer.tokens) == LENGTH
    assert list(answer.tokens) == slow_greedy(model, tokenizer.encode(LETTERS), len(answer.tokens))


def pieces(marks: SpecialTokens) -> Tokenizer:
    tokens = ["<s>", "</s>", "<|im_start|>", "<|im_end|>", *LETTERS[:24], "\n"]
    backend = Backend(models.BPE({token: i for i, token in enumerate(tokens)}, []))
    backend.decoder = decoders.Fuse()
    backend.add_special_tokens(["<s>", "</s>", "<|im_start|>", "<|im_end|>"])
    return Tokenizer(backend, marks)


CHAT = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>{% endif %}"
)


def test_an_empty_prompt_starts_from_the_start_mark_or_is_refused(
    model: Decoder, tokenizer: Tokenizer
) -> None:
    assert encode_prompt(tokenizer, "") == [tokenizer.eos_id]  # as in training's samples
    marked = pieces(SpecialTokens(None, None, "<s>", "</s>", None))
    assert encode_prompt(marked, "") == [marked.bos_id]
    bare = pieces(SpecialTokens(None, None, None, "</s>", None))
    with pytest.raises(UsageError, match="empty and this model has no BOS token"):
        encode_prompt(bare, "")


def test_messages_are_rendered_by_the_template_and_end_where_it_says(model: Decoder) -> None:
    t = pieces(
        SpecialTokens(
            None, None, "<s>", "</s>", None, extra_eos=("<|im_end|>",), chat_template=CHAT
        )
    )
    asked = make_request(model, t, [{"role": "user", "content": "abc"}], max_tokens=5)
    im_start, im_end = t.token_to_id("<|im_start|>"), t.token_to_id("<|im_end|>")
    expected = [im_start, *t.encode("user\nabc"), im_end, im_start]
    assert list(asked.ids) == expected
    assert asked.eos_ids == {t.eos_id, im_end}
    with pytest.raises(UsageError, match="no messages"):
        make_request(model, t, [])
    plain = pieces(SpecialTokens(None, None, "<s>", "</s>", None))
    with pytest.raises(DataError, match="has no chat template"):
        make_request(model, plain, [{"role": "user", "content": "abc"}])


def test_the_start_mark_of_a_published_model_stands_before_every_prompt(stories: Bundle) -> None:
    assert isinstance(stories.model, Decoder)
    assert stories.tokenizer is not None
    assert encode_prompt(stories.tokenizer, "Once upon a time") == [1, 403, 407, 261, 378]
    long = "Once upon a time " * 300
    cut = make_request(stories.model, stories.tokenizer, long, max_tokens=100, truncate="left")
    assert cut.ids[0] == 1
    assert len(cut.ids) == 412


def test_rows_of_the_table_that_are_no_token_are_never_written(tokenizer: Tokenizer) -> None:
    config = writer().config
    wide = config.model_copy(
        update={"embedding": config.embedding.model_copy(update={"vocabulary": 37})}
    )
    assert isinstance(wide, DecoderOnly)
    model = build_model(wide, 1).eval()
    assert isinstance(model, Decoder)
    with torch.no_grad():
        model.output.bias[:] = 0.0
        model.output.bias[29:] = 99.0
    for sampling in (GREEDY, Sampling()):
        answer = generate(model, tokenizer, "abc", max_tokens=9, sampling=sampling, seed=1).finish()
        assert max(answer.tokens) < 29


def test_only_a_decoder_of_tokens_writes(tokenizer: Tokenizer) -> None:
    encoder = build_model(preset("embed-tiny"), 0)
    assert isinstance(encoder, Encoder)
    with pytest.raises(
        UsageError, match="embeds text, so it does not generate text; use qkv embed"
    ):
        generate(encoder, tokenizer, "abc")  # type: ignore[arg-type]


def test_a_model_in_training_writes_as_if_it_were_not(tokenizer: Tokenizer) -> None:
    model = writer(seed=7)
    expected = generate(model, tokenizer, "abc", max_tokens=8, sampling=GREEDY).finish()
    model.train()
    answer = generate(model, tokenizer, "abc", max_tokens=8, sampling=GREEDY).finish()
    assert answer == expected
    assert all(part.training for part in model.modules())


@pytest.mark.parametrize("prompt", ["😀 👩‍👩‍👧", "שלום עולם", "a\0b", "\u202eabc", "\n\n"])
def test_odd_prompts_are_answered(prompt: str, stories: Bundle) -> None:
    assert isinstance(stories.model, Decoder)
    assert stories.tokenizer is not None
    answer = generate(stories.model, stories.tokenizer, prompt, max_tokens=5, seed=1).finish()
    assert answer.text == stories.tokenizer.decode(
        id for id in answer.tokens if id != stories.tokenizer.eos_id
    )


def test_half_a_character_and_a_megabyte_of_one_letter_are_refused(stories: Bundle) -> None:
    assert isinstance(stories.model, Decoder)
    assert stories.tokenizer is not None
    with pytest.raises(DataError, match="half a character"):
        generate(stories.model, stories.tokenizer, "a\udcff")
    with pytest.raises(UsageError, match="tokens but the model reads at most 512"):
        generate(stories.model, stories.tokenizer, "a" * 1_000_000)


def test_one_stop_text_must_stand_in_a_list(model: Decoder, tokenizer: Tokenizer) -> None:
    with pytest.raises(UsageError, match="a list of texts"):
        generate(model, tokenizer, "abc", stop="xyz")


def test_random_seeds_differ_and_a_given_one_is_kept(model: Decoder, tokenizer: Tokenizer) -> None:
    seeds = {generate(model, tokenizer, "abc").request.seed for _ in range(5)}
    assert len(seeds) == 5
    assert generate(model, tokenizer, "abc", seed=12).request.seed == 12
