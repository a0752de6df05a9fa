"""Traces and walks as files: pictures, tables, documents and tensors, with their provenance."""

from typing import TYPE_CHECKING

from qkv.lazy import lazy_attributes

if TYPE_CHECKING:
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
    from qkv.interpret.export.walk_files import (
        HANDOUT_EXTENSIONS,
        WALK_EXTENSIONS,
        check_walk_path,
        write_lemma,
        write_walk,
    )

__all__ = [
    "HANDOUT_EXTENSIONS",
    "TENSOR_EXTENSIONS",
    "WALK_EXTENSIONS",
    "AttentionWeights",
    "all_attention_weights",
    "caption",
    "check_walk_path",
    "comment_lines",
    "draw_head",
    "draw_heads",
    "draw_sweep",
    "provenance",
    "truncate_token",
    "write_lemma",
    "write_tensor",
    "write_walk",
]

__getattr__ = lazy_attributes(
    __name__,
    {
        "qkv.interpret.export.drawing": ("truncate_token",),
        "qkv.interpret.export.pictures": (
            "AttentionWeights",
            "all_attention_weights",
            "draw_head",
            "draw_heads",
        ),
        "qkv.interpret.export.sweep_picture": ("draw_sweep",),
        "qkv.interpret.export.tables": ("caption", "comment_lines", "provenance"),
        "qkv.interpret.export.tensor_files": ("TENSOR_EXTENSIONS", "write_tensor"),
        "qkv.interpret.export.walk_files": (
            "HANDOUT_EXTENSIONS",
            "WALK_EXTENSIONS",
            "check_walk_path",
            "write_lemma",
            "write_walk",
        ),
    },
)
