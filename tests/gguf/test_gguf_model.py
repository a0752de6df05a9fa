"""A published model, converted as llama.cpp does it, comes back with its names, rows and logits."""

import numpy as np
import pytest
import torch
from tests.gguf.written_gguf import (
    Kind,
    describe_model,
    gguf,
    logits,
    permute,
    random_model,
    rebuilt,
    transformers,
    write,
    write_model,
)

from qkv.errors import BundleError
from qkv.gguf import open_gguf
from qkv.gguf.hf_config import llama3_freq_factors
from qkv.gguf.model import unpermute_

IDS = torch.tensor([[1, 17, 5, 99, 42, 3, 3, 64, 8, 0, 77]])


@pytest.fixture(scope="module")
def llama():
    return random_model()


def test_the_rows_of_heads_are_put_back() -> None:
    heads, half, width = 3, 5, 7
    tensor = torch.randn(heads * 2 * half, width)
    for original in (tensor, tensor[:, 0]):
        shuffled = torch.from_numpy(permute(original.numpy(), heads).copy())
        assert not torch.equal(shuffled, original)
        unpermute_(shuffled, heads)
        assert torch.equal(shuffled, original)


@pytest.mark.parametrize("kind", ["F32", "F16", "BF16", "Q8_0"])
def test_tensors_come_back_under_their_published_names(kind, llama, tmp_path) -> None:
    weights = open_gguf(write_model(tmp_path / "x.gguf", llama, Kind[kind])).weights()
    expected = llama.state_dict()
    assert set(weights) == set(expected)
    assert len(weights) == len(expected)
    assert "lm_head.weight" in weights
    assert "token_embd.weight" not in weights
    assert weights.bytes == sum(tensor.nbytes for tensor in expected.values())
    for name, tensor in expected.items():
        found = weights.read(name)
        assert (found.dtype, weights.shape(name)) == (torch.float32, tuple(tensor.shape))
        assert weights.dtype(name) == torch.float32
        assert torch.equal(weights.mmap(name), found)
        assert torch.equal(weights.read(name, torch.float16), found.half())
        if kind == "F32" or tensor.ndim == 1:
            assert torch.equal(found, tensor)
        elif kind == "Q8_0":
            blocks = tensor.reshape(-1, 32)
            step = blocks.abs().amax(1, keepdim=True) / 127
            # Half a step, and what rounding the step itself to a half adds over 127 of them.
            assert ((found.reshape(-1, 32) - blocks).abs() <= step * 0.57).all()
        else:
            dtype = {"F16": torch.float16, "BF16": torch.bfloat16}[kind]
            assert torch.equal(found, tensor.to(dtype).float())


@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        ("Llama", {}),
        ("Llama", {"tie_word_embeddings": True, "num_key_value_heads": 4}),
        ("Llama", {"attention_bias": True, "mlp_bias": True, "head_dim": 24}),
        ("Qwen2", {}),
        ("Qwen3", {"head_dim": 24, "tie_word_embeddings": True}),
    ],
)
def test_the_model_it_describes_gives_the_same_logits(kind, changes, tmp_path) -> None:
    model = random_model(kind, **changes)
    found = open_gguf(write_model(tmp_path / "x.gguf", model))
    assert torch.allclose(logits(rebuilt(found), IDS), logits(model, IDS), atol=1e-4, rtol=0)


def test_the_config_says_what_was_published(llama, tmp_path) -> None:
    def describe(writer) -> None:
        writer.add_tokenizer_model("gpt2")
        writer.add_bos_token_id(7)
        writer.add_eos_token_id(100)

    found = open_gguf(write_model(tmp_path / "x.gguf", llama, describe=describe)).config()
    assert found == {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "vocab_size": 101,
        "max_position_embeddings": 128,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "rope_scaling": None,
        "tie_word_embeddings": False,
        "hidden_act": "silu",
        "bos_token_id": 7,
        "eos_token_id": 100,
        "pad_token_id": None,
        "attention_bias": False,
        "mlp_bias": False,
    }


LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}
LINEAR = {"rope_type": "linear", "factor": 2.5}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32}


