"""Labels of texts: probabilities, order, long texts, and models that give none."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from qkv.engine.batching import batched_outputs
from qkv.engine.classify import Classifier, classify
from qkv.errors import DataError, QkvError, UsageError
from qkv.model import (
    Classify,
    Embedding,
    Encoder,
    EncoderOnly,
    MultiHead,
    ReLU,
    Sinusoidal,
    Stack,
    build,
    preset,
)
from qkv.text import Tokenizer
from qkv.training.tasks.classify import label_log_probs
from qkv.training.tasks.encoded_texts import encode_texts

LABELS = ("bad", "so-so", "good", "splendid", "none")
LENGTH = 19
READER = Tokenizer.train("bytes", ["a"], 300)
TEXTS = [f"{i * 7919 % 997} things" for i in range(43)]
LONG = "this is much longer than nineteen bytes, in fact"


def model_for(output: object, seed: int = 0) -> Encoder:
    stack = Stack(
        layers=1,
        width=10,
        attention=MultiHead(heads=2),
        feed_forward=ReLU(width=13),
        position=Sinusoidal(),
        dropout=0.1,
    )
    table = Embedding(vocabulary=READER.vocab_size)
    config = EncoderOnly(length=LENGTH, embedding=table, encoder=stack, output=output)
    model = build(config, seed)
    assert isinstance(model, Encoder)
    with torch.no_grad():
        model.embedding.weight.mul_(90.0)  # opinions
    return model


MODEL = model_for(Classify(labels=LABELS))


def test_labels_are_those_evaluation_gives() -> None:
    cut = encode_texts(TEXTS, READER, LENGTH)
    best = label_log_probs(MODEL, cut).argmax(dim=-1)
    wanted = [LABELS[i] for i in best.tolist()]
    found = classify(MODEL, READER, TEXTS)
    assert [answer.label for answer in found] == wanted
    assert [answer.text for answer in found] == TEXTS
    assert len(set(wanted)) > 1


@settings(max_examples=60, deadline=None)
@given(texts=st.lists(st.text(max_size=40), min_size=1, max_size=5))
def test_probabilities_sum_to_1_and_the_likeliest_comes_first(texts: list[str]) -> None:
    for answer in classify(MODEL, READER, texts, long="average"):
        shares = list(answer.probabilities.values())
        assert sum(shares) == pytest.approx(1.0, abs=1e-6)
        assert shares == sorted(shares, reverse=True)
        assert set(answer.probabilities) == set(LABELS)
        assert answer.label == next(iter(answer.probabilities))


def test_probabilities_are_the_softmax_of_the_scores() -> None:
    scores = batched_outputs(MODEL, [READER.encode(text) for text in TEXTS])
    wanted = scores.double().softmax(dim=-1).numpy()
    found = classify(MODEL, READER, TEXTS)
    rows = [[answer.probabilities[label] for label in LABELS] for answer in found]
    assert np.array(rows) == pytest.approx(wanted, abs=1e-9)


def test_a_long_text_is_refused_by_its_number_cut_or_averaged() -> None:
    tokens = len(LONG.encode())
    with pytest.raises(DataError, match=f"text 3 has {tokens} tokens .* at most {LENGTH};"):
        classify(MODEL, READER, ["a", "b", LONG])
    (cut,) = classify(MODEL, READER, [LONG], long="truncate")
    (beginning,) = classify(MODEL, READER, [LONG[:LENGTH]])
    assert cut.probabilities == pytest.approx(beginning.probabilities)
    (mean,) = classify(MODEL, READER, [LONG], long="average")
    windows = [LONG[i : i + LENGTH] for i in range(0, tokens, LENGTH)]
    parts = classify(MODEL, READER, windows)
    for label in LABELS:
        shares = [part.probabilities[label] for part in parts]
        wanted = np.average(shares, weights=[len(window) for window in windows])
        assert mean.probabilities[label] == pytest.approx(wanted, abs=1e-9)


def test_texts_that_did_not_fit_are_counted() -> None:
    classifier = Classifier(MODEL, READER, long="truncate")
    classifier([LONG, "a"])
    classifier(["b", LONG, LONG])
    assert classifier.long_texts == 3


def test_portions_keep_the_order_and_tell_of_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    whole, told = classify(MODEL, READER, TEXTS), list[int]()
    monkeypatch.setattr("qkv.engine.embed.embedder.BATCH_TEXTS", 17)
    parts = classify(MODEL, READER, iter(TEXTS), progress=told.append)
    assert told == [0, 17, 34, 43]
    assert [answer.text for answer in parts] == TEXTS
    for one, other in zip(whole, parts, strict=True):
        assert one.probabilities == pytest.approx(other.probabilities, abs=1e-5)


def test_an_empty_text_has_the_label_the_network_gives_to_nothing() -> None:
    (answer,) = classify(MODEL, READER, [""])
    with torch.inference_mode():
        shares = MODEL.eval().output.from_pooled(torch.zeros(1, 10)).double().softmax(dim=-1)[0]
    assert [answer.probabilities[label] for label in LABELS] == pytest.approx(shares.tolist())


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("embed-tiny", "an encoder that embeds text, .* use qkv embed"),
        (
            "masked-tiny",
            "masked-language-model encoder, .* make a classifier with qkv train classify",
        ),
        ("language-tiny", "a decoder, which generates text, .* use qkv generate"),
        ("translate-tiny", "an encoder–decoder, .* use qkv translate"),
    ],
)
def test_a_model_without_labels_is_told_for_what_it_is(name: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        classify(build(preset(name)), READER, TEXTS)


def test_damaged_weights_and_a_single_text_are_told() -> None:
    damaged = model_for(Classify(labels=LABELS), seed=1)
    with torch.no_grad():
        damaged.embedding.weight[READER.encode("x")] = torch.nan
    with pytest.raises(QkvError, match="logits of text 2 are not finite"):
        classify(damaged, READER, ["b", "x"])
    with pytest.raises(UsageError, match=r"\[text\]"):
        classify(MODEL, READER, "a dog")


def test_no_texts_are_no_labels() -> None:
    assert classify(MODEL, READER, []) == []
