"""The functions of the front door, and arguments that are wrong, unknown or in each other's way."""

from pathlib import Path

import pytest

import qkv
from qkv.engine.generate import generate, generate_each, generate_many

LETTERS = "abcdefghijklmnopqrstuvwx"


@pytest.fixture(scope="module")
def tokenizer() -> qkv.Tokenizer:
    return qkv.Tokenizer.train("characters", [LETTERS], 29)


@pytest.fixture(scope="module")
def model(tokenizer: qkv.Tokenizer) -> qkv.GlassBox:
    return qkv.build(qkv.preset("language-tiny"), tokenizer, seed=3)


def test_a_config_with_a_tokenizer_is_a_model_to_use(
    model: qkv.GlassBox, tokenizer: qkv.Tokenizer, tmp_path: Path
) -> None:
    assert model.model.config.embedding.vocabulary == tokenizer.vocab_size
    completion = model.generate("cab", max_tokens=7, seed=1).finish()
    model.bundle.save(tmp_path / "bundle")
    again = qkv.load(tmp_path / "bundle").generate("cab", max_tokens=7, seed=1).finish()
    assert again.tokens == completion.tokens


def test_without_a_tokenizer_it_is_the_bare_module() -> None:
    import torch

    assert isinstance(qkv.build(qkv.preset("language-tiny"), seed=1), torch.nn.Module)


def test_sampling_parameters_are_heeded(model: qkv.GlassBox) -> None:
    """Each was ignored once: 200 tokens at temperature 0.8 came out whatever was given."""
    greedy = model.generate("cab", temperature=0.0, max_tokens=5).finish()
    assert greedy == model.generate("cab", sampling=qkv.GREEDY, max_tokens=5).finish()
    assert len(greedy.tokens) <= 5
    request = model.generate("cab", top_k=3).request
    assert request.sampling == qkv.Sampling.of(0.8, top_k=3, top_p=0.95)
    assert model.generate("cab").request.sampling == qkv.Sampling.of(0.8, top_p=0.95)
    many = model.generate_many(["cab", "fed"], temperature=0.0, max_tokens=5)
    assert many[0].tokens == greedy.tokens


def test_sampling_and_its_parameters_exclude_each_other(model: qkv.GlassBox) -> None:
    with pytest.raises(qkv.UsageError, match=r"sampling and temperature=0\.5 were both given"):
        model.generate("cab", sampling=qkv.GREEDY, temperature=0.5)
    with pytest.raises(qkv.UsageError, match="sampling and top_k=4 were both given"):
        model.generate_many(["cab"], sampling=qkv.GREEDY, top_k=4)


def test_an_unknown_argument_is_an_error_with_a_suggestion(
    model: qkv.GlassBox, tokenizer: qkv.Tokenizer
) -> None:
    decoder = model.model
    with qkv.Service(decoder, tokenizer) as service:
        calls = [
            lambda: model.generate("x", temperature=0.0, max_token=5),
            lambda: model.generate_many(["x"], max_token=5),
            lambda: generate(decoder, tokenizer, "x", max_token=5),
            lambda: generate_many(decoder, tokenizer, ["x"], max_token=5),
            lambda: generate_each(decoder, tokenizer, ["x"], max_token=5),
            lambda: service.submit("x", max_token=5),
        ]
        for call in calls:
            with pytest.raises(qkv.ArgumentError, match='"max_token"; did you mean "max_tokens"'):
                call()
            with pytest.raises(TypeError):  # as from any other Python function
                call()
    others = [
        (lambda: model.embed(["x"], batch_token=3), 'embed.. argument "batch_token"; did you mean'),
        (lambda: model.classify(["x"], batch_token=3), 'did you mean "batch_tokens"'),
        (lambda: model.translate(["x"], beam=2), 'did you mean "beams"'),
        (lambda: model.cluster(["x"], methods="kmeans"), 'did you mean "method"'),
        (lambda: model.trace("x", edit=()), 'did you mean "edits"'),
        (lambda: model.why("x", tokens="a"), 'did you mean "token"'),
        (lambda: qkv.load("nowhere", int=8), 'did you mean "int8"'),
        (lambda: model.generate("x", nonsense=1), "known: prompt, max_tokens, sampling, temp"),
    ]
    for call, message in others:
        with pytest.raises(qkv.ArgumentError, match=message):
            call()


def test_the_worked_example_a_worksheet_and_a_head_are_explained(model: qkv.GlassBox) -> None:
    names = [step.name for step in qkv.explain()]
    assert names[0] == "x"
    assert {"q", "k", "v", "scores", "weights", "output"} <= set(names)
    assert [step.name for step in qkv.explain(example="cross")] != names
    head = qkv.explain("cab", model=model, layer=1)
    assert {"q", "k", "v", "scores", "weights", "output"} <= {step.name for step in head}
    with pytest.raises(qkv.UsageError, match="a text needs a model"):
        qkv.explain("cab")
    with pytest.raises(qkv.UsageError, match="needs a text"):
        qkv.explain(model=model)


def test_a_worksheet_file_is_explained(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(
        'tokens = ["a", "b"]\nx = [[1, 0], [0, 1]]\n'
        "w_q = [[1, 0], [0, 1]]\nw_k = [[1, 0], [0, 1]]\nw_v = [[1, 2], [3, 4]]\n",
        encoding="utf-8",
    )
    steps = {step.name: step.value for step in qkv.explain(worksheet=path)}
    assert steps["v"].tolist() == [[1, 2], [3, 4]]