@pytest.mark.parametrize("scaling", [LLAMA3, LINEAR, YARN], ids=lambda it: it["rope_type"])
def test_stretched_positions_come_back(scaling, tmp_path) -> None:
    theta = 500000.0
    model = random_model(
        rope_theta=theta,
        rope_scaling=dict(scaling),  # it is written to
        head_dim=64,
        max_position_embeddings=16384,
    )

    def describe(writer) -> None:
        if scaling["rope_type"] != "llama3":
            writer.add_rope_scaling_type(gguf.RopeScalingType(scaling["rope_type"]))
            writer.add_rope_scaling_factor(scaling["factor"])
        if scaling["rope_type"] == "yarn":
            writer.add_rope_scaling_orig_ctx_len(32)

    extra = []
    if scaling is LLAMA3:
        extra = [("rope_freqs.weight", published_divisors(64, theta, 8.0), Kind.F32)]
    found = open_gguf(write_model(tmp_path / "x.gguf", model, Kind.F32, describe, extra))
    assert found.config()["rope_scaling"] == scaling
    assert found.config()["rope_theta"] == theta
    assert "rope_freqs.weight" not in found.weights()
    rotary = rebuilt(found).model.rotary_emb
    assert torch.equal(rotary.inv_freq, model.model.rotary_emb.inv_freq)
    assert torch.allclose(logits(rebuilt(found), IDS), logits(model, IDS), atol=1e-4, rtol=0)


def published_divisors(head: int, theta: float, factor: float) -> np.ndarray:
    """`generate_extra_tensors` of convert_hf_to_gguf.py."""
    divisors = []
    for frequency in 1.0 / theta ** (np.arange(0, head, 2, dtype=np.float32) / head):
        wave = 2 * np.pi / frequency
        if wave < 8192 / 4:
            divisors.append(1)
        elif wave > 8192:
            divisors.append(factor)
        else:
            smooth = (8192 / wave - 1) / (4 - 1)
            divisors.append(1 / ((1 - smooth) / factor + smooth))
    return np.array(divisors, np.float32)


@pytest.mark.parametrize(("head", "factor"), [(128, 8.0), (64, 32.0)])
def test_the_divisors_are_those_of_llama_3(head, factor) -> None:
    theirs = torch.from_numpy(published_divisors(head, 500000.0, factor))
    assert torch.allclose(llama3_freq_factors(head, 500000.0, factor), theirs, rtol=1e-5, atol=0)


@pytest.mark.parametrize("key", ["rope.scaling.factor", "rope.scale_linear"])
def test_a_factor_alone_is_linear(key, llama, tmp_path) -> None:
    path = tmp_path / "x.gguf"
    for factor, expected in ((2.0, {"rope_type": "linear", "factor": 2.0}), (1.0, None)):
        write_model(path, llama, describe=lambda w, by=factor: w.add_float32(f"llama.{key}", by))
        assert open_gguf(path).config()["rope_scaling"] == expected


def test_other_frequency_factors_are_refused_and_ones_mean_no_scaling(llama, tmp_path) -> None:
    for factors, message in (
        (np.ones(8), None),
        (np.linspace(1, 9, 8), "does not match"),
        (np.full(8, np.inf), "does not match"),
    ):
        extra = [("rope_freqs.weight", factors.astype(np.float32), Kind.F32)]
        found = open_gguf(write_model(tmp_path / "x.gguf", llama, extra=extra))
        if message is None:
            assert found.config()["rope_scaling"] is None
        else:
            with pytest.raises(BundleError, match=message):
                found.config()


