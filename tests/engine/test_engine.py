"""A loaded model answers for what it is, says what it is not, and in 8 bits takes less memory."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from tests.kernels.native import INT8_WAYS, needs_compiler
from tests.model.odd_models import DECODERS, ENCODERS, TRANSLATORS

import qkv
from qkv.bundle import Bundle
from qkv.engine.engine import Engine
from qkv.engine.generate import GREEDY
from qkv.engine.optimized.quantized import int8_supported
from qkv.errors import UsageError
from qkv.model import GELU, EncoderOnly, Learned, MultiHead, Stack, TextVector, build
from qkv.model.embedding import Embedding
from qkv.text import Tokenizer

TEXTS = ["a dog runs", "a cat", "the bird sings in the tree"]


@pytest.fixture
def encoder(tmp_path: Path) -> Path:
    """A bundle with a vector for each text, as it lies on disk."""
    tokenizer = Tokenizer.train("bpe", TEXTS, 300)
    stack = Stack(
        layers=2, width=24, attention=MultiHead(heads=3), feed_forward=GELU(width=40),
        position=Learned(),
    )  # fmt: skip
    table = Embedding(vocabulary=tokenizer.vocab_size)
    config = EncoderOnly(length=31, embedding=table, encoder=stack, output=TextVector())
    Bundle(build(config, seed=5), tokenizer).save(tmp_path / "bundle")
    return tmp_path / "bundle"


def test_load_gives_a_model_that_answers(encoder: Path) -> None:
    model = qkv.load(encoder)
    vectors = model.embed(TEXTS)
    assert vectors.shape == (3, 24)
    assert abs((vectors**2).sum(axis=1) - 1).max() < 1e-6
    small = qkv.load(encoder, int8=True).embed(TEXTS)
    assert (small * vectors).sum(axis=1).min() > 0.99


@needs_compiler
@pytest.mark.parametrize("int8", [False, True])
def test_compiled_loops_give_the_same_vectors(encoder: Path, int8: bool) -> None:
    many = TEXTS * 40  # several batches, on all cores
    plain, compiled = (
        qkv.load(encoder, int8=int8, compile=compile).embed(many, batch_tokens=64)
        for compile in (False, True)
    )
    assert abs(plain - compiled).max() < (0.02 if int8 else 1e-6)


@needs_compiler
def test_compiled_loops_write_the_same_text_alone_and_among_others() -> None:
    tokenizer = Tokenizer.train("characters", TEXTS, 41)
    bundle = Bundle(build(DECODERS["llama"], seed=2), tokenizer)
    plain, compiled = Engine(bundle), Engine(bundle, compile=True)
    prompts, options = ["a dog", "the bird", "c"], {"max_tokens": 5, "sampling": GREEDY}
    wanted = [plain.generate(prompt, **options).finish().tokens for prompt in prompts]
    assert [compiled.generate(prompt, **options).finish().tokens for prompt in prompts] == wanted
    assert [answer.tokens for answer in compiled.generate_many(prompts, **options)] == wanted


@needs_compiler
def test_compiled_loops_translate_the_same() -> None:
    tokenizer = Tokenizer.train("characters", TEXTS, 41)
    bundle = Bundle(build(TRANSLATORS["paper"], seed=2), tokenizer)
    for beams in (1, 3):
        plain, compiled = (
            Engine(bundle, compile=compile).translate(TEXTS[:2], beams=beams)
            for compile in (False, True)
        )
        assert [t.text for t in plain] == [t.text for t in compiled]


@pytest.mark.parametrize(
    ("config", "ask", "it_is"),
    [
        (
            ENCODERS["bert"],
            lambda e: e.generate("x"),
            "language-model encoder; use qkv embed",
        ),
        (DECODERS["llama"], lambda e: e.translate(["x"]), "generates text; use qkv generate"),
        (TRANSLATORS["paper"], lambda e: e.similar("x", "y"), "use qkv translate"),
    ],
)
def test_what_a_model_cannot_do_is_said_with_what_it_can(config, ask, it_is) -> None:
    tokenizer = Tokenizer.train("bytes", TEXTS, 300)
    with pytest.raises(UsageError, match=it_is):
        ask(Engine(Bundle(build(config), tokenizer)))


def test_a_model_without_a_tokenizer_cannot_read_text() -> None:
    with pytest.raises(UsageError, match="no tokenizer"):
        Engine(Bundle(build(ENCODERS["mean vector"]))).embed(["x"])


@pytest.fixture
def without_vnni(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(torch.cpu, "_is_vnni_supported", lambda: False)
    int8_supported.cache_clear()
    yield
    int8_supported.cache_clear()


@pytest.mark.usefixtures("without_vnni")
def test_where_the_cpu_cannot_multiply_in_8_bits_it_says_so(encoder: Path) -> None:
    engine = qkv.load(encoder, int8=True)
    assert engine.warnings == [
        "this CPU computes in int8 only with compiled kernels (compile=True); float32 is used "
        "instead"
    ]
    assert engine.model.embedding.weight.dtype == torch.float32


@needs_compiler
@pytest.mark.usefixtures("without_vnni")
def test_compiled_loops_multiply_in_8_bits_on_any_cpu(encoder: Path) -> None:
    engine = qkv.load(encoder, int8=True, compile=True)
    small = engine.embed(TEXTS)
    assert engine.warnings == []
    assert engine.model.embedding.weight.dtype == torch.int8
    plain = qkv.load(encoder).embed(TEXTS)
    assert (small * plain).sum(axis=1).min() > 0.99


MEMORY = """
import gc, sys, torch
from qkv.engine.engine import Engine

def private():
    for line in open("/proc/self/status"):
        if line.startswith("RssAnon"):
            return int(line.split()[1]) * 1024

large, small, compile = sys.argv[1], sys.argv[2], sys.argv[3] == "True"
Engine.load(small, int8=True, compile=compile).embed(["warm"])
gc.collect()
before = private()
engine = Engine.load(large, int8=True, compile=compile)
gc.collect()
print(private() - before)
"""


@pytest.mark.slow
@pytest.mark.parametrize("compile", INT8_WAYS)
@pytest.mark.skipif(sys.platform != "linux", reason="memory is read from /proc")
def test_in_8_bits_the_weights_take_less_than_a_third(
    encoder: Path, tmp_path: Path, compile: bool
) -> None:
    tokenizer = Tokenizer.train("bytes", TEXTS, 300)
    stack = Stack(
        layers=6, width=768, attention=MultiHead(heads=12), feed_forward=GELU(width=3072),
        position=Learned(),
    )  # fmt: skip
    config = EncoderOnly(
        length=64, embedding=Embedding(vocabulary=30_000), encoder=stack, output=TextVector()
    )
    Bundle(build(config), tokenizer).save(tmp_path / "large")
    program = [sys.executable, "-c", MEMORY, tmp_path / "large", encoder, str(compile)]
    told = subprocess.run(program, check=True, capture_output=True, text=True, timeout=120)
    assert int(told.stdout) < 0.3 * 4 * config.parameters()
