"""A checkpoint that is damaged, foreign or hostile gets one clear error that names the cause."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from tests.checkpoints.cases_bert import bert
from tests.checkpoints.cases_llama import llama

from qkv.bundle import Bundle
from qkv.checkpoints import read_checkpoint
from qkv.errors import BundleError, ConfigError, QkvError

WEIGHTS = "model.safetensors"


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    llama(tie_word_embeddings=True).save(tmp_path / "model")
    return tmp_path / "model"


def change_config(directory: Path, **changes: Any) -> None:
    fields = json.loads((directory / "config.json").read_text())
    (directory / "config.json").write_text(json.dumps(fields | changes))


def change_weights(directory: Path, change: Callable[[dict[str, torch.Tensor]], None]) -> None:
    weights = load_file(directory / WEIGHTS)
    change(weights)
    save_file(weights, directory / WEIGHTS, metadata={"format": "pt"})


def message(directory: Path, kind: type[QkvError] = QkvError) -> str:
    with pytest.raises(kind) as caught:
        Bundle.load(directory)
    text = str(caught.value)
    assert "\n" not in text
    return text


def test_a_missing_tensor_is_named(directory: Path) -> None:
    change_weights(directory, lambda w: w.pop("model.layers.1.self_attn.k_proj.weight"))
    text = message(directory, BundleError)
    assert "lacks the tensor layers.1.self_attn.k_proj.weight" in text
    assert "decoder.1.attention.key.weight" in text


def test_an_unexpected_tensor_is_named(directory: Path) -> None:
    change_weights(directory, lambda w: w.update({"model.layers.0.extra.weight": torch.ones(3)}))
    assert "model.layers.0.extra.weight" in message(directory, BundleError)


def test_a_layer_too_many_is_named(directory: Path) -> None:
    change_config(directory, num_hidden_layers=2)
    assert "layers.2." in message(directory, BundleError)


def test_a_wrong_shape_is_named_with_both(directory: Path) -> None:
    change_config(directory, intermediate_size=78)
    text = message(directory, BundleError)
    assert "(77, 48)" in text
    assert "(78, 48)" in text


def test_integer_weights_are_an_error(directory: Path) -> None:
    name = "model.norm.weight"
    change_weights(directory, lambda w: w.update({name: torch.ones(48, dtype=torch.int64)}))
    assert f"has {name} as torch.int64" in message(directory, BundleError)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_other_kinds_of_number_are_computed_in_float32(directory: Path, dtype: torch.dtype) -> None:
    exact = {name: t.to(dtype).float() for name, t in load_file(directory / WEIGHTS).items()}
    change_weights(directory, lambda w: w.update({name: t.to(dtype) for name, t in w.items()}))
    checkpoint = read_checkpoint(directory)
    weight = checkpoint.model.state_dict()["decoder.2.feed_forward.up.weight"]
    assert weight.dtype == torch.float32
    assert torch.equal(weight, exact["model.layers.2.mlp.up_proj.weight"])
    assert checkpoint.card.stored == [str(dtype).removeprefix("torch.")]


def test_the_prefix_may_be_missing_where_a_body_was_saved(directory: Path) -> None:
    before = read_checkpoint(directory).model.state_dict()
    plain = {n.removeprefix("model."): t for n, t in load_file(directory / WEIGHTS).items()}
    save_file(plain, directory / WEIGHTS)
    after = read_checkpoint(directory).model.state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_a_tied_output_may_be_stored_all_the_same(directory: Path) -> None:
    change_weights(
        directory, lambda w: w.update({"lm_head.weight": w["model.embed_tokens.weight"].clone()})
    )
    assert read_checkpoint(directory).card.tied == ["lm_head.weight"]


def test_a_tied_embedding_is_found_under_its_alias(directory: Path) -> None:
    def move(weights: dict[str, torch.Tensor]) -> None:
        weights["lm_head.weight"] = weights.pop("model.embed_tokens.weight")

    before = read_checkpoint(directory).model.embedding.weight
    change_weights(directory, move)
    assert torch.equal(read_checkpoint(directory).model.embedding.weight, before)


def test_shards_are_read_as_one(directory: Path) -> None:
    before = read_checkpoint(directory).model.state_dict()
    weights = load_file(directory / WEIGHTS)
    names = sorted(weights)
    files = {"model-00001-of-00002.safetensors": names[::2],
             "model-00002-of-00002.safetensors": names[1::2]}  # fmt: skip
    for file, members in files.items():
        save_file({name: weights[name] for name in members}, directory / file)
    where = {name: file for file, members in files.items() for name in members}
    (directory / "model.safetensors.index.json").write_text(
        json.dumps({"metadata": {"total_size": 1}, "weight_map": where})
    )
    (directory / WEIGHTS).unlink()
    after = read_checkpoint(directory).model.state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)


@pytest.mark.parametrize("classes", [["GPT2LMHeadModel"], [], None])
def test_an_encoder_must_say_which_of_its_outputs_it_has(
    classes: list[str] | None, tmp_path: Path
) -> None:
    bert("BertForSequenceClassification").save(tmp_path)
    change_config(tmp_path, architectures=classes)
    assert "config.json" in message(tmp_path, ConfigError)


def test_quantized_weights_are_an_error(directory: Path) -> None:
    change_config(directory, quantization_config={"bits": 4})
    assert "quantized" in message(directory, BundleError)


def test_the_longest_text_is_what_the_tokenizer_says(tmp_path: Path) -> None:
    bert("BertModel").save(tmp_path)
    (tmp_path / "tokenizer_config.json").write_text('{"model_max_length": 17}')
    assert Bundle.load(tmp_path).model.config.context_length == 17  # type: ignore[union-attr]


def test_code_in_a_directory_is_refused(directory: Path) -> None:
    change_config(directory, auto_map={"AutoModel": "modeling.Evil"})
    (directory / "modeling.py").write_text("raise SystemExit('run')")
    assert "auto_map" in message(directory, BundleError)


def test_a_pickle_is_refused_with_the_way_out(directory: Path) -> None:
    (directory / WEIGHTS).rename(directory / "pytorch_model.bin")
    text = message(directory, BundleError)
    assert "pytorch_model.bin" in text
    assert "safetensors" in text


def test_an_unknown_model_type_names_near_ones(directory: Path) -> None:
    change_config(directory, model_type="lama")
    assert 'did you mean "llama"' in message(directory, BundleError)


ABSURD: dict[str, dict[str, Any]] = {
    "no layers": {"num_hidden_layers": 0},
    "too many layers": {"num_hidden_layers": 10**9},
    "a huge width": {"hidden_size": 2**62},
    "a negative vocabulary": {"vocab_size": -5},
    "a size in words": {"intermediate_size": "large"},
    "a size that is true": {"num_attention_heads": True},
    "half a head": {"num_attention_heads": 2.5},
    "heads that do not divide": {"num_key_value_heads": 5},
    "an infinite eps": {"rms_norm_eps": float("inf")},
    "a negative eps": {"rms_norm_eps": -1.0},
    "an unknown activation": {"hidden_act": "system('ls')"},
    "a bias in words": {"attention_bias": "yes"},
    "an unknown rotation": {"rope_parameters": {"rope_type": "longrope", "rope_theta": 1.0}},
    "a rotation that is a list": {"rope_parameters": [1, 2]},
    "no size at all": {"hidden_size": None},
    "an eps of many digits": {"rms_norm_eps": 10**400},
    "yarn with a word": {
        "rope_parameters": {
            "rope_type": "yarn",
            "rope_theta": 10.0,
            "factor": 2.0,
            "attention_factor": "x",
        }
    },
    "yarn with nothing to divide by": {
        "rope_parameters": {
            "rope_type": "yarn",
            "rope_theta": 10.0,
            "factor": 2.0,
            "mscale": 1.0,
            "mscale_all_dim": -20.0,
        }
    },
    "yarn with one speed for all": {
        "rope_parameters": {"rope_type": "yarn", "rope_theta": 1.0, "factor": 2.0}
    },
    "another output": {"architectures": ["LlamaForSequenceClassification"]},
}


@pytest.mark.parametrize("name", ABSURD)
def test_absurd_settings_are_refused_by_name(name: str, directory: Path) -> None:
    change_config(directory, **ABSURD[name])
    (field,) = ABSURD[name]
    text = message(directory)
    expected = {
        "architectures": "LlamaForSequenceClassification",
        "num_key_value_heads": "kv_heads",
    }
    assert "config.json" in text
    assert expected.get(field, field.replace("rope_parameters", "")) in text


def test_settings_that_are_no_json_or_too_deep_are_refused(directory: Path) -> None:
    for text in ("{", "[" * 100_000 + "]" * 100_000, '{"model_type": ' + "[" * 50_000, "3", "\xff"):
        (directory / "config.json").write_text(text, encoding="latin-1")
        assert "config.json" in message(directory, BundleError)


def test_settings_that_lead_out_of_the_directory_are_refused(
    directory: Path, tmp_path: Path
) -> None:
    secret = tmp_path / "secret.json"
    secret.write_text((directory / "config.json").read_text())
    (directory / "config.json").unlink()
    (directory / "config.json").symlink_to(secret)
    assert "leads out" in message(directory, BundleError)


@pytest.mark.parametrize("name", ["1_Pooling/config.json", "model.safetensors"])
def test_a_pipe_in_the_place_of_a_file_does_not_hang(name: str, sentence: Path) -> None:
    (sentence / name).unlink()
    os.mkfifo(sentence / name)
    assert Path(name).name in message(sentence)


def test_a_directory_that_is_nothing_says_so(tmp_path: Path) -> None:
    assert "is not a model" in message(tmp_path, BundleError)


def test_a_tokenizer_larger_than_the_table_is_refused(directory: Path, tmp_path: Path) -> None:
    from qkv.text import Tokenizer

    Tokenizer.train("bpe", ["some words to learn from"], 300).save(directory / "tokenizer.json")
    assert "the model only 97" in message(directory, BundleError)


MODULES = [
    {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
    {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
]


@pytest.fixture
def sentence(tmp_path: Path) -> Path:
    directory = tmp_path / "sentence"
    bert("BertModel").save(directory)
    (directory / "modules.json").write_text(json.dumps(MODULES))
    (directory / "1_Pooling").mkdir()
    (directory / "1_Pooling" / "config.json").write_text('{"pooling_mode_cls_token": true}')
    return directory


def test_the_pooling_of_a_sentence_encoder_is_read(sentence: Path) -> None:
    (sentence / "sentence_bert_config.json").write_text('{"max_seq_length": 13}')
    config = Bundle.load(sentence).model.config
    assert config.output.pooling.kind == "first"  # type: ignore[union-attr]
    assert (config.length, config.context_length) == (41, 13)  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("module", "text"),
    [
        ({"path": "2_Dense", "type": "sentence_transformers.models.Dense"}, "Dense"),
        ({"path": "../x", "type": "sentence_transformers.models.Normalize"}, "not a folder"),
    ],
)
def test_a_module_that_cannot_be_carried_is_named(
    module: dict[str, str], text: str, sentence: Path
) -> None:
    (sentence / "modules.json").write_text(json.dumps([*MODULES, module]))
    assert text in message(sentence, ConfigError)


def test_two_poolings_at_once_are_refused(sentence: Path) -> None:
    both = {"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": True}
    (sentence / "1_Pooling" / "config.json").write_text(json.dumps(both))
    assert "pooling_mode_mean_tokens" in message(sentence, ConfigError)


CHAINS: dict[str, list[dict[str, str]]] = {
    "nothing": [],
    "no pooling": MODULES[:1],  # type: ignore[dict-item]
    "an encoder elsewhere": [MODULES[0] | {"path": "0_Transformer"}, MODULES[1]],  # type: ignore[list-item, operator]
    "normalised first": [
        MODULES[0], {"path": "2_N", "type": "sentence_transformers.models.Normalize"}, MODULES[1],
    ],  # type: ignore[list-item]
}  # fmt: skip


@pytest.mark.parametrize("name", CHAINS)
def test_modules_in_another_order_are_refused(name: str, sentence: Path) -> None:
    (sentence / "modules.json").write_text(json.dumps(CHAINS[name]))
    assert "modules.json" in message(sentence, ConfigError)


def test_an_unknown_way_to_pool_is_refused(sentence: Path) -> None:
    (sentence / "1_Pooling" / "config.json").write_text('{"pooling_mode_strange": true}')
    assert "pooling_mode_strange" in message(sentence, ConfigError)


def test_texts_that_would_be_changed_first_are_refused(sentence: Path) -> None:
    (sentence / "sentence_bert_config.json").write_text('{"do_lower_case": true}')
    assert "do_lower_case" in message(sentence, ConfigError)


def test_a_prompt_before_every_text_is_told(sentence: Path) -> None:
    prompts = {"prompts": {"query": "query: "}, "default_prompt_name": "query"}
    (sentence / "config_sentence_transformers.json").write_text(json.dumps(prompts))
    assert any("'query'" in note for note in read_checkpoint(sentence).card.not_carried)


def test_a_pooler_is_refused_where_modules_say_how_to_pool(sentence: Path) -> None:
    with pytest.raises(BundleError, match=r"modules\.json defines how"):
        read_checkpoint(sentence, pooler=True)


def test_a_pooler_is_refused_where_there_is_none(directory: Path) -> None:
    with pytest.raises(BundleError, match="llama has no pooler"):
        read_checkpoint(directory, pooler=True)


def test_old_names_of_norms_are_understood(tmp_path: Path) -> None:
    bert("BertModel").save(tmp_path)
    before = read_checkpoint(tmp_path).model.state_dict()
    old = {"LayerNorm.weight": "LayerNorm.gamma", "LayerNorm.bias": "LayerNorm.beta"}
    weights = load_file(tmp_path / WEIGHTS)
    for new, tensorflow_name in old.items():
        weights = {name.replace(new, tensorflow_name): t for name, t in weights.items()}
    save_file(weights, tmp_path / WEIGHTS)
    after = read_checkpoint(tmp_path).model.state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_a_card_that_was_changed_is_refused(directory: Path, tmp_path: Path) -> None:
    from qkv.bundle.manifest import MANIFEST, sha256_of

    bundle = Bundle.load(directory)
    bundle.save(tmp_path / "bundle")
    card = tmp_path / "bundle" / "import.json"
    card.write_text(json.dumps(json.loads(card.read_text()) | {"strange": 1}))
    manifest = json.loads((tmp_path / "bundle" / MANIFEST).read_text())
    manifest["files"]["import.json"] = {"bytes": card.stat().st_size, "sha256": sha256_of(card)}
    (tmp_path / "bundle" / MANIFEST).write_text(json.dumps(manifest))
    assert "import.json" in message(tmp_path / "bundle", BundleError)