UNSUPPORTED = {
    "experts": (lambda w: w.add_expert_count(8), "mixture of 8 experts"),
    "partial rotary": (
        lambda w: w.add_uint32("llama.rope.dimension_count", 8),
        "dimension_count is 8, but the heads are 16 wide",
    ),
    "other kv heads in each layer": (lambda w: w.add_head_count_kv([2, 2, 4]), "a list of 3"),
    "odd heads": (lambda w: w.add_key_length(15), "heads are 15 wide; expected an even"),
    "no layers": (lambda w: w.add_block_count(0), "block_count is '0'"),
    "a minus": (lambda w: w.add_int32("llama.context_length", -5), "context_length is '-5'"),
    "a text": (lambda w: w.add_string("llama.embedding_length", "64"), "embedding_length is '64'"),
    "another width": (lambda w: w.add_embedding_length(48), "expected (tokens, 48)"),
    "not a number": (lambda w: w.add_layer_norm_rms_eps(float("nan")), "epsilon is 'nan'"),
    "longrope": (
        lambda w: w.add_rope_scaling_type(gguf.RopeScalingType.LONGROPE),
        "RoPE scaling of type 'longrope'",
    ),
    "more of yarn": (
        lambda w: (
            w.add_rope_scaling_type(gguf.RopeScalingType.YARN),
            w.add_rope_scaling_yarn_beta_fast(3.0),
        ),
        "yarn_beta_fast",
    ),
    "a special token out of range": (
        lambda w: w.add_eos_token_id(101),
        "is 101, but the token ids are 0",
    ),
    "more tokens than rows": (lambda w: w.add_token_list(["a"] * 102), "102 tokens but embeds 101"),
}


@pytest.mark.parametrize("case", UNSUPPORTED)
def test_what_config_json_cannot_express_is_an_error(case, llama, tmp_path) -> None:
    change, message = UNSUPPORTED[case]

    def describe(writer) -> None:
        values = dict(writer.kv_data[0])
        writer.kv_data[0].clear()
        change(writer)
        writer.kv_data[0].update({k: v for k, v in values.items() if k not in writer.kv_data[0]})

    found = open_gguf(write_model(tmp_path / "x.gguf", llama, describe=describe))
    with pytest.raises(BundleError) as caught:
        found.config()
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "shape", "kind", "message"),
    [
        ("blk.3.attn_q.weight", (64, 64), "F32", "not part of a model of 3 layers"),
        ("blk.00.attn_q.weight", (64, 64), "F32", "not part of"),
        ("blk.0.attn_q_norm.weight", (16,), "F32", "not part of"),
        ("mm.0.weight", (64, 64), "F32", "not part of"),
        ("blk.0.attn_q.bias", (63,), "F32", "63 rows"),
    ],
)
def test_an_unexpected_tensor_is_an_error(name, shape, kind, message, llama, tmp_path) -> None:
    extra = [(name, np.zeros(shape, np.float32), Kind[kind])]
    found = open_gguf(write_model(tmp_path / "x.gguf", llama, extra=extra))
    with pytest.raises(BundleError, match=message):
        found.weights()


def test_an_unsupported_type_is_an_error_before_any_tensor_is_read(tmp_path) -> None:
    writer = gguf.GGUFWriter(tmp_path / "x.gguf", "llama")
    writer.add_block_count(1)
    writer.add_head_count(1)
    writer.add_tensor("output.weight", np.zeros((3, 110), np.uint8), raw_dtype=Kind.Q3_K)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with pytest.raises(BundleError, match=r"'output\.weight' is stored as Q3_K"):
        open_gguf(tmp_path / "x.gguf").weights()


def test_another_architecture_is_refused(llama, tmp_path) -> None:
    found = open_gguf(write(tmp_path / "x.gguf", "mamba"))
    for ask in (found.config, found.weights):
        with pytest.raises(
            BundleError, match="holds a 'mamba' model; supported are llama, qwen2, qwen3"
        ):
            ask()
    found = open_gguf(
        write(tmp_path / "y.gguf", "llama", (), lambda w: describe_model(w, llama.config))
    )
    with pytest.raises(BundleError, match=r"no tensor 'token_embd\.weight'"):
        found.config()


def test_a_real_model_in_float16_gives_its_logits(shared, tmp_path) -> None:
    folder = shared / "models" / "stories15M"
    if not folder.is_dir():
        pytest.skip("needs shared/models/stories15M")
    model = transformers.LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    found = open_gguf(write_model(tmp_path / "x.gguf", model, Kind.F16))
    ids = torch.tensor([[1, 9038, 2501, 263, 931, 29892, 727, 471]])
    theirs, ours = logits(model, ids), logits(rebuilt(found), ids)
    assert found.config()["tie_word_embeddings"]
    assert torch.equal(ours.argmax(-1), theirs.argmax(-1))
    assert (ours - theirs).abs().max() < 2e-2
