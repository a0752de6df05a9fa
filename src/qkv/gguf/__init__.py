"""Models in GGUF, the single-file format of llama.cpp."""

from qkv.gguf.model import Gguf, GgufWeights, open_gguf
from qkv.gguf.write import WEIGHT_TYPES, write_gguf

__all__ = ["WEIGHT_TYPES", "Gguf", "GgufWeights", "open_gguf", "write_gguf"]
