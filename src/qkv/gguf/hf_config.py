"""What Hugging Face would write into config.json for the model in a GGUF file."""

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

from qkv.errors import BundleError
from qkv.files import short_repr
from qkv.gguf.metadata import Facts, File
from qkv.gguf.vocabulary import mark_ids, token_count

# FOLDED gguf/rope: How positions were stretched to read longer texts, as Hugging Face writes
#   it.
#
#   Linear and YaRN stretching are written as they are. Llama 3's is not: its file holds only
#   what
#   each frequency is divided by, in rope_freqs.weight. The published numbers of Llama 3.1 to
#   3.3 are
#   tried, and taken if they give exactly these divisors.

DIVISORS = "rope_freqs.weight"

KNOWN = ("none", "linear", "yarn")

SAID = ("type", "factor", "original_context_length", "finetuned")

# what Llama 3.1, 3.2 and 3.3 were published with
LOW = 1.0
HIGH = 4.0
BEFORE = 8192


def rope_scaling(
    file: File, facts: Facts, name: str, head: int, theta: float
) -> dict[str, Any] | None:
    """`rope_scaling` of config.json: none when positions are read as they are."""
    scaling = f"{name}.rope.scaling"
    old = facts.number(f"{name}.rope.scale_linear", 1.0)
    factor = facts.number(f"{scaling}.factor", old)
    kind = facts.text(f"{scaling}.type", "none" if factor == 1 else "linear")
    if kind not in KNOWN:
        raise BundleError(
            f"{file.path} stretches positions by {short_repr(kind)}; read are {', '.join(KNOWN)} "
            "and "
            "the divisors of Llama 3"
        )
    if kind != "none":
        _check_alone(file, facts, scaling)
    if kind == "linear":
        return {"rope_type": "linear", "factor": factor}
    if kind == "yarn":
        return {
            "rope_type": "yarn",
            "factor": factor,
            "original_max_position_embeddings": facts.whole(f"{scaling}.original_context_length"),
        }
    if DIVISORS in file.names:
        return _llama3(file, head, theta)
    return None


def _check_alone(file: File, facts: Facts, scaling: str) -> None:
    """Refuse to leave out what would change the stretching."""
    said = {f"{scaling}.{key}" for key in SAID}
    beside = [key for key in facts if key.startswith(f"{scaling}.") and key not in said]
    beside += [name for name in file.names if name == DIVISORS]
    if beside:
        raise BundleError(
            f"{file.path} stretches positions with {short_repr(beside[0])}; read are "
            f"{', '.join(SAID)} of {scaling}"
        )


