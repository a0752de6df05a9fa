"""The three demonstrations really learn, on examples they never saw."""

import pytest
import torch

from qkv.tour.numerals import Numerals
from qkv.tour.run import tour
from qkv.tour.sentiment import UNSEEN, Sentiment
from qkv.tour.sorting import LENGTH, Sorting

CPU = torch.device("cpu")


def test_the_encoder_judges_negations_it_never_saw() -> None:
    demo = Sentiment(CPU)
    assert not any((text[3], text[5]) in UNSEEN for text, _ in demo.train)
    assert demo.accuracy() < 0.8  # before
    losses = list(demo.learn())
    assert losses[-1] < 0.1 * losses[0]
    assert demo.accuracy() > 0.95


def test_the_decoder_sorts_rows_it_never_saw() -> None:
    demo = Sorting(CPU)
    seen = {tuple(row) for row in demo.train.tolist()}
    assert not any(tuple(row) in seen for row in demo.test.tolist())
    assert demo.accuracy() < 0.05
    list(demo.learn())
    assert demo.accuracy() > 0.85
    start = demo.test[:7, : LENGTH + 1]
    one_by_one = torch.cat([demo.complete(row[None]) for row in start])
    assert torch.equal(one_by_one, demo.complete(start))


def test_the_translator_turns_the_order_around_and_reads_the_right_word() -> None:
    demo = Numerals(CPU)
    list(demo.learn())
    assert demo.accuracy() > 0.9
    english, german = demo.test[0]
    weights = demo.alignment(english, german[1:-1])
    assert weights.argmax(dim=1)[[0, 2]].tolist() == [1, 0]
    assert weights.sum(dim=1).tolist() == pytest.approx([1, 1, 1], abs=1e-5)


def test_the_tour_shows_all_of_it_in_order() -> None:
    steps: list[str] = []
    lines = list(tour(80, lambda model, step, loss: steps.append(model), CPU))
    page = "\n".join(lines)
    parts = ["Attention by hand", "Encoder-only", "Decoder-only", "Encoder–decoder", "Next"]
    places = [page.index(part) for part in parts]
    assert places == sorted(places)
    assert list(dict.fromkeys(steps)) == ["encoder", "decoder", "encoder–decoder"]
    assert "moves earlier scores by 0\n" in page
