"""A conversation: each turn reads only what is new, and answers as if it had read everything."""

from dataclasses import replace

import pytest
import torch
from tests.engine.generate.tiny_writers import KINDS, VOCABULARY, writer

from qkv.engine.generate import Chat, Request, SessionCache, decode_one, generate
from qkv.errors import UsageError
from qkv.text import Tokenizer

LETTERS = "abcdefghijklmnopqrstuv:;"
PLAIN = Tokenizer.train("characters", [LETTERS], VOCABULARY)
TEMPLATE = (
    "{% for message in messages %}{{ message.role[0] }}:{{ message.content }};{% endfor %}"
    "{% if add_generation_prompt %}a:{% endif %}"
)
TALKER = Tokenizer(PLAIN._backend, replace(PLAIN.special_tokens, chat_template=TEMPLATE))
GREEDY = {"temperature": 0.0, "max_tokens": 5}


def ask(chat: Chat, message: str) -> str:
    return "".join(token.text for token in chat.ask(message))


@pytest.fixture
def chat() -> Chat:
    return Chat(writer("llama", seed=2), TALKER, "be", **GREEDY)


@pytest.mark.parametrize("kind", KINDS)
def test_an_answer_is_the_one_to_the_whole_conversation(kind: str) -> None:
    model = writer(kind, seed=2)
    chat = Chat(model, TALKER, **GREEDY)
    messages: list[dict[str, str]] = []
    for message in ("abc", "d", "abca"):
        messages.append({"role": "user", "content": message})
        expected = generate(model, TALKER, messages, **GREEDY).finish().text
        assert ask(chat, message) == expected
        messages.append({"role": "assistant", "content": expected})
    assert chat.messages() == messages


def test_a_turn_reads_only_what_is_new(chat: Chat) -> None:
    ask(chat, "abc")
    first = chat.turns[0]
    assert chat.session.computed == len(first.prompt_ids)
    ask(chat, "d")
    # The last generated token was sampled and never read.
    read = [*first.prompt_ids, *first.answer_ids[:-1]]
    second = list(chat.turns[1].prompt_ids)
    assert second[: len(read)] == read
    assert chat.session.computed == len(first.prompt_ids) + len(second) - len(read)


def test_logits_after_a_resumed_prompt_are_those_of_a_fresh_one() -> None:
    model = writer("rotary", seed=2)
    session = SessionCache(model)
    requests = [Request((3, 7, 1, 9), 4), Request((3, 7, 1, 9, 2, 5), 3), Request((3, 8), 6)]
    for request in (*requests, requests[0]):
        resumed = list(decode_one(model, request, VOCABULARY, session))
        fresh = list(decode_one(model, request, VOCABULARY))
        assert [token.id for token in resumed] == [token.id for token in fresh]
        torch.testing.assert_close(
            [token.logprob for token in resumed],
            [token.logprob for token in fresh],
            rtol=0,
            atol=1e-5,
        )


def test_an_interrupted_answer_stays_and_the_next_one_is_right(chat: Chat) -> None:
    answer = chat.ask("abc")
    pieces = next(answer).text + next(answer).text
    answer.close()
    assert chat.turns[0].answer == pieces
    assert chat.turns[0].stop_reason is None
    assert len(chat.turns[0].answer_ids) == 2
    messages = [*chat.messages(), {"role": "user", "content": "d"}]
    expected = generate(chat.model, TALKER, messages, **GREEDY).finish().text
    assert ask(chat, "d") == expected


def test_a_step_that_was_interrupted_half_way_is_forgotten(chat: Chat) -> None:
    """Ctrl-C may come between two layers; then some have a token more than others."""
    ask(chat, "abc")
    chat.session._reserve(40)
    layer = chat.session.cache.layers[0]
    with torch.inference_mode():
        layer.append(torch.ones_like(layer.k[:, :, :1]), torch.ones_like(layer.v[:, :, :1]))
    messages = [*chat.messages(), {"role": "user", "content": "d"}]
    assert ask(chat, "d") == generate(chat.model, TALKER, messages, **GREEDY).finish().text


def test_what_no_longer_fits_is_dropped_from_the_front(chat: Chat) -> None:
    for message in ("abcdefghijklmn", "ijklmnopqrst"):
        ask(chat, message)
    assert chat.dropped == 0
    ask(chat, "abcdefghijklmno")
    assert chat.dropped == 1
    prompt = TALKER.decode(chat.turns[-1].prompt_ids)
    assert prompt.startswith("s:be;u:ijklmnopqrst;")
    assert len(chat.turns[-1].prompt_ids) + 5 <= 61
    assert len(chat.messages()) == 7  # all of it is still there to be saved
    with pytest.raises(UsageError, match="reads at most 61 and 5 of them are for the answer"):
        chat.ask("a" * 60)


def test_undo_and_reset(chat: Chat) -> None:
    first = ask(chat, "abc")
    ask(chat, "d")
    undone = chat.undo()
    assert undone is not None
    assert undone.message == "d"
    assert [turn.answer for turn in chat.turns] == [first]
    chat.reset()
    assert chat.undo() is None
    assert chat.messages() == [{"role": "system", "content": "be"}]
    assert ask(chat, "abc") == first


def test_the_same_message_again_is_sampled_anew() -> None:
    chat = Chat(writer(seed=1), TALKER, temperature=3.0, seed=5, max_tokens=20)
    answers = set()
    for _ in range(3):
        answers.add(ask(chat, "abc"))
        chat.undo()
    assert len(answers) == 3


def test_without_a_template_the_text_goes_on() -> None:
    model = writer("llama", seed=2)
    chat = Chat(model, PLAIN, **GREEDY)
    assert not chat.has_template
    first = ask(chat, "abc")
    more = ask(chat, "")
    assert (
        first + more == generate(model, PLAIN, "abc", temperature=0.0, max_tokens=10).finish().text
    )
    assert chat.text() == f"abc{first}{more}"
    ask(chat, "d")
    assert chat.text().startswith(f"abc{first}{more}\nd")
