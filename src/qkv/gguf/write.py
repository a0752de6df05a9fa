"""Writes a decoder as a GGUF file that llama.cpp loads: the inverse of model.py and vocabulary.py.

It takes what a Hugging Face checkpoint holds: the fields of config.json, tensors under their public
names, and tokenizer.json. Vectors are always float32, matrices float32 or float16.

https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import torch
from torch import Tensor

from qkv.errors import ConfigError, UsageError, unknown
from qkv.gguf.header import (
    ARRAY,
    BOOL,
    DEFAULT_ALIGNMENT,
    MAGIC,
    NUMBER_TYPES,
    STRING,
    U32,
    U64,
    VERSIONS,
)
from qkv.gguf.hf_config import ARCHITECTURES, SQUARED_RELU
from qkv.gguf.model import GLOBAL_TENSORS, layer_tensors
from qkv.gguf.quants import GGML_TYPES
from qkv.gguf.vocabulary import (
    BYTE_TOKENS,
    CHAT_TEMPLATE,
    PREFIX,
    SPECIAL_TOKENS,
    SPLIT_RULES,
    TOKENIZER_JSON,
)
from qkv.text import METASPACE, PieceType, Tokenizer

UINT32 = 4
INT32 = 5
FLOAT32 = 6
FILE_TYPES = {"f32": 0, "f16": 1}  # general.file_type, which is also ggml's type id
WEIGHT_TYPES = tuple(FILE_TYPES)


class Value(NamedTuple):
    """A metadata value and its type, where Python's does not determine it."""

    type_id: int
    value: Any


def write_gguf(
    path: Path,
    fields: Mapping[str, Any],
    tensors: Mapping[str, Tensor],
    tokenizer: Tokenizer,
    weight_type: str = "f32",
    name: str = "model",
) -> list[str]:
    """Writes the file; returns notes for the user.

    fields: of config.json. tensors: under their Hugging Face names. weight_type: of matrices.
    name: of the model, for people.
    """
    if weight_type not in FILE_TYPES:
        raise UsageError(unknown("weight type", weight_type, FILE_TYPES))
    architecture = _architecture(fields)
    vocabulary, notes = tokenizer_metadata(tokenizer, fields["vocab_size"])
    metadata = {
        "general.architecture": architecture,
        "general.name": name,
        "general.file_type": FILE_TYPES[weight_type],
        **_model_metadata(fields, architecture),
        **vocabulary,
    }
    arrays = {}
    for public, tensor in tensors.items():
        arrays[_gguf_name(public, architecture)] = _array(public, tensor, fields, weight_type)
    with path.open("wb") as file:
        _write(file, metadata, arrays)
    return notes


def _architecture(fields: Mapping[str, Any]) -> str:
    """llama.cpp's name of the model; raises for what it would compute differently."""
    name = str(fields["model_type"])
    if name not in ARCHITECTURES:
        raise ConfigError(
            f"a GGUF file cannot hold a {name} model; supported are {', '.join(ARCHITECTURES)}"
        )
    activation = ARCHITECTURES[name].activation
    if fields["hidden_act"] != activation:
        raise ConfigError(
            f"a {name} model in a GGUF file has the activation {activation}, not "
            f"{fields['hidden_act']}"
        )
    if fields.get("sliding_window") is not None:
        raise ConfigError(f"a {name} model in a GGUF file has no sliding window")
    return name


def _model_metadata(fields: Mapping[str, Any], name: str) -> dict[str, Any]:
    layers = fields["num_hidden_layers"]
    head_width = fields["head_dim"]
    rope = fields["rope_parameters"]
    metadata = {
        f"{name}.context_length": fields["max_position_embeddings"],
        f"{name}.embedding_length": fields["hidden_size"],
        f"{name}.block_count": layers,
        f"{name}.feed_forward_length": fields["intermediate_size"],
        f"{name}.vocab_size": fields["vocab_size"],
        f"{name}.attention.head_count": fields["num_attention_heads"],
        f"{name}.attention.head_count_kv": fields["num_key_value_heads"],
        f"{name}.attention.key_length": head_width,
        f"{name}.attention.value_length": head_width,
        f"{name}.attention.layer_norm_rms_epsilon": float(fields["rms_norm_eps"]),
        f"{name}.rope.dimension_count": head_width,
        f"{name}.rope.freq_base": float(rope["rope_theta"]),
    }
    if rope["rope_type"] == "linear":
        metadata[f"{name}.rope.scaling.type"] = "linear"
        metadata[f"{name}.rope.scaling.factor"] = float(rope["factor"])
    elif rope["rope_type"] != "default":
        raise ConfigError(f"RoPE scaling of type {rope['rope_type']} is not written to GGUF files")
    if name == "apertus":
        for key, value in SQUARED_RELU.items():
            metadata[key] = Value(FLOAT32, [value] * layers)
    return metadata


