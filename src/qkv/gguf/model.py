"""A model out of a GGUF file, as Hugging Face would have published it."""

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
from qkv.gguf.hf_config import ARCHITECTURES, DIVISORS, architecture_of, config_of
from qkv.gguf.metadata import Facts, File
from qkv.gguf.vocabulary import marks_of, tokenizer_of

# FOLDED gguf/weights: The tensors of a GGUF model under the names, and in the row order, of
#   Hugging Face.
#
#   llama.cpp turns neighbouring numbers of a head together, Hugging Face the first half of a
#   head
#   with the second. For "llama" the converter therefore shuffles the rows of queries and
#   keys; here
#   they are put back:
#
#   Hugging Face   a0 a1 a2 b0 b1 b2     →     llama.cpp   a0 b0 a1 b1 a2 b2

WHOLE = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}

PARTS = {
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

NORMED = {"attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm"}

LAYER = re.compile(r"blk\.(0|[1-9][0-9]{0,5})\.([a-z_]+)\.(weight|bias)")


class Weights(Collection[str]):
    """Tensors by their Hugging Face names; each is unpacked when it is read."""

    def __init__(self, file: File) -> None:
        """Refuses a file with a tensor that has no place in the model or cannot be unpacked."""
        name = architecture_of(file)
        facts = Facts(file.metadata, file.path)
        parts = PARTS | (NORMED if ARCHITECTURES[name].normed else {})
        layers = facts.whole(f"{name}.block_count")
        self._file = file
        self._names = {
            _published(file, stored, parts, layers): stored
            for stored in file.names
            if stored != DIVISORS  # part of the config
        }
        self._heads = {}
        if ARCHITECTURES[name].permuted:
            heads = facts.whole(f"{name}.attention.head_count")
            kv_heads = facts.whole(f"{name}.attention.head_count_kv", heads)
            self._heads = {"self_attn.q_proj": heads, "self_attn.k_proj": kv_heads}
        for published in self._names:
            self._check(published)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def shape(self, name: str) -> tuple[int, ...]:
        return self._file.shape(self._stored(name))

    def dtype(self, name: str) -> torch.dtype:
        """What `read` gives: float32, however the tensor is packed."""
        self._stored(name)
        return torch.float32

    @property
    def bytes(self) -> int:
        """Of all tensors once they are unpacked."""
        return sum(prod(self.shape(name)) * self.dtype(name).itemsize for name in self)

    def read(
        self, name: str, dtype: torch.dtype | None = None, out: Tensor | None = None
    ) -> Tensor:
        """The tensor, unpacked; in the beginning of `out` if that is given."""
        tensor = self._file.read(self._stored(name), dtype)
        if heads := self._shuffled(name):
            in_halves(tensor, heads)
        if out is None:
            return tensor
        return out[: tensor.numel()].view(tensor.shape).copy_(tensor)

    def mmap(self, name: str) -> Tensor:
        """What `read` gives, paged in from the file where it lies there as it is needed."""
        if self._shuffled(name):
            return self.read(name)
        return self._file.mmap(self._stored(name))

    def _stored(self, name: str) -> str:
        if name not in self._names:
            raise BundleError(f"{self._file.path} has no tensor {short_repr(name)}")
        return self._names[name]

    def _shuffled(self, name: str) -> int:
        """How many heads' rows are to be put back: none, mostly."""
        return self._heads.get(".".join(name.split(".")[3:-1]), 0)

    def _check(self, name: str) -> None:
        stored = self._names[name]
        heads = self._shuffled(name)
        self._file.check_kind(stored)
        rows = self._file.shape(stored)[0]
        if heads and rows % (2 * heads):
            raise BundleError(
                f"{self._file.path}: {stored} has {rows} rows, which {heads} heads of even width "
                "cannot share"
            )


def in_halves(tensor: Tensor, heads: int) -> None:
    """Put back, in place and head by head, the rows that `permute` of llama.cpp interleaved."""
    for head in tensor.view(heads, -1, *tensor.shape[1:]):
        pairs = head.view(len(head) // 2, 2, *tensor.shape[1:])
        head.copy_(pairs.transpose(0, 1).reshape(head.shape))


def _published(file: File, stored: str, parts: dict[str, str], layers: int) -> str:
    if stored in WHOLE:
        return WHOLE[stored]
    found = LAYER.fullmatch(stored)
    if found is None or found[2] not in parts or int(found[1]) >= layers:
        raise BundleError(
            f"{file.path} has a tensor {short_repr(stored)}, which has no place in a model of "
            f"{layers} layers of this architecture"
        )
    return f"model.layers.{found[1]}.{parts[found[2]]}.{found[3]}"


class Gguf(File):
    """The file itself, and the config, weights and tokenizer that can be made of it."""

    def config(self) -> dict[str, Any]:
        """What config.json would say."""
        return config_of(self)

    def weights(self) -> Weights:
        """The tensors under their Hugging Face names."""
        return Weights(self)

    def tokenizer(self) -> Backend:
        """A tokenizer of the `tokenizers` library."""
        return tokenizer_of(Facts(self.metadata, self.path))

    def special_tokens(self) -> dict[str, str | None]:
        """The tokens for `start`, `end`, `unknown` and `pad`, and the `chat` template."""
        return marks_of(Facts(self.metadata, self.path))


def open_gguf(path: Path) -> Gguf:
    """Reads the head of the file and checks it; tensors are read later, one by one."""
    gguf = Gguf(Path(path))
    parts = Facts(gguf.metadata, gguf.path).whole("split.count", 1, least=0)
    if parts > 1:
        raise BundleError(
            f"{path} is one of {parts} parts of a model; put them together with "
            "llama-gguf-split --merge"
        )
    return gguf
