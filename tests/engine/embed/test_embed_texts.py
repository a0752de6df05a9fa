"""Vectors of texts: their length, their order, long texts, odd models and odd texts."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.engine.embed.tiny_encoders import LENGTH, WIDTH, WORDS, encoder, sentences, tokenizer

from qkv.engine.batching import batched_outputs, pooled_states
from qkv.engine.embed import Embedder, embed, text_batches
from qkv.errors import DataError, QkvError, UsageError
from qkv.model import Classify, First, Last, MaskedToken, Max, TextVector, build, preset
from qkv.text import TOKENIZER_KINDS
from qkv.training.tasks.embed_data import embed_texts
from qkv.training.tasks.encoded_texts import encode_texts

TEXTS = sentences(41)
LONG = " ".join(WORDS * 5 + WORDS[:7])  # longer than any of the models reads
PLAIN, MARKED = tokenizer(), tokenizer(marked=True)
MODEL = encoder()
OUTPUTS = [
    TextVector(),
    TextVector(normalize=False),
    TextVector(pooling=First(), dense=True),
    TextVector(pooling=Max(), normalize=False),
    TextVector(pooling=Last(), dense=True, normalize=False),
]


@pytest.mark.parametrize("output", OUTPUTS, ids=str)
def test_rows_have_length_1_unless_they_are_raw(output: TextVector) -> None:
    model = encoder(output)
    rows = embed(model, MARKED, TEXTS).vectors
    raw = embed(model, MARKED, TEXTS, raw=True).vectors
    assert rows.shape == raw.shape == (len(TEXTS), WIDTH)
    assert rows.dtype == raw.dtype == np.float32
    lengths = np.linalg.norm(raw, axis=1, keepdims=True)
    assert np.linalg.norm(rows, axis=1) == pytest.approx(np.ones(len(TEXTS)), abs=1e-6)
    assert np.abs(lengths - 1).max() > 0.1
    assert rows == pytest.approx(raw / lengths, abs=1e-6)


def test_raw_vectors_leave_the_model_as_it_was_and_copy_no_weights() -> None:
    before = {name: value.clone() for name, value in MODEL.state_dict().items()}
    places = [parameter.data_ptr() for parameter in MODEL.parameters()]
    vectors = embed(MODEL, PLAIN, TEXTS).vectors
    raw = Embedder(MODEL, PLAIN, raw=True)
    raw(TEXTS)
    assert [p.data_ptr() for p in raw.model.parameters()] == places
    assert all(before[name].equal(value) for name, value in MODEL.state_dict().items())
    assert np.array_equal(embed(MODEL, PLAIN, TEXTS).vectors, vectors)
    assert MODEL.config.output == TextVector()


@pytest.mark.parametrize("kind", TOKENIZER_KINDS)
@pytest.mark.parametrize("marked", [False, True])
def test_texts_are_read_as_training_and_evaluation_read_them(kind: str, marked: bool) -> None:
    reader = tokenizer(kind, marked)
    texts = [*TEXTS, "", " ", LONG]
    cut = encode_texts(texts, reader, MODEL.config.context_length)
    found = embed(MODEL, reader, texts, long="truncate")
    assert found.vectors == pytest.approx(embed_texts(MODEL, cut), abs=1e-6)
    assert found.long_texts == cut.num_truncated >= 1


@settings(max_examples=30, deadline=None)
@given(texts=st.lists(st.text(st.sampled_from("abc dé😀\0"), max_size=15), min_size=1, max_size=9))
def test_a_vector_does_not_depend_on_what_stands_beside_the_text(texts: list[str]) -> None:
    together = embed(MODEL, PLAIN, texts, long="average").vectors
    alone = [embed(MODEL, PLAIN, [text], long="average").vectors[0] for text in texts]
    assert together == pytest.approx(np.stack(alone), abs=2e-6)


def test_a_text_that_fits_has_the_same_bits_whatever_is_done_with_long_ones() -> None:
    texts = [*TEXTS[:11], LONG, *TEXTS[11:], LONG[5:]]
    fits = [i for i, text in enumerate(texts) if text in TEXTS]
    error = embed(MODEL, MARKED, TEXTS, long="error")
    for way in ("truncate", "average"):
        found = embed(MODEL, MARKED, texts, long=way)
        assert found.long_texts == 2
        assert np.array_equal(found.vectors[fits], error.vectors)


def test_truncate_is_the_vector_of_the_beginning() -> None:
    ids = MARKED.encode(LONG)[: LENGTH - 2]
    beginning = MARKED.decode(ids)
    assert MARKED.encode(beginning) == ids
    cut, whole = embed(MODEL, MARKED, [LONG], long="truncate"), embed(MODEL, MARKED, [beginning])
    assert (cut.long_texts, whole.long_texts) == (1, 0)
    assert cut.vectors == pytest.approx(whole.vectors, abs=1e-6)


@pytest.mark.parametrize("raw", [False, True])
def test_average_weighs_each_window_by_its_tokens(raw: bool) -> None:
    model, ids, room = encoder(TextVector(normalize=not raw)), MARKED.encode(LONG), LENGTH - 2
    windows = [ids[i : i + room] for i in range(0, len(ids), room)]
    assert len(windows) >= 3
    assert len(windows[-1]) < room
    parts = batched_outputs(
        model, [MARKED.add_special_tokens(window) for window in windows]
    ).numpy()
    mean = np.average(parts, axis=0, weights=[len(window) for window in windows])
    found = embed(model, MARKED, [TEXTS[0], LONG], long="average", raw=raw)
    wanted = mean if raw else mean / np.linalg.norm(mean)
    assert found.vectors[1] == pytest.approx(wanted, abs=1e-6)
    assert found.long_texts == 1


def test_a_long_text_is_refused_by_its_number_with_both_sizes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("qkv.engine.embed.embedder.BATCH_TEXTS", 7)
    tokens = len(MARKED.encode(LONG))
    with pytest.raises(DataError, match=f"text 42 has {tokens} tokens .* at most {LENGTH - 2};"):
        embed(MODEL, MARKED, [*TEXTS, LONG])
    with pytest.raises(DataError, match="text 42: text holds half a character"):
        embed(MODEL, MARKED, [*TEXTS, "a\ud800"])


def test_an_unknown_way_with_long_texts_is_named() -> None:
    with pytest.raises(UsageError, match='did you mean "truncate"'):
        embed(MODEL, PLAIN, TEXTS, long="truncat")


def test_a_classifier_gives_the_states_its_labels_are_read_from() -> None:
    model = encoder(Classify(labels=("a", "b", "c"), pooling=Max(), hidden=7))
    cut = encode_texts(TEXTS, MARKED, model.config.context_length)
    found = embed(model, MARKED, TEXTS, raw=True).vectors
    assert found == pytest.approx(pooled_states(model, cut).numpy(), abs=1e-6)


def test_an_encoder_of_hidden_tokens_gives_the_mean_of_its_states() -> None:
    model = encoder(MaskedToken()).eval()
    with torch.inference_mode():
        states = model.encode(torch.tensor([MARKED.add_special_tokens(MARKED.encode(TEXTS[3]))]))
    found = embed(model, MARKED, TEXTS[3:4], raw=True).vectors
    assert found == pytest.approx(states.mean(dim=1).numpy(), abs=1e-6)
    assert isinstance(model.config.output, MaskedToken)


@pytest.mark.parametrize(
    ("name", "said"),
    [("language-tiny", "use qkv generate"), ("translate-tiny", "use qkv translate")],
)
def test_a_model_that_writes_is_told_from_one_that_gives_vectors(name: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        embed(build(preset(name)), PLAIN, TEXTS)


def test_an_empty_text_is_its_marks_or_without_any_zeros() -> None:
    zeros = embed(MODEL, PLAIN, ["", "a"])
    assert not zeros.vectors[0].any()
    assert np.linalg.norm(zeros.vectors[1]) == pytest.approx(1.0)
    with torch.inference_mode():
        marks = MODEL.eval()(torch.tensor([MARKED.add_special_tokens(())])).numpy()
    assert embed(MODEL, MARKED, [""]).vectors == pytest.approx(marks, abs=1e-6)


def test_no_text_at_all_is_no_vector() -> None:
    assert embed(MODEL, PLAIN, []).vectors.shape == (0, WIDTH)


def test_a_single_text_is_not_taken_for_a_list_of_letters() -> None:
    with pytest.raises(UsageError, match=r"\[text\]"):
        embed(MODEL, PLAIN, "a dog")


def test_damaged_weights_are_told_not_given_on() -> None:
    model = encoder(seed=1)
    with torch.no_grad():
        model.embedding.weight[PLAIN.encode("sat")[0]] = torch.nan
    with pytest.raises(QkvError, match="text 2 is not finite"):
        embed(model, PLAIN, ["b", "sat", "b"])


def test_a_model_with_room_for_marks_only_is_refused() -> None:
    config = MODEL.config.model_copy(update={"max_length": 2})
    with pytest.raises(DataError, match="context of 2 tokens is filled by the 2 special tokens"):
        embed(build(config), MARKED, ["a"])


def test_the_batch_changes_nothing_but_rounding() -> None:
    usual = embed(MODEL, MARKED, TEXTS).vectors
    assert embed(MODEL, MARKED, TEXTS, batch_tokens=11).vectors == pytest.approx(usual, abs=1e-6)
    with pytest.raises(UsageError, match="0 must be 1 or more"):
        embed(MODEL, MARKED, TEXTS, batch_tokens=0)


def test_progress_is_told_from_nothing_to_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("qkv.engine.embed.embedder.BATCH_TEXTS", 17)
    told: list[int] = []
    embed(MODEL, PLAIN, iter(TEXTS), progress=told.append)
    assert told == [0, 17, 34, 41]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 1 << 19), max_size=12), st.integers(0, 12))
def test_portions_go_on_where_one_ended(sizes: list[int], at: int) -> None:
    texts = ["x" * size for size in sizes]
    made = list(text_batches(texts))
    assert [text for portion in made for text in portion] == texts
    assert all(made)
    done = sum(map(len, made[:at]))
    assert list(text_batches(texts[done:])) == made[at:]


def test_what_fits_to_the_last_token_is_not_long() -> None:
    full = MARKED.decode(MARKED.encode(LONG)[: LENGTH - 2])
    assert embed(MODEL, MARKED, [full], long="error").long_texts == 0
    with pytest.raises(DataError, match=f"has {LENGTH - 1} tokens"):
        embed(MODEL, MARKED, [MARKED.decode(MARKED.encode(LONG)[: LENGTH - 1])])