# Tensors


def _gguf_name(name: str, architecture: str) -> str:
    """llama.cpp's name of a tensor: model.layers.7.mlp.up_proj.weight is blk.7.ffn_up.weight."""
    for gguf_name, public in GLOBAL_TENSORS.items():
        if name == public:
            return gguf_name
    _, _, layer, path = name.split(".", 3)
    module, _, leaf = path.rpartition(".")
    for gguf_module, public in layer_tensors(architecture).items():
        if module == public:
            return f"blk.{layer}.{gguf_module}.{leaf}"
    raise ConfigError(f"a GGUF file has no tensor for {name}")


def _array(
    name: str, tensor: Tensor, fields: Mapping[str, Any], weight_type: str
) -> np.ndarray[Any, Any]:
    heads = {
        "q_proj": fields["num_attention_heads"],
        "k_proj": fields["num_key_value_heads"],
    }
    module = name.split(".")[-2]
    if ARCHITECTURES[fields["model_type"]].permutes_qk and module in heads:
        tensor = permute(tensor, heads[module])
    if tensor.dim() > 1 and weight_type == "f16":
        half = tensor.half()
        if not bool(torch.isfinite(half).all()):
            raise ConfigError(f"{name} has values beyond the range of f16; write f32")
        return half.numpy()
    return tensor.float().numpy()


def permute(tensor: Tensor, heads: int) -> Tensor:
    """The rows of each head in the order of llama.cpp: see model.py, whose inverse this is."""
    halves = tensor.view(heads, 2, -1, *tensor.shape[1:])
    return halves.transpose(1, 2).reshape(tensor.shape).contiguous()


# The tokenizer


def tokenizer_metadata(tokenizer: Tokenizer, rows: int) -> tuple[dict[str, Any], list[str]]:
    """The vocabulary for llama.cpp, and notes; rows: of the embedding, at least one per token."""
    content = json.loads(tokenizer.to_json())
    tokens = [f"[PAD{i}]" for i in range(rows)]
    types = [int(PieceType.UNUSED)] * rows
    if not _is_byte_level(content) and not _is_sentencepiece_bpe(content):
        raise ConfigError(
            f"a GGUF file needs a byte-level or SentencePiece BPE tokenizer, but this one is of "
            f"kind {tokenizer.kind}; train with tokenizer=bpe"
        )
    for token, id in content["model"]["vocab"].items():
        tokens[id] = token
        types[id] = int(PieceType.NORMAL)
    for added in content["added_tokens"]:
        tokens[added["id"]] = added["content"]
        types[added["id"]] = int(PieceType.CONTROL)
        if not added["special"]:
            types[added["id"]] = int(PieceType.USER_DEFINED)
    notes: list[str] = []
    metadata: dict[str, Any] = {}
    if _is_byte_level(content):
        metadata[f"{PREFIX}.model"] = "gpt2"
        metadata[f"{PREFIX}.pre"] = _split_rule(content)
        metadata[f"{PREFIX}.merges"] = [" ".join(pair) for pair in _merges(content)]
        if metadata[f"{PREFIX}.pre"] is None:
            metadata[f"{PREFIX}.pre"] = "gpt-2"
            notes.append(
                "llama.cpp splits texts into words by GPT-2's rule, which differs from this "
                "tokenizer's in combining marks and in runs of more than 64 characters"
            )
    else:
        metadata |= _sentencepiece_metadata(content, tokens, types)
    special_tokens = tokenizer.special_tokens
    for role, name in SPECIAL_TOKENS.items():
        token = getattr(special_tokens, role)
        if token is not None:
            metadata[f"{PREFIX}.{name}_token_id"] = tokenizer.token_to_id(token)
    if special_tokens.chat_template is not None:
        metadata[CHAT_TEMPLATE] = special_tokens.chat_template
    metadata[f"{PREFIX}.add_bos_token"] = bool(tokenizer.prefix_ids)
    metadata[f"{PREFIX}.add_eos_token"] = bool(tokenizer.suffix_ids)
    metadata[f"{PREFIX}.tokens"] = tokens
    metadata[f"{PREFIX}.token_type"] = Value(INT32, types)
    metadata[TOKENIZER_JSON] = json.dumps(content, ensure_ascii=False)
    return metadata, notes


def _is_bpe(content: Mapping[str, Any]) -> bool:
    return bool(content["model"]["type"] == "BPE")


