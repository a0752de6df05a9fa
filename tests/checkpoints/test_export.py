"""Models made here, written as public checkpoints: the peer opens them with the same outputs."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.checkpoints.peers import quietly, transformers

from qkv.bundle import Bundle
from qkv.bundle.bundle import export_checkpoint
from qkv.checkpoints import read_checkpoint, self_test
from qkv.checkpoints.save import choose_format
from qkv.errors import BundleError, ConfigError
from qkv.model import (
    BlockDiagonalAttention,
    Classify,
    EncoderDecoder,
    EncoderOnly,
    First,
    MaskedToken,
    ModelConfig,
    RMSNorm,
    build,
    preset,
)
from qkv.text import Tokenizer

TEXTS = ["The cat sat on the mat.", "Der Hund läuft schnell — 犬!", "two  spaces\nand a line"]
SMALL = {"layers": 2, "width": 48}


def small(name: str) -> ModelConfig:
    """A named model of public shape, made small."""
    config = preset(name)
    changes: dict[str, Any] = {"length": 64}
    for part in ("encoder", "decoder"):
        stack = getattr(config, part, None)
        if stack is not None:
            heads = stack.attention.model_copy(update={"heads": 4, "kv_heads": None})
            wide = stack.feed_forward.model_copy(update={"width": 77})
            sizes = SMALL | {"attention": heads, "feed_forward": wide}
            changes[part] = stack.model_copy(update=sizes)
    table = config.embedding.model_copy(update={"vocabulary": 300})
    if isinstance(config, EncoderDecoder):
        changes["output"] = config.output.model_copy(update={"multiplier": 48**-0.5})
    return config.model_copy(update=changes | {"embedding": table})


def bundle_of(config: ModelConfig, kind: str = "bpe") -> Bundle:
    tokenizer = Tokenizer.train(kind, TEXTS * 5, 300)
    table = config.embedding.model_copy(update={"vocabulary": tokenizer.vocab_size})
    return Bundle(build(config.model_copy(update={"embedding": table}), seed=3).eval(), tokenizer)


def load_with_peer(auto: str, directory: Path) -> tuple[Any, Any]:
    with quietly():
        model = getattr(transformers, auto).from_pretrained(directory, attn_implementation="eager")
        return model.eval(), transformers.AutoTokenizer.from_pretrained(directory)


@pytest.mark.parametrize("name", ["llama-15m", "gpt2"])
@torch.no_grad()
def test_a_decoder_made_here_is_opened_with_its_tokenizer(name: str, tmp_path: Path) -> None:
    bundle = bundle_of(small(name))
    assert bundle.tokenizer is not None
    export_checkpoint(bundle, tmp_path / "out")
    model, tokenizer = load_with_peer("AutoModelForCausalLM", tmp_path / "out")
    for text in TEXTS:
        ids = bundle.tokenizer.encode(text)
        assert tokenizer(text, add_special_tokens=False).input_ids == ids
        assert tokenizer.decode(ids) == bundle.tokenizer.decode(ids)
        ours, theirs = bundle.model(torch.tensor([ids])), model(torch.tensor([ids])).logits
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)
    assert tokenizer.eos_token_id == bundle.tokenizer.eos_id
    assert model.config.eos_token_id == bundle.tokenizer.eos_id


@torch.no_grad()
def test_a_classifier_made_here_keeps_its_labels(tmp_path: Path) -> None:
    config = small("bert-base")
    assert isinstance(config, EncoderOnly)
    output = Classify(labels=("sad", "glad", "so so"), pooling=First(), hidden=48)
    bundle = bundle_of(config.model_copy(update={"output": output}), "wordpiece")
    assert bundle.tokenizer is not None
    export_checkpoint(bundle, tmp_path / "out")
    model, tokenizer = load_with_peer("AutoModelForSequenceClassification", tmp_path / "out")
    assert model.config.id2label == {0: "sad", 1: "glad", 2: "so so"}
    ids = torch.tensor([tokenizer(TEXTS[0], add_special_tokens=False).input_ids])
    torch.testing.assert_close(model(ids).logits, bundle.model(ids), rtol=1e-4, atol=1e-5)
    again = Bundle.load(tmp_path / "out")
    assert again.model.config.output.labels == output.labels  # type: ignore[union-attr]


@torch.no_grad()
def test_a_translator_made_here_starts_and_ends_as_it_did(tmp_path: Path) -> None:
    bundle = bundle_of(small("t5-small"))
    assert bundle.tokenizer is not None
    export_checkpoint(bundle, tmp_path / "out")
    model, _ = load_with_peer("AutoModelForSeq2SeqLM", tmp_path / "out")
    assert model.config.decoder_start_token_id == bundle.tokenizer.bos_id
    source, target = torch.randint(5, 200, (1, 9)), torch.randint(5, 200, (1, 6))
    theirs = model(input_ids=source, decoder_input_ids=target).logits
    torch.testing.assert_close(bundle.model(source, target), theirs, rtol=1e-4, atol=1e-5)
    again = Bundle.load(tmp_path / "out").tokenizer
    assert again is not None
    assert (again.bos_id, again.eos_id, again.pad_id) == (
        bundle.tokenizer.bos_id,
        bundle.tokenizer.eos_id,
        bundle.tokenizer.pad_id,
    )


REASONS = {
    "language": "nearest is gpt2, where decoder.attention is multi_head, not block_diagonal",
    "masked": "nearest is modernbert, where encoder.attention.qk_norm is None, not rms_norm",
    "classify": "nearest is modernbert, where encoder.attention.qk_norm is None, not rms_norm",
    "translate": "nearest is t5gemma, where encoder.attention.qk_norm is None, not rms_norm",
    "embed": "nearest is modernbert, where encoder.attention.qk_norm is None, not rms_norm",
}


def odd(job: str) -> ModelConfig:
    """The default model of a job with an attention that no public one of its kind has."""
    config = preset(f"{job}-tiny")
    changes = {}
    for side in ("encoder", "decoder"):
        stack = getattr(config, side, None)
        if stack is None:
            continue
        attention: Any = BlockDiagonalAttention(heads=2)
        if job != "language":
            attention = stack.attention.model_copy(update={"qk_norm": RMSNorm()})
        changes[side] = stack.model_copy(update={"attention": attention})
    return config.model_copy(update=changes)


@pytest.mark.parametrize("job", REASONS)
def test_what_no_format_can_represent_is_named(job: str) -> None:
    with pytest.raises(ConfigError) as caught:
        choose_format(odd(job))
    assert str(caught.value) == f"no public format can represent this model; {REASONS[job]}"


def test_every_public_preset_has_its_format() -> None:
    formats = {
        name: choose_format(preset(name)).format.model_types[0]
        for name in ("bert-base", "minilm-l6", "gpt2", "t5-small", "llama-15m", "smollm-135m")
    }
    assert formats == {
        "bert-base": "bert",
        "minilm-l6": "bert",
        "gpt2": "gpt2",
        "t5-small": "t5",
        "llama-15m": "llama",
        "smollm-135m": "llama",
    }


def test_a_directory_that_is_not_empty_is_not_touched(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine.txt").write_text("mine")
    with pytest.raises(BundleError, match="exists and is not an empty directory"):
        export_checkpoint(bundle_of(small("gpt2")), tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_what_cannot_be_written_leaves_nothing_behind(tmp_path: Path) -> None:
    with pytest.raises(ConfigError):
        export_checkpoint(bundle_of(odd("language")), tmp_path / "out")
    assert not list(tmp_path.iterdir())


def test_the_padding_id_of_roberta_determines_the_first_position(tmp_path: Path) -> None:
    """The id of the tokenizer's padding token must be that of the position offset minus 1."""
    from qkv.model import LayerNorm, Learned

    config = small("bert-base")
    assert isinstance(config, EncoderOnly)
    stack = config.encoder.model_copy(update={"position": Learned(offset=7)})
    changed = config.model_copy(
        update={"encoder": stack, "output": MaskedToken(norm=LayerNorm(eps=1e-12))}
    )
    with pytest.raises(ConfigError, match="padding token, which must be 6"):
        export_checkpoint(bundle_of(changed), tmp_path / "out")


def test_the_self_test_finds_damaged_weights() -> None:
    model = build(small("gpt2"), seed=1).eval()
    assert self_test(model) < 1e-5
    with torch.no_grad():
        model.embedding.weight[0, 0] = torch.nan
    with pytest.raises(BundleError, match="not finite"):
        self_test(model)


def test_the_card_is_kept_with_the_bundle(tmp_path: Path) -> None:
    export_checkpoint(bundle_of(small("gpt2")), tmp_path / "out")
    checkpoint = read_checkpoint(tmp_path / "out")
    assert checkpoint.card.tensors == {"as they are": 18, "transposed": 6, "taken apart": 4}
    Bundle(checkpoint.model, checkpoint.tokenizer, checkpoint.card.with_self_test(1e-7)).save(
        tmp_path / "bundle"
    )
    card = json.loads((tmp_path / "bundle" / "import.json").read_text())
    assert card["self_test"] == 1e-7
    assert Bundle.load(tmp_path / "bundle").card == checkpoint.card.with_self_test(1e-7)
