"""A GGUF file as the model that Hugging Face would have published: names, row order, config.

RoPE in llama.cpp rotates neighbouring components of a head, in Hugging Face the first half with the
second. For "llama" models the converter therefore interleaves the rows of q and k; reading them
restores the order:

    Hugging Face   a0 a1 a2 b0 b1 b2     →     llama.cpp   a0 b0 a1 b1 a2 b2
"""

import re
from collections.abc import Collection, Iterator
from math import prod
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer as Backend
from torch import Tensor

from qkv.errors import BundleError
from qkv.files import short_repr
from qkv.gguf.hf_config import ARCHITECTURES, ROPE_FREQS, architecture_name, build_hf_config
from qkv.gguf.metadata import GgufFile, Metadata
from qkv.gguf.vocabulary import build_tokenizer, read_special_tokens

GLOBAL_TENSORS = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}

LAYER_TENSORS = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}

QK_NORM_TENSORS = {"attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm"}

APERTUS_TENSORS = {"attn_norm": "attention_layernorm", "ffn_norm": "feedforward_layernorm"}

LAYER = re.compile(r"blk\.(0|[1-9][0-9]{0,5})\.([a-z_]+)\.(weight|bias)")


def layer_tensors(architecture: str) -> dict[str, str]:
    """llama.cpp's name of each module of a layer, and that of Hugging Face."""
    modules = dict(LAYER_TENSORS)
    if ARCHITECTURES[architecture].qk_norm:
        modules |= QK_NORM_TENSORS
    if architecture == "apertus":
        modules |= APERTUS_TENSORS
        del modules["ffn_gate"]
    return modules


class GgufWeights(Collection[str]):
    """Tensors under their Hugging Face names, dequantized when they are read."""

    def __init__(self, file: GgufFile) -> None:
        """Raises if a tensor is not part of the model or its type is not supported."""
        name = architecture_name(file)
        metadata = Metadata(file.metadata, file.path)
        architecture = ARCHITECTURES[name]
        modules = layer_tensors(name)
        layers = metadata.integer(f"{name}.block_count")
        self._file = file
        self._gguf_names: dict[str, str] = {}
        for gguf_name in file.names:
            if gguf_name != ROPE_FREQS:  # part of the config
                self._gguf_names[_hf_name(file, gguf_name, modules, layers)] = gguf_name
        self._permuted_heads: dict[str, int] = {}
        if architecture.permutes_qk:
            heads = metadata.integer(f"{name}.attention.head_count")
            kv_heads = metadata.integer(f"{name}.attention.head_count_kv", heads)
            self._permuted_heads = {"self_attn.q_proj": heads, "self_attn.k_proj": kv_heads}
        for hf_name in self._gguf_names:
            self._check(hf_name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._gguf_names)

    def __len__(self) -> int:
        return len(self._gguf_names)

    def __contains__(self, name: object) -> bool:
        return name in self._gguf_names

    def shape(self, name: str) -> tuple[int, ...]:
        return self._file.shape(self._gguf_name(name))

    def dtype(self, name: str) -> torch.dtype:
        """The type that `read` returns: float32, however the tensor is stored."""
        self._gguf_name(name)
        return torch.float32

    @property
    def bytes(self) -> int:
        """The size of all tensors after dequantizing."""
        return sum(prod(self.shape(name)) * self.dtype(name).itemsize for name in self)

    def read(
        self, name: str, dtype: torch.dtype | None = None, out: Tensor | None = None
    ) -> Tensor:
        """The dequantized tensor; with `out`, a view of its beginning."""
        tensor = self._file.read(self._gguf_name(name), dtype)
        heads = self._heads_to_unpermute(name)
        if heads:
            unpermute_(tensor, heads)
        if out is None:
            return tensor
        return out[: tensor.numel()].view(tensor.shape).copy_(tensor)

    def mmap(self, name: str) -> Tensor:
        """As `read`, memory-mapped where the file stores what is needed."""
        if self._heads_to_unpermute(name):
            return self.read(name)
        return self._file.mmap(self._gguf_name(name))

    def _gguf_name(self, name: str) -> str:
        if name not in self._gguf_names:
            raise BundleError(f"{self._file.path} has no tensor {short_repr(name)}")
        return self._gguf_names[name]

    def _heads_to_unpermute(self, name: str) -> int:
        """The number of heads whose rows are interleaved; 0 for most tensors."""
        module = ".".join(name.split(".")[3:-1])  # model.layers.7.self_attn.q_proj.weight
        return self._permuted_heads.get(module, 0)

    def _check(self, name: str) -> None:
        gguf_name = self._gguf_names[name]
        heads = self._heads_to_unpermute(name)
        self._file.check_type(gguf_name)
        rows = self._file.shape(gguf_name)[0]
        if heads and rows % (2 * heads):
            raise BundleError(
                f"{self._file.path}: {gguf_name} has {rows} rows, which {heads} heads of even "
                "width cannot share"
            )


def unpermute_(tensor: Tensor, heads: int) -> None:
    """Undoes, in place and head by head, the `permute` of llama.cpp's converter."""
    for head in tensor.view(heads, -1, *tensor.shape[1:]):
        pairs = head.view(len(head) // 2, 2, *tensor.shape[1:])
        head.copy_(pairs.transpose(0, 1).reshape(head.shape))


def _hf_name(file: GgufFile, gguf_name: str, modules: dict[str, str], layers: int) -> str:
    if gguf_name in GLOBAL_TENSORS:
        return GLOBAL_TENSORS[gguf_name]
    match = LAYER.fullmatch(gguf_name)
    if match is None or match[2] not in modules or int(match[1]) >= layers:
        raise BundleError(
            f"{file.path} has an unexpected tensor {short_repr(gguf_name)}, which is not part of a "
            f"model of {layers} layers of this architecture"
        )
    return f"model.layers.{match[1]}.{modules[match[2]]}.{match[3]}"


class Gguf(GgufFile):
    """A GGUF file with the config, weights and tokenizer of its model."""

    def config(self) -> dict[str, Any]:
        """The fields of config.json."""
        return build_hf_config(self)

    def weights(self) -> GgufWeights:
        """The tensors under their Hugging Face names."""
        return GgufWeights(self)

    def tokenizer(self) -> Backend:
        """A tokenizer of the `tokenizers` library."""
        return build_tokenizer(Metadata(self.metadata, self.path))

    def special_tokens(self) -> dict[str, str | None]:
        """`bos`, `eos`, `unk`, `pad` and `chat_template`; None where the file has none."""
        return read_special_tokens(Metadata(self.metadata, self.path))


def open_gguf(path: Path) -> Gguf:
    """Reads and checks the header; tensors are read later, one by one."""
    gguf = Gguf(Path(path))
    shards = Metadata(gguf.metadata, gguf.path).integer("split.count", 1, minimum=0)
    if shards > 1:
        raise BundleError(
            f"{path} is one of {shards} parts of a model; merge them with llama-gguf-split --merge"
        )
    return gguf