def _llama3(file: File, head: int, theta: float) -> dict[str, Any] | None:
    if file.shape(DIVISORS) != (head // 2,):
        raise BundleError(
            f"{file.path}: {DIVISORS} has shape {file.shape(DIVISORS)}; expected ({head // 2},)"
        )
    found = file.read(DIVISORS)
    factor = float(found.max())
    if bool((found == 1).all()):
        return None
    expected = llama3_divisors(head, theta, factor)
    if math.isinf(factor) or not torch.allclose(found, expected, rtol=1e-5, atol=0):
        raise BundleError(
            f"{file.path}: {DIVISORS} divides the frequencies in a way that Llama 3 with factor "
            f"{factor:g}, {LOW:g} to {HIGH:g} turns in {BEFORE} tokens does not; it is not read"
        )
    return {
        "rope_type": "llama3",
        "factor": factor,
        "low_freq_factor": LOW,
        "high_freq_factor": HIGH,
        "original_max_position_embeddings": BEFORE,
    }


def llama3_divisors(head: int, theta: float, factor: float) -> Tensor:
    """What each of head/2 frequencies is divided by: 1 for the fast, `factor` for the slow."""
    frequencies = theta ** -(torch.arange(0, head, 2, dtype=torch.float64) / head)
    turns = BEFORE * frequencies / (2 * math.pi)
    smooth = ((turns - LOW) / (HIGH - LOW)).clamp(0, 1)
    return (1 / ((1 - smooth) / factor + smooth)).float()


BIASES = {"attention_bias": "blk.0.attn_q.bias", "mlp_bias": "blk.0.ffn_up.bias"}


class Architecture(NamedTuple):
    published: str  # the class Hugging Face builds
    permuted: bool = False  # the rows of queries and keys, see weights.py
    normed: bool = False  # queries and keys
    biases: tuple[str, ...] = ()  # fields that say whether there are any; none: always the same


ARCHITECTURES = {
    "llama": Architecture("LlamaForCausalLM", permuted=True, biases=tuple(BIASES)),
    "qwen2": Architecture("Qwen2ForCausalLM"),
    "qwen3": Architecture("Qwen3ForCausalLM", normed=True, biases=("attention_bias",)),
}


def architecture_of(file: File) -> str:
    name = Facts(file.metadata, file.path).text("general.architecture")
    if name not in ARCHITECTURES:
        raise BundleError(
            f"{file.path} holds a {short_repr(name)} model; read are {', '.join(ARCHITECTURES)}"
        )
    return name


def config_of(file: File) -> dict[str, Any]:
    """The fields of config.json; what the file leaves out is what llama.cpp takes instead."""
    name = architecture_of(file)
    facts = Facts(file.metadata, file.path)
    width = facts.whole(f"{name}.embedding_length")
    heads = facts.whole(f"{name}.attention.head_count")
    head = facts.whole(f"{name}.attention.key_length", width // heads)
    theta = facts.number(f"{name}.rope.freq_base", 10000.0)
    _check(facts, name, head)
    vocabulary = _vocabulary(file, facts, width)
    marks = mark_ids(facts, vocabulary)
    return {
        "architectures": [ARCHITECTURES[name].published],
        "model_type": name,
        "hidden_size": width,
        "intermediate_size": facts.whole(f"{name}.feed_forward_length"),
        "num_hidden_layers": facts.whole(f"{name}.block_count"),
        "num_attention_heads": heads,
        "num_key_value_heads": facts.whole(f"{name}.attention.head_count_kv", heads),
        "head_dim": head,
        "vocab_size": vocabulary,
        "max_position_embeddings": facts.whole(f"{name}.context_length"),
        "rms_norm_eps": facts.number(f"{name}.attention.layer_norm_rms_epsilon"),
        "rope_theta": theta,
        "rope_scaling": rope_scaling(file, facts, name, head, theta),
        "tie_word_embeddings": "output.weight" not in file.names,
        "hidden_act": "silu",
        "bos_token_id": marks["bos"],
        "eos_token_id": marks["eos"],
        "pad_token_id": marks["pad"],
        **{field: BIASES[field] in file.names for field in ARCHITECTURES[name].biases},
    }


def _vocabulary(file: File, facts: Facts, width: int) -> int:
    """The rows of the embedding: other counts in the file may leave out unused ones."""
    shape = file.shape("token_embd.weight")
    if len(shape) != 2 or shape[1] != width:
        raise BundleError(
            f"{file.path}: token_embd.weight has shape {shape}; expected (tokens, {width})"
        )
    if token_count(facts) > shape[0]:
        raise BundleError(
            f"{file.path} lists {token_count(facts)} tokens but embeds {shape[0]}; it is damaged"
        )
    return shape[0]


def _check(facts: Facts, name: str, head: int) -> None:
    """Refuse what config.json of these models cannot say."""
    if head % 2:
        raise BundleError(f"{facts.path}: the heads are {head} wide; expected an even number")
    for key in (f"{name}.attention.value_length", f"{name}.rope.dimension_count"):
        if facts.whole(key, head) != head:
            raise BundleError(
                f"{facts.path}: {key} is {facts.whole(key)}, but the heads are {head} wide; "
                "only models where both are equal are read"
            )
    experts = facts.whole(f"{name}.expert_count", 0, least=0)
    if experts:
        raise BundleError(
            f"{facts.path} is a mixture of {experts} experts; only models without are read"
        )