def _pre_tokenizers(content: Mapping[str, Any]) -> list[dict[str, Any]]:
    step = content["pre_tokenizer"] or {"type": "Sequence", "pretokenizers": []}
    if step["type"] == "Sequence":
        return list(step["pretokenizers"])
    return [step]


def _is_byte_level(content: Mapping[str, Any]) -> bool:
    has_bytes = any(step["type"] == "ByteLevel" for step in _pre_tokenizers(content))
    return _is_bpe(content) and has_bytes


def _is_sentencepiece_bpe(content: Mapping[str, Any]) -> bool:
    return _is_bpe(content) and set(BYTE_TOKENS) <= content["model"]["vocab"].keys()


def _split_rule(content: Mapping[str, Any]) -> str | None:
    """The name of llama.cpp's rule with exactly these regexes; None if there is none."""
    steps = _pre_tokenizers(content)
    regexes = tuple(step["pattern"].get("Regex") for step in steps if step["type"] == "Split")
    if not regexes and steps[-1].get("use_regex"):
        return "gpt-2"
    for name, rule in SPLIT_RULES.items():
        if rule.regexes == regexes and rule.nfc == bool(content["normalizer"]):
            return name
    return None


def _merges(content: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The merges; older files hold each as one string."""
    merges = []
    for merge in content["model"]["merges"]:
        first, second = merge.split(" ", 1) if isinstance(merge, str) else merge
        merges.append((first, second))
    return merges


def _sentencepiece_metadata(
    content: Mapping[str, Any], tokens: Sequence[str], types: list[int]
) -> dict[str, Any]:
    """The score of a piece is the negative rank of the first merge that makes it."""
    ranks: dict[str, int] = {}
    for rank, (first, second) in enumerate(_merges(content)):
        ranks.setdefault(first + second, rank)
    scores = [-float(ranks.get(token, len(ranks))) for token in tokens]
    for byte_token in BYTE_TOKENS:
        types[content["model"]["vocab"][byte_token]] = int(PieceType.BYTE)
    unk = content["model"]["unk_token"]
    if unk is not None:
        types[content["model"]["vocab"][unk]] = int(PieceType.UNKNOWN)
    return {
        f"{PREFIX}.model": "llama",
        f"{PREFIX}.pre": "default",
        f"{PREFIX}.scores": Value(FLOAT32, scores),
        f"{PREFIX}.add_space_prefix": f'"prepend": "{METASPACE}"'
        in json.dumps(content["normalizer"], ensure_ascii=False),
    }


# The file


def _write(
    file: BinaryIO, metadata: Mapping[str, Any], arrays: Mapping[str, np.ndarray[Any, Any]]
) -> None:
    file.write(MAGIC + U32.pack(VERSIONS[-1]) + U64.pack(len(arrays)) + U64.pack(len(metadata)))
    for key, value in metadata.items():
        file.write(_string(key) + _typed_value(value))
    offset = 0
    for name, array in arrays.items():
        # GGUF lists the innermost axis first.
        axes = b"".join(U64.pack(size) for size in reversed(array.shape))
        ggml_type = next(
            id for id, kind in GGML_TYPES.items() if kind.name == f"F{8 * array.itemsize}"
        )
        file.write(_string(name) + U32.pack(array.ndim) + axes)
        file.write(U32.pack(ggml_type) + U64.pack(offset))
        offset += array.nbytes + _padding(array.nbytes)
    file.write(b"\0" * _padding(file.tell()))
    for array in arrays.values():
        file.write(np.ascontiguousarray(array).data)
        file.write(b"\0" * _padding(array.nbytes))


def _padding(size: int) -> int:
    """Bytes from here to the next aligned one."""
    return -size % DEFAULT_ALIGNMENT


def _string(text: str) -> bytes:
    data = text.encode()
    return U64.pack(len(data)) + data


def _typed_value(value: Any) -> bytes:
    """The type id and the value."""
    match value:
        case Value(type_id, list() as items):
            data = np.array(items, NUMBER_TYPES[type_id]).tobytes()
            return U32.pack(ARRAY) + U32.pack(type_id) + U64.pack(len(items)) + data
        case bool():
            return U32.pack(BOOL) + bytes([value])
        case int():
            return U32.pack(UINT32) + U32.pack(value)
        case float():
            return U32.pack(FLOAT32) + np.array(value, NUMBER_TYPES[FLOAT32]).tobytes()
        case str():
            return U32.pack(STRING) + _string(value)
        case list():
            strings = b"".join(map(_string, value))
            return U32.pack(ARRAY) + U32.pack(STRING) + U64.pack(len(value)) + strings
    raise TypeError(f"no metadata type for {value!r}")
