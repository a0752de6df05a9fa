"""The config.json that Hugging Face would have published for the model in a GGUF file.

RoPE scaling of the kinds linear and YaRN is stored as such. That of Llama 3 is not: the file only
holds the factor by which each frequency is divided, in rope_freqs.weight. The published parameters
of Llama 3.1 to 3.3 are tried, and accepted if they give exactly these factors.

Apertus has the activation xIELU, whose parameters are stored for each layer. With those in
`SQUARED_RELU` it is max(0, x)², the only one supported.
"""

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

from qkv.errors import BundleError
from qkv.files import short_repr
from qkv.gguf.metadata import GgufFile, Metadata
from qkv.gguf.vocabulary import read_special_ids, token_count

ROPE_FREQS = "rope_freqs.weight"
SCALING_TYPES = ("none", "linear", "yarn")
SCALING_KEYS = ("type", "factor", "original_context_length", "finetuned")

# As published with Llama 3.1, 3.2 and 3.3.
LOW_FREQ_FACTOR = 1.0
HIGH_FREQ_FACTOR = 4.0
TRAINED_LENGTH = 8192

# config.json flags for biases, and a tensor that exists if the flag is set.
BIAS_TENSORS = {"attention_bias": "blk.0.attn_q.bias", "mlp_bias": "blk.0.ffn_up.bias"}


# xIELU(x) = a·x² + beta·x for x > 0 and b·(exp(min(x, eps)) − 1 − x) + beta·x else, where
# a = log(1 + exp(alpha_p)) and b = beta + log(1 + exp(alpha_n)): here a = 1 and b = beta = 0.
SQUARED_RELU = {
    "xielu.alpha_p": math.log(math.e - 1),
    "xielu.alpha_n": -1000.0,
    "xielu.beta": 0.0,
    "xielu.eps": -1e-6,
}


class Architecture(NamedTuple):
    hf_class: str
    permutes_qk: bool = False  # the rows of q and k are interleaved, see model.py
    qk_norm: bool = False
    bias_fields: tuple[str, ...] = ()  # flags of config.json; empty if biases are fixed
    activation: str = "silu"


ARCHITECTURES = {
    "llama": Architecture("LlamaForCausalLM", permutes_qk=True, bias_fields=tuple(BIAS_TENSORS)),
    "qwen2": Architecture("Qwen2ForCausalLM"),
    "qwen3": Architecture("Qwen3ForCausalLM", qk_norm=True, bias_fields=("attention_bias",)),
    "apertus": Architecture(
        "ApertusForCausalLM", qk_norm=True, bias_fields=("attention_bias",), activation="relu2"
    ),
}


def architecture_name(file: GgufFile) -> str:
    name = Metadata(file.metadata, file.path).string("general.architecture")
    if name not in ARCHITECTURES:
        raise BundleError(
            f"{file.path} holds a {short_repr(name)} model; supported are "
            f"{', '.join(ARCHITECTURES)}"
        )
    return name


