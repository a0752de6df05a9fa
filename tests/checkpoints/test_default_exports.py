"""A model trained with default settings is exported, and its peers compute the same with it."""

from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.checkpoints.peers import quietly, transformers
from tests.training.tiny_runs import data_for
from typer.testing import CliRunner

import qkv
from qkv.bundle import Bundle, export_checkpoint, export_gguf
from qkv.checkpoints.save import choose_format
from qkv.cli.app import app
from qkv.errors import ConfigError
from qkv.model import SIZES, preset
from qkv.text import Tokenizer

TEXTS = ["The old cat sleeps here.", "a dog — and TWO birds", "it is new, and good"]
TOLERANCE: dict[str, Any] = {"rtol": 1e-4, "atol": 1e-4}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The directory of a model of this job, trained for a few steps."""

    @cache
    @torch.enable_grad()
    def train(job: str) -> Path:
        folder = tmp_path_factory.mktemp(job)
        files = data_for(job, folder / "data").files
        run = qkv.train(job, files, output=folder / "run", size="tiny", steps=4, seed=5)
        run.finish()
        return folder / "run"

    return train


def export(run: Path, directory: Path) -> tuple[Any, Path]:
    """The model, and its export by the command line."""
    result = CliRunner().invoke(app, ["export", str(run), "--to", "hf", "-o", str(directory)])
    assert result.exit_code == 0, result.output
    return qkv.load(run), directory


def peer(auto: str, directory: Path) -> tuple[Any, Any]:
    with quietly():
        model = getattr(transformers, auto).from_pretrained(directory)
        return model.eval(), transformers.AutoTokenizer.from_pretrained(directory)


@torch.no_grad()
def test_a_language_model_continues_a_text_as_it_does_in_transformers(
    trained: Any, tmp_path: Path
) -> None:
    ours, directory = export(trained("language"), tmp_path / "out")
    model, tokenizer = peer("AutoModelForCausalLM", directory)
    for text in TEXTS:
        inputs = tokenizer(text, return_tensors="pt")
        assert inputs.input_ids[0].tolist() == ours.tokenizer.encode(text)
        torch.testing.assert_close(
            model(**inputs).logits, ours.model(inputs.input_ids), **TOLERANCE
        )
        generated = model.generate(**inputs, do_sample=False, max_new_tokens=8)
        length = inputs.input_ids.shape[1]
        (completion,) = ours.generate_many([text], temperature=0, max_tokens=8)
        assert tokenizer.decode(generated[0, length:], skip_special_tokens=True) == completion.text


@torch.no_grad()
def test_a_masked_language_model_fills_in_as_it_does_in_transformers(
    trained: Any, tmp_path: Path
) -> None:
    ours, directory = export(trained("masked"), tmp_path / "out")
    model, tokenizer = peer("AutoModelForMaskedLM", directory)
    assert tokenizer.mask_token_id == ours.tokenizer.mask_id
    batch = tokenizer(TEXTS, return_tensors="pt", padding=True)
    logits = model(**batch).logits
    for row, text in enumerate(TEXTS):
        ids = ours.tokenizer.encode(text)
        expected = ours.model(torch.tensor([ids]))[0]
        torch.testing.assert_close(logits[row, : len(ids)], expected, **TOLERANCE)


@torch.no_grad()
def test_a_classifier_gives_the_labels_it_gives_in_transformers(
    trained: Any, tmp_path: Path
) -> None:
    ours, directory = export(trained("classify"), tmp_path / "out")
    model, tokenizer = peer("AutoModelForSequenceClassification", directory)
    with quietly():
        classify = transformers.pipeline("text-classification", model=model, tokenizer=tokenizer)
        answers = classify(TEXTS)
    for answer, prediction in zip(answers, ours.classify(TEXTS), strict=True):
        assert answer["label"] == prediction.label
        assert answer["score"] == pytest.approx(
            prediction.probabilities[prediction.label], abs=1e-4
        )


@torch.no_grad()
def test_a_translator_writes_what_it_writes_in_transformers(trained: Any, tmp_path: Path) -> None:
    ours, directory = export(trained("translate"), tmp_path / "out")
    model, tokenizer = peer("AutoModelForSeq2SeqLM", directory)
    for text in TEXTS:
        inputs = tokenizer(text, return_tensors="pt")
        source = inputs.input_ids
        assert source[0].tolist() == [*ours.tokenizer.encode(text), ours.tokenizer.eos_id]
        target = torch.tensor([[ours.tokenizer.bos_id, 9, 8, 7]])
        theirs = model(**inputs, decoder_input_ids=target).logits
        torch.testing.assert_close(theirs, ours.model(source, target), **TOLERANCE)
        generated = model.generate(**inputs, do_sample=False, num_beams=1, max_new_tokens=12)
        (translation,) = ours.translate([text], beams=1, max_length=12)
        assert tokenizer.decode(generated[0], skip_special_tokens=True) == translation.text
    again = qkv.load(directory)
    assert again.translate(TEXTS)[0].text == ours.translate(TEXTS)[0].text


def test_an_embedder_gives_its_vectors_in_sentence_transformers(
    trained: Any, tmp_path: Path
) -> None:
    sentence_transformers = pytest.importorskip(
        "sentence_transformers", reason="the peer is not installed"
    )
    ours, directory = export(trained("embed"), tmp_path / "out")
    with quietly():
        theirs = sentence_transformers.SentenceTransformer(str(directory), device="cpu")
        vectors = theirs.encode(TEXTS, show_progress_bar=False)
    torch.testing.assert_close(
        torch.from_numpy(vectors), torch.as_tensor(ours.embed(TEXTS)), **TOLERANCE
    )


@pytest.mark.parametrize("dtype", ["f32", "f16"])
@torch.no_grad()
def test_a_language_model_as_a_gguf_file_comes_back_with_its_logits(
    dtype: str, trained: Any, tmp_path: Path
) -> None:
    gguf = pytest.importorskip("gguf", reason="needs llama.cpp's own reader")
    ours = qkv.load(trained("language"))
    path = tmp_path / "model.gguf"
    command = ["export", str(trained("language")), "--to", "gguf", "-o", str(path)]
    result = CliRunner().invoke(app, [*command, "--dtype", dtype])
    assert result.exit_code == 0, result.output
    again = qkv.load(path)
    for text in TEXTS:
        ids = again.tokenizer.encode(text)
        assert ids == ours.tokenizer.encode(text)
        rounding = 1e-4 if dtype == "f32" else 2e-2
        expected = ours.model(torch.tensor([ids]))
        torch.testing.assert_close(
            again.model(torch.tensor([ids])), expected, rtol=rounding, atol=rounding
        )
    reader = gguf.GGUFReader(path)
    architecture = reader.fields["general.architecture"].contents()
    assert architecture == "apertus"
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.APERTUS, 2)
    known = {name for _, name in names.mapping.values()}
    for tensor in reader.tensors:
        assert tensor.name.rpartition(".")[0] in known
        matrix_type = gguf.GGMLQuantizationType[dtype.upper()]
        expected_type = matrix_type if len(tensor.shape) > 1 else gguf.GGMLQuantizationType.F32
        assert tensor.tensor_type == expected_type
    tokens = reader.fields["tokenizer.ggml.tokens"].contents()
    assert tokens[ours.tokenizer.eos_id] == "<end>"


def test_a_real_llama_goes_to_gguf_and_back(shared: Path, tmp_path: Path) -> None:
    bundle = Bundle.load(shared / "models" / "stories260K")
    assert bundle.tokenizer is not None
    export_gguf(bundle, tmp_path / "stories.gguf")
    again = Bundle.load(tmp_path / "stories.gguf")
    assert again.tokenizer is not None
    ids = bundle.tokenizer.encode("Once upon a time, there was a café.")
    assert again.tokenizer.encode("Once upon a time, there was a café.") == ids
    for name, tensor in bundle.model.state_dict().items():
        assert torch.equal(tensor, again.model.state_dict()[name])


@pytest.mark.parametrize(
    ("job", "model_type"),
    [
        ("language", "apertus"),
        ("masked", "modernbert"),
        ("classify", "modernbert"),
        ("translate", "t5gemma"),
        ("embed", "modernbert"),
    ],
)
def test_every_size_of_a_job_has_a_public_form(job: str, model_type: str) -> None:
    for size in SIZES:
        fmt, rewrite = choose_format(preset(f"{job}-{size}"))
        assert fmt.hf_config(rewrite.config)["model_type"] == model_type


def test_an_encoder_is_no_gguf_file(trained: Any, tmp_path: Path) -> None:
    bundle = Bundle.load(trained("classify"))
    with pytest.raises(ConfigError, match="holds a decoder, but this model is an encoder"):
        export_gguf(bundle, tmp_path / "x.gguf")
    assert not list(tmp_path.iterdir())


def test_a_tokenizer_that_llama_cpp_does_not_have_is_named(trained: Any, tmp_path: Path) -> None:
    model = Bundle.load(trained("language")).model
    letters = Tokenizer.train("characters", TEXTS, 300)
    with pytest.raises(ConfigError, match="of kind characters; train with tokenizer=bpe"):
        export_gguf(Bundle(model, letters), tmp_path / "x.gguf")


def test_what_was_exported_is_a_checkpoint_of_ours_too(trained: Any, tmp_path: Path) -> None:
    bundle = Bundle.load(trained("masked"))
    export_checkpoint(bundle, tmp_path / "out")
    again = Bundle.load(tmp_path / "out")
    ids = torch.tensor([[5, 6, 7, 8]])
    torch.testing.assert_close(again.model(ids), bundle.model(ids), **TOLERANCE)
