"""What a trace holds as files for elsewhere: pictures, tables, tensors, each with its origin."""

from qkv.interpret.export.pictures import draw_head, draw_heads
from qkv.interpret.export.tables import caption, provenance
from qkv.interpret.export.tensor_files import ENDINGS, write_tensor

__all__ = ["ENDINGS", "caption", "draw_head", "draw_heads", "provenance", "write_tensor"]
