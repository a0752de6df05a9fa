"""What Hugging Face would write into config.json for the model in a GGUF file."""

from typing import Any, NamedTuple

from qkv.errors import BundleError
from qkv.files import shown
from qkv.gguf.facts import Facts
from qkv.gguf.file import File
from qkv.gguf.rope import rope_scaling
from qkv.gguf.vocabulary import mark_ids, token_count

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
            f"{file.path} holds a {shown(name)} model; read are {', '.join(ARCHITECTURES)}"
        )
    return name


def config_of(file: File) -> dict[str, Any]:
    """The fields of config.json; what the file leaves out is what llama.cpp takes instead."""
    name, facts = architecture_of(file), Facts(file.metadata, file.path)
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
        "bos_token_id": marks["start"],
        "eos_token_id": marks["end"],
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