def build_hf_config(file: GgufFile) -> dict[str, Any]:
    """The fields of config.json; absent metadata has the defaults of llama.cpp."""
    name = architecture_name(file)
    metadata = Metadata(file.metadata, file.path)
    width = metadata.integer(f"{name}.embedding_length")
    heads = metadata.integer(f"{name}.attention.head_count")
    head_width = metadata.integer(f"{name}.attention.key_length", width // heads)
    theta = metadata.number(f"{name}.rope.freq_base", 10000.0)
    _check_supported(metadata, name, head_width)
    vocab_size = _vocab_size(file, metadata, width)
    special_ids = read_special_ids(metadata, vocab_size)
    return {
        "architectures": [ARCHITECTURES[name].hf_class],
        "model_type": name,
        "hidden_size": width,
        "intermediate_size": metadata.integer(f"{name}.feed_forward_length"),
        "num_hidden_layers": metadata.integer(f"{name}.block_count"),
        "num_attention_heads": heads,
        "num_key_value_heads": metadata.integer(f"{name}.attention.head_count_kv", heads),
        "head_dim": head_width,
        "vocab_size": vocab_size,
        "max_position_embeddings": metadata.integer(f"{name}.context_length"),
        "rms_norm_eps": metadata.number(f"{name}.attention.layer_norm_rms_epsilon"),
        "rope_theta": theta,
        "rope_scaling": rope_scaling(file, metadata, name, head_width, theta),
        "tie_word_embeddings": "output.weight" not in file.names,
        "hidden_act": ARCHITECTURES[name].activation,
        "bos_token_id": special_ids["bos"],
        "eos_token_id": special_ids["eos"],
        "pad_token_id": special_ids["pad"],
        **{field: BIAS_TENSORS[field] in file.names for field in ARCHITECTURES[name].bias_fields},
    }


def rope_scaling(
    file: GgufFile, metadata: Metadata, name: str, head_width: int, theta: float
) -> dict[str, Any] | None:
    """The `rope_scaling` of config.json; None without scaling."""
    prefix = f"{name}.rope.scaling"
    factor = metadata.number(f"{prefix}.factor", metadata.number(f"{name}.rope.scale_linear", 1.0))
    default_type = "none" if factor == 1 else "linear"
    scaling_type = metadata.string(f"{prefix}.type", default_type)
    if scaling_type not in SCALING_TYPES:
        raise BundleError(
            f"{file.path} has RoPE scaling of type {short_repr(scaling_type)}; supported are "
            f"{', '.join(SCALING_TYPES)} and the frequency factors of Llama 3"
        )
    if scaling_type == "none":
        if ROPE_FREQS in file.names:
            return _llama3_scaling(file, head_width, theta)
        return None
    _check_scaling_keys(file, metadata, prefix)
    if scaling_type == "linear":
        return {"rope_type": "linear", "factor": factor}
    return {
        "rope_type": "yarn",
        "factor": factor,
        "original_max_position_embeddings": metadata.integer(f"{prefix}.original_context_length"),
    }


def _check_scaling_keys(file: GgufFile, metadata: Metadata, prefix: str) -> None:
    """Refuses settings that would change the scaling and that config.json cannot express."""
    supported = {f"{prefix}.{key}" for key in SCALING_KEYS}
    unsupported = [key for key in metadata if key.startswith(f"{prefix}.") and key not in supported]
    if ROPE_FREQS in file.names:
        unsupported.append(ROPE_FREQS)
    if unsupported:
        raise BundleError(
            f"{file.path} has RoPE scaling with {short_repr(unsupported[0])}, which is not "
            f"supported; supported are {', '.join(SCALING_KEYS)} of {prefix}"
        )


def _llama3_scaling(file: GgufFile, head_width: int, theta: float) -> dict[str, Any] | None:
    if file.shape(ROPE_FREQS) != (head_width // 2,):
        raise BundleError(
            f"{file.path}: {ROPE_FREQS} has shape {file.shape(ROPE_FREQS)}; expected "
            f"({head_width // 2},)"
        )
    freq_factors = file.read(ROPE_FREQS)
    if bool((freq_factors == 1).all()):
        return None
    factor = float(freq_factors.max())
    expected = llama3_freq_factors(head_width, theta, factor)
    if math.isinf(factor) or not torch.allclose(freq_factors, expected, rtol=1e-5, atol=0):
        raise BundleError(
            f"{file.path}: {ROPE_FREQS} does not match the scaling of Llama 3 with factor "
            f"{factor:g}, low and high frequency factors {LOW_FREQ_FACTOR:g} and "
            f"{HIGH_FREQ_FACTOR:g}, and original length {TRAINED_LENGTH}; it is not supported"
        )
    return {
        "rope_type": "llama3",
        "factor": factor,
        "low_freq_factor": LOW_FREQ_FACTOR,
        "high_freq_factor": HIGH_FREQ_FACTOR,
        "original_max_position_embeddings": TRAINED_LENGTH,
    }


def llama3_freq_factors(head_width: int, theta: float, factor: float) -> Tensor:
    """The divisors of the head_width / 2 frequencies: 1 for the highest, `factor` for the lowest.

    In between, 1 / divisor is interpolated by how often the frequency rotates within the length
    the model was first trained on.
    """
    frequencies = theta ** -(torch.arange(0, head_width, 2, dtype=torch.float64) / head_width)
    rotations = TRAINED_LENGTH * frequencies / (2 * math.pi)
    smooth = ((rotations - LOW_FREQ_FACTOR) / (HIGH_FREQ_FACTOR - LOW_FREQ_FACTOR)).clamp(0, 1)
    return (1 / ((1 - smooth) / factor + smooth)).float()


def _vocab_size(file: GgufFile, metadata: Metadata, width: int) -> int:
    """The rows of the embedding; other counts in the file may leave out unused ones."""
    shape = file.shape("token_embd.weight")
    if len(shape) != 2 or shape[1] != width:
        raise BundleError(
            f"{file.path}: token_embd.weight has shape {shape}; expected (tokens, {width})"
        )
    if token_count(metadata) > shape[0]:
        raise BundleError(
            f"{file.path} lists {token_count(metadata)} tokens but embeds {shape[0]}; the file is "
            "damaged"
        )
    return shape[0]


def _check_supported(metadata: Metadata, name: str, head_width: int) -> None:
    """Refuses what the config.json of these models cannot express."""
    if name == "apertus":
        _check_squared_relu(metadata)
    if head_width % 2:
        raise BundleError(
            f"{metadata.path}: the heads are {head_width} wide; expected an even number"
        )
    for key in (f"{name}.attention.value_length", f"{name}.rope.dimension_count"):
        size = metadata.integer(key, head_width)
        if size != head_width:
            raise BundleError(
                f"{metadata.path}: {key} is {size}, but the heads are {head_width} wide; only "
                "models where both are equal are supported"
            )
    experts = metadata.integer(f"{name}.expert_count", 0, minimum=0)
    if experts:
        raise BundleError(
            f"{metadata.path} is a mixture of {experts} experts, which is not supported"
        )


def _check_squared_relu(metadata: Metadata) -> None:
    for key, expected in SQUARED_RELU.items():
        for value in metadata.list_of(key, float):
            if key == "xielu.alpha_n":
                is_squared_relu = value <= expected
            else:
                is_squared_relu = math.isclose(value, expected, rel_tol=1e-6)
            if not is_squared_relu:
                raise BundleError(
                    f"{metadata.path} has the activation xIELU with {key} {value:g}; only the one "
                    f"that is a squared ReLU is supported, with {expected:g}"
                )
