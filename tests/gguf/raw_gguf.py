"""GGUF files written byte by byte, so that each byte of them can be wrong on purpose."""

import struct
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

U8, F32, BOOL, TEXT, LIST, U32 = 0, 6, 7, 8, 9, 4


def text(value: str | bytes) -> bytes:
    raw = value.encode() if isinstance(value, str) else value
    return struct.pack("<Q", len(raw)) + raw


def one(kind: int, value: Any) -> bytes:
    if kind == TEXT:
        return text(value)
    return struct.pack({U8: "<B", F32: "<f", BOOL: "<B", U32: "<I"}[kind], value)


def pair(key: str, kind: int, value: Any) -> bytes:
    return text(key) + struct.pack("<I", kind) + one(kind, value)


def listed(key: str, kind: int, values: Iterable[Any], count: int | None = None) -> bytes:
    values = list(values)
    head = struct.pack("<IIQ", LIST, kind, len(values) if count is None else count)
    return text(key) + head + b"".join(one(kind, value) for value in values)


class Info(NamedTuple):
    name: str | bytes
    dims: Sequence[int]  # as the file has them: rows last
    offset: int
    kind: int = 0

    def __bytes__(self) -> bytes:
        dims = struct.pack(f"<I{len(self.dims)}Q", len(self.dims), *self.dims)
        return text(self.name) + dims + struct.pack("<IQ", self.kind, self.offset)


def raw_gguf(
    pairs: Sequence[bytes] = (),
    infos: Sequence[Info] = (),
    data: bytes = b"",
    *,
    magic: bytes = b"GGUF",
    version: int = 3,
    tensors: int | None = None,
    values: int | None = None,
    alignment: int = 32,
) -> bytes:
    """A file; `tensors` and `values` are the counts it claims, where they should be wrong."""
    head = magic + struct.pack(
        "<IQQ",
        version,
        len(infos) if tensors is None else tensors,
        len(pairs) if values is None else values,
    )
    head += b"".join(pairs) + b"".join(map(bytes, infos))
    return head + bytes(-len(head) % alignment) + data


def tiny_llama() -> bytes:
    """One layer, two heads, eight tokens: all a model needs, in a kilobyte or two."""
    width, inner, tokens = 8, 12, 8
    shapes = {
        "token_embd.weight": (width, tokens),
        "output_norm.weight": (width,),
        "blk.0.attn_norm.weight": (width,),
        "blk.0.attn_q.weight": (width, width),
        "blk.0.attn_k.weight": (width, width // 2),
        "blk.0.attn_v.weight": (width, width // 2),
        "blk.0.attn_output.weight": (width, width),
        "blk.0.ffn_norm.weight": (width,),
        "blk.0.ffn_gate.weight": (width, inner),
        "blk.0.ffn_up.weight": (width, inner),
        "blk.0.ffn_down.weight": (inner, width),
    }
    infos, data = [], b""
    for name, dims in shapes.items():
        infos.append(Info(name, dims, len(data), kind=1))
        count = dims[0] * (dims[1] if len(dims) > 1 else 1)
        raw = struct.pack(f"<{count}e", *(i / count for i in range(count)))
        data += raw + bytes(-len(raw) % 32)
    sizes = {
        "context_length": 16,
        "embedding_length": width,
        "block_count": 1,
        "feed_forward_length": inner,
        "attention.head_count": 2,
        "attention.head_count_kv": 1,
    }
    pieces = ["<unk>", "<s>", "</s>", "▁", "a", "b", "▁a", "ab"]
    pairs = [
        pair("general.architecture", TEXT, "llama"),
        *(pair(f"llama.{key}", U32, size) for key, size in sizes.items()),
        pair("llama.attention.layer_norm_rms_epsilon", F32, 1e-5),
        pair("tokenizer.ggml.model", TEXT, "llama"),
        listed("tokenizer.ggml.tokens", TEXT, pieces),
        listed("tokenizer.ggml.scores", F32, [0, 0, 0, -3, -4, -5, -1, -2]),
        listed("tokenizer.ggml.token_type", U32, [2, 3, 3, 1, 1, 1, 1, 1]),
        pair("tokenizer.ggml.add_bos_token", BOOL, 1),
        pair("tokenizer.chat_template", TEXT, "{{ messages }}"),
    ]
    return raw_gguf(pairs, infos, data)
