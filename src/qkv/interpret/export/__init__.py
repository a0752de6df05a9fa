"""Values of a trace as files: pictures, tables and tensors, each with its provenance."""

from qkv.interpret.export.drawing import truncate_token
from qkv.interpret.export.pictures import (
    AttentionWeights,
    all_attention_weights,
    draw_head,
    draw_heads,
)
from qkv.interpret.export.sweep_picture import draw_sweep
from qkv.interpret.export.tables import caption, comment_lines, provenance
from qkv.interpret.export.tensor_files import TENSOR_EXTENSIONS, write_tensor

__all__ = [
    "TENSOR_EXTENSIONS",
    "AttentionWeights",
    "all_attention_weights",
    "caption",
    "comment_lines",
    "draw_head",
    "draw_heads",
    "draw_sweep",
    "provenance",
    "truncate_token",
    "write_tensor",
]
