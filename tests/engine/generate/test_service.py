"""Many callers, one model: every answer reaches the one who asked for it."""

import threading
import time
from concurrent.futures import CancelledError
from dataclasses import dataclass

import pytest
import torch
from tests.engine.generate.tiny_writers import writer
from torch import Tensor

from qkv.engine.generate import GREEDY, LogitsProcessor, Request, Sampling, Service, generate
from qkv.errors import UsageError
from qkv.text import Tokenizer

LETTERS = "abcdefghijklmnopqrstuvwx"
TOKENIZER = Tokenizer.train("characters", [LETTERS], 29)
MODEL = writer()
SOON = 20.0  # seconds: nothing here takes one


@pytest.fixture
def service():
    with Service(MODEL, TOKENIZER) as service:
        yield service


def expected(prompt: str, **options: object):
    return generate(MODEL, TOKENIZER, prompt, **options).finish()


def test_callers_in_many_threads_get_their_own_answers(service: Service) -> None:
    found: dict[int, object] = {}
    options = {"max_tokens": 15, "sampling": Sampling.of(1.4)}

    def call(i: int) -> None:
        found[i] = service.submit(LETTERS[i : i + 5], seed=i, **options).result(SOON)

    threads = [threading.Thread(target=call, args=(i,)) for i in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SOON)
    for i in range(12):
        alone = expected(LETTERS[i : i + 5], seed=i, **options)
        assert (found[i].text, found[i].tokens) == (alone.text, alone.tokens)  # type: ignore[attr-defined]


def test_tokens_can_be_followed_as_they_come_and_again_at_the_end(service: Service) -> None:
    handle = service.submit("cab", max_tokens=20, sampling=GREEDY)
    tokens = list(handle)
    whole = handle.result(SOON)
    assert handle.done
    assert "".join(token.text for token in tokens) == whole.text
    assert tuple(token.id for token in tokens) == whole.tokens
    assert whole.text == expected("cab", max_tokens=20, sampling=GREEDY).text
    assert list(handle) == []


@dataclass(frozen=True)
class Held(LogitsProcessor):
    """Does not go on before it is let."""

    let: threading.Event

    def apply(self, scores: Tensor, ids: Tensor) -> Tensor:
        assert self.let.wait(SOON)
        return scores


def test_a_cancelled_answer_ends_and_the_others_go_on(service: Service) -> None:
    let = threading.Event()
    held = service.submit("abc", max_tokens=30, sampling=Sampling((Held(let),)), seed=1)
    other = service.submit("cab", max_tokens=30, sampling=GREEDY)
    held.cancel()
    let.set()
    with pytest.raises(CancelledError):
        held.result(SOON)
    assert len(list(held)) < 30  # iterating just ends
    assert other.result(SOON).tokens == expected("cab", max_tokens=30, sampling=GREEDY).tokens
    other.cancel()  # too late, and does no harm
    assert other.result(SOON).stop_reason in ("end", "length")


@dataclass(frozen=True)
class Raises(LogitsProcessor):
    def apply(self, scores: Tensor, ids: Tensor) -> Tensor:
        raise ZeroDivisionError("of somebody's own")


def test_an_error_reaches_the_one_who_caused_it_and_nobody_else(service: Service) -> None:
    bad = service.submit("abc", max_tokens=5, sampling=Sampling((Raises(),)))
    good = service.submit("abc", max_tokens=5, sampling=GREEDY)
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            bad.result(SOON)
    with pytest.raises(ZeroDivisionError):
        list(bad)
    assert good.result(SOON).tokens == expected("abc", max_tokens=5, sampling=GREEDY).tokens
    with pytest.raises(UsageError, match="99 tokens but the model reads at most 61"):
        service.submit("a" * 99)
    with pytest.raises(UsageError, match="token 77 does not exist"):
        service.submit_request(Request((77,), 3))


def test_waiting_has_an_end(service: Service) -> None:
    let = threading.Event()
    handle = service.submit("abc", max_tokens=2, sampling=Sampling((Held(let),)), seed=1)
    with pytest.raises(TimeoutError, match=r"not finished after 0\.05 seconds"):
        handle.result(0.05)
    let.set()
    handle.result(SOON)


def test_closing_cancels_what_is_not_finished_and_ends_the_thread() -> None:
    before = threading.active_count()
    service, let = Service(MODEL, TOKENIZER, cache_tokens=70), threading.Event()
    begun = service.submit("abc", max_tokens=50, sampling=Sampling((Held(let),)), seed=1)
    waiting = [service.submit("abc", max_tokens=50, sampling=GREEDY) for _ in range(3)]
    closing = threading.Thread(target=service.close)
    closing.start()
    let.set()
    closing.join(SOON)
    assert not closing.is_alive()
    for handle in (begun, *waiting):
        with pytest.raises(CancelledError):
            handle.result(SOON)
    assert threading.active_count() == before
    with pytest.raises(UsageError, match="closed"):
        service.submit("abc")
    service.close()


def test_a_service_with_nothing_to_do_sleeps(service: Service) -> None:
    service.submit("abc", max_tokens=3, sampling=GREEDY).result(SOON)
    time.sleep(0.05)
    used = time.process_time()
    time.sleep(0.4)
    assert time.process_time() - used < 0.2


def test_a_model_that_breaks_fails_those_at_work_and_serves_the_next() -> None:
    model = writer(seed=4)
    with Service(model, TOKENIZER) as service:
        first = service.submit("abc", max_tokens=4, sampling=GREEDY).result(SOON)
        hook = model.decoder.norm_out.register_forward_pre_hook(_broken)
        handles = [service.submit(text, max_tokens=4, sampling=GREEDY) for text in ("abc", "bcd")]
        for handle in handles:
            with pytest.raises(RuntimeError, match="a broken part"):
                handle.result(SOON)
        hook.remove()
        again = service.submit("abc", max_tokens=4, sampling=GREEDY).result(SOON)
    assert again.tokens == first.tokens


def _broken(part: torch.nn.Module, given: object) -> None:
    raise RuntimeError("a broken part")
