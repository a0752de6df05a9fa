"""Values of a trace as files: pictures, tables and tensors, each with its provenance."""

from qkv.interpret.export.pictures import draw_head, draw_heads
from qkv.interpret.export.tables import caption, provenance
from qkv.interpret.export.tensor_files import TENSOR_EXTENSIONS, write_tensor

__all__ = [
    "TENSOR_EXTENSIONS",
    "caption",
    "draw_head",
    "draw_heads",
    "provenance",
    "write_tensor",
]
